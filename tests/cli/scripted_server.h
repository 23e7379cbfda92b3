// A server that answers what a test tells it to, byte for byte: what a client gets from servers
// other than ours, and from broken ones. One connection after the other, one request each.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace moeflux::test {

struct ScriptedAnswer {
  std::vector<std::string> pieces;  // each is sent by itself
  bool stays_open = false;          // until the client closes
};

class ScriptedServer {
 public:
  // Gets the whole request. Called by the server's thread.
  using Script = std::function<ScriptedAnswer(const std::string& request)>;

  explicit ScriptedServer(Script script, const std::string& socket_path = "");
  explicit ScriptedServer(ScriptedAnswer always)
      : ScriptedServer([always](const std::string&) { return always; }) {}
  ~ScriptedServer();
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  int port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<std::string> requests() const;
  // Connections of answers that stay open which the client has closed so far.
  int n_left() const;
  bool wait_for_left(int n) const;

 private:
  void run();
  void serve(int fd);
  std::string read_request(int fd) const;

  Script script_;
  int port_ = 0;
  int fd_ = -1;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  int n_left_ = 0;
  std::thread thread_;
};

// A response with its length.
std::string http_response(int status, const std::string& type, const std::string& body);
std::string json_response(const std::string& body, int status = 200);
// A stream of chunks, each of them a piece; `ends`: with the last one, which has no bytes.
ScriptedAnswer chunked(const std::vector<std::string>& chunks, bool ends = true);

}  // namespace moeflux::test
