#include "text/replies/thought_gate.h"

#include <random>

#include <gtest/gtest.h>

namespace moeflux {
namespace {

// The text with what is thought in brackets.
std::string gated(const ThoughtGate::Options& options, std::string_view text,
                  std::size_t piece = std::string_view::npos) {
  ThoughtGate gate(options);
  std::string result;
  bool in_thought = false;
  const auto add = [&](const std::vector<ThoughtGate::Piece>& pieces) {
    for (const ThoughtGate::Piece& each : pieces) {
      if (each.is_thought != in_thought) result += in_thought ? "]" : "[";
      in_thought = each.is_thought;
      result += each.text;
    }
  };
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size())))
    add(gate.feed(text.substr(0, piece)));
  add(gate.finish());
  return result + (in_thought ? "]" : "");
}

struct Case {
  ThoughtGate::Options options;
  std::string text, gated;
};

const Case kCases[] = {
    {{}, "no thought", "no thought"},
    {{}, "", ""},
    {{}, "<thin", "<thin"},
    {{}, "<thinking> is no marker", "<thinking> is no marker"},
    {{}, " \n<think>a</think>b", "[ \n<think>a</think>]b"},
    {{}, "a<think>b</think>", "a<think>b</think>"},
    {{.opens_thought = true}, "a</thin</think>b</think>", "[a</thin</think>]b</think>"},
    {{.opens_thought = true}, "never ends", "[never ends]"},
    {{.in_answer = true}, "<think>said</think>", "<think>said</think>"},
    {{.format = ReplyFormat::Gemma},
     "<|channel>thought\na<channel|>b",
     "[<|channel>thought\na<channel|>]b"},
    {{.format = ReplyFormat::Harmony},
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b",
     "[<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>]b"},
    {{.format = ReplyFormat::Harmony},
     "<|channel|>commentary<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b",
     "[<|channel|>commentary<|message|>]a<|end|>[<|start|>assistant<|channel|>analysis<|message|>"
     "b]"},
    {{.format = ReplyFormat::Harmony, .opens_thought = true},
     "a<|end|><|start|>assistant<|channel|>final<|message|>b",
     "[a<|end|><|start|>assistant<|channel|>final<|message|>]b"},
};

TEST(ThoughtGateTest, TellsThoughtsFromTheRest) {
  for (const Case& each : kCases) EXPECT_EQ(gated(each.options, each.text), each.gated);
}

TEST(ThoughtGateTest, CutsDoNotMatter) {
  for (const Case& each : kCases) {
    for (const std::size_t piece : {1u, 2u, 3u, 7u})
      EXPECT_EQ(gated(each.options, each.text, piece), each.gated) << piece;
  }
}

}  // namespace
}  // namespace moeflux
