// moeflux pull, killed and cut off again and again: whatever the moment, the right bytes come out,
// and hardly any is fetched twice.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "cli/program.h"
#include "hub/hub_fixture.h"

namespace moeflux::test {
namespace {

namespace fs = std::filesystem;

class PullKill : public HubTest {
 protected:
  Input input() const {
    return {.text = "",
            .env = {{"HF_ENDPOINT", server_.url()},
                    {"HF_HUB_CACHE", cache()},
                    {"HF_TOKEN", ""},
                    {"http_proxy", ""},
                    {"all_proxy", ""},
                    {"ALL_PROXY", ""}}};
  }
  static std::vector<std::string> arguments() { return {"pull", kModel, "--connections", "4"}; }
};

TEST_F(PullKill, AHundredKillsAndAHundredCuts) {
  add("model-00003-of-00003.safetensors", random_bytes(14'000'000, 4), true);
  Random random(3);
  int n_killed = 0, n_cuts = 0, n_rounds = 0;
  std::uint64_t sent = 0, wanted = 0, sent_to_killed = 0;
  while (n_killed < 100 || n_cuts < 100) {
    ASSERT_LT(++n_rounds, 100);
    server_.set({.cut_chance = 0.8, .bytes_per_second = 4'000'000});
    int n_killed_now = 0;
    while (true) {
      const std::uint64_t before = server_.bytes_sent();
      Program program(program_path(), arguments(), input());
      if (n_killed_now < 25) {
        // Somewhere in the next bytes, between any two instructions.
        const auto some = static_cast<std::uint64_t>(1 + 600'000 * random.uniform());
        while (!program.ended() && server_.bytes_sent() < before + some)
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        program.signal(SIGKILL);
      }
      const Outcome outcome = program.finish();
      if (outcome.exit_code == 0) break;
      ASSERT_EQ(outcome.exit_code, 128 + SIGKILL) << outcome.err;
      ++n_killed_now;
      sent_to_killed += server_.bytes_sent() - before;
      expect_nothing_linked();
    }
    expect_whole();
    if (HasFailure()) return;
    n_killed += n_killed_now;
    n_cuts += server_.n_cuts();
    sent += server_.bytes_sent();
    wanted += wanted_bytes();
    server_.forget();
    fs::remove_all(cache());
  }
  EXPECT_GT(sent_to_killed, wanted / 5);
  // What a kill loses is what is on its way: in the buffers of a connection, and one piece of 256
  // KiB.
  const std::uint64_t lost = sent - wanted;
  EXPECT_LE(lost, static_cast<std::uint64_t>(n_killed) * 4 * (320u << 10));
  std::cout << n_killed << " kills, " << n_cuts << " cuts in " << n_rounds << " models; " << wanted
            << " bytes wanted, " << sent_to_killed << " sent to processes that were killed, "
            << lost << " sent twice\n";
}

}  // namespace
}  // namespace moeflux::test
