#include "capi/params.h"

#include "base/error.h"
#include "source/flash_moe.h"

namespace moeflux::capi {
namespace {

std::string string_or_empty(const char* text) {
  return text == nullptr ? "" : text;
}

template <class T>
T one_of(std::int32_t value, std::initializer_list<T> values, const char* name) {
  if (value < 0 || static_cast<std::size_t>(value) >= values.size()) {
    fail_with(MF_ERROR_BAD_INPUT, "{} must be from 0 to {}, but is {}", name, values.size() - 1,
              value);
  }
  return values.begin()[value];
}

void check_at_least(std::int64_t value, std::int64_t min, const char* name) {
  if (value < min)
    fail_with(MF_ERROR_BAD_INPUT, "{} must be at least {}, but is {}", name, min, value);
}

}  // namespace

template <>
mf_model_params defaults() {
  mf_model_params params{};
  params.struct_size = sizeof params;
  params.max_sequences = 1;
  params.max_checkpoints = 4;
  params.lookahead = -1;
  params.elastic = 1;
  params.max_drafts = -1;
  return params;
}

template <>
mf_context_params defaults() {
  return {.struct_size = sizeof(mf_context_params), .max_sequences = 1, .max_checkpoints = -1};
}

template <>
mf_sampling_params defaults() {
  return to_c(SamplingParams{});
}

void check_struct(const void* given, std::size_t given_size, std::size_t first, std::size_t ours,
                  const char* name) {
  if (given_size < first || given_size > kMaxStructSize) {
    fail_with(MF_ERROR_BAD_INPUT,
              "struct_size of {} is {}, but must be its sizeof (here {}); begin with {}_default()",
              name, given_size, ours, name);
  }
  const auto* bytes = static_cast<const unsigned char*>(given);
  for (std::size_t i = ours; i < given_size; ++i) {
    if (bytes[i] != 0) {
      fail_with(MF_ERROR_UNSUPPORTED,
                "{} asks for something this version does not know: the program was compiled "
                "against a newer moeflux than {}",
                name, mf_version());
    }
  }
}

EngineOptions engine_options(const mf_model_params& params) {
  check_at_least(params.n_threads, 0, "n_threads");
  check_at_least(params.max_sequences, 1, "max_sequences");
  check_at_least(params.max_checkpoints, 0, "max_checkpoints");
  check_at_least(params.lookahead, -1, "lookahead");
  check_at_least(params.max_drafts, -1, "max_drafts");
  check_at_least(params.context_length, 0, "context_length");
  check_at_least(params.max_batch, 0, "max_batch");
  EngineOptions options;
  options.n_threads = params.n_threads;
  options.context_length = params.context_length;
  options.memory_bytes = params.memory_bytes;
  options.max_batch = params.max_batch;
  options.n_sessions = params.max_sequences;
  options.n_checkpoints = params.max_checkpoints;
  options.max_drafts = params.max_drafts < 0 ? kAutoDrafts : params.max_drafts;
  options.precision =
      one_of(params.precision, {Precision::Fine, Precision::Exact, Precision::Fast}, "precision");
  options.kv_type =
      one_of(params.kv_type, {KvType::F32, KvType::F16, KvType::BF16, KvType::Q8}, "kv_type");
  options.isa = string_or_empty(params.cpu_isa);
  if (params.cache_policy != nullptr) options.cache_policy = params.cache_policy;
  if (params.lookahead >= 0) options.lookahead = params.lookahead;
  options.profile_directory = string_or_empty(params.profile_directory);
  options.preload = params.preload != 0;
  options.elastic = params.elastic != 0;
  if (params.progress != nullptr) {
    options.progress = [params](std::uint64_t done, std::uint64_t total) {
      if (params.progress(done, total, params.progress_user) != 0)
        fail(Errc::Cancelled, "loading was cancelled");
    };
  }
  return options;
}

std::shared_ptr<const ModelSource> open_source(const mf_model_params& params) {
  const bool by_files = params.weights_path != nullptr || params.manifest_path != nullptr ||
                        params.vocab_path != nullptr || params.experts_dir != nullptr;
  if (params.path != nullptr) {
    if (by_files) fail_with(MF_ERROR_BAD_INPUT, "give either path or the paths of the files");
    if (params.experts_per_token != 0 || params.use_2bit != 0) {
      fail_with(MF_ERROR_UNSUPPORTED, "experts_per_token and use_2bit need the paths of the files");
    }
    return moeflux::open_source(params.path);
  }
  check_at_least(params.experts_per_token, 0, "experts_per_token");
  return open_flash_moe(FlashMoePaths{.weights = &need(params.weights_path, "weights_path"),
                                      .manifest = &need(params.manifest_path, "manifest_path"),
                                      .vocab = string_or_empty(params.vocab_path),
                                      .experts = &need(params.experts_dir, "experts_dir"),
                                      .two_bit = params.use_2bit != 0,
                                      .experts_per_token = params.experts_per_token});
}

SamplingParams sampling_params(const mf_sampling_params* given, const ModelSource& source) {
  if (given == nullptr)
    return sampling_defaults(source.generation_config(), source.path() + "/generation_config.json");
  const mf_sampling_params c = read_params(given, "mf_sampling_params");
  SamplingParams params;
  params.temperature = c.temperature;
  params.top_k = c.top_k;
  params.top_p = c.top_p;
  params.min_p = c.min_p;
  params.typical_p = c.typical_p;
  params.repetition_penalty = c.repetition_penalty;
  params.presence_penalty = c.presence_penalty;
  params.frequency_penalty = c.frequency_penalty;
  params.penalty_window = c.penalty_window;
  params.seed = c.seed;
  if (c.n_logit_bias > 0) need(c.logit_bias, "logit_bias");
  for (std::size_t i = 0; i < c.n_logit_bias; ++i)
    params.logit_bias.emplace_back(c.logit_bias[i].token, c.logit_bias[i].bias);
  params.validate();
  return params;
}

mf_sampling_params to_c(const SamplingParams& params) {
  return {.struct_size = sizeof(mf_sampling_params),
          .temperature = params.temperature,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .typical_p = params.typical_p,
          .repetition_penalty = params.repetition_penalty,
          .presence_penalty = params.presence_penalty,
          .frequency_penalty = params.frequency_penalty,
          .top_k = params.top_k,
          .penalty_window = params.penalty_window,
          .seed = params.seed,
          .logit_bias = nullptr,
          .n_logit_bias = 0};
}

}  // namespace moeflux::capi

using namespace moeflux::capi;

void mf_model_params_init(mf_model_params* params, size_t struct_size) {
  init_params(params, struct_size);
}
void mf_context_params_init(mf_context_params* params, size_t struct_size) {
  init_params(params, struct_size);
}
void mf_chat_params_init(mf_chat_params* params, size_t struct_size) {
  init_params(params, struct_size);
}
void mf_sampling_params_init(mf_sampling_params* params, size_t struct_size) {
  init_params(params, struct_size);
}
void mf_generate_params_init(mf_generate_params* params, size_t struct_size) {
  init_params(params, struct_size);
}
