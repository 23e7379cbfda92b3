// What /set changes and /show tells.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/options/sampling_options.h"

namespace moeflux::cli {

enum class ThinkView { Show, Fold, Hide };
ThinkView parse_think(const std::string& name);  // throws UsageError naming --think

struct ChatSettings {
  SamplingOptions sampling;
  std::int64_t max_tokens = 0;   // of an answer; 0: what the context holds
  std::optional<bool> thinking;  // enable_thinking of the template; nothing: as it has it
  ThinkView think = ThinkView::Fold;
  bool markdown = true;
  bool stats_line = true;
  double tool_timeout = 60;  // seconds
};

// Throws Error(BadInput) for a key or a value that does not fit, and changes nothing then.
// The value "default" removes a setting.
void change_setting(ChatSettings& settings, const std::string& key, const std::string& value);

// One line a setting, with what applies where nothing is set, if that is known.
std::string describe_settings(const ChatSettings& settings,
                              const std::optional<SamplingParams>& defaults);

}  // namespace moeflux::cli
