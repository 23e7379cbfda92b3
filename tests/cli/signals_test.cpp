// Ctrl-C and a reader that goes away, during an answer that would take very long.
#include <chrono>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>

#include "cli/program.h"

namespace moeflux::test {
namespace {

const std::vector<std::string> kEndless{
    "run", "--no-think", "--ignore-eos", "--temp", "1",
    "-s",  "1",          "-c",           "16384",  "Tell me a short story about a frog."};

TEST(SignalsTest, OneInterruptEndsTheAnswer) {
  Program program(program_path(), kEndless, with_demo_model());
  program.wait_for_output();
  program.signal(SIGINT);
  const Outcome outcome = program.finish();
  EXPECT_EQ(outcome.exit_code, 130);
  ASSERT_FALSE(outcome.out.empty());
  EXPECT_EQ(outcome.out.back(), '\n');
  EXPECT_EQ(outcome.err, "");
}

TEST(SignalsTest, OneInterruptStillPrintsJson) {
  std::vector<std::string> arguments = kEndless;
  arguments.insert(arguments.begin() + 1, {"--json", "-v"});
  Program program(program_path(), arguments, with_demo_model());
  program.wait_for_message();  // -v says on standard error that the model is loaded
  program.signal(SIGINT);
  const Outcome outcome = program.finish();
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_NE(outcome.out.find("\"finish_reason\":\"cancelled\""), std::string::npos) << outcome.out;
}

TEST(SignalsTest, TwoInterruptsEndTheProgramAtOnce) {
  // A long prompt: passes over it are long, so the second interrupt comes before the first one is
  // noticed.
  std::string prompt;
  for (int i = 0; i < 1500; ++i) prompt += "The code of the red ball is 1234. ";
  const std::vector<std::string> arguments{"run", "--json", "-v", "-c", "32768",
                                           "-t",  "1",      "-f", "-"};
  Input input = with_demo_model();
  input.text = prompt;
  Program program(program_path(), arguments, input);
  program.wait_for_message();
  program.signal(SIGINT);
  std::this_thread::sleep_for(
      std::chrono::milliseconds(5));  // two signals that wait would become one
  program.signal(SIGINT);
  const Outcome outcome = program.finish();
  EXPECT_EQ(outcome.exit_code, 130);
  // The program ends at once, or the first interrupt had already ended the answer in the moment between the two.
  if (!outcome.out.empty()) {
    EXPECT_NE(outcome.out.find("\"finish_reason\":\"cancelled\""), std::string::npos) << outcome.out;
  }
}

TEST(SignalsTest, AReaderThatGoesAwayEndsTheProgramQuietly) {
  Input input = with_demo_model();
  input.close_stdout_early = true;
  Program program(program_path(), kEndless, input);
  const Outcome outcome = program.finish();
  EXPECT_EQ(outcome.exit_code, 128 + SIGPIPE);
  EXPECT_EQ(outcome.err, "");
}

}  // namespace
}  // namespace moeflux::test
