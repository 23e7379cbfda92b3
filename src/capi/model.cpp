// Opening models, and what they say about themselves.
#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/params.h"
#include "engine/prefix/session_sync.h"
#include "source/model_identity.h"

namespace moeflux::capi {
namespace {

std::string last_part(const std::string& path) {
  std::error_code error;
  std::filesystem::path whole = std::filesystem::absolute(path, error).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  return whole.filename().string();
}

// The first of "eos_token_id", a number or a list of numbers; -1 when there is none.
TokenId first_eos(const Json& config) {
  const auto found = config.find("eos_token_id");
  if (found == config.end()) return -1;
  const Json& id = found->is_array() && !found->empty() ? found->front() : *found;
  if (!id.is_number_integer() || id < 0 || id > kMaxTokenId) return -1;
  return id.get<TokenId>();
}

}  // namespace

Model::Model(const mf_model_params& params)
    : engine(open_source(params), engine_options(params)),
      name(last_part(engine.path())),
      max_sequences(params.max_sequences),
      max_checkpoints(params.max_checkpoints) {
  if (params.prefix_store == nullptr) return;
  PrefixStoreOptions options{.directory = params.prefix_store};
  if (params.prefix_store_bytes > 0) options.max_bytes = params.prefix_store_bytes;
  store_.emplace(std::move(options), prefix_identity(engine));
}

SnapshotModel Model::snapshot_model() {
  std::call_once(identified_, [&] { identity_ = model_identity(engine.source()); });
  return {.config = &engine.config(), .identity = identity_};
}

TokenId Model::eos() const {
  const Json& config = engine.source().config();
  const auto text = config.find("text_config");
  TokenId id = first_eos(config);
  if (id < 0 && text != config.end() && text->is_object()) id = first_eos(*text);
  if (id < 0) id = first_eos(engine.source().generation_config());
  if (id < 0 && engine.has_tokenizer()) id = engine.tokenizer().eos().value_or(-1);
  return id < engine.config().n_vocab ? id : -1;
}

void Model::promise(int n_sequences) {
  int promised = promised_;
  do {
    if (n_sequences > max_sequences - promised) {
      fail_with(MF_ERROR_OUT_OF_MEMORY,
                "the model was opened for {} sequences and {} are promised to contexts; {} more "
                "need a larger max_sequences in mf_model_params",
                max_sequences, promised, n_sequences);
    }
  } while (!promised_.compare_exchange_weak(promised, promised + n_sequences));
}

Turn::Turn(Model& model) : model_(model), lock_(model.turn_, std::defer_lock) {
  if (model_.owner_ == std::this_thread::get_id()) {
    fail_with(MF_ERROR_BUSY, "a callback cannot evaluate on the model that called it");
  }
  lock_.lock();
  model_.owner_ = std::this_thread::get_id();
}

Turn::~Turn() {
  model_.owner_ = std::thread::id();
}

}  // namespace moeflux::capi

using namespace moeflux;
using namespace moeflux::capi;

const char* mf_version(void) {
  return MOEFLUX_VERSION;
}

mf_model* mf_model_open(const mf_model_params* params) {
  return guarded_value<mf_model*>(nullptr, [&] {
    need(params, "params");
    return std::make_unique<mf_model>(
               mf_model{std::make_shared<Model>(read_params(params, "mf_model_params"))})
        .release();
  });
}

void mf_model_close(mf_model* model) {
  delete model;
}

size_t mf_model_n_vocab(const mf_model* model) {
  return guarded_value<size_t>(
      0, [&] { return static_cast<size_t>(need(model, "model").shared->engine.config().n_vocab); });
}

size_t mf_model_n_ctx(const mf_model* model) {
  return guarded_value<size_t>(
      0, [&] { return static_cast<size_t>(need(model, "model").shared->engine.context_length()); });
}

int32_t mf_model_eos(const mf_model* model) {
  return guarded_value<int32_t>(-1, [&] { return need(model, "model").shared->eos(); });
}

int mf_model_is_end(const mf_model* model, int32_t token) {
  return guarded_value<int>(0, [&] {
    const std::vector<TokenId>& ends = need(model, "model").shared->engine.stop_tokens();
    return std::binary_search(ends.begin(), ends.end(), token) ? 1 : 0;
  });
}
