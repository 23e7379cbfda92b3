#include "cli/chat/server_backend.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/memory_budget.h"
#include "base/suggestion.h"
#include "cli/chat/completion_reader.h"
#include "cli/client/http_client.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

// A server that sends no comments is silent while it reads a long prompt from a slow drive.
constexpr std::chrono::minutes kSilence{30};

void add_sampling(const SamplingOptions& options, Json& body) {
  const auto set = [&](const char* name, const auto& given) {
    if (given) body[name] = *given;
  };
  set("temperature", options.temperature);
  set("top_p", options.top_p);
  set("min_p", options.min_p);
  set("typical_p", options.typical_p);
  set("top_k", options.top_k);
  // Servers know one name or the other, and ignore what they do not know.
  set("repeat_penalty", options.repeat_penalty);
  set("repetition_penalty", options.repeat_penalty);
  set("presence_penalty", options.presence_penalty);
  set("frequency_penalty", options.frequency_penalty);
  if (options.seed && *options.seed >= 0) body["seed"] = *options.seed;
  SamplingParams params;
  apply_sampling(options, params);  // for what it makes of the biases
  for (const auto& [id, bias] : params.logit_bias) {
    // JSON has no infinity; false forbids a token.
    body["logit_bias"][std::to_string(id)] =
        std::isinf(bias) && bias < 0 ? Json(false) : Json(bias);
  }
}

SamplingParams read_defaults(const Json& settings) {
  SamplingParams params;
  const auto read = [&](const char* name, auto& field) {
    const Json* value = member(settings, name);
    if (value != nullptr && value->is_number())
      field = value->get<std::remove_reference_t<decltype(field)>>();
  };
  read("temperature", params.temperature);
  read("top_k", params.top_k);
  read("top_p", params.top_p);
  read("min_p", params.min_p);
  read("typical_p", params.typical_p);
  read("repeat_penalty", params.repetition_penalty);
  read("presence_penalty", params.presence_penalty);
  read("frequency_penalty", params.frequency_penalty);
  return params;
}

bool is_true(const Json* value) {
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

bool is_too_long(const HttpReply& reply) {
  return reply.status == 400 &&
         (reply.body.find("exceed_context_size_error") != std::string::npos ||
          reply.body.find("context_length_exceeded") != std::string::npos);
}

}  // namespace

Json chat_request(const ChatQuestion& question, const std::string& model) {
  Json body = {{"model", model}, {"messages", question.messages}};
  if (!question.tools.is_null() && !question.tools.empty()) body["tools"] = question.tools;
  add_sampling(question.sampling, body);
  if (question.max_tokens > 0) body["max_tokens"] = question.max_tokens;
  if (!question.extra.empty()) body["chat_template_kwargs"] = question.extra;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  body["return_progress"] = true;
  return body;
}

ServerBackend::ServerBackend(HttpClient client, std::string model,
                             const std::function<bool()>& cancelled)
    : client_(std::move(client)), where_(client_.address().text()), model_(std::move(model)) {
  const HttpReply reply = client_.send({.path = "/v1/models", .cancelled = cancelled});
  if (reply.ok() || reply.status != 404 || model_.empty()) {
    client_.check(reply);
    choose_model(parse_json(reply.body, where_ + "/v1/models"));
  }
  if (is_loaded_) read_properties(cancelled);
  if (cancelled()) fail(Errc::Cancelled, "interrupted");
}

void ServerBackend::choose_model(const Json& models) {
  const Json none = Json::array();
  const Json* list = member(models, "data");
  if (list == nullptr || !list->is_array()) list = &none;
  std::vector<std::string> names;
  const Json* first = nullptr;
  const Json* chosen = nullptr;
  for (const Json& each : *list) {
    const std::string id = text_or_empty(member(each, "id"));
    if (id.empty()) continue;
    names.push_back(safe_line(id));
    if (first == nullptr) first = &each;
    const bool is_it = model_.empty() ? is_true(member(each, "meta", "loaded")) : id == model_;
    if (is_it && chosen == nullptr) chosen = &each;
  }
  if (model_.empty() && chosen == nullptr) chosen = first;
  if (chosen != nullptr) {
    model_ = text_or_empty(member(*chosen, "id"));
    context_length_ = count_or_zero(member(*chosen, "meta", "n_ctx"));
    if (context_length_ == 0) context_length_ = count_or_zero(member(*chosen, "max_model_len"));
    const Json* loaded = member(*chosen, "meta", "loaded");
    is_loaded_ = loaded == nullptr || is_true(loaded);
  }
  if (model_.empty()) fail(Errc::NotFound, "{} lists no model; name one with --model-name", where_);
  if (chosen == nullptr && !names.empty()) {
    names.resize(std::min<std::size_t>(names.size(), 10));
    warning_ = fmt::format("{} does not list the model {}; it has {}", where_, safe_line(model_),
                           fmt::join(names, ", "));
  }
}

// What only some servers tell, and is good to know. Asking loads the model where it is not there.
void ServerBackend::read_properties(const std::function<bool()>& cancelled) {
  Json properties;
  try {
    properties =
        client_.json({.path = "/props?model=" + percent_encoded(model_), .cancelled = cancelled});
  } catch (const Error&) {
    return;
  }
  const Json* settings = member(properties, "default_generation_settings");
  if (settings == nullptr) return;
  if (context_length_ == 0) context_length_ = count_or_zero(member(*settings, "n_ctx"));
  if (const Json* params = member(*settings, "params")) defaults_ = read_defaults(*params);
}

Json ServerBackend::list(const std::function<bool()>& cancelled) {
  return client_.json({.path = "/v1/models", .cancelled = cancelled});
}

std::vector<std::string> ServerBackend::models(const std::function<bool()>& cancelled) {
  std::vector<std::string> names;
  const Json answer = list(cancelled);
  const Json* data = member(answer, "data");
  if (data == nullptr || !data->is_array()) return names;
  for (const Json& each : *data) {
    if (std::string id = text_or_empty(member(each, "id")); !id.empty())
      names.push_back(std::move(id));
  }
  return names;
}

void ServerBackend::use_model(const std::string& name, const std::function<bool()>& cancelled) {
  const std::vector<std::string> names = models(cancelled);
  if (!names.empty() && std::find(names.begin(), names.end(), name) == names.end()) {
    const std::string meant = closest(name, names);
    fail(Errc::NotFound, "{} has no model {}{}; /model lists them", where_, safe_line(name),
         meant.empty() ? "" : fmt::format(", did you mean {}?", safe_line(meant)));
  }
  model_ = name;
  context_length_ = 0;
  defaults_.reset();
  is_loaded_ = true;
  choose_model(list(cancelled));
  if (is_loaded_) read_properties(cancelled);
}

ChatEnd ServerBackend::end_of(const std::string& finish_reason, const ChatQuestion& question,
                              const ChatReply& reply) const {
  if (finish_reason != "length") return ChatEnd::Complete;
  const bool asked = question.max_tokens > 0 && reply.n_answer >= question.max_tokens;
  const bool full = context_length_ > 0 && reply.n_prompt + reply.n_answer >= context_length_;
  return full && !asked ? ChatEnd::ContextFull : ChatEnd::Length;
}

ChatReply ServerBackend::answer(const ChatQuestion& question, const ChatEvents& events) {
  ChatCompletionReader reader(events, where_);
  SseReader sse([&](const SseEvent& event) { reader.take_event(event); });
  HttpCall call{.method = "POST",
                .path = "/v1/chat/completions",
                .body = chat_request(question, model_),
                .cancelled = events.cancelled,
                .silence = kSilence};
  call.on_piece = [&](std::string_view bytes) {
    sse.feed(bytes);
    return !reader.is_done();
  };
  bool stopped = false;
  try {
    const HttpReply reply = client_.send(call);
    if (is_too_long(reply)) {
      fail(Errc::LimitExceeded, "{}: {}; /undo or /clear makes the conversation shorter", where_,
           safe_line(error_message(parse_json(reply.body, where_))));
    }
    client_.check(reply);
    if (reply.body.empty())
      sse.finish();
    else
      reader.take_body(reply.body);
  } catch (const Error& error) {
    if (error.code() != Errc::Cancelled) throw;
    stopped = true;
  }
  if (!stopped && !reader.is_whole()) fail(Errc::Io, "{} ended its answer in the middle", where_);
  ChatReply reply = reader.finish();
  reply.end =
      stopped ? ChatEnd::Stopped : end_of(reader.finish_reason().value_or("stop"), question, reply);
  timings_ = reader.timings();
  moeflux_ = reader.moeflux();
  if (!stopped && !std::exchange(is_loaded_, true)) read_properties(events.cancelled);
  return reply;
}

std::string ServerBackend::statistics() const {
  std::string text = fmt::format("{:<10}{}, {}\n", "server", where_, safe_line(model_));
  const auto line = [&](const char* what, const std::string& value) {
    text += fmt::format("{:<10}{}\n", what, value);
  };
  const auto number = [](const Json& object, auto... keys) {
    return number_or_zero(member(object, keys...));
  };
  if (timings_.is_object()) {
    line("prompt", fmt::format("{:.0f} tokens read in {:.2f} s ({:.1f} tok/s), {:.0f} were known",
                               number(timings_, "prompt_n"), number(timings_, "prompt_ms") / 1e3,
                               number(timings_, "prompt_per_second"), number(timings_, "cache_n")));
    line("answer",
         fmt::format("{:.0f} tokens in {:.2f} s ({:.1f} tok/s), after {:.2f} s in queue",
                     number(timings_, "predicted_n"), number(timings_, "predicted_ms") / 1e3,
                     number(timings_, "predicted_per_second"), number(timings_, "queue_ms") / 1e3));
  }
  if (moeflux_.is_object()) {
    const auto bytes = static_cast<std::uint64_t>(count_or_zero(member(moeflux_, "bytes_read")));
    line("experts",
         fmt::format("{:.0f} hits, {:.0f} misses, {:.1f} % from memory, {} read, "
                     "{:.2f} s waited",
                     number(moeflux_, "experts", "hits"), number(moeflux_, "experts", "misses"),
                     100 * number(moeflux_, "experts", "hit_rate"), format_bytes(bytes),
                     number(moeflux_, "experts", "wait_seconds")));
    line("drafts",
         fmt::format("{:.0f} tokens drafted, {:.0f} right", number(moeflux_, "drafts", "drafted"),
                     number(moeflux_, "drafts", "accepted")));
  }
  return text;
}

std::string ServerBackend::warning() {
  return std::exchange(warning_, {});
}

}  // namespace moeflux::cli
