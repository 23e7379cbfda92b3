// A hub of our own, which speaks the API and misbehaves as it is told: cuts lines, sends what is
// not asked for, redirects, asks to wait. It counts the bytes that it sends. One thread per
// connection.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/random.h"

namespace moeflux::test {

struct HubBytes {
  std::string content;
  bool lfs = false;
};

struct SeenRequest {
  std::string method, target;
  std::map<std::string, std::string> headers;  // names in lower case
};

struct HubHabits {
  double cut_chance = 0;               // that the line is cut somewhere in a body
  std::uint64_t bytes_per_second = 0;  // 0: as fast as it goes
  bool knows_ranges = true;
  bool sends_lengths = true;
  std::string lfs_host = {};         // where large files are: "http://127.0.0.1:1234"; "": here
  std::string token = {};            // that it asks for; "": none
  std::string wanted_revision = {};  // another one is answered with 404
  std::string error_code = {};       // the kind of a refusal, as the hub calls it
  std::int64_t size_offset = 0;      // the listing says this much more of large files
  bool lists_sizes = true;           // sizes and hashes in the listing
  bool spoils_bytes = false;         // what is sent of large files is not what was listed
  // Asked first: a whole response, instead of the usual one; "" for none.
  std::function<std::string(const SeenRequest&, int n_before)> script = {};
};

std::string sha256_of(const std::string& bytes);
std::string git_hash_of(const std::string& bytes);

class HubServer {
 public:
  // With TLS when a certificate and its key are given (files, PEM).
  explicit HubServer(const std::string& certificate = "", const std::string& key = "");
  ~HubServer();
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;

  void add(const std::string& repository, const std::string& path, HubBytes bytes);
  void set(HubHabits habits);

  int port() const { return port_; }
  std::string url(const std::string& host = "127.0.0.1") const;
  std::string commit(const std::string& repository) const;  // follows from its files

  std::uint64_t bytes_sent() const { return sent_; }  // of bodies of files
  std::vector<SeenRequest> requests() const;
  int n_cuts() const { return n_cuts_; }
  void forget();  // counts and requests

 private:
  class Line;
  void accept_all();
  void serve(Line& line);
  bool answer(Line& line, const SeenRequest& request);
  bool answer_listing(Line& line, const SeenRequest& request, const std::string& repository,
                      const std::string& revision);
  bool send_bytes(Line& line, const SeenRequest& request, const std::string& bytes,
                  const std::string& headers);
  bool refuse(Line& line, int status, const std::string& words, const std::string& headers = "");
  HubHabits habits() const;

  int fd_ = -1, port_ = 0;
  void* tls_ = nullptr;
  mutable std::mutex mutex_;
  HubHabits habits_;
  std::map<std::string, std::map<std::string, HubBytes>> repositories_;
  std::map<std::string, std::string> blobs_;  // by hash
  std::vector<SeenRequest> requests_;
  std::vector<int> open_;
  Random random_{11};
  std::atomic<std::uint64_t> sent_ = 0;
  std::atomic<int> n_cuts_ = 0;
  std::atomic<bool> stopped_ = false;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace moeflux::test
