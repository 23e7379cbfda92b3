#include "cli/chat/settings.h"

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/suggestion.h"
#include "base/text.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

constexpr const char* kDefault = "default";

template <class T>
T parse_number(const std::string& text) {
  const auto value = to_number<T>(text);
  if (!value) fail(Errc::BadInput, "\"{}\" is not a number", safe_line(text));
  return *value;
}

bool parse_switch(const std::string& text) {
  if (text == "on" || text == "true" || text == "yes" || text == "1") return true;
  if (text == "off" || text == "false" || text == "no" || text == "0") return false;
  fail(Errc::BadInput, "\"{}\" is neither on nor off", safe_line(text));
}

const char* switch_name(bool value) {
  return value ? "on" : "off";
}

const char* think_name(ThinkView think) {
  return think == ThinkView::Show ? "show" : think == ThinkView::Fold ? "fold" : "hide";
}

using Defaults = std::optional<SamplingParams>;

struct ChatSetting {
  std::string key;
  std::string help;
  std::function<void(ChatSettings&, const std::string&)> set;
  std::function<std::string(const ChatSettings&, const Defaults&)> get;
};

// One of SamplingOptions, with the field of SamplingParams it stands for.
template <class Given, class Value>
ChatSetting sampling(const char* key, const char* help,
                     std::optional<Given> SamplingOptions::*option, Value SamplingParams::*field) {
  return {key, help,
          [option](ChatSettings& settings, const std::string& text) {
            SamplingOptions changed = settings.sampling;
            if (text == kDefault) {
              changed.*option = std::nullopt;
            } else {
              changed.*option = parse_number<Given>(text);
            }
            SamplingParams params;
            apply_sampling(changed, params);  // refuses what is out of range
            settings.sampling = changed;
          },
          [option, field](const ChatSettings& settings, const Defaults& defaults) {
            const auto& given = settings.sampling.*option;
            if (given) return fmt::format("{}", *given);
            return defaults ? fmt::format("{} (default)", (*defaults).*field) : "the server's";
          }};
}

ChatSetting seed() {
  return {"seed", "the same answers again for the same questions",
          [](ChatSettings& settings, const std::string& text) {
            settings.sampling.seed =
                text == kDefault ? std::nullopt : std::optional(parse_number<std::int64_t>(text));
          },
          [](const ChatSettings& settings, const Defaults&) {
            const auto& given = settings.sampling.seed;
            return given && *given >= 0 ? fmt::format("{}", *given) : "a new one each time";
          }};
}

ChatSetting max_tokens() {
  return {"max_tokens", "at most so many tokens in an answer (0: what the context holds)",
          [](ChatSettings& settings, const std::string& text) {
            const auto n = text == kDefault ? 0 : parse_number<std::int64_t>(text);
            if (n < 0) fail(Errc::BadInput, "it must be 0 (no limit) or more");
            settings.max_tokens = n;
          },
          [](const ChatSettings& settings, const Defaults&) {
            return fmt::format("{}", settings.max_tokens);
          }};
}

ChatSetting thinking() {
  return {"thinking", "on or off: whether the model thinks before it answers",
          [](ChatSettings& settings, const std::string& text) {
            settings.thinking = text == kDefault ? std::nullopt : std::optional(parse_switch(text));
          },
          [](const ChatSettings& settings, const Defaults&) {
            return settings.thinking ? switch_name(*settings.thinking) : "as the model has it";
          }};
}

ChatSetting think() {
  return {"think", "show, fold or hide what the model thinks",
          [](ChatSettings& settings, const std::string& text) {
            settings.think = parse_think(text == kDefault ? "fold" : text);
          },
          [](const ChatSettings& settings, const Defaults&) { return think_name(settings.think); }};
}

ChatSetting on_off(const char* key, const char* help, bool ChatSettings::*field) {
  return {key, help,
          [field](ChatSettings& settings, const std::string& text) {
            settings.*field = text == kDefault || parse_switch(text);
          },
          [field](const ChatSettings& settings, const Defaults&) {
            return switch_name(settings.*field);
          }};
}

ChatSetting tool_timeout() {
  return {"tool_timeout", "seconds that a tool may take",
          [](ChatSettings& settings, const std::string& text) {
            const double seconds =
                text == kDefault ? ChatSettings().tool_timeout : parse_number<double>(text);
            if (!(seconds > 0 && seconds <= 86400))
              fail(Errc::BadInput, "it must be more than 0 seconds and at most 86400");
            settings.tool_timeout = seconds;
          },
          [](const ChatSettings& settings, const Defaults&) {
            return fmt::format("{}", settings.tool_timeout);
          }};
}

const std::vector<ChatSetting>& all_settings() {
  using Options = SamplingOptions;
  using Params = SamplingParams;
  static const std::vector<ChatSetting> settings{
      sampling("temperature", "0 always takes the most likely token", &Options::temperature,
               &Params::temperature),
      sampling("top_k", "keep the K most likely tokens (0: all)", &Options::top_k, &Params::top_k),
      sampling("top_p", "keep the fewest tokens that hold probability P", &Options::top_p,
               &Params::top_p),
      sampling("min_p", "drop tokens less likely than P times the best", &Options::min_p,
               &Params::min_p),
      sampling("typical_p", "keep the most typical tokens that hold P", &Options::typical_p,
               &Params::typical_p),
      sampling("repeat_penalty", "against tokens seen before (1: off)", &Options::repeat_penalty,
               &Params::repetition_penalty),
      sampling("presence_penalty", "against tokens of the answer (0: off)",
               &Options::presence_penalty, &Params::presence_penalty),
      sampling("frequency_penalty", "the same, once per occurrence (0: off)",
               &Options::frequency_penalty, &Params::frequency_penalty),
      seed(),
      max_tokens(),
      thinking(),
      think(),
      on_off("markdown", "on or off: lay out what the model writes", &ChatSettings::markdown),
      on_off("stats_line", "on or off: a line about speed after each answer",
             &ChatSettings::stats_line),
      tool_timeout()};
  return settings;
}

// Names that other programs use.
std::string usual_name(const std::string& key) {
  std::string name = key;
  for (char& c : name)
    if (c == '-') c = '_';
  if (name == "temp") return "temperature";
  if (name == "predict" || name == "num_predict") return "max_tokens";
  if (name == "repetition_penalty") return "repeat_penalty";
  return name;
}

}  // namespace

ThinkView parse_think(const std::string& name) {
  for (const ThinkView think : {ThinkView::Show, ThinkView::Fold, ThinkView::Hide})
    if (name == think_name(think)) return think;
  throw UsageError(fmt::format("--think: \"{}\" is not one of show, fold, hide", name));
}

void change_setting(ChatSettings& settings, const std::string& key, const std::string& value) {
  const std::string name = usual_name(key);
  std::vector<std::string> keys;
  for (const ChatSetting& setting : all_settings()) {
    keys.push_back(setting.key);
    if (setting.key != name) continue;
    if (value.empty()) fail(Errc::BadInput, "/set {} needs a value: {}", name, setting.help);
    try {
      setting.set(settings, value);
    } catch (const UsageError& error) {
      fail(Errc::BadInput, "{}", error.what());
    } catch (const Error& error) {
      fail(Errc::BadInput, "{}: {}", name, error.what());
    }
    return;
  }
  const std::string meant = closest(name, keys);
  fail(Errc::BadInput, "there is no setting \"{}\"{}; /set lists them", safe_line(key),
       meant.empty() ? "" : fmt::format(", did you mean {}?", meant));
}

std::string describe_settings(const ChatSettings& settings,
                              const std::optional<SamplingParams>& defaults) {
  std::string text;
  for (const ChatSetting& setting : all_settings()) {
    text += fmt::format("  {:<18}{:<22}{}\n", setting.key, setting.get(settings, defaults),
                        setting.help);
  }
  return text;
}

}  // namespace moeflux::cli
