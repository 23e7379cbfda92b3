#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/program.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

TEST(DoctorCommandTest, ReportsAsText) {
  const TempDir dir;
  const Outcome outcome = run_moeflux({"doctor", "--quick", dir.path()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  for (const char* part : {"moeflux 0.", "processor", "memory", "kernel", "io_uring", "storage",
                           "file system", "direct I/O", "in flight", "findings"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << " is not in: " << outcome.out;
  }
  EXPECT_EQ(outcome.out.find('\033'), std::string::npos);  // no colours in a pipe
}

// Damaged models are what it is asked about, by any way to write their path.
TEST(DoctorCommandTest, ADamagedModelByItsBareName) {
  const TempDir dir;
  std::filesystem::create_directory(dir.file("bad"));
  dir.write("bad/config.json", "{");
  const std::string command =
      fmt::format("cd '{}' && exec '{}' doctor --quick bad", dir.path(), program_path());
  const Outcome outcome = Program("/bin/sh", {"-c", command}).finish();
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("config.json"), std::string::npos) << outcome.out;
}

TEST(DoctorCommandTest, LargeRecordsGetALargeTestFile) {
  const TempDir dir;
  const Outcome outcome =
      run_moeflux({"doctor", "--quick", "--json", "--record", "40M", dir.path()});
  const Json json = parse_json(outcome.out, "stdout");
  EXPECT_GE(json["test_file_bytes"], 160 << 20);
  for (const Json& finding : json["findings"]) EXPECT_NE(finding["id"], "disk_unreadable");
}

TEST(DoctorCommandTest, ReportsAsJson) {
  const Outcome outcome = run_moeflux({"doctor", "--quick", "--json", source_path("models/demo")});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = parse_json(outcome.out, "stdout");
  EXPECT_EQ(json["model"]["name"], "demo");
  EXPECT_EQ(json["record_bytes"], json["model"]["expert_bytes"]);
  EXPECT_EQ(json["test_file_bytes"], 0);
  EXPECT_GE(json["disk_reads"].size(), 6);
  for (const Json& each : json["disk_reads"]) EXPECT_GT(each["bytes_per_second"], 0);
  EXPECT_GE(json["memory_reads"].size(), 1);
  EXPECT_GT(json["memory"]["total"], json["memory"]["default_budget"].get<std::uint64_t>());
  EXPECT_GE(json["cpu"]["usable_threads"], 1);
  EXPECT_TRUE(json["findings"].is_array());
}

TEST(DoctorCommandTest, TellsNothingPrivate) {
  const TempDir dir;
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof(host) - 1), 0);
  const std::string out = run_moeflux({"doctor", "--quick", "--json", dir.path()}).out;
  EXPECT_EQ(out.find(dir.path()), std::string::npos);
  // Names of a few letters occur in other words.
  if (std::string(host).size() > 4) {
    EXPECT_EQ(out.find(host), std::string::npos) << host;
  }
  const char* user = std::getenv("LOGNAME");
  if (user != nullptr && std::string(user).size() > 4) {
    EXPECT_EQ(out.find(user), std::string::npos) << user;
  }
}

TEST(DoctorCommandTest, ABrokenModelIsAFailure) {
  const TempDir dir;
  dir.write("config.json", "{}");
  const Outcome outcome = run_moeflux({"doctor", "--quick", "--json", dir.path()});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(parse_json(outcome.out, "stdout")["findings"][0]["id"], "model_unusable");
}

TEST(DoctorCommandTest, BadArguments) {
  EXPECT_EQ(run_moeflux({"doctor", "/nonexistent"}).exit_code, 1);
  EXPECT_EQ(run_moeflux({"doctor", "--record", "2T"}).exit_code, 2);
  EXPECT_EQ(run_moeflux({"doctor", "a", "b"}).exit_code, 2);
}

}  // namespace
}  // namespace moeflux::test
