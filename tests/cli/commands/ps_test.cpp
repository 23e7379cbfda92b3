#include "cli/commands/ps.h"

#include <gtest/gtest.h>

#include "cli/program.h"
#include "cli/scripted_server.h"
#include "server/demo_server.h"
#include "support/expect_error.h"

namespace moeflux::test {
namespace {

using cli::metric;
using cli::parse_time;
using cli::ServerStatus;

ServerStatus status_of(const std::string& url) {
  return cli::read_status({cli::parse_server_address(url), ""}, [] { return false; });
}
std::string url_of(const DemoServer& server) {
  return "http://127.0.0.1:" + std::to_string(server.port());
}

TEST(PsReport, ReadsMetrics) {
  const std::string text =
      "# TYPE moeflux:hits counter\nmoeflux:hits 12\nmoeflux:hits_total 5\n"
      "moeflux:by{model=\"a\",tier=\"x\"} 1.5\nmoeflux:by{model=\"a\",tier=\"y\"} 2\n"
      "moeflux:by{model=\"b\"} 100\nmoeflux:odd NaN\nmoeflux:bad\n";
  EXPECT_EQ(metric(text, "moeflux:hits", "a"), 12);
  EXPECT_EQ(metric(text, "moeflux:by", "a"), 3.5);
  EXPECT_EQ(metric(text, "moeflux:by", "c"), std::nullopt);
  EXPECT_EQ(metric(text, "moeflux:odd", "a"), std::nullopt);
  EXPECT_EQ(metric(text, "moeflux:bad", "a"), std::nullopt);
  EXPECT_EQ(metric("", "moeflux:hits", "a"), std::nullopt);
}

TEST(PsReport, ReadsTimes) {
  EXPECT_EQ(parse_time("1970-01-01T00:00:10Z"), 10);
  EXPECT_EQ(parse_time("2026-01-31T12:00:00.5+01:00"), 1769857200.5);
  EXPECT_EQ(parse_time("2026-01-31T12:00:00-07:00"), 1769886000);
  for (const char* bad : {"", "soon", "2026-02-31T12:00:00Z", "2026-01-31", "2026-01-31T12:00:00",
                          "2026-01-31T12:00:nanZ"})
    EXPECT_EQ(parse_time(bad), std::nullopt) << bad;
}

TEST(PsReport, OurServer) {
  DemoServer server;
  ASSERT_EQ(server.post("/v1/chat/completions", sum_question()).status, 200);
  const ServerStatus status = status_of(url_of(server));
  ASSERT_EQ(status.models.size(), 1u);
  const cli::RunningModel& model = status.models[0];
  EXPECT_EQ(model.name, "demo");
  EXPECT_GT(model.file_bytes, 0u);
  EXPECT_GT(model.memory_bytes, 0u);
  EXPECT_EQ(model.ceiling_bytes, 1u << 30);
  EXPECT_EQ(model.n_context, 512);
  EXPECT_EQ(model.n_sessions, 2);
  EXPECT_EQ(model.n_busy, 0);
  EXPECT_EQ(model.n_waiting, 0);
  ASSERT_TRUE(model.hit_rate);
  EXPECT_GT(*model.hit_rate, 0);
  EXPECT_EQ(model.expires_seconds, std::nullopt) << "it stays";

  const std::string text = cli::status_text(status);
  EXPECT_EQ(text.substr(0, 5), "MODEL");
  for (const char* part : {"\ndemo ", "of 1.0 GiB", " 512 ", "0 of 2", " %", "stays\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in " << text;

  const Outcome json = run_moeflux({"ps", "--json", "--server", url_of(server)});
  EXPECT_EQ(json.exit_code, 0) << json.err;
  const Json parsed = parse_json(json.out, "output");
  EXPECT_EQ(parsed["server"], url_of(server));
  EXPECT_EQ(parsed["models"][0]["name"], "demo");
  EXPECT_EQ(parsed["models"][0]["sessions"], 2);
  EXPECT_EQ(parsed["models"][0]["expires_in_seconds"], nullptr);
  const Outcome by_variable =
      run_moeflux({"ps"}, {.text = "", .env = {{"MOEFLUX_SERVER", url_of(server)}}});
  EXPECT_NE(by_variable.out.find("demo"), std::string::npos) << by_variable.err;
}

TEST(PsReport, AServerThatLoads) {
  DemoServer server({.loaded = false});
  const ServerStatus status = status_of(url_of(server));
  EXPECT_TRUE(status.is_loading);
  EXPECT_EQ(cli::status_text(status), "the model is being loaded\n");
  EXPECT_EQ(cli::status_json(status)["loading"], true);
}

TEST(PsReport, SeveralModels) {
  const ScriptedServer server([](const std::string& request) {
    std::string body = "{}";
    if (request.find("/api/ps") < 20)
      body = R"({"models": [{"name": "a:latest"}, {"name": "org/b:latest"}]})";
    if (request.find("/slots?model=a ") < 20) body = R"([{"is_processing": true}])";
    if (request.find("/slots?model=org%2Fb ") < 20) body = R"([{}, {}])";
    if (request.find("/metrics") < 20)
      return ScriptedAnswer{{http_response(
          200, "text/plain",
          "moeflux:models_memory_ceiling_bytes 1000\nmoeflux:memory_bytes{model=\"a\"} 10\n"
          "moeflux:memory_bytes{model=\"org/b\"} 20\n"
          "moeflux:expert_hits_total{model=\"org/b\"} 3\n"
          "moeflux:expert_misses_total{model=\"org/b\"} 1\n")}};
    return ScriptedAnswer{{json_response(body)}};
  });
  const ServerStatus status = status_of(server.url());
  ASSERT_EQ(status.models.size(), 2u);
  EXPECT_EQ(status.models[0].memory_bytes, 10u);
  EXPECT_EQ(status.models[0].n_busy, 1);
  EXPECT_EQ(status.models[0].hit_rate, std::nullopt);
  EXPECT_EQ(status.models[1].name, "org/b");
  EXPECT_EQ(status.models[1].memory_bytes, 20u);
  EXPECT_EQ(status.models[1].ceiling_bytes, 1000u);
  EXPECT_EQ(status.models[1].n_busy, 0);
  EXPECT_EQ(status.models[1].n_sessions, 2);
  EXPECT_EQ(status.models[1].hit_rate, 0.75);
  for (const std::string& request : server.requests())
    EXPECT_EQ(request.find("GET /props"), std::string::npos) << "that would count as a use";
}

TEST(PsReport, OtherServers) {
  const ScriptedServer idle([](const std::string& request) {
    if (request.find("/api/ps") < 20) return ScriptedAnswer{{json_response("{\"models\": []}")}};
    return ScriptedAnswer{{json_response("{}", 200)}};
  });
  EXPECT_EQ(cli::status_text(status_of(idle.url())), "no model is loaded\n");
  const ScriptedServer bare([](const std::string& request) {
    if (request.find("/v1/models") < 20)
      return ScriptedAnswer{{json_response("{\"data\": [{\"id\": \"a\\u001b\"}, 7]}")}};
    return ScriptedAnswer{{json_response("{}", 404)}};
  });
  const ServerStatus status = status_of(bare.url());
  ASSERT_EQ(status.models.size(), 1u);
  const std::string text = cli::status_text(status);
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
  EXPECT_NE(text.find(" -  "), std::string::npos) << text;
  const ScriptedServer soon([](const std::string& request) {
    if (request.find("/api/ps") < 20)
      return ScriptedAnswer{{json_response(
          R"({"models": [{"name": "x:latest", "expires_at": "2020-01-01T00:00:00Z"}]})")}};
    return ScriptedAnswer{{json_response("[]", 500)}};
  });
  EXPECT_EQ(status_of(soon.url()).models.at(0).name, "x");
  EXPECT_EQ(status_of(soon.url()).models.at(0).expires_seconds, 0);
}

TEST(PsCommand, SaysWhatIsWrong) {
  const Outcome nobody = run_moeflux({"ps", "--server", "http://127.0.0.1:9"});
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_NE(nobody.err.find("is `moeflux serve` running?"), std::string::npos) << nobody.err;
  const Outcome other = run_moeflux({"ps", "--server", "wss://example.org"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("https:// are known"), std::string::npos) << other.err;
}

}  // namespace
}  // namespace moeflux::test
