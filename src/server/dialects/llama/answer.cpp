#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "server/dialects/errors.h"
#include "server/dialects/llama/llama.h"

namespace moeflux {
namespace {

std::string sse_event(const Json& data) {
  return fmt::format("data: {}\n\n", dump_json(data));
}

Json probability_json(const TokenCandidate& candidate, bool after_sampling) {
  Json json = {
      {"id", candidate.id}, {"token", candidate.bytes}, {"bytes", bytes_json(candidate.bytes)}};
  if (after_sampling)
    json["prob"] = std::min(1.0, std::exp(static_cast<double>(candidate.log_probability)));
  else
    json["logprob"] = candidate.log_probability;
  return json;
}

// "generation_settings/n_predict": a member of a member.
const Json* find_field(const Json& object, const std::string& path) {
  const Json* at = &object;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    if (!at->is_object()) return nullptr;
    const auto found = at->find(path.substr(begin, end - begin));
    if (found == at->end()) return nullptr;
    at = &*found;
    begin = end + 1;
  }
  return at;
}

class LlamaAnswer final : public DialectAnswer {
 public:
  LlamaAnswer(ExchangePtr exchange, AnswerModel model, LlamaRequest request)
      : DialectAnswer(std::move(exchange), std::move(model)),
        request_(std::move(request)),
        choices_(static_cast<std::size_t>(request_.generation.n) *
                 request_.generation.prompts.size()) {}

  void begin() override {
    if (request_.stream) exchange_->begin_stream({});
  }

 private:
  struct Choice {
    std::string content;  // of a stream, what was not sent yet
    std::vector<TokenId> tokens;
    Json probabilities = Json::array();
    std::int64_t n_prompt = 0;
    bool has_new_line = false;
    RunningTotals running;
    Json result;
  };
  Choice& at(int choice) { return choices_[static_cast<std::size_t>(choice)]; }

  // What has not been sent yet.
  Json take(int index, bool stop) {
    Choice& choice = at(index);
    const bool has_tokens = request_.stream || request_.return_tokens;
    Json object = {{"index", index},
                   {"content", std::exchange(choice.content, "")},
                   {"tokens", has_tokens ? Json(choice.tokens) : Json::array()},
                   {"stop", stop},
                   {"id_slot", -1},
                   {"tokens_predicted", n_predicted(choice)},
                   {"tokens_evaluated", choice.n_prompt}};
    choice.tokens.clear();
    if (!choice.probabilities.empty()) {
      object["completion_probabilities"] = std::move(choice.probabilities);
      choice.probabilities = Json::array();
    }
    return object;
  }
  std::int64_t n_predicted(const Choice& choice) const {
    return choice.running.totals().n_generated;
  }

  void send(int index) {
    Json object = take(index, false);
    if (request_.timings_per_token) object["timings"] = timings_json(at(index).running.totals());
    exchange_->write(sse_event(object));
  }

  using DialectAnswer::on;
  void on(int choice, const GenerationStarted& event) override {
    at(choice).n_prompt = event.n_prompt;
    at(choice).running.start(event.n_prompt, event.n_cached);
  }
  void on(int choice, const PromptProgress& event) override {
    if (!request_.stream || !request_.return_progress) return;
    Json object = take(choice, false);
    object["prompt_progress"] = {{"total", event.n_prompt},
                                 {"cache", event.n_cached},
                                 {"processed", event.n_done},
                                 {"time_ms", static_cast<std::int64_t>(event.seconds * 1e3)}};
    exchange_->write(sse_event(object));
  }
  void on(int index, const TokenEvent& event) override {
    if (request_.only_reads) return;
    Choice& choice = at(index);
    choice.running.add_token();
    choice.tokens.push_back(event.token.id);
    if (!request_.generation.top_logprobs) return;
    const bool after = request_.generation.after_sampling;
    Json token = probability_json(event.token, after);
    Json& top = token[after ? "top_probs" : "top_logprobs"];
    top = Json::array();
    for (const TokenCandidate& each : event.top) top.push_back(probability_json(each, after));
    choice.probabilities.push_back(std::move(token));
  }
  void on(int index, const ContentDelta& event) override {
    if (request_.only_reads) return;
    Choice& choice = at(index);
    choice.content += event.text;
    choice.has_new_line |= event.text.find('\n') != std::string::npos;
    if (request_.stream) send(index);
  }
  void on(int index, const GenerationEnded& event) override {
    if (const auto error = answer_error(event)) return fail_with(*error);
    Choice& choice = at(index);
    if (request_.stream && !choice.tokens.empty()) send(index);
    choice.result = result(index, event);
    if (request_.stream) exchange_->write(sse_event(choice.result));
    if (++n_ended_ < choices_.size()) return;
    if (request_.stream) return exchange_->finish();
    Json all = Json::array();
    for (Choice& each : choices_) all.push_back(std::move(each.result));
    exchange_->respond({.body = dump_json(all.size() == 1 ? all[0] : all)});
  }

  Json result(int index, const GenerationEnded& event) {
    const Choice& choice = at(index);
    AnswerTotals totals;
    totals.add(event, true);
    if (request_.only_reads) totals.n_generated = 0;
    const std::int64_t max_tokens = request_.generation.max_tokens;
    const bool is_cut = event.reason == FinishReason::Length;
    Json object = take(index, true);
    object["model"] = model_.name;
    object["tokens_predicted"] = totals.n_generated;
    object["tokens_cached"] = totals.n_prompt + totals.n_generated;
    object["generation_settings"] = request_.settings;
    object["prompt"] = request_.prompts.at(static_cast<std::size_t>(index) /
                                           static_cast<std::size_t>(request_.generation.n));
    object["has_new_line"] = choice.has_new_line;
    object["truncated"] = is_cut && (max_tokens == 0 || event.stats.n_tokens < max_tokens);
    object["stop_type"] = is_cut || request_.only_reads ? "limit" : event.stop ? "word" : "eos";
    object["stopping_word"] = event.stop.value_or("");
    add_run_report(object, model_.facts, totals);
    if (request_.fields.empty()) return object;
    Json wanted = Json::object();
    for (const std::string& name : request_.fields) {
      if (const Json* value = find_field(object, name)) wanted[name] = *value;
    }
    return wanted;
  }

  void fail_with(const HttpError& error) {
    if (!request_.stream) return exchange_->respond(openai_error(error));
    exchange_->write(sse_event(openai_error_json(error)));
    exchange_->finish();
  }

  const LlamaRequest request_;
  std::vector<Choice> choices_;
  std::size_t n_ended_ = 0;
};

}  // namespace

std::unique_ptr<DialectAnswer> make_llama_answer(ExchangePtr exchange, AnswerModel model,
                                                 LlamaRequest request) {
  return std::make_unique<LlamaAnswer>(std::move(exchange), std::move(model), std::move(request));
}

}  // namespace moeflux
