// The same request gives the same answer in every front end: tokens, text, why it ended and log
// probabilities, through generate(), the C API and the scheduler, with drafts and without.
#include <optional>

#include "capi/handles.h"
#include "engine/generate.h"
#include "engine/scheduler/scheduler.h"
#include "runtime/sampling/grammar_constraint.h"
#include "runtime/sampling/log_probabilities.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/vocabulary_support.h"

namespace moeflux::test {
namespace {

struct Outcome {
  Tokens tokens;
  std::string text;
  StopReason reason = StopReason::Cancelled;
  std::vector<float> log_probabilities;

  bool operator==(const Outcome&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  return out << outcome.tokens.size() << " tokens, \"" << outcome.text << "\", "
             << stop_reason_name(outcome.reason);
}

StopReason reason_of(int c_reason) {
  switch (c_reason) {
    case MF_STOP_END:
      return StopReason::EndToken;
    case MF_STOP_STRING:
      return StopReason::StopString;
    case MF_STOP_MAX_TOKENS:
      return StopReason::MaxTokens;
    case MF_STOP_CONTEXT:
      return StopReason::ContextFull;
    default:
      return StopReason::Cancelled;
  }
}

class SameAnswerTest : public testing::TestWithParam<std::string> {
 protected:
  static constexpr std::int64_t kContext = 192;
  static constexpr int kDrafts = 3;

  static EngineOptions options() {
    EngineOptions result;
    result.n_threads = 1;
    result.context_length = kContext;
    result.n_sessions = 2;
    result.max_drafts = kDrafts;
    result.elastic = false;
    return result;
  }
  static std::string path() { return source_path("models/" + GetParam()); }

  SameAnswerTest() : engine_(path(), options()) {
    mf_model_params params = mf_model_params_default();
    const std::string model = path();
    params.path = model.c_str();
    params.n_threads = 1;
    params.context_length = kContext;
    params.max_sequences = 2;
    params.max_drafts = kDrafts;
    model_.reset(mf_model_open(&params));
    EXPECT_NE(model_, nullptr) << mf_last_error_message();
  }

  AnswerRequest question(const char* text, double temperature) const {
    ChatRequest chat;
    chat.messages = Json::array({{{"role", "user"}, {"content", text}}});
    AnswerRequest request;
    request.prompt = engine_.tokenizer().encode(engine_.chat_template().render(chat));
    request.sampling.temperature = temperature;
    request.sampling.seed = 20;
    return request;
  }

  std::shared_ptr<TokenConstraint> grammar(const char* gbnf) const {
    const auto trie = trie_of(engine_.tokenizer(), engine_.stop_tokens());
    const auto automaton =
        std::make_shared<ByteAutomaton>(compile_grammar(parse_gbnf(gbnf), trie->markers()));
    return std::make_shared<GrammarConstraint>(
        std::make_shared<TokenMasks>(automaton, trie),
        GrammarConstraintOptions{.end_tokens = engine_.stop_tokens()});
  }

  float log_probability_of(TokenId token, std::span<const float> logits) const {
    return log_probability(logits.first(static_cast<std::size_t>(engine_.n_sampled())), token);
  }

  // A constraint serves one answer, so every run makes its own.
  using MakeConstraint = std::function<std::shared_ptr<TokenConstraint>()>;

  Outcome by_generate(AnswerRequest request, const DraftOptions& drafts,
                      const MakeConstraint& constraint) {
    if (constraint) request.constraint = constraint();
    Outcome outcome;
    GenerateOptions generating{.drafts = drafts};
    generating.events.on_token = [&](TokenId token, std::span<const float> logits) {
      outcome.log_probabilities.push_back(log_probability_of(token, logits));
    };
    std::string shown;
    generating.events.on_text = [&](std::string_view text) { shown += text; };
    Session session = engine_.new_session();
    const GenerateResult result = generate(engine_, session, request, generating);
    EXPECT_EQ(shown, result.text);
    outcome.tokens = result.tokens;
    outcome.text = result.text;
    outcome.reason = result.reason;
    // Prompt and answer, all but the last token: the same whatever was drafted.
    std::vector<TokenId> held = request.prompt;
    held.insert(held.end(), result.tokens.begin(), result.tokens.end());
    if (result.reason != StopReason::EndToken ||
        (request.constraint && !result.tokens.empty() && request.constraint->must_end()))
      held.pop_back();
    EXPECT_EQ(std::vector<TokenId>(session.tokens().begin(), session.tokens().end()), held);
    return outcome;
  }

  Outcome by_scheduler(AnswerRequest request, const DraftOptions& drafts,
                       const MakeConstraint& constraint) {
    if (constraint) request.constraint = constraint();
    Outcome outcome;
    SchedulerDrafts drafters(engine_, drafts);
    SchedulerOptions scheduling{.n_sessions = 1, .max_drafts = drafts.any() ? kDrafts : 0};
    drafters.add_to(scheduling.hooks);
    Scheduler scheduler(engine_, scheduling);
    scheduler.submit(request, [&](JobId, const JobEvent& event) {
      if (const auto* token = std::get_if<JobToken>(&event)) {
        outcome.tokens.push_back(token->id);
        outcome.log_probabilities.push_back(log_probability_of(token->id, token->logits));
      } else if (const auto* text = std::get_if<JobText>(&event)) {
        outcome.text += text->text;
      } else if (const auto* ended = std::get_if<JobEnded>(&event)) {
        outcome.reason = ended->reason;
        EXPECT_FALSE(ended->error);
        EXPECT_EQ(ended->stats.n_tokens, std::ssize(outcome.tokens));
      }
    });
    while (scheduler.step()) {
    }
    return outcome;
  }

  Outcome by_c_api(const AnswerRequest& request, bool drafts) {
    Outcome outcome;
    mf_sampling_params sampling = mf_sampling_params_default();
    sampling.temperature = request.sampling.temperature;
    sampling.seed = request.sampling.seed;
    sampling.top_p = request.sampling.top_p;
    std::vector<const char*> stop;
    for (const std::string& text : request.stop) stop.push_back(text.c_str());
    mf_generate_params params = mf_generate_params_default();
    params.sampling = &sampling;
    params.max_tokens = request.max_tokens;
    params.stop = stop.data();
    params.n_stop = stop.size();
    params.ignore_end = request.ignore_end ? 1 : 0;
    params.no_drafts = drafts ? 0 : 1;
    params.on_text = [](const char* text, std::size_t n, void* user) {
      static_cast<std::string*>(user)->append(text, n);
      return 0;
    };
    params.user = &outcome.text;
    outcome.tokens.resize(kContext);
    params.tokens = outcome.tokens.data();
    params.tokens_capacity = outcome.tokens.size();
    mf_generate_result result{};
    result.struct_size = sizeof result;
    const ContextHandle ctx = new_context(model_, 2);
    EXPECT_EQ(
        mf_generate(ctx.get(), 0, request.prompt.data(), request.prompt.size(), &params, &result),
        MF_OK)
        << mf_last_error_message();
    outcome.tokens.resize(result.n_tokens);
    outcome.reason = reason_of(result.stop_reason);
    // A user of the C API has log probabilities by evaluating the tokens.
    Logits logits = eval(ctx, request.prompt, 1);
    for (const TokenId token : outcome.tokens) {
      outcome.log_probabilities.push_back(log_probability_of(token, logits));
      if (mf_memory_seq_length(ctx.get(), 1) < kContext) logits = eval(ctx, {token}, 1);
    }
    return outcome;
  }

  Outcome expect_same(const AnswerRequest& request, const MakeConstraint& constraint = {}) {
    const Outcome plain = by_generate(request, {}, constraint);
    EXPECT_EQ(plain.log_probabilities.size(), plain.tokens.size());
    for (const DraftOptions& drafts :
         {DraftOptions{}, DraftOptions{.ngram = true, .depth = kDrafts},
          DraftOptions{.mtp = true, .depth = kDrafts}, DraftOptions{.mtp = true, .ngram = true}}) {
      SCOPED_TRACE(fmt::format("mtp {} ngram {}", drafts.mtp, drafts.ngram));
      EXPECT_EQ(by_generate(request, drafts, constraint), plain);
      EXPECT_EQ(by_scheduler(request, drafts, constraint), plain);
    }
    if (!constraint) {
      EXPECT_EQ(by_c_api(request, /*drafts=*/false), plain);
      EXPECT_EQ(by_c_api(request, /*drafts=*/true), plain);
    }
    return plain;
  }

  Engine engine_;
  ModelHandle model_;
};
INSTANTIATE_TEST_SUITE_P(Models, SameAnswerTest, testing::Values("demo", "demo-mla"),
                         [](const auto& instance) {
                           return instance.param == "demo" ? "demo" : "demo_mla";
                         });

TEST_P(SameAnswerTest, Greedy) {
  const Outcome outcome = expect_same(question("What is 17 + 25?", 0));
  EXPECT_EQ(outcome.reason, StopReason::EndToken);
  EXPECT_FALSE(outcome.text.empty());
}

TEST_P(SameAnswerTest, SampledWithASeed) {
  AnswerRequest request = question("Tell me a short story.", 0.9);
  request.sampling.top_p = 0.95;
  const Outcome outcome = expect_same(request);
  request.sampling.seed = 21;
  EXPECT_NE(expect_same(request), outcome);
}

TEST_P(SameAnswerTest, StopString) {
  AnswerRequest request = question("What is 17 + 25?", 0);
  const std::string whole = expect_same(request).text;
  ASSERT_GT(whole.size(), 6u);
  request.stop = {"no such text", whole.substr(whole.size() / 2, 3)};
  const Outcome outcome = expect_same(request);
  EXPECT_EQ(outcome.reason, StopReason::StopString);
  EXPECT_LT(outcome.text.size(), whole.size());
}

TEST_P(SameAnswerTest, MaxTokens) {
  AnswerRequest request = question("Tell me a short story.", 0);
  for (const std::int64_t max_tokens : {1, 2, 9}) {
    request.max_tokens = max_tokens;
    const Outcome outcome = expect_same(request);
    EXPECT_EQ(outcome.reason, StopReason::MaxTokens);
    EXPECT_EQ(std::ssize(outcome.tokens), max_tokens);
  }
}

TEST_P(SameAnswerTest, FullContext) {
  AnswerRequest request = question("Tell me a short story.", 0);
  request.ignore_end = true;
  EXPECT_EQ(expect_same(request).reason, StopReason::ContextFull);
}

TEST_P(SameAnswerTest, Grammar) {
  const auto list = [&] { return grammar(R"(root ::= "[" [0-9]+ ("," [0-9]+){2,4} "]")"); };
  for (const double temperature : {0.0, 0.8}) {
    AnswerRequest request = question("Count to five.", temperature);
    request.max_tokens = 60;
    const Outcome outcome = expect_same(request, list);
    EXPECT_TRUE(outcome.text.starts_with("[")) << outcome.text;
  }
}

}  // namespace
}  // namespace moeflux::test
