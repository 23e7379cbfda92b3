#include "cli/reports/model_summary.h"

#include <algorithm>
#include <variant>

#include <fmt/format.h>

#include "base/processors.h"
#include "engine/model_text.h"
#include "engine/plan.h"
#include "io/make_reader.h"
#include "model/map_tensors.h"

namespace moeflux::cli {
namespace {

const char* kind_name(const AttentionSpec& spec) {
  return spec.has_output_gate ? "gated attention" : "attention";
}
const char* kind_name(const GatedDeltaSpec&) {
  return "gated delta";
}
const char* kind_name(const MlaSpec&) {
  return "latent attention";
}
const char* kind_name(const DenseFfnSpec&) {
  return "dense";
}
const char* kind_name(const MoeSpec&) {
  return "mixture of experts";
}

std::int64_t count_parameters(const StoredMatrix& m) {
  return m.rows * m.cols;
}
std::int64_t count_parameters(const StoredVector&) {
  return 0;  // too few to count
}
template <class Tensors>
std::int64_t count_all(const Tensors& tensors) {
  std::int64_t n = 0;
  for_each_tensor(tensors, [&](const auto& tensor) { n += count_parameters(tensor); });
  return n;
}

// Adds to the bytes of each format.
struct FormatCounter {
  std::map<std::string, std::uint64_t>* formats;
  void operator()(const StoredMatrix& m) const { (*formats)[describe(m)] += m.bytes(); }
  void operator()(const StoredVector&) const {}
};

void count_experts(const ExpertBank& bank, ModelSummary& summary) {
  for (const StoredExpertBank* matrices : {&bank.gate, &bank.up, &bank.down}) {
    for (int i = 0; i < matrices->count(); ++i) {
      const StoredMatrix matrix = matrices->at(i);
      FormatCounter{&summary.formats}(matrix);
      summary.n_parameters += count_parameters(matrix);
      summary.expert_bytes += matrix.bytes();
    }
  }
}

void count_weights(const ModelDescription& model, ModelSummary& summary) {
  const ModelTensors<Stored>& tensors = model.index.tensors;
  for_each_tensor(tensors, FormatCounter{&summary.formats});
  summary.n_parameters = count_all(tensors);
  summary.n_active = summary.n_parameters - (tensors.mtp ? count_all(*tensors.mtp) : 0);
  // Of an embedding that is not also the head, a token uses one row.
  if (tensors.head.rows > 0) summary.n_active -= count_parameters(tensors.embed);
  for (const LayerSpec& layer : model.config.layers) {
    const auto* moe = std::get_if<MoeSpec>(&layer.ffn);
    if (moe == nullptr) continue;
    summary.n_active += std::int64_t{3} * moe->top_k * moe->d_expert * model.config.d_model;
  }
  for (const ExpertBank& bank : model.index.experts) count_experts(bank, summary);
}

void count_layers(const ModelConfig& config, ModelSummary& summary) {
  for (const LayerSpec& layer : config.layers) {
    ++summary.mixers[std::visit([](const auto& spec) { return kind_name(spec); }, layer.mixer)];
    ++summary.feed_forward[std::visit([](const auto& spec) { return kind_name(spec); }, layer.ffn)];
    if (const auto* moe = std::get_if<MoeSpec>(&layer.ffn)) {
      summary.n_experts = std::max(summary.n_experts, moe->n_experts);
      summary.top_k = std::max(summary.top_k, moe->top_k);
      summary.has_shared_expert = summary.has_shared_expert || moe->d_shared > 0;
    }
  }
}

// What an engine would need at least, with its own defaults.
void count_memory(const std::shared_ptr<const ModelSource>& source, ModelDescription& model,
                  ModelSummary& summary) {
  const ModelConfig& config = model.config;
  summary.dense_bytes = WeightStore::bytes_needed(model.index.tensors);
  summary.context_bytes_per_token = Session::bytes_per_position(config, EngineOptions().kv_type);
  summary.context_bytes_fixed = Session::bytes_needed(config, {0, EngineOptions().kv_type});
  summary.floor_context = std::min<std::int64_t>(config.context_length, kDefaultContext);
  const ExpertStore store(source, model.index.experts);
  const ModelSizes sizes = measure_sizes(*source, model, store.classes());
  const MemoryPlan plan =
      plan_memory(config, sizes,
                  {.memory_bytes = 0,
                   .context_length = summary.floor_context,
                   .reader_bytes = make_reader(source->disk_paths())->info().memory_bytes,
                   .n_threads = default_thread_count()});
  summary.floor_bytes = plan.floor_bytes();
}

void read_text_side(const ModelSource& source, const Family& family, ModelSummary& summary) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(source);
  summary.has_chat_template = load_chat_template(source, tokenizer.get()) != nullptr;
  if (tokenizer == nullptr) return;
  summary.n_token_ids = tokenizer->n_ids();
  for (const TokenId id : find_stop_tokens(source, family, tokenizer.get())) {
    summary.stop_tokens.emplace_back(id, tokenizer->token_bytes(id));
  }
}

std::string list_of(const std::map<std::string, int>& counts) {
  std::string text;
  for (const auto& [name, n] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, name);
  return text;
}

std::string parameters(std::int64_t n) {
  const double value = static_cast<double>(n);
  return n >= 1'000'000'000 ? fmt::format("{:.1f} billion", value / 1e9)
                            : fmt::format("{:.1f} million", value / 1e6);
}

}  // namespace

ModelSummary summarize(const std::string& path) {
  const std::shared_ptr<const ModelSource> source = open_source(path);
  ModelDescription model = describe_model(*source);
  ModelSummary summary;
  summary.path = path;
  summary.family = model.family->name;
  summary.layout = layout_name(source->layout());
  summary.n_layers = model.config.n_layers();
  summary.d_model = model.config.d_model;
  summary.n_vocab = model.config.n_vocab;
  summary.context_length = model.config.context_length;
  summary.has_mtp = model.config.mtp.has_value();
  count_layers(model.config, summary);
  count_weights(model, summary);
  read_text_side(*source, *model.family, summary);
  count_memory(source, model, summary);
  return summary;
}

Json to_json(const ModelSummary& s) {
  Json stop_tokens = Json::array();
  for (const auto& [id, text] : s.stop_tokens) stop_tokens.push_back({{"id", id}, {"text", text}});
  return {{"path", s.path},
          {"family", s.family},
          {"layout", s.layout},
          {"layers", s.n_layers},
          {"hidden_size", s.d_model},
          {"vocabulary", s.n_vocab},
          {"context_length", s.context_length},
          {"mixers", s.mixers},
          {"feed_forward", s.feed_forward},
          {"experts", s.n_experts},
          {"experts_per_token", s.top_k},
          {"shared_expert", s.has_shared_expert},
          {"mtp", s.has_mtp},
          {"parameters", s.n_parameters},
          {"active_parameters", s.n_active},
          {"weight_bytes_by_format", s.formats},
          {"dense_bytes", s.dense_bytes},
          {"expert_bytes", s.expert_bytes},
          {"context_bytes_per_token", s.context_bytes_per_token},
          {"context_bytes_fixed", s.context_bytes_fixed},
          {"memory_floor", {{"context", s.floor_context}, {"bytes", s.floor_bytes}}},
          {"tokenizer_ids", s.n_token_ids},
          {"stop_tokens", std::move(stop_tokens)},
          {"chat_template", s.has_chat_template}};
}

std::string to_text(const ModelSummary& s) {
  std::string text;
  const auto line = [&](const char* what, const std::string& value) {
    text += fmt::format("{:<14}{}\n", what, value);
  };
  line("model", s.path);
  line("family", fmt::format("{} ({})", s.family, s.layout));
  line("parameters",
       fmt::format("{}, {} active per token", parameters(s.n_parameters), parameters(s.n_active)));
  line("layers", fmt::format("{} of width {}: {}", s.n_layers, s.d_model, list_of(s.mixers)));
  line("feed-forward", list_of(s.feed_forward));
  if (s.n_experts > 0) {
    line("experts", fmt::format("{} per layer, {} per token{}", s.n_experts, s.top_k,
                                s.has_shared_expert ? ", and a shared one" : ""));
  }
  line("MTP head", s.has_mtp ? "yes" : "no");
  std::uint64_t total = 0;
  for (const auto& [name, bytes] : s.formats) total += bytes;
  std::string formats;
  for (const auto& [name, bytes] : s.formats) {
    formats += fmt::format("{}{} {:.1f} %", formats.empty() ? "" : ", ", name,
                           100.0 * static_cast<double>(bytes) /
                               static_cast<double>(std::max<std::uint64_t>(total, 1)));
  }
  line("weights", formats);
  line("on disk", fmt::format("{} of routed experts", format_bytes(s.expert_bytes)));
  line("in memory", fmt::format("{} of dense weights", format_bytes(s.dense_bytes)));
  line(
      "context",
      fmt::format("{} tokens, {} each{}", s.context_length, format_bytes(s.context_bytes_per_token),
                  s.context_bytes_fixed > 0
                      ? fmt::format(" and {} of state", format_bytes(s.context_bytes_fixed))
                      : ""));
  line("memory floor", fmt::format("{} with a context of {} tokens",
                                   format_needed_bytes(s.floor_bytes), s.floor_context));
  line("vocabulary", s.n_token_ids == 0
                         ? fmt::format("{}, no tokenizer", s.n_vocab)
                         : fmt::format("{}, tokenizer with {} ids", s.n_vocab, s.n_token_ids));
  std::string stops;
  for (const auto& [id, name] : s.stop_tokens)
    stops += fmt::format("{}{} ({})", stops.empty() ? "" : ", ", name, id);
  if (!stops.empty()) line("stop tokens", stops);
  line("chat template", s.has_chat_template ? "yes" : "no");
  return text;
}

}  // namespace moeflux::cli
