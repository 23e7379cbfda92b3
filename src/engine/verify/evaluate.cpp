#include "engine/verify/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "base/portable_math.h"
#include "engine/generate.h"

namespace moeflux {
namespace {

TokenId most_likely(const float* logits, std::int64_t n) {
  return static_cast<TokenId>(std::max_element(logits, logits + n) - logits);
}

// -log softmax(logits)[target], in double: the sum over a vocabulary of 248k would lose digits in
// float.
double negative_log_likelihood(const float* logits, std::int64_t n, TokenId target) {
  const double max = *std::max_element(logits, logits + n);
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += portable::exp(static_cast<double>(logits[i]) - max);
  return max + portable::log(sum) - static_cast<double>(logits[target]);
}

// Runs one text after the other through the model and adds up.
class TextMeter {
 public:
  TextMeter(Engine& engine, const PerplexityOptions& options)
      : engine_(engine),
        n_vocab_(engine.config().n_vocab),
        d_model_(engine.config().d_model),
        chunk_(std::clamp<std::int64_t>(options.chunk, 1, engine.forward().max_tokens())),
        session_(engine.new_session()),
        logits_(static_cast<std::size_t>(chunk_ * n_vocab_)) {}

  void add(std::span<const TokenId> ids, Perplexity& total) {
    ++total.n_texts;
    if (ids.size() < 2) return;
    session_.reset();
    run_trunk(ids, total);
    // A text needs three tokens for a draft that can be compared: one to draft from, the next one,
    // and the drafted.
    if (engine_.config().mtp && ids.size() > 2) run_mtp(ids, total);
  }

 private:
  void run_trunk(std::span<const TokenId> ids, Perplexity& total) {
    const bool with_mtp = engine_.config().mtp.has_value();
    if (with_mtp) hidden_.resize(ids.size() * static_cast<std::size_t>(d_model_));
    chosen_.resize(ids.size());
    for_each_chunk(ids.size(), [&](std::size_t begin, std::size_t n) {
      const Span span{
          .session = &session_,
          .tokens = ids.subspan(begin, n),
          .logits_of = LogitsOf::EveryToken,
          .logits = logits_.data(),
          .hidden = with_mtp ? &hidden_[begin * static_cast<std::size_t>(d_model_)] : nullptr,
          .prompt_tokens = engine_.prompt_tokens(std::ssize(ids))};
      engine_.run({&span, 1});
      for (std::size_t i = 0; i < n; ++i) {
        const float* row = &logits_[i * static_cast<std::size_t>(n_vocab_)];
        chosen_[begin + i] = most_likely(row, n_vocab_);
        if (begin + i + 1 == ids.size()) continue;  // nothing follows to predict
        total.negative_log_likelihood += negative_log_likelihood(row, n_vocab_, ids[begin + i + 1]);
        ++total.n_predictions;
      }
    });
  }

  void run_mtp(std::span<const TokenId> ids, Perplexity& total) {
    for_each_chunk(ids.size() - 2, [&](std::size_t begin, std::size_t n) {
      engine_.forward().run_mtp({.session = &session_,
                                 .hidden = &hidden_[begin * static_cast<std::size_t>(d_model_)],
                                 .tokens = ids.subspan(begin + 1, n),
                                 .logits = logits_.data()});
      for (std::size_t i = 0; i < n; ++i) {
        const TokenId draft =
            most_likely(&logits_[i * static_cast<std::size_t>(n_vocab_)], n_vocab_);
        total.n_drafts_agreed += draft == chosen_[begin + i + 1] ? 1 : 0;
        ++total.n_drafts;
      }
    });
  }

  template <class Body>
  void for_each_chunk(std::size_t count, const Body& body) {
    for (std::size_t begin = 0; begin < count; begin += static_cast<std::size_t>(chunk_)) {
      body(begin, std::min(static_cast<std::size_t>(chunk_), count - begin));
    }
  }

  Engine& engine_;
  std::int64_t n_vocab_, d_model_, chunk_;
  Session session_;
  std::vector<float> logits_;    // [chunk, n_vocab]
  std::vector<float> hidden_;    // [n_tokens, d_model]
  std::vector<TokenId> chosen_;  // the trunk's most likely token after each position
};

std::vector<TokenId> read_ids(const Json& line, std::string_view key, const std::string& origin) {
  const Json* list = JsonFields(line, origin).find(key);
  const auto is_id = [](const Json& id) {
    return id.is_number_integer() && id >= 0 && id <= kMaxTokenId;
  };
  if (list == nullptr || !list->is_array() || !std::all_of(list->begin(), list->end(), is_id)) {
    fail(Errc::BadInput, "{}: \"{}\" must be a list of token ids", origin, key);
  }
  return list->get<std::vector<TokenId>>();
}

AnswerCase read_answer(const std::string& line, const std::string& origin) {
  const Json object = parse_json(line, origin);
  const JsonFields fields(object, origin);
  AnswerCase answer;
  const Json* messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array()) {
    fail(Errc::BadInput, "{}: \"messages\" must be a list", origin);
  }
  answer.messages = *messages;
  if (const Json* tools = fields.find("tools")) answer.tools = *tools;
  if (fields.has("enable_thinking"))
    answer.enable_thinking = fields.boolean_or("enable_thinking", false);
  answer.prompt_ids = read_ids(object, "prompt_ids", origin);
  answer.greedy_ids = read_ids(object, "greedy_ids", origin);
  answer.want = fields.string_or("want", "");
  answer.reference_right = fields.boolean_or("right", false);
  return answer;
}

// What the model answers, without what it thought before.
std::string_view final_answer(std::string_view text) {
  constexpr std::string_view kEndOfThought = "</think>";
  const std::size_t thought = text.rfind(kEndOfThought);
  if (thought != std::string_view::npos) text.remove_prefix(thought + kEndOfThought.size());
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

}  // namespace

double Perplexity::value() const {
  if (n_predictions == 0) return std::numeric_limits<double>::quiet_NaN();
  return portable::exp(negative_log_likelihood / static_cast<double>(n_predictions));
}

Perplexity measure_perplexity(Engine& engine, std::span<const std::string> texts,
                              const PerplexityOptions& options,
                              const std::function<bool(const Perplexity&)>& on_text) {
  if (options.limit_tokens < 2)
    fail(Errc::BadInput, "perplexity needs at least 2 tokens of each text");
  const auto limit =
      static_cast<std::size_t>(std::min(options.limit_tokens, engine.context_length()));
  TextMeter meter(engine, options);
  Perplexity total;
  for (const std::string& text : texts) {
    const std::vector<TokenId> ids = engine.tokenizer().encode_markup(text);
    meter.add(std::span(ids).first(std::min(limit, ids.size())), total);
    if (on_text && !on_text(total)) break;
  }
  return total;
}

std::vector<std::string> read_texts(const std::string& path) {
  const Json list = read_json_file(path);
  if (!list.is_array()) fail(Errc::BadInput, "{}: expected a JSON list of strings", path);
  std::vector<std::string> texts;
  for (const Json& text : list) {
    if (!text.is_string())
      fail(Errc::BadInput, "{}: element {} is not a string", path, texts.size());
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

std::vector<AnswerCase> read_answers(const std::string& path, std::int64_t limit) {
  const std::string content = read_text_file(path);
  std::vector<AnswerCase> answers;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < content.size();) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    const std::string line = content.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    answers.push_back(read_answer(line, fmt::format("{}:{}", path, number)));
    if (limit > 0 && static_cast<std::int64_t>(answers.size()) == limit) break;
  }
  if (answers.empty()) fail(Errc::BadInput, "{}: has no answers (one JSON object per line)", path);
  return answers;
}

AnswerOutcome check_answer(Engine& engine, Session& session, const AnswerCase& answer,
                           const AnswerOptions& options) {
  ChatRequest chat;
  chat.messages = answer.messages;
  chat.tools = answer.tools;
  if (answer.enable_thinking) chat.extra["enable_thinking"] = *answer.enable_thinking;
  AnswerRequest request;
  const bool with_tools = chat.tools.is_array() && !chat.tools.empty();
  request.prompt = engine.tokenizer().encode(engine.chat_template(with_tools).render(chat));
  request.sampling.temperature = 0;
  request.max_tokens = kAnswerTokens;

  session.reset();
  const GenerateResult result =
      generate(engine, session, request,
               {.drafts = options.drafts, .events = {.cancelled = options.cancelled}});
  if (result.reason == StopReason::Cancelled) fail(Errc::Cancelled, "cancelled");
  AnswerOutcome outcome;
  outcome.same_prompt = request.prompt == answer.prompt_ids;
  outcome.same_answer = result.tokens == answer.greedy_ids;
  outcome.text = engine.tokenizer().decode(result.tokens);
  outcome.drafts = result.drafts;
  outcome.n_tokens = result.tokens.size();
  outcome.decode_seconds = result.decode_seconds;
  // The reference's own judgement counts for its own answer: not every question has one right text.
  outcome.right =
      outcome.same_answer ? answer.reference_right : final_answer(outcome.text) == answer.want;
  return outcome;
}

}  // namespace moeflux
