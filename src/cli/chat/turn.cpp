// One turn of a chat: the model's reply to the last message, and its replies to what its tools give
// until it calls no more.
#include "base/error.h"
#include "cli/chat/loop.h"
#include "cli/terminal/interrupt.h"

namespace moeflux::cli {
namespace {

ChatReply ask(Chat& chat) {
  ChatQuestion question;
  question.messages = plain_messages(chat.session.messages);
  question.tools = chat.tools.definitions();
  question.extra = chat.template_variables;
  if (chat.settings.thinking) question.extra["enable_thinking"] = *chat.settings.thinking;
  question.sampling = chat.settings.sampling;
  question.max_tokens = chat.settings.max_tokens;

  AnswerView view(view_options(chat), [](std::string_view text) { write_stdout(text); });
  ChatEvents events;
  events.on_prompt = [&](std::int64_t n_new, std::int64_t n_cached) {
    view.reading(n_new, n_cached);
  };
  events.on_thought = [&](std::string_view text) { view.thought(text); };
  events.on_text = [&](std::string_view text) { view.text(text); };
  events.on_call = [&](const std::string& name) { view.call(name); };
  events.cancelled = [] { return interrupted(); };
  try {
    ChatReply reply = chat.backend.answer(question, events);
    view.finish();
    return reply;
  } catch (...) {
    view.finish();
    throw;
  }
}

Json call_json(const ToolCall& call, const std::string& id) {
  return {{"id", id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

// The calls of the reply that are whole; ids are unique in the conversation.
std::vector<std::pair<std::string, ToolCall>> whole_calls(const Chat& chat,
                                                          const ChatReply& reply) {
  std::vector<std::pair<std::string, ToolCall>> calls;
  for (const ToolCall& call : reply.reply.calls) {
    if (call.complete)
      calls.emplace_back(fmt::format("call_{}_{}", chat.session.messages.size(), calls.size()),
                         call);
  }
  return calls;
}

void say_how_it_ended(const Chat& chat, const ChatReply& reply) {
  const bool color = chat.general.color_on_stdout();
  if (reply.end == ChatEnd::Stopped && chat.interactive())
    write_stdout(styled("[stopped]", Style::Yellow, color) + "\n");
  if (reply.end == ChatEnd::Length)
    chat.general.note(
        fmt::format("the answer ended at {} tokens (/set max_tokens)", reply.n_answer));
  if (reply.end == ChatEnd::ContextFull)
    chat.general.note("the context is full: /undo or /clear, or a larger -c at the start");
  for (const ToolCall& call : reply.reply.calls) {
    if (!call.complete) chat.general.note("a call of a tool was cut off and is not run");
  }
  if (chat.interactive() && chat.settings.stats_line && !chat.general.quiet)
    write_stdout(styled(stats_line(reply, stdout_width()), Style::Dim, color) + "\n");
}

bool said_nothing(const ChatReply& reply) {
  return reply.reply.content.empty() && reply.reply.reasoning.empty() && reply.reply.calls.empty();
}

void add_tool_message(Chat& chat, const std::string& id, const ToolCall& call,
                      const std::string& content) {
  chat.session.add(
      {{"role", "tool"}, {"tool_call_id", id}, {"name", call.name}, {"content", content}},
      chat.backend.model());
}

// False: the user wants no more. Every call gets a result, so that the conversation can go on.
bool run_calls(Chat& chat, const std::vector<std::pair<std::string, ToolCall>>& calls,
               bool too_many) {
  bool go_on = !too_many;
  for (const auto& [id, call] : calls) {
    std::optional<std::string> result;
    if (go_on) {
      const CommandLimits limits{.seconds = chat.settings.tool_timeout};
      result = chat.runner.run(call, limits, [] { return interrupted(); });
      go_on = result.has_value() && !interrupted();
    }
    add_tool_message(chat, id, call,
                     result.value_or(too_many ? "error: too many calls in one turn"
                                              : "The user has stopped this."));
  }
  return go_on;
}

Json reply_message(const ChatReply& reply,
                   const std::vector<std::pair<std::string, ToolCall>>& calls) {
  Json message = {{"role", "assistant"}, {"content", reply.reply.content}};
  if (!reply.reply.reasoning.empty()) message["reasoning_content"] = reply.reply.reasoning;
  for (const auto& [id, call] : calls) message["tool_calls"].push_back(call_json(call, id));
  if (reply.end == ChatEnd::Stopped) message["stopped"] = true;
  return message;
}

}  // namespace

ViewOptions view_options(const Chat& chat) {
  return {.think = chat.settings.think,
          .markdown = chat.settings.markdown,
          .color = chat.general.color_on_stdout(),
          .live = chat.lines.can_redraw(),
          .width = stdout_width()};
}

Json plain_messages(const Json& messages) {
  Json plain = Json::array();
  for (const Json& message : messages) {
    Json copy = Json::object();
    for (const char* key :
         {"role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name"}) {
      if (message.contains(key)) copy[key] = message[key];
    }
    plain.push_back(std::move(copy));
  }
  return plain;
}

TurnEnd answer_turn(Chat& chat) {
  const InterruptGuard guard;
  std::optional<HiddenKeys> hidden;
  if (chat.interactive()) hidden.emplace();
  const std::size_t n_before = chat.session.messages.size() - 1;
  for (std::int64_t round = 0;; ++round) {
    try {
      chat.last_reply = ask(chat);
    } catch (const Error&) {
      if (round == 0) chat.session.cut(n_before);
      throw;
    }
    const ChatReply& reply = *chat.last_reply;
    if (said_nothing(reply) && round == 0 && reply.end == ChatEnd::Stopped) {
      chat.session.cut(n_before);
      chat.general.note("stopped before anything was said; the question is taken back");
      return TurnEnd::Stopped;
    }
    const auto calls = whole_calls(chat, reply);
    chat.session.add(reply_message(reply, calls), chat.backend.model());
    say_how_it_ended(chat, reply);
    const bool stopped = reply.end == ChatEnd::Stopped;
    const bool too_many = round >= chat.max_calls;
    if (too_many && !calls.empty())
      chat.general.note(fmt::format("no more tools in this turn: {} rounds", round));
    const bool go_on = !calls.empty() && run_calls(chat, calls, too_many || stopped);
    chat.store.save(chat.session);
    if (!go_on) return stopped || interrupted() ? TurnEnd::Stopped : TurnEnd::Done;
  }
}

}  // namespace moeflux::cli
