#include "cli/model_summary.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <variant>

#include <fmt/format.h>

namespace moeflux::cli {
namespace {

const char* kind_name(const GatedAttentionSpec&) {
  return "gated attention";
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

// Adds up the matrices of a model; vectors are too small to count.
class MatrixCounter {
 public:
  explicit MatrixCounter(ModelSummary& summary) : summary_(summary) {}

  std::int64_t n_parameters() const { return n_parameters_; }

  void operator()(const StoredMatrix& m) {
    if (m.empty()) return;
    n_parameters_ += m.rows * m.cols;
    summary_.formats[describe(m.format)] += m.bytes();
  }
  void operator()(const GatedAttentionTensors<Stored>& t) { each(t.q, t.k, t.v, t.o); }
  void operator()(const GatedDeltaTensors<Stored>& t) { each(t.qkv, t.z, t.b, t.a, t.out); }
  void operator()(const MlaTensors<Stored>& t) {
    each(t.q_a, t.q, t.kv_a, t.kv_b, t.embed_q, t.unembed, t.o);
  }
  void operator()(const DenseFfnTensors<Stored>& t) { each(t.gate, t.up, t.down); }
  void operator()(const MoeTensors<Stored>& t) { each(t.router, t.shared, t.shared_gate); }
  void operator()(const LayerTensors<Stored>& t) {
    std::visit(*this, t.mixer);
    std::visit(*this, t.ffn);
  }
  void operator()(const ExpertBank& bank) {
    for (const StoredExpertBank* matrices : {&bank.gate, &bank.up, &bank.down}) {
      for (int i = 0; i < matrices->count(); ++i) {
        (*this)(matrices->at(i));
        summary_.expert_bytes += matrices->at(i).bytes();
      }
    }
  }

  template <class... T>
  void each(const T&... tensors) {
    ((*this)(tensors), ...);
  }

 private:
  ModelSummary& summary_;
  std::int64_t n_parameters_ = 0;
};

void count_weights(const ModelDescription& model, ModelSummary& summary) {
  MatrixCounter counter(summary);
  const ModelTensors<Stored>& tensors = model.index.tensors;
  counter.each(tensors.embed, tensors.head);
  for (const LayerTensors<Stored>& layer : tensors.layers) counter(layer);
  summary.n_active = counter.n_parameters();
  if (tensors.mtp) counter.each(tensors.mtp->fc, tensors.mtp->layer);
  for (std::size_t i = 0; i < tensors.layers.size(); ++i) {
    const auto* moe = std::get_if<MoeTensors<Stored>>(&tensors.layers[i].ffn);
    if (moe == nullptr) continue;
    const auto& spec = std::get<MoeSpec>(model.config.layers[i].ffn);
    summary.n_active += std::int64_t{3} * spec.top_k * spec.d_expert * model.config.d_model;
  }
  for (const ExpertBank& bank : model.index.experts) counter(bank);
  summary.n_parameters = counter.n_parameters();
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
  summary.context_bytes_per_token =
      Session::bytes_needed(config, 2) - Session::bytes_needed(config, 1);
  summary.context_bytes_fixed = Session::bytes_needed(config, 1) - summary.context_bytes_per_token;
  summary.floor_context = std::min<std::int64_t>(config.context_length, kDefaultContext);
  const std::int64_t max_batch = std::min(EngineOptions().max_batch, summary.floor_context);
  const ExpertStore store(source, std::move(model.index.experts));
  summary.floor_bytes = summary.dense_bytes + Session::bytes_needed(config, summary.floor_context) +
                        Forward::workspace_floats(config, max_batch) * sizeof(float) +
                        static_cast<std::uint64_t>(summary.top_k) * store.slot_bytes();
}

// The ids of "eos_token_id", a number or a list of numbers.
void add_end_ids(const Json& config, std::set<TokenId>& ids) {
  const auto found = config.find("eos_token_id");
  if (found == config.end()) return;
  for (const Json& id : found->is_array() ? *found : Json::array({*found})) {
    if (id.is_number_integer() && id >= 0 && id <= kMaxTokenId) ids.insert(id.get<TokenId>());
  }
}

// As the engine collects them: the union of what every file and the family say.
std::set<TokenId> find_stop_tokens(const ModelSource& source, const Family& family,
                                   const Tokenizer& tokenizer) {
  std::set<TokenId> ids;
  add_end_ids(source.generation_config(), ids);
  add_end_ids(source.config(), ids);
  const auto text = source.config().find("text_config");
  if (text != source.config().end() && text->is_object()) add_end_ids(*text, ids);
  if (const auto eos = tokenizer.eos()) ids.insert(*eos);
  for (const std::string_view name : family.end_tokens) {
    const auto id = tokenizer.find_token(name);
    if (id && tokenizer.is_added(*id)) ids.insert(*id);
  }
  return ids;
}

void read_text_side(const ModelSource& source, const Family& family, ModelSummary& summary) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(source);
  summary.has_chat_template = load_chat_template(source, tokenizer.get()) != nullptr;
  if (tokenizer == nullptr) return;
  summary.n_token_ids = tokenizer->n_ids();
  for (const TokenId id : find_stop_tokens(source, family, *tokenizer)) {
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
  line("memory floor",
       fmt::format("{} with a context of {} tokens", format_bytes(s.floor_bytes), s.floor_context));
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
