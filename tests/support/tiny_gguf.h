// A GGUF file of the architecture qwen3moe with two layers and all of its tensors, in zeros: for
// tests that spoil it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "support/gguf_writer.h"

namespace moeflux::test {

inline constexpr int kTinyVocab = 64, kTinyModel = 16, kTinyExperts = 4, kTinyFfn = 8;

inline void add_tiny_metadata(GgufWriter& writer) {
  writer.text("general.architecture", "qwen3moe")
      .number<std::uint32_t>("qwen3moe.block_count", 2)
      .number<std::uint32_t>("qwen3moe.context_length", 128)
      .number<std::uint32_t>("qwen3moe.embedding_length", kTinyModel)
      .number<std::uint32_t>("qwen3moe.feed_forward_length", 24)
      .number<std::uint32_t>("qwen3moe.attention.head_count", 4)
      .number<std::uint32_t>("qwen3moe.attention.head_count_kv", 2)
      .number<std::uint32_t>("qwen3moe.attention.key_length", 8)
      .number<std::uint32_t>("qwen3moe.attention.value_length", 8)
      .number("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f)
      .number("qwen3moe.rope.freq_base", 1e6f)
      .number<std::uint32_t>("qwen3moe.expert_count", kTinyExperts)
      .number<std::uint32_t>("qwen3moe.expert_used_count", 2)
      .number<std::uint32_t>("qwen3moe.expert_feed_forward_length", kTinyFfn);
}

inline void add_tiny_vocabulary(GgufWriter& writer) {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types(kTinyVocab, 1);
  for (int i = 0; i < kTinyVocab - 4; ++i)
    tokens.push_back(std::string(1, static_cast<char>('A' + i)));
  tokens.insert(tokens.end(), {"ab", "<think>", "<|im_end|>", "[PAD63]"});
  types[61] = 4;
  types[62] = 3;
  types[63] = 5;
  writer.text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", "qwen2")
      .texts("tokenizer.ggml.tokens", tokens)
      .numbers("tokenizer.ggml.token_type", types)
      .texts("tokenizer.ggml.merges", {"a b"})
      .number<std::uint32_t>("tokenizer.ggml.eos_token_id", 62)
      .boolean("tokenizer.ggml.add_bos_token", false)
      .text("tokenizer.chat_template", "{{ messages[0].content }}");
}

// Calls add(name, shape) for every tensor.
inline void for_each_tiny_tensor(
    const std::function<void(const std::string&, const std::vector<std::int64_t>&)>& add) {
  add("token_embd.weight", {kTinyVocab, kTinyModel});
  add("output_norm.weight", {kTinyModel});
  add("output.weight", {kTinyVocab, kTinyModel});
  for (const std::string p : {"blk.0.", "blk.1."}) {
    add(p + "attn_norm.weight", {kTinyModel});
    add(p + "attn_q.weight", {32, kTinyModel});
    add(p + "attn_k.weight", {16, kTinyModel});
    add(p + "attn_v.weight", {16, kTinyModel});
    add(p + "attn_output.weight", {kTinyModel, 32});
    add(p + "attn_q_norm.weight", {8});
    add(p + "attn_k_norm.weight", {8});
    add(p + "ffn_norm.weight", {kTinyModel});
    add(p + "ffn_gate_inp.weight", {kTinyExperts, kTinyModel});
    add(p + "ffn_gate_exps.weight", {kTinyExperts, kTinyFfn, kTinyModel});
    add(p + "ffn_up_exps.weight", {kTinyExperts, kTinyFfn, kTinyModel});
    add(p + "ffn_down_exps.weight", {kTinyExperts, kTinyModel, kTinyFfn});
  }
}

inline void add_tiny_tensor(GgufWriter& writer, const std::string& name,
                            const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t n : shape) count *= n;
  const std::vector<float> zeros(static_cast<std::size_t>(count));
  writer.floats(name, shape, zeros);
}

inline GgufWriter tiny_gguf() {
  GgufWriter writer;
  add_tiny_metadata(writer);
  add_tiny_vocabulary(writer);
  for_each_tiny_tensor([&](const std::string& name, const std::vector<std::int64_t>& shape) {
    add_tiny_tensor(writer, name, shape);
  });
  return writer;
}

}  // namespace moeflux::test
