#include "cli/chat/local_backend.h"

#include <chrono>

#include "base/error.h"
#include "base/stopwatch.h"
#include "cli/conversation.h"
#include "cli/options/model_options.h"
#include "cli/reports/run_stats.h"
#include "text/replies/reply_history.h"

namespace moeflux::cli {
namespace {

using Clock = std::chrono::steady_clock;

ChatEnd end_of(StopReason reason) {
  if (reason == StopReason::MaxTokens) return ChatEnd::Length;
  if (reason == StopReason::ContextFull) return ChatEnd::ContextFull;
  return reason == StopReason::Cancelled ? ChatEnd::Stopped : ChatEnd::Complete;
}

// Passes pieces of a reply on to whoever shows them, and keeps them.
class ReplyStream {
 public:
  ReplyStream(std::unique_ptr<ReplyParser> parser, const ChatEvents& events, Reply& reply)
      : parser_(std::move(parser)), events_(events), reply_(reply) {}

  void feed(std::string_view text) { pass_on(parser_->feed(text)); }
  void finish(ReplyEnd end) { pass_on(parser_->finish(end)); }

 private:
  void pass_on(const ReplyPieces& pieces) {
    reply_.add(pieces);
    for (const ReplyPiece& piece : pieces) {
      if (const auto* text = std::get_if<ContentDelta>(&piece)) {
        if (events_.on_text) events_.on_text(text->text);
      } else if (const auto* thought = std::get_if<ReasoningDelta>(&piece)) {
        if (events_.on_thought) events_.on_thought(thought->text);
      } else if (const auto* call = std::get_if<ToolCallBegin>(&piece)) {
        if (events_.on_call) events_.on_call(call->name);
      }
    }
  }

  std::unique_ptr<ReplyParser> parser_;
  const ChatEvents& events_;
  Reply& reply_;
};

}  // namespace

LocalBackend::LocalBackend(std::unique_ptr<Engine> engine, const PrefixOptions& prefix,
                           DraftOptions drafts)
    : engine_(std::move(engine)),
      drafts_(drafts),
      read_ahead_(prefix.ahead),
      defaults_(resolve_sampling({}, engine_->source())),
      session_(engine_->new_session()),
      prefix_(*engine_, prefix, /*is_chat=*/true) {}

const ReplyProfile& LocalBackend::profile(bool with_tools) {
  std::optional<ReplyProfile>& known = with_tools ? tool_profile_ : profile_;
  if (!known) known = detect_reply_profile(engine_->chat_template(with_tools));
  return *known;
}

LocalBackend::Prompt LocalBackend::encode(const ChatQuestion& question) {
  Prompt prompt;
  prompt.chat.tools = normalize_tools(question.tools);
  prompt.chat.extra = question.extra;
  const bool with_tools = has_tools(prompt.chat);
  prompt.chat.messages = normalize_messages(question.messages, profile(with_tools));
  prompt.chat.tools = tools_for_template(std::move(prompt.chat.tools), profile(with_tools));
  adapt_thinking_variables(profile(with_tools).format, prompt.chat.extra);
  const MarkedText rendered = engine_->chat_template(with_tools).render(prompt.chat);
  prompt.tokens = engine_->tokenizer().encode(rendered);
  prompt.opens_thought = prompt_opens_thought(rendered);
  return prompt;
}

void LocalBackend::check_length(const Prompt& prompt) const {
  const auto n = std::ssize(prompt.tokens);
  if (n < session_.max_length()) return;
  fail(Errc::LimitExceeded,
       "the conversation has {} tokens and the context holds {}: /undo or /clear makes it shorter, "
       "a larger -c at the start holds more",
       n, session_.max_length());
}

ChatReply LocalBackend::answer(const ChatQuestion& question, const ChatEvents& events) {
  last_prompt_.reset();
  const Clock::time_point start = Clock::now();
  Prompt prompt = encode(question);
  check_length(prompt);
  AnswerRequest request;
  request.prompt = prompt.tokens;
  request.sampling = resolve_sampling(question.sampling, engine_->source());
  request.max_tokens = question.max_tokens;
  const PrefixPoints points = find_prefix_points(engine_->chat_template(has_tools(prompt.chat)),
                                                 engine_->tokenizer(), prompt.chat, prompt.tokens);
  request.keep_at = points.positions;

  ChatReply answer;
  ReplyOptions options;
  options.opens_thought = prompt.opens_thought;
  options.tools = prompt.chat.tools;
  const ReplyFormat format = profile(has_tools(prompt.chat)).format;
  request.shown_special = special_marker_tokens(
      has_tools(prompt.chat) ? format : format_without_calls(format), engine_->tokenizer());
  ReplyStream stream(make_reply_parser(format, options), events, answer.reply);
  GenerateOptions generating;
  generating.drafts = drafts_;
  generating.sync = &prefix_.sync();
  generating.keep_answer = points.answer_stays;
  generating.on_prompt = events.on_prompt;
  generating.events.cancelled = events.cancelled;
  generating.events.on_text = [&](std::string_view text) {
    if (answer.first_token_seconds == 0) answer.first_token_seconds = seconds_since(start);
    stream.feed(text);
  };
  last_ = generate(*engine_, session_, request, generating);
  stream.finish(last_->reason == StopReason::EndToken ? ReplyEnd::Complete : ReplyEnd::Cut);

  answer.end = end_of(last_->reason);
  answer.n_prompt = std::ssize(prompt.tokens);
  answer.n_cached = last_->reused.n_tokens;
  answer.n_answer = std::ssize(last_->tokens);
  answer.prompt_seconds = last_->prefill_seconds;
  answer.answer_seconds = last_->decode_seconds;
  const LayerActivity total = last_->decode.total();
  answer.hits = total.hits;
  answer.misses = total.misses;
  if (answer.end == ChatEnd::Complete && answer.reply.calls.empty()) {
    last_prompt_ = std::move(prompt);
    last_answer_ = answer.reply.content;
  }
  return answer;
}

void LocalBackend::between_turns(const std::function<bool()>& cancelled) {
  if (!read_ahead_ || !last_prompt_) return;
  const Prompt prompt = *std::exchange(last_prompt_, std::nullopt);
  const std::vector<TokenId> tokens =
      next_turn_prefix(engine_->chat_template(has_tools(prompt.chat)), engine_->tokenizer(),
                       prompt.chat, last_answer_);
  prefix_.read_ahead(session_, tokens, cancelled);
}

std::string LocalBackend::statistics() const {
  if (!last_) return "";
  return fmt::format("{}{:<10}{:>6} tokens of the prompt were there already, from: {}\n",
                     stats_text(*engine_, *last_), "prefix", last_->reused.n_tokens,
                     prefix_origin_name(last_->reused.origin));
}

std::string LocalBackend::warning() {
  if (has_warned_) return "";
  std::string text = prefix_.warning();
  has_warned_ = !text.empty();
  return text;
}

}  // namespace moeflux::cli
