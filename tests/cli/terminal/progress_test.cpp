#include "cli/terminal/progress.h"

#include <thread>

#include <gtest/gtest.h>

namespace moeflux::cli {
namespace {

using namespace std::chrono_literals;

TEST(PromptProgressTest, ShowsHowFarAndHowFast) {
  testing::internal::CaptureStderr();
  PromptProgress progress(/*shown=*/true);
  progress.update(100, 1000);  // that many were there already
  std::this_thread::sleep_for(600ms);
  progress.update(400, 1000);
  progress.update(1000, 1000);
  progress.end();
  const std::string shown = testing::internal::GetCapturedStderr();
  EXPECT_NE(shown.find("\rreading the prompt "), std::string::npos) << shown;
  EXPECT_NE(shown.find("400 of 1000 tokens, "), std::string::npos) << shown;
  EXPECT_NE(shown.find("/s, 0:01 left"), std::string::npos) << shown;
  EXPECT_TRUE(shown.ends_with("\r\033[K")) << shown;
}

TEST(PromptProgressTest, ShortOnesAndHiddenOnesShowNothing) {
  testing::internal::CaptureStderr();
  {
    PromptProgress quick(/*shown=*/true), hidden(/*shown=*/false);
    for (PromptProgress* each : {&quick, &hidden}) {
      each->update(0, 10);
      each->update(10, 10);
    }
    std::this_thread::sleep_for(120ms);
    hidden.update(5, 10);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace moeflux::cli
