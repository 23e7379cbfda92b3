#include "server/dialects/answer.h"

#include <algorithm>
#include <random>

#include "server/dialects/schema_report.h"

namespace moeflux {
namespace {

// Tells the exchange what its log should say of the answers.
class AnswerLog {
 public:
  AnswerLog(ExchangePtr exchange, int n) : exchange_(std::move(exchange)), n_(std::max(n, 1)) {}

  void add(int choice, const GenerationEnded& ended) {
    totals_.add(ended, /*first=*/choice % n_ == 0);
    exchange_->set_notes({.prompt_tokens = totals_.n_prompt,
                          .cached_tokens = totals_.n_cached,
                          .completion_tokens = totals_.n_generated,
                          .error = ended.error ? ended.error->what() : ""});
  }

 private:
  ExchangePtr exchange_;
  int n_;
  AnswerTotals totals_;
};

}  // namespace

AnswerModel model_of(const ModelRequest& request) {
  return {request.model.name, request.model.service->facts()};
}

std::shared_ptr<Generation> start_generation(const ModelRequest& request,
                                             const GenerationRequest& generation,
                                             std::shared_ptr<DialectAnswer> answer) {
  request.exchange->set_notes({.model = request.model.name});
  const auto report = std::make_shared<SchemaReport>(request.exchange);
  const auto running = request.model.service->start(
      generation,
      [answer, report, log = AnswerLog(request.exchange, generation.n)](
          int choice, const GenerationEvent& event) mutable {
        report->take(choice, event);
        if (const auto* ended = std::get_if<GenerationEnded>(&event)) log.add(choice, *ended);
        answer->take(choice, event);
      },
      [&] {
        report->begin(*request.model.service, generation);
        answer->begin();
      });
  running->keep(request.model.held);
  return running;
}

void start_answer(const ModelRequest& request, const GenerationRequest& generation,
                  std::shared_ptr<DialectAnswer> answer) {
  const auto running = start_generation(request, generation, std::move(answer));
  request.exchange->on_gone([running] { running->cancel(); });
}

std::optional<HttpError> answer_error(const GenerationEnded& ended) {
  if (ended.reason == FinishReason::Error) {
    const HttpError error = to_http_error(*ended.error);
    // An error during an answer is not the fault of the request.
    return HttpError(error.status() < 500 ? 500 : error.status(), "server_error", error.what());
  }
  if (ended.reason == FinishReason::Cancelled)
    return HttpError(503, "unavailable_error", "the answer was cancelled: the server is stopping");
  return std::nullopt;
}

void add_run_report(Json& body, const ModelFacts& facts, const AnswerTotals& totals) {
  body["timings"] = timings_json(totals);
  body["moeflux"] = run_report_json(facts, totals);
}

std::string random_id() {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  thread_local std::mt19937_64 random{std::random_device()()};
  std::uniform_int_distribution<std::size_t> letter(0, kLetters.size() - 1);
  std::string id;
  for (int i = 0; i < 24; ++i) id += kLetters[letter(random)];
  return id;
}

Json bytes_json(std::string_view bytes) {
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

Json candidate_json(const TokenCandidate& candidate) {
  return {{"token", candidate.bytes},
          {"logprob", candidate.log_probability},
          {"bytes", bytes_json(candidate.bytes)}};
}

Json arguments_json(const std::string& text) {
  if (text.empty()) return Json::object();
  try {
    Json arguments = parse_json(text, "arguments");
    if (arguments.is_object()) return arguments;
  } catch (const Error&) {
  }
  return {{"arguments", text}};
}

}  // namespace moeflux
