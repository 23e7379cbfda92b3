// Answers to /v1/completions.
#include <fmt/format.h>

#include "server/dialects/openai/answer.h"
#include "server/dialects/openai/errors.h"
#include "server/service/answer_parts.h"

namespace moeflux {
namespace {

// The logprobs of a text: lists side by side, an entry per token.
class TextLogprobs {
 public:
  void add(const TokenEvent& event) {
    tokens_.push_back(event.token.bytes);
    values_.push_back(event.token.log_probability);
    offsets_.push_back(offset_);
    offset_ += event.token.bytes.size();
    Json top = Json::object();
    for (const TokenCandidate& each : event.top) top[each.bytes] = each.log_probability;
    top_.push_back(event.top.empty() ? Json(nullptr) : std::move(top));
  }
  // What was added since the last call; null where that is nothing.
  Json take() {
    if (tokens_.empty()) return nullptr;
    Json all = {{"tokens", std::move(tokens_)},
                {"token_logprobs", std::move(values_)},
                {"top_logprobs", std::move(top_)},
                {"text_offset", std::move(offsets_)}};
    tokens_ = values_ = top_ = offsets_ = Json::array();
    return all;
  }
  void skip(std::size_t n_bytes) { offset_ += n_bytes; }

 private:
  Json tokens_ = Json::array(), values_ = Json::array(), top_ = Json::array(),
       offsets_ = Json::array();
  std::size_t offset_ = 0;
};

class TextAnswer : public OpenAiAnswer {
 public:
  TextAnswer(ExchangePtr exchange, OpenAiEnvelope envelope, const OpenAiRequest& request)
      : exchange_(std::move(exchange)),
        envelope_(std::move(envelope)),
        answers_(static_cast<std::size_t>(envelope_.n_choices())) {
    const auto n = static_cast<std::size_t>(request.generation.n);
    if (request.echo.empty()) return;
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      answers_[i].text = request.echo[i / n];
      answers_[i].logprobs.skip(answers_[i].text.size());
    }
  }

  void take(int choice, const GenerationEvent& event) override {
    Answer& answer = answers_[static_cast<std::size_t>(choice)];
    if (const auto* token = std::get_if<TokenEvent>(&event)) answer.logprobs.add(*token);
    if (const auto* delta = std::get_if<ContentDelta>(&event)) add_text(choice, delta->text);
    if (const auto* progress = std::get_if<PromptProgress>(&event)) add_progress(choice, *progress);
    if (const auto* ended = std::get_if<GenerationEnded>(&event)) {
      answer.reason = ended->reason;
      const auto error = answer_error(*ended);
      error ? give_up(*error) : end(choice, envelope_.add_ended(choice, *ended));
    }
  }

 protected:
  struct Answer {
    std::string text;  // not sent yet
    TextLogprobs logprobs;
    FinishReason reason = FinishReason::Stop;
  };
  virtual void add_text(int choice, const std::string& text) = 0;
  virtual void add_progress(int, const PromptProgress&) {}
  virtual void end(int choice, bool last) = 0;
  virtual void give_up(const HttpError& error) = 0;

  Json choice_json(int choice, const std::string& text) {
    return {{"index", choice},
            {"text", text},
            {"logprobs", answers_[static_cast<std::size_t>(choice)].logprobs.take()},
            {"finish_reason", nullptr}};
  }
  Json finish_json(int choice, const std::string& text) {
    Json json = choice_json(choice, text);
    json["finish_reason"] = openai_finish_reason(answers_[static_cast<std::size_t>(choice)].reason);
    return json;
  }

  ExchangePtr exchange_;
  OpenAiEnvelope envelope_;
  std::vector<Answer> answers_;
};

class TextStream final : public TextAnswer {
 public:
  TextStream(ExchangePtr exchange, OpenAiEnvelope envelope, const OpenAiRequest& request)
      : TextAnswer(std::move(exchange), std::move(envelope), request),
        return_progress_(request.return_progress) {}

  void begin() override {
    exchange_->begin_stream({});
    for (int i = 0; i < envelope_.n_choices(); ++i) {
      const std::string& echo = answers_[static_cast<std::size_t>(i)].text;
      if (!echo.empty()) add_text(i, echo);
    }
  }

 private:
  void add_text(int choice, const std::string& text) override {
    exchange_->write(envelope_.chunk(choice_json(choice, text)));
  }
  void add_progress(int choice, const PromptProgress& progress) override {
    if (return_progress_)
      exchange_->write(envelope_.progress_chunk(choice_json(choice, ""), progress));
  }
  void end(int choice, bool last) override {
    exchange_->write(envelope_.finish_chunk(finish_json(choice, ""), last));
    if (last) exchange_->finish();
  }
  void give_up(const HttpError& error) override {
    exchange_->write(sse_event(openai_error_json(error)));
    exchange_->finish();
  }

  bool return_progress_;
};

class TextResponse final : public TextAnswer {
 public:
  using TextAnswer::TextAnswer;
  void begin() override {}

 private:
  void add_text(int choice, const std::string& text) override {
    answers_[static_cast<std::size_t>(choice)].text += text;
  }
  void end(int, bool last) override {
    if (!last) return;
    Json choices = Json::array();
    for (int i = 0; i < envelope_.n_choices(); ++i)
      choices.push_back(finish_json(i, answers_[static_cast<std::size_t>(i)].text));
    exchange_->respond(envelope_.response(std::move(choices)));
  }
  void give_up(const HttpError& error) override { exchange_->respond(openai_error(error)); }
};

}  // namespace

std::unique_ptr<OpenAiAnswer> make_text_stream(ExchangePtr exchange, OpenAiEnvelope envelope,
                                               const OpenAiRequest& request) {
  return std::make_unique<TextStream>(std::move(exchange), std::move(envelope), request);
}

std::unique_ptr<OpenAiAnswer> make_text_response(ExchangePtr exchange, OpenAiEnvelope envelope,
                                                 const OpenAiRequest& request) {
  return std::make_unique<TextResponse>(std::move(exchange), std::move(envelope), request);
}

}  // namespace moeflux
