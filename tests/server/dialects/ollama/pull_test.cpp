// POST /api/pull against a hub of our own.
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "hub/hub_server.h"
#include "server/pool_server.h"

namespace moeflux::test {
namespace {

namespace fs = std::filesystem;

class OllamaPull : public ::testing::Test {
 protected:
  OllamaPull() {
    for (const auto& each : fs::directory_iterator(source_path("models/demo"))) {
      if (!each.is_regular_file()) continue;
      std::ifstream in(each.path(), std::ios::binary);
      const std::string name = each.path().filename().string();
      hub_.add("maker/demo-2", name,
               {{std::istreambuf_iterator<char>(in), {}}, name.ends_with(".safetensors")});
    }
  }
  HubSettings settings() const {
    HubSettings settings;
    settings.endpoint = hub_.url();
    return settings;
  }
  static std::vector<Json> lines(const ClientResponse& response) {
    std::vector<Json> all;
    for (std::size_t at = 0, end; (end = response.body.find('\n', at)) != std::string::npos;
         at = end + 1)
      all.push_back(parse_json(response.body.substr(at, end - at), "line"));
    return all;
  }

  HubServer hub_;
  PoolServer server_{pool_options(), {}, [this] { return settings(); }};
};

TEST_F(OllamaPull, AStreamOfItsProgress) {
  hub_.set({.bytes_per_second = 20'000'000});
  const ClientResponse response = server_.post("/api/pull", {{"model", "hf.co/maker/demo-2"}});
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("content-type"), "application/x-ndjson");
  const std::vector<Json> all = lines(response);
  ASSERT_GE(all.size(), 5u) << response.body;
  EXPECT_EQ(all.front()["status"], "pulling manifest");
  EXPECT_EQ(all.back()["status"], "success") << response.body;
  EXPECT_EQ(all[all.size() - 2]["status"], "writing manifest");
  Json last;
  for (const Json& each : all) {
    if (!each.contains("digest")) continue;
    EXPECT_TRUE(each["digest"].get<std::string>().starts_with("sha256:"));
    if (last.contains("digest") && last["digest"] == each["digest"]) {
      EXPECT_GT(each["completed"], last["completed"]);
    }
    last = each;
  }
  EXPECT_EQ(last["completed"], last["total"]);
  EXPECT_TRUE(fs::exists(server_.directory() + "/models--maker--demo-2/refs/main"));

  // It is served from now on, under its name and as Ollama's clients write it.
  EXPECT_TRUE(comes_true(
      [&] { return server_.get("/api/tags").body.find("maker/demo-2") != std::string::npos; }));
  for (const char* name : {"maker/demo-2", "hf.co/maker/demo-2", "hf.co/maker/demo-2:latest"}) {
    const ClientResponse answer = server_.post("/v1/chat/completions", sum_for(name));
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.json()["choices"][0]["message"]["content"], "12 + 30 = 42");
  }
}

TEST_F(OllamaPull, OneObjectWithoutAStream) {
  const ClientResponse response =
      server_.post("/api/pull", {{"name", "maker/demo-2"}, {"stream", false}});
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, R"({"status":"success"})");
  const ClientResponse missing =
      server_.post("/api/pull", {{"name", "maker/none"}, {"stream", false}});
  EXPECT_EQ(missing.status, 404) << missing.body;
  EXPECT_NE(missing.json()["error"].get<std::string>().find("no such model"), std::string::npos);
}

TEST_F(OllamaPull, ErrorsAreALine) {
  const std::vector<Json> all = lines(server_.post("/api/pull", {{"model", "maker/none"}}));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_NE(all[1]["error"].get<std::string>().find("no such model"), std::string::npos);
  EXPECT_EQ(server_.post("/api/pull", {{"model", "../etc"}}).status, 400);
  EXPECT_EQ(server_.post("/api/pull", {{"model", "llama3"}}).status, 400);
  EXPECT_EQ(server_.post("/api/pull", Json::object()).status, 400);
}

TEST_F(OllamaPull, AClientThatLeavesEndsIt) {
  hub_.set({.bytes_per_second = 200'000});
  {
    HttpClient client(server_.port());
    client.post("/api/pull", dump_json({{"model", "maker/demo-2"}}));
    client.read_until("completed");
  }
  std::uint64_t sent = 0;
  EXPECT_TRUE(comes_true([&] {
    const std::uint64_t before = std::exchange(sent, hub_.bytes_sent());
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return before == sent && sent == hub_.bytes_sent();
  }));
  EXPECT_FALSE(fs::exists(server_.directory() + "/models--maker--demo-2/refs/main"));
}

}  // namespace
}  // namespace moeflux::test
