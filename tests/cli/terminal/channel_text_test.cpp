#include "cli/terminal/channel_text.h"

#include <gtest/gtest.h>

namespace moeflux::cli {
namespace {

std::string shown(ReplyFormat format, std::string_view text, const Json& tools = nullptr) {
  ChannelText channels(format, false, tools);
  std::string out;
  for (const char c : text) out += channels.feed({&c, 1});
  return out + std::string(channels.finish());
}

TEST(ChannelTextTest, ThoughtsAndCallsStandBetweenTags) {
  const std::string thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
  EXPECT_EQ(shown(ReplyFormat::Harmony, thought + "<|channel|>final<|message|>Yes."),
            "<think>\nHm.\n</think>\n\nYes.");
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "now"}}])");
  EXPECT_EQ(shown(ReplyFormat::Harmony,
                  "<|channel|>commentary to=functions.now<|message|>{\"a\": 1}", tools),
            "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1}}\n</tool_call>");
  EXPECT_EQ(shown(ReplyFormat::Gemma, "<|channel>thought\nHm.\n<channel|>Yes."),
            "<think>\nHm.\n</think>\n\nYes.");
}

}  // namespace
}  // namespace moeflux::cli
