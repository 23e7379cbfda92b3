// Ctrl-C, and readers that go away or do not come, during work that would take very long.
#include <csignal>

#include <gtest/gtest.h>

#include "cli/program.h"
#include "support/paths.h"

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

// Standard output is full, so the program cannot end by itself: after the first interrupt it waits
// for a reader to take the last of the answer.
TEST(SignalsTest, TwoInterruptsEndTheProgramAtOnce) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer holds signals back until a system call returns";
#endif
  std::vector<std::string> arguments = kEndless;
  arguments.insert(arguments.begin() + 1, "-v");
  Input input = with_demo_model();
  input.stdout_is_full = true;
  Program program(program_path(), arguments, input);
  program.wait_for_message();  // the model is loaded, so interrupts are counted
  program.signal_and_wait(SIGINT);
  EXPECT_FALSE(program.ended());
  program.signal(SIGINT);
  const Outcome outcome = program.finish();
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_EQ(outcome.out, "");
  // The handler of the second one ends the line; a death by the signal itself would not.
  ASSERT_GE(outcome.err.size(), 2u);
  EXPECT_EQ(outcome.err.substr(outcome.err.size() - 2), "\n\n") << outcome.err;
}

// The same, but the reader comes after the first interrupt: the answer ends properly.
TEST(SignalsTest, AnInterruptDuringAWriteIsNoticedAfterIt) {
  std::vector<std::string> arguments = kEndless;
  arguments.insert(arguments.begin() + 1, "-v");
  Input input = with_demo_model();
  input.stdout_is_full = true;
  Program program(program_path(), arguments, input);
  program.wait_for_message();
  program.signal_and_wait(SIGINT);
  program.drain_stdout();
  const Outcome outcome = program.finish();
  EXPECT_EQ(outcome.exit_code, 130);
  ASSERT_FALSE(outcome.out.empty());
  EXPECT_EQ(outcome.out.back(), '\n');
}

TEST(SignalsTest, AnInterruptEndsAVerification) {
  Input input = with_demo_model();
  input.stdout_is_full = true;
  const std::string fixture = source_path("tests/fixtures/qwen-fp8");
  Program program(program_path(),
                  {"verify", "-v", fixture, "--golden", fixture + "/golden.safetensors"}, input);
  program.wait_for_message();
  program.signal_and_wait(SIGINT);
  program.drain_stdout();
  const Outcome outcome = program.finish();
  EXPECT_EQ(outcome.exit_code, 130);
  // It was waiting to write the first check, or had not come so far.
  EXPECT_EQ(outcome.out.find("layer 0"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("within"), std::string::npos) << outcome.out;
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
