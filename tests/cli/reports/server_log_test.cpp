#include "cli/reports/server_log.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace moeflux::cli {
namespace {

using namespace std::chrono_literals;

AccessRecord a_record() {
  return {.time = std::chrono::system_clock::time_point(1'700'000'000'042ms),
          .client = "192.0.2.7",
          .method = "POST",
          .path = "/v1/chat/completions",
          .status = 200,
          .bytes_in = 120,
          .bytes_out = 3000,
          .seconds = 1.5,
          .notes = {
              .model = "demo", .prompt_tokens = 31, .cached_tokens = 20, .completion_tokens = 12}};
}

std::string logged(const ServerLog& log, const AccessRecord& record) {
  testing::internal::CaptureStderr();
  log.request(record);
  return testing::internal::GetCapturedStderr();
}

TEST(ServerLogTest, TextIsOneLine) {
  EXPECT_EQ(access_text(a_record(), true),
            "2023-11-14T22:13:20.042Z POST /v1/chat/completions 200 1.500 s 192.0.2.7 model=demo "
            "prompt=31 cached=20 completion=12");
  const AccessRecord bad{.client = "unix",
                         .method = "GET",
                         .path = "/x\n\033[2J",
                         .status = 404,
                         .notes = {.error = "there is\nnothing"}};
  const std::string line = access_text(bad, false);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(line.find('\033'), std::string::npos);
  EXPECT_TRUE(line.starts_with("GET /x")) << line;
  EXPECT_NE(line.find(" 404 0.000 s unix: there is"), std::string::npos) << line;
}

TEST(ServerLogTest, JsonHasTheSame) {
  const Json json = parse_json(access_json(a_record()), "line");
  const Json expected = {{"time", "2023-11-14T22:13:20.042Z"},
                         {"level", "info"},
                         {"event", "request"},
                         {"client", "192.0.2.7"},
                         {"method", "POST"},
                         {"path", "/v1/chat/completions"},
                         {"status", 200},
                         {"seconds", 1.5},
                         {"bytes_in", 120},
                         {"bytes_out", 3000},
                         {"model", "demo"},
                         {"prompt_tokens", 31},
                         {"cached_tokens", 20},
                         {"completion_tokens", 12}};
  EXPECT_EQ(json, expected);
}

TEST(ServerLogTest, LevelsByWhatHappened) {
  const auto level = [](const char* method, const char* path, int status, bool left = false) {
    return log_level_name(
        level_of({.method = method, .path = path, .status = status, .was_left = left}));
  };
  EXPECT_EQ(level("GET", "/health", 200), "debug");
  EXPECT_EQ(level("GET", "/page/app.js", 200), "debug");
  EXPECT_EQ(level("GET", "/health", 503), "debug");
  EXPECT_EQ(level("GET", "/health", 401), "warning");
  EXPECT_EQ(level("POST", "/v1/messages", 503), "warning");
  EXPECT_EQ(level("POST", "/v1/messages", 500), "error");
  EXPECT_EQ(level("GET", "/v1/models", 200), "info");
  EXPECT_EQ(level("POST", "/v1/messages", 429), "warning");
  EXPECT_EQ(level("POST", "/v1/messages", 200, true), "warning");
}

TEST(ServerLogTest, ShowsWhatItsLevelAllows) {
  const ServerLog errors(ServerLog::Format::Text, LogLevel::Error, false);
  EXPECT_EQ(logged(errors, a_record()), "");
  const ServerLog journal(ServerLog::Format::Text, LogLevel::Info, true);
  EXPECT_TRUE(logged(journal, a_record()).starts_with("<6>POST /v1/chat"));
  AccessRecord failed = a_record();
  failed.status = 500;
  EXPECT_TRUE(logged(journal, failed).starts_with("<3>POST "));
  testing::internal::CaptureStderr();
  ServerLog(ServerLog::Format::Json, LogLevel::Info, false).note(LogLevel::Info, "ready: \"x\"");
  const Json note = parse_json(testing::internal::GetCapturedStderr(), "line");
  EXPECT_EQ(note.at("message"), "ready: \"x\"");
  EXPECT_EQ(note.at("event"), "note");
}

}  // namespace
}  // namespace moeflux::cli
