// What a checkpoint is, read from its files without loading a weight.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"

namespace moeflux::cli {

struct ModelSummary {
  std::string path, family, layout;
  std::int64_t n_layers = 0, d_model = 0, n_vocab = 0, context_length = 0;
  std::map<std::string, int> mixers;        // layers by kind: "gated delta" -> 30
  std::map<std::string, int> feed_forward;  // "mixture of experts" -> 40
  int n_experts = 0, top_k = 0;             // of the layer with the most
  bool has_shared_expert = false;
  bool has_mtp = false;
  std::int64_t n_parameters = 0,
               n_active = 0;  // n_active: those one token multiplies with, without the MTP head
  std::map<std::string, std::uint64_t> formats;  // bytes by weight format
  std::uint64_t dense_bytes = 0;                 // in memory
  std::uint64_t expert_bytes = 0;                // of all routed experts, on disk
  std::uint64_t context_bytes_per_token = 0;
  std::uint64_t context_bytes_fixed = 0;  // recurrent state, whatever the length
  std::int64_t floor_context = 0;         // the memory floor is for a context of so many tokens
  std::uint64_t floor_bytes = 0;
  std::size_t n_token_ids = 0;  // 0: no tokenizer
  std::vector<std::pair<TokenId, std::string>> stop_tokens;
  bool has_chat_template = false;
};

ModelSummary summarize(const std::string& path);

Json to_json(const ModelSummary& summary);
std::string to_text(const ModelSummary& summary);

}  // namespace moeflux::cli
