#include "server/service/answer_constraints.h"

#include <algorithm>

#include "runtime/sampling/grammar_constraint.h"
#include "server/http/http.h"
#include "server/service/call_constraint.h"
#include "text/replies/reply_harmony.h"
#include "text/replies/reply_thinking.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {
namespace {

// Ends a thought when its budget is used up. What may follow it is another constraint's matter.
class LimitedThought : public TokenConstraint {
 public:
  LimitedThought(const ThinkingBudget& budget, std::size_t n_ids,
                 std::shared_ptr<TokenConstraint> rest)
      : budget_(budget), rest_(std::move(rest)), only_(n_ids) {}

  std::span<const std::uint8_t> allowed() override {
    const std::optional<TokenId> forced = budget_.forced();
    if (!forced) return rest_ ? rest_->allowed() : std::span<const std::uint8_t>();
    std::fill(only_.begin(), only_.end(), std::uint8_t{0});
    only_[static_cast<std::size_t>(*forced)] = 1;
    return only_;
  }
  void accept(TokenId token) override {
    if (rest_) rest_->accept(token);
    budget_.accept(token);
  }
  bool may_end() const override { return !rest_ || rest_->may_end(); }
  bool must_end() const override { return rest_ && rest_->must_end(); }

 private:
  ThinkingBudget budget_;
  std::shared_ptr<TokenConstraint> rest_;
  std::vector<std::uint8_t> only_;
};

GrammarCacheLimits limits_of(const GrammarMemory& memory, std::size_t n_ids) {
  GrammarCacheLimits limits;
  if (memory.bytes == 0) return limits;
  constexpr std::uint64_t kBytesPerState = 400;  // measured, while it is compiled
  limits.max_states = std::min<std::uint64_t>(limits.max_states, memory.bytes / 2 / kBytesPerState);
  limits.max_bytes = std::min<std::uint64_t>(limits.max_bytes, memory.bytes / 4);
  const std::uint64_t each = memory.bytes / 4 / static_cast<std::uint64_t>(memory.n_answers);
  TokenMaskLimits& of_each = limits.of_each;
  of_each.n_masks = std::clamp<std::size_t>(each / 8 / (n_ids / 8 + 1), 4, of_each.n_masks);
  of_each.automaton_bytes = std::min<std::uint64_t>(of_each.automaton_bytes, each / 8 * 7);
  return limits;
}

}  // namespace

GrammarCache& AnswerConstraints::grammars() {
  const std::lock_guard lock(mutex_);
  if (!grammars_) {
    const Tokenizer& tokenizer = engine_.tokenizer();
    const std::vector<TokenId>& ends = engine_.stop_tokens();
    grammars_.emplace(std::make_shared<TokenTrie>(
                          tokenizer.n_ids(),
                          [&](TokenId id) {
                            if (std::find(ends.begin(), ends.end(), id) != ends.end())
                              return TokenTrie::Kind::Unused;
                            return tokenizer.is_added(id) ? TokenTrie::Kind::Control
                                                          : TokenTrie::Kind::Text;
                          },
                          [&](TokenId id) { return tokenizer.token_bytes(id); }),
                      limits_of(memory_, tokenizer.n_ids()));
  }
  return *grammars_;
}

std::vector<TokenId> AnswerConstraints::after_thought(const GenerationPrompt& prompt) const {
  if (!prompt.reply.opens_thought || prompt.format == ReplyFormat::Harmony) return {};
  const std::string_view marker = thought_markers(prompt.format).end;
  const std::optional<TokenId> end = engine_.tokenizer().find_token(marker);
  if (end) return {*end};
  throw HttpError(501, "not_supported_error",
                  "this model has no token that ends its thoughts, so the form of what follows "
                  "cannot be demanded; switch thinking off");
}

std::shared_ptr<TokenConstraint> AnswerConstraints::of_output(const OutputFormat& output,
                                                              const GenerationPrompt& prompt) {
  GrammarConstraintOptions options{.end_tokens = engine_.stop_tokens(),
                                   .starts_after = after_thought(prompt)};
  const JsonSchemaOptions json{.leading_newlines = !options.starts_after.empty()};
  const bool in_channels = prompt.is_chat && prompt.format == ReplyFormat::Harmony;
  const auto in_answer_channel = [&](const Json& schema) {
    return grammars().gbnf(harmony_answer_grammar(), {{"value", schema}});
  };
  std::shared_ptr<TokenMasks> masks;
  switch (output.kind) {
    case OutputFormat::Kind::Text:
      return nullptr;
    case OutputFormat::Kind::JsonObject:
      masks =
          in_channels ? in_answer_channel(Json{{"type", "object"}}) : grammars().json_object(json);
      break;
    case OutputFormat::Kind::JsonSchema:
      masks = in_channels ? in_answer_channel(output.schema)
                          : grammars().json_schema(output.schema, json);
      break;
    case OutputFormat::Kind::Grammar:
      masks = grammars().gbnf(output.grammar);
      break;
  }
  auto constraint = std::make_shared<GrammarConstraint>(std::move(masks), std::move(options));
  // A grammar is for what is written, JSON is the answer as a whole.
  const bool is_whole = output.kind != OutputFormat::Kind::Grammar;
  if (is_whole && !prompt.form_begun.empty() && !constraint->begin_with(prompt.form_begun)) {
    fail(Errc::BadInput, "nothing of the form that is demanded begins as the last message does");
  }
  return constraint;
}

std::vector<std::string> AnswerConstraints::unenforced(const OutputFormat& output) {
  if (output.kind != OutputFormat::Kind::JsonSchema) return {};
  return grammars().json_schema(output.schema)->notes();
}

AnswerConstraints::Calls AnswerConstraints::compile(ReplyFormat format, const Json& tools,
                                                    ToolGrammarOptions options) {
  const auto with = [&] {
    ToolGrammar grammar = tool_grammar(format, tools, options);
    auto masks = grammars().gbnf(grammar.gbnf, grammar.schemas);
    return Calls{std::move(masks), std::move(grammar.starts_after), grammar.repeats};
  };
  try {
    return with();
  } catch (const Error& error) {
    const bool is_demanded = options.choice.mode != ToolChoice::Mode::Auto;
    if (is_demanded && error.code() != Errc::Unsupported) throw;
  }
  options.use_schemas = false;  // a schema that no grammar can keep: any arguments then
  return with();
}

std::shared_ptr<TokenConstraint> AnswerConstraints::of_demanded_call(
    const GenerationRequest& request, const GenerationPrompt& prompt) {
  const Calls calls = compile(prompt.format, prompt.reply.tools,
                              {.choice = prompt.tool_choice,
                               .parallel = request.parallel_tool_calls,
                               .opens_thought = prompt.reply.opens_thought});
  GrammarConstraintOptions how{.end_tokens = engine_.stop_tokens(), .repeats = calls.repeats};
  if (!calls.starts_after.empty()) how.starts_after = after_thought(prompt);
  return std::make_shared<GrammarConstraint>(calls.masks, std::move(how));
}

// A model that may call writes what it likes, but its calls are well-formed. Where no grammar can
// be had for them they are left to the model: nothing was demanded.
std::shared_ptr<TokenConstraint> AnswerConstraints::of_free_calls(const GenerationRequest& request,
                                                                  const GenerationPrompt& prompt) {
  const Json& tools = prompt.reply.tools;
  if (!prompt.is_chat || prompt.format == ReplyFormat::Plain || !prompt.may_call()) return nullptr;
  try {
    Calls calls = compile(prompt.format, tools, {.parallel = request.parallel_tool_calls});
    return std::make_shared<CallConstraint>(
        engine_.tokenizer(), std::move(calls.masks),
        CallConstraint::Options{.format = prompt.format,
                                .opener = std::move(calls.starts_after),
                                .end_tokens = engine_.stop_tokens(),
                                .opens_thought = prompt.reply.opens_thought,
                                .in_answer = !prompt.begun.empty() && !prompt.reply.opens_thought,
                                .repeats = calls.repeats});
  } catch (const Error&) {
    return nullptr;
  }
}

std::shared_ptr<TokenConstraint> AnswerConstraints::make(const GenerationRequest& request,
                                                         const GenerationPrompt& prompt) {
  std::shared_ptr<TokenConstraint> constraint;
  const char* field = "tools";
  try {
    const ToolChoice::Mode mode = prompt.tool_choice.mode;
    if (mode == ToolChoice::Mode::Required || mode == ToolChoice::Mode::Named)
      constraint = of_demanded_call(request, prompt);
    field = request.output.kind == OutputFormat::Kind::Grammar ? "grammar" : "response_format";
    if (!constraint) constraint = of_output(request.output, prompt);
    if (!constraint) constraint = of_free_calls(request, prompt);
  } catch (const Error& error) {
    throw HttpError(400, "invalid_request_error", error.what()).with_param(field);
  }
  return with_limited_thought(request, prompt, std::move(constraint));
}

std::shared_ptr<TokenConstraint> AnswerConstraints::with_limited_thought(
    const GenerationRequest& request, const GenerationPrompt& prompt,
    std::shared_ptr<TokenConstraint> rest) const {
  const ThinkingChoice& thinking = request.thinking;
  if (!thinking.budget || !(prompt.thinks || prompt.reply.opens_thought)) return rest;
  const bool is_harmony = prompt.format == ReplyFormat::Harmony;
  if (is_harmony && thinking.budget_is_of_effort) return rest;  // the model keeps to it by itself
  const ThoughtMarkers markers =
      thought_markers(prompt.format, /*calls_may_follow=*/prompt.may_call());
  return std::make_shared<LimitedThought>(
      ThinkingBudget(engine_.tokenizer(), *thinking.budget, prompt.reply.opens_thought, markers),
      engine_.tokenizer().n_ids(), std::move(rest));
}

}  // namespace moeflux
