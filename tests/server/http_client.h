// A client that writes bytes and reads bytes: tests of a server must be able to misbehave.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace moeflux::test {

struct ClientResponse {
  int status = 0;                                   // 0: the connection ended before a response
  std::map<std::string, std::string> headers = {};  // names in lower case
  std::string body = {};                            // without the framing of chunks
  bool complete = false;                            // it came to its end

  Json json() const { return parse_json(body, "response"); }
  std::vector<std::string> events() const;  // what follows "data: " in each, comments left out
};

class HttpClient {
 public:
  explicit HttpClient(int port);
  explicit HttpClient(const std::string& socket_path);
  ~HttpClient() { close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void send(std::string_view bytes);  // a server that has closed is no failure
  void get(const std::string& path, const std::string& headers = "");
  void post(const std::string& path, const std::string& body, const std::string& headers = "");
  ClientResponse read();                         // one response
  ClientResponse read_head();                    // and what was received of the body, framed
  std::string read_until(std::string_view end);  // of the bytes of a response
  bool wait_for_close(std::chrono::milliseconds at_most = std::chrono::seconds(10));
  void end_sending();  // half-closes: the rest of the answers can still be read
  void close();
  void reset();  // as the system does for a program that has crashed

 private:
  bool receive();  // false: closed, or nothing for long

  int fd_ = -1;
  std::string received_;
};

// One request on a connection of its own.
ClientResponse get(int port, const std::string& path, const std::string& headers = "");
ClientResponse post(int port, const std::string& path, const Json& body,
                    const std::string& headers = "");

}  // namespace moeflux::test
