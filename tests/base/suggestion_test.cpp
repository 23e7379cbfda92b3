#include "base/suggestion.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

TEST(ClosestTest, FindsTypingErrorsOnly) {
  const std::vector<std::string> words{"run", "tokenize", "template", "verify"};
  EXPECT_EQ(closest("rnu", words), "");  // two of three letters: could be anything
  EXPECT_EQ(closest("runn", words), "run");
  EXPECT_EQ(closest("tokenise", words), "tokenize");
  EXPECT_EQ(closest("tok", words), "tokenize");
  EXPECT_EQ(closest("serve", words), "");
}

}  // namespace
}  // namespace moeflux
