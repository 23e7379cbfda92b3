// A server in this process with several models: the two demo models and one that is broken.
#pragma once

#include <filesystem>
#include <memory>

#include "server/dialects/errors.h"
#include "server/http/http_server.h"
#include "server/http_client.h"
#include "server/server_app.h"
#include "support/paths.h"

namespace moeflux::test {

inline PoolOptions pool_options() {
  PoolOptions options;
  options.engine.n_threads = 1;
  options.engine.context_length = 512;
  options.engine.max_batch = 64;
  options.engine.n_sessions = 2;
  options.engine.n_checkpoints = 4;
  options.engine.memory_bytes = std::uint64_t{1} << 30;
  options.engine.elastic = false;
  options.service.n_parallel = 2;
  options.service.max_waiting = 8;
  options.max_waiting = 8;
  options.keep_alive = std::nullopt;
  return options;
}

// A directory with "demo", "org/mla" and "broken".
class ModelDirectory {
 public:
  ModelDirectory() {
    namespace fs = std::filesystem;
    fs::create_directories(directory_.file("org"));
    fs::create_directory_symlink(source_path("models/demo"), directory_.file("demo"));
    fs::create_directory_symlink(source_path("models/demo-mla"), directory_.file("org/mla"));
    fs::create_directories(directory_.file("broken"));
    directory_.write("broken/config.json", R"({"model_type": "qwen3_5_moe"})");
  }
  const std::string& path() const { return directory_.path(); }

 private:
  TempDir directory_;
};

class PoolServer {
 public:
  explicit PoolServer(PoolOptions options = pool_options(), PoolEvents events = {},
                      std::function<HubSettings()> hub = {})
      : app_({.version = "test", .hub = std::move(hub)}) {
    options.directory = directory_.path();
    pool_ = std::make_unique<ModelPool>(std::move(options), std::move(events));
    app_.models().set_pool(*pool_);
    server_ = std::make_unique<HttpServer>(
        HttpServerOptions{.port = 0, .n_workers = 2},
        [this](HttpRequest request, ExchangePtr exchange) {
          app_.handle(std::move(request), exchange);
        },
        error_by_path);
    app_.models().set_workers([this](std::function<void()> work) { server_->post(work); });
  }
  ~PoolServer() { pool_->stop(); }

  int port() const { return server_->port(); }
  ModelPool& pool() { return *pool_; }
  const std::string& directory() const { return directory_.path(); }
  HttpServer& server() { return *server_; }
  ClientResponse get(const std::string& path) const { return test::get(port(), path); }
  ClientResponse post(const std::string& path, const Json& body) const {
    return test::post(port(), path, body);
  }
  // The names of the models in memory, in the order they came, and a blank between two.
  std::string loaded() {
    std::string names;
    for (const PoolModel& each : pool_->loaded())
      names += (names.empty() ? "" : " ") + each.entry.name;
    return names;
  }

 private:
  ModelDirectory directory_;
  std::unique_ptr<ModelPool> pool_;
  ServerApp app_;
  std::unique_ptr<HttpServer> server_;  // its connections use all of the above
};

// Waits until it is so.
template <class Condition>
bool comes_true(Condition condition) {
  for (int i = 0; i < 5000 && !condition(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return condition();
}

inline Json sum_for(const std::string& model) {
  Json body = {{"messages", Json::array({{{"role", "user"}, {"content", "What is 12 + 30?"}}})},
               {"chat_template_kwargs", {{"enable_thinking", false}}},
               {"temperature", 0}};
  if (!model.empty()) body["model"] = model;
  return body;
}

}  // namespace moeflux::test
