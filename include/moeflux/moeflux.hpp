// moeflux for C++17: the C API with owners, containers and exceptions. Header-only; everything
// lives in namespace mf, and every object gives its C handle with get(), for what is not wrapped
// here. Contracts (threads, failure, lifetimes) are those of moeflux.h.
#ifndef MOEFLUX_HPP
#define MOEFLUX_HPP

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <moeflux/moeflux.h>

namespace mf {

using Token = std::int32_t;

class Error : public std::runtime_error {
 public:
  Error(mf_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  mf_status status() const { return status_; }

 private:
  mf_status status_;
};

[[noreturn]] inline void throw_last() {
  throw Error(mf_last_error(), mf_last_error_message());
}
inline void check(int status) {
  if (status != MF_OK) throw_last();
}

namespace detail {

template <class T>
T* need(T* object) {
  if (object == nullptr) throw_last();
  return object;
}

// Calls fill(data, capacity, &n) with a buffer that is large enough; `guess` saves a call.
template <class Fill>
std::vector<Token> fill_tokens(std::size_t guess, const Fill& fill) {
  std::vector<Token> tokens(guess + 1);
  std::size_t n = 0;
  if (fill(tokens.data(), tokens.size(), &n) == MF_ERROR_BUFFER_TOO_SMALL) {
    tokens.resize(n);
    fill(tokens.data(), tokens.size(), &n);
  }
  check(mf_last_error());
  tokens.resize(n);
  return tokens;
}

template <class Fill>
std::string fill_text(std::size_t guess, const Fill& fill) {
  std::string text(guess + 1, '\0');
  std::size_t n = 0;
  if (fill(&text[0], text.size(), &n) == MF_ERROR_BUFFER_TOO_SMALL) {
    text.resize(n + 1);
    fill(&text[0], text.size(), &n);
  }
  check(mf_last_error());
  text.resize(n);
  return text;
}

}  // namespace detail

struct Message {
  std::string role, content;
};

class Model {
 public:
  explicit Model(const mf_model_params& params)
      : handle_(detail::need(mf_model_open(&params)), mf_model_close) {}
  explicit Model(const std::string& path) : Model(with_path(path)) {}

  mf_model* get() const { return handle_.get(); }
  std::size_t n_vocab() const { return mf_model_n_vocab(get()); }
  std::size_t n_ctx() const { return mf_model_n_ctx(get()); }
  Token eos() const { return mf_model_eos(get()); }
  bool is_end(Token token) const { return mf_model_is_end(get(), token) != 0; }

  // flags: MF_TEXT_*
  std::vector<Token> tokenize(std::string_view text, int flags = 0) const {
    return detail::fill_tokens(
        text.size(), [&](Token* tokens, std::size_t capacity, std::size_t* n) {
          return mf_tokenize(get(), text.data(), text.size(), flags, tokens, capacity, n);
        });
  }
  std::string detokenize(const std::vector<Token>& tokens, int flags = 0) const {
    return detail::fill_text(
        tokens.size() * 4, [&](char* text, std::size_t capacity, std::size_t* n) {
          return mf_detokenize(get(), tokens.data(), tokens.size(), flags, text, capacity, n);
        });
  }
  std::string apply_template(const mf_chat_params& chat) const {
    return detail::fill_text(1024, [&](char* text, std::size_t capacity, std::size_t* n) {
      return mf_apply_template(get(), &chat, text, capacity, n);
    });
  }
  std::vector<Token> tokenize_chat(const mf_chat_params& chat) const {
    return detail::fill_tokens(1024, [&](Token* tokens, std::size_t capacity, std::size_t* n) {
      return mf_tokenize_chat(get(), &chat, tokens, capacity, n);
    });
  }
  // `variables` is a JSON object for the template, or empty.
  std::vector<Token> tokenize_chat(const std::vector<Message>& messages,
                                   const std::string& variables = {}) const {
    std::vector<mf_message> list;
    for (const Message& message : messages)
      list.push_back({message.role.c_str(), message.content.c_str()});
    mf_chat_params chat = mf_chat_params_default();
    chat.messages = list.data();
    chat.n_messages = list.size();
    if (!variables.empty()) chat.variables_json = variables.c_str();
    return tokenize_chat(chat);
  }
  // What the checkpoint recommends.
  mf_sampling_params sampling() const {
    mf_sampling_params params = mf_sampling_params_default();
    check(mf_model_sampling_params(get(), &params));
    return params;
  }

 private:
  static mf_model_params with_path(const std::string& path) {
    mf_model_params params = mf_model_params_default();
    params.path = path.c_str();
    return params;
  }
  std::unique_ptr<mf_model, void (*)(mf_model*)> handle_;
};

struct Answer {
  std::string text;
  std::vector<Token> tokens;
  int stop_reason = MF_STOP_END;
};

class Context {
 public:
  explicit Context(const Model& model) : Context(model, mf_context_params_default()) {}
  Context(const Model& model, const mf_context_params& params)
      : handle_(detail::need(mf_context_new(model.get(), &params)), mf_context_free) {}

  mf_ctx* get() const { return handle_.get(); }

  // Appends to the sequence; returns the logits after the last token.
  std::vector<float> eval(const std::vector<Token>& tokens, int seq = 0) {
    std::vector<float> logits(mf_n_vocab(get()));
    check(mf_eval_prompt(get(), tokens.data(), tokens.size(), length(seq), seq, logits.data()));
    return logits;
  }
  std::vector<float> eval(Token token, int seq = 0) { return eval(std::vector<Token>{token}, seq); }

  // `on_text` gets the answer piece by piece; false ends it. What it throws comes out here.
  Answer generate(const std::vector<Token>& prompt, mf_generate_params params, int seq = 0,
                  const std::function<bool(std::string_view)>& on_text = {}) {
    Collector collector{{}, on_text, nullptr};
    std::vector<Token> tokens(mf_n_ctx(get()));
    params.tokens = tokens.data();
    params.tokens_capacity = tokens.size();
    params.on_text = collect;
    params.user = &collector;
    mf_generate_result result{};
    result.struct_size = sizeof(result);
    const mf_status status =
        mf_generate(get(), seq, prompt.data(), prompt.size(), &params, &result);
    if (collector.thrown) std::rethrow_exception(collector.thrown);
    check(status);
    tokens.resize(result.n_tokens);
    return {std::move(collector.text), std::move(tokens), result.stop_reason};
  }
  Answer generate(const std::vector<Token>& prompt) {
    return generate(prompt, mf_generate_params_default());
  }

  void cancel() { mf_cancel(get()); }  // from any thread

  std::size_t length(int seq = 0) const { return mf_memory_seq_length(get(), seq); }
  std::vector<Token> tokens(int seq = 0) const {
    return detail::fill_tokens(length(seq), [&](Token* out, std::size_t capacity, std::size_t* n) {
      return mf_memory_seq_tokens(get(), seq, out, capacity, n);
    });
  }
  void clear() { mf_memory_clear(get()); }
  // Keeps the first `length` tokens; recomputes what it must.
  void cut(std::size_t length, int seq = 0) {
    if (mf_memory_seq_rm(get(), seq, static_cast<int>(length), -1) != 0) return;
    if (mf_last_error() != MF_ERROR_NEEDS_REBUILD) throw_last();
    check(mf_memory_seq_rebuild(get(), seq, length));
  }
  // Keeps the longest prefix of `tokens` that need not be evaluated again; returns its length.
  std::size_t sync(const std::vector<Token>& tokens, int seq = 0) {
    std::size_t n_kept = 0;
    check(mf_memory_seq_sync(get(), seq, tokens.data(), tokens.size(), &n_kept));
    return n_kept;
  }
  void remember(int seq = 0) { check(mf_memory_seq_remember(get(), seq)); }
  void copy(int from, int to) { check(mf_memory_seq_cp(get(), from, to)); }
  void free(int seq) { check(mf_memory_seq_free(get(), seq)); }

  void checkpoint(int seq = 0) { check(mf_seq_checkpoint(get(), seq, length(seq))); }
  void restore(std::size_t position, int seq = 0) { check(mf_seq_restore(get(), seq, position)); }

  std::vector<unsigned char> save(int seq = 0, int version = 3) {
    std::vector<unsigned char> bytes(mf_seq_state_size(get(), seq, version));
    if (mf_seq_state_save(get(), seq, version, bytes.data(), bytes.size()) < 0) throw_last();
    return bytes;
  }
  void load(const std::vector<unsigned char>& bytes, int seq = 0) {
    check(mf_seq_state_load(get(), seq, bytes.data(), bytes.size()));
  }
  void save_file(const std::string& path, int seq = 0, int version = 3) {
    check(mf_seq_state_save_file(get(), seq, version, path.c_str()));
  }
  void load_file(const std::string& path, int seq = 0) {
    check(mf_seq_state_load_file(get(), seq, path.c_str()));
  }

 private:
  struct Collector {
    std::string text;
    const std::function<bool(std::string_view)>& on_text;
    std::exception_ptr thrown;
  };
  static int collect(const char* text, std::size_t n, void* user) {
    Collector& collector = *static_cast<Collector*>(user);
    try {
      collector.text.append(text, n);
      return !collector.on_text || collector.on_text({text, n}) ? 0 : 1;
    } catch (...) {
      collector.thrown = std::current_exception();
      return 1;
    }
  }
  std::unique_ptr<mf_ctx, void (*)(mf_ctx*)> handle_;
};

class Sampler {
 public:
  Sampler(const Model& model, const mf_sampling_params& params)
      : handle_(detail::need(mf_sampler_new(model.get(), &params)), mf_sampler_free) {}

  mf_sampler* get() const { return handle_.get(); }
  void reset(const std::vector<Token>& prompt) {
    check(mf_sampler_reset(get(), prompt.data(), prompt.size()));
  }
  Token sample(const std::vector<float>& logits) {  // mf_n_vocab() of them
    const Token token = mf_sampler_sample(get(), logits.data());
    if (token < 0) throw_last();
    return token;
  }

 private:
  std::unique_ptr<mf_sampler, void (*)(mf_sampler*)> handle_;
};

}  // namespace mf

#endif  // MOEFLUX_HPP
