// Opening models, what they say about themselves, text to tokens and back, and chats to prompts.
// The latter needs no turn of the engine: tokenizer and templates never change.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/params.h"
#include "engine/prefix/session_sync.h"
#include "source/gguf.h"
#include "source/model_identity.h"

namespace moeflux::capi {
namespace {

std::string last_part(const std::string& path) {
  std::error_code error;
  std::filesystem::path whole = std::filesystem::absolute(path, error).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  return gguf_model_name(whole.filename().string());
}

// The first of "eos_token_id", a number or a list of numbers; -1 when there is none.
TokenId first_eos(const Json& config) {
  const auto found = config.find("eos_token_id");
  if (found == config.end()) return -1;
  const Json& id = found->is_array() && !found->empty() ? found->front() : *found;
  if (!id.is_number_integer() || id < 0 || id > kMaxTokenId) return -1;
  return id.get<TokenId>();
}

void check_flags(int flags, int known) {
  if ((flags & ~known) != 0) fail_with(MF_ERROR_BAD_INPUT, "flags {} are not known here", flags);
}

void hand_over(const std::vector<TokenId>& ids, std::int32_t* tokens, std::size_t capacity,
               std::size_t* n) {
  need(n, "n") = ids.size();
  if (ids.size() > capacity) {
    fail_with(MF_ERROR_BUFFER_TOO_SMALL, "{} tokens do not fit into a buffer for {}", ids.size(),
              capacity);
  }
  if (!ids.empty()) std::copy(ids.begin(), ids.end(), &need(tokens, "tokens"));
}

void hand_over(const std::string& text, char* buffer, std::size_t capacity, std::size_t* n) {
  need(n, "n") = text.size();
  if (text.size() >= capacity) {
    fail_with(MF_ERROR_BUFFER_TOO_SMALL, "{} bytes and a NUL do not fit into a buffer for {}",
              text.size(), capacity);
  }
  std::memcpy(&need(buffer, "text"), text.c_str(), text.size() + 1);
}

Json optional_json(const char* text, const char* name, bool (Json::*is_kind)() const,
                   const char* kind) {
  if (text == nullptr) return nullptr;
  Json value = parse_json(text, name);
  if (!(value.*is_kind)()) fail_with(MF_ERROR_BAD_INPUT, "{} must be {}", name, kind);
  return value;
}

Json messages_of(const mf_chat_params& params) {
  if ((params.messages != nullptr) == (params.messages_json != nullptr)) {
    fail_with(MF_ERROR_BAD_INPUT, "give either messages or messages_json");
  }
  if (params.messages_json != nullptr) return parse_json(params.messages_json, "messages_json");
  Json messages = Json::array();
  for (std::size_t i = 0; i < params.n_messages; ++i) {
    Json message = Json::object();
    message["role"] = &need(params.messages[i].role, "role");
    message["content"] = &need(params.messages[i].content, "content");
    messages.push_back(std::move(message));
  }
  return messages;
}

MarkedText render(const Engine& engine, const mf_chat_params* chat) {
  const mf_chat_params params = read_params(&need(chat, "chat"), "mf_chat_params");
  constexpr auto is_array = static_cast<bool (Json::*)() const>(&Json::is_array);
  constexpr auto is_object = static_cast<bool (Json::*)() const>(&Json::is_object);
  ChatRequest request;
  request.messages = messages_of(params);
  request.tools = optional_json(params.tools_json, "tools_json", is_array, "an array");
  request.documents = optional_json(params.documents_json, "documents_json", is_array, "an array");
  if (params.variables_json != nullptr) {
    request.extra = optional_json(params.variables_json, "variables_json", is_object, "an object");
  }
  request.add_generation_prompt = params.no_generation_prompt == 0;
  const bool with_tools = request.tools.is_array() && !request.tools.empty();
  return engine.chat_template(with_tools).render(request);
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

mf_status mf_tokenize(const mf_model* model, const char* text, size_t text_bytes, int flags,
                      int32_t* tokens, size_t capacity, size_t* n) {
  return guarded([&] {
    const Tokenizer& tokenizer = need(model, "model").shared->engine.tokenizer();
    check_flags(flags, MF_TEXT_CONTROL | MF_TEXT_ADD_SPECIAL);
    const std::string_view all =
        text_bytes == 0 ? std::string_view() : std::string_view(&need(text, "text"), text_bytes);
    std::vector<TokenId> ids =
        (flags & MF_TEXT_CONTROL) != 0 ? tokenizer.encode_markup(all) : tokenizer.encode_data(all);
    if ((flags & MF_TEXT_ADD_SPECIAL) != 0) ids = tokenizer.with_special_tokens(std::move(ids));
    hand_over(ids, tokens, capacity, n);
  });
}

mf_status mf_detokenize(const mf_model* model, const int32_t* tokens, size_t n_tokens, int flags,
                        char* text, size_t capacity, size_t* n) {
  return guarded([&] {
    const Engine& engine = need(model, "model").shared->engine;
    check_flags(flags, MF_TEXT_SKIP_SPECIAL);
    const std::span<const TokenId> ids = tokens_of(engine, tokens, n_tokens, "tokens");
    hand_over(engine.tokenizer().decode(ids, (flags & MF_TEXT_SKIP_SPECIAL) != 0), text, capacity,
              n);
  });
}

mf_status mf_apply_template(const mf_model* model, const mf_chat_params* chat, char* text,
                            size_t capacity, size_t* n) {
  return guarded([&] {
    hand_over(render(need(model, "model").shared->engine, chat).text, text, capacity, n);
  });
}

mf_status mf_tokenize_chat(const mf_model* model, const mf_chat_params* chat, int32_t* tokens,
                           size_t capacity, size_t* n) {
  return guarded([&] {
    const Engine& engine = need(model, "model").shared->engine;
    hand_over(engine.tokenizer().encode(render(engine, chat)), tokens, capacity, n);
  });
}
