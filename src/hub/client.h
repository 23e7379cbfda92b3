// Requests to the hub and to the hosts it sends us to: redirects are followed, answers that ask to
// come again are asked again, and everything else becomes an Error that says what to do.
//
// The token goes to the endpoint alone: from the first redirect to another origin on it is left
// out. One client serves one thread, and keeps a connection to each of the last hosts.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "hub/connection.h"
#include "hub/settings.h"

namespace moeflux {

struct RetryPolicy {
  int most_failures = 12;    // in a row, without a byte of use between them
  int most_unreachable = 3;  // the same of the first question, when nobody answers at all
  std::chrono::milliseconds first_delay{250}, longest_delay{20'000};
  std::chrono::milliseconds longest_wait{300'000};  // that a Retry-After may ask for
};

struct HubClientOptions {
  HubSettings settings;
  HttpTiming timing = {};
  RetryPolicy retry = {};
  std::function<bool()> cancelled = {};
  // What is waited for, in words, before each wait that is longer than a second.
  std::function<void(const std::string&)> note = {};
};

struct FileRange {
  std::uint64_t begin = 0, end = 0;  // half open
};

// A failure that may be another's next time: the caller asks again. `wait` is what the server said.
class TryAgain : public Error {
 public:
  explicit TryAgain(const std::string& message) : Error(Errc::Io, message) {}
  TryAgain(const std::string& message, std::optional<std::chrono::milliseconds> after)
      : Error(Errc::Io, message), wait(after), answered(true) {}
  std::optional<std::chrono::milliseconds> wait = {};
  bool answered = false;  // by a status, as opposed to a line that failed
};

class HubClient {
 public:
  explicit HubClient(std::shared_ptr<const HubClientOptions> options,
                     std::shared_ptr<TlsContext> tls);

  static constexpr std::uint64_t kMaxJsonBytes = 64u << 20;

  struct Reply {
    ReplyHead head;
    ReplyHead first;  // the head that the endpoint itself gave; the same without a redirect
    Url from;         // who answers at last
  };
  // One attempt, up to the head of a 2xx or 416 answer; body() reads the rest. Throws TryAgain for
  // what may pass and Error for what will not.
  Reply open(const std::string& method, const Url& url, std::optional<FileRange> range = {});
  std::size_t body(std::span<std::byte> out);
  // Of an answer to HEAD the first that has the header is enough: redirects stay on the endpoint.
  Reply head(const Url& url);

  // The whole body, asked for as often as the policy allows.
  std::string text(const Url& url, std::uint64_t max_bytes);
  std::string text(const Url& url, FileRange range);
  Json json(const Url& url);

  const HubClientOptions& options() const { return *options_; }

 private:
  HttpsConnection& connection_to(const Url& url);
  ReplyHead send(const Url& url, const std::string& method,
                 const HttpsConnection::Headers& headers);
  Reply follow(const std::string& method, Url url, std::optional<FileRange> range,
               bool stay_on_endpoint);
  [[noreturn]] void refuse(const Url& url, const ReplyHead& head, bool with_token);
  std::string said(const ReplyHead& head);
  void skip_body(const ReplyHead& head);
  void drop(const Url& url);

  std::shared_ptr<const HubClientOptions> options_;
  std::shared_ptr<TlsContext> tls_;
  Url endpoint_;
  struct Kept {
    Url origin;
    std::unique_ptr<HttpsConnection> connection;
  };
  std::vector<Kept> kept_;  // the last used one is the last
};

// Counts failures in a row and waits between them.
class Patience {
 public:
  enum class At { FirstQuestion, Transfer };
  Patience(const HubClientOptions& options, At at) : options_(options), at_(at) {}
  void progress() {
    n_failures_ = 0;
    has_progressed_ = true;
  }
  // Returns after the wait. Throws an Error with the failure's message when there were too many.
  void failed(const TryAgain& failure);

 private:
  const HubClientOptions& options_;
  const At at_;
  int n_failures_ = 0;
  bool has_progressed_ = false;  // since the last failure
};

// Sleeps, but not longer than until `cancelled` holds; then throws Error(Cancelled).
void sleep_unless(const std::function<bool()>& cancelled, std::chrono::milliseconds time);

// Seconds, or a date; none when it is neither.
std::optional<std::chrono::milliseconds> parse_retry_after(const std::string& text);

}  // namespace moeflux
