#include "hub/client.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace moeflux {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kMaxRedirects = 8;
constexpr std::size_t kMaxKept = 3;
constexpr std::size_t kMaxSaid = 300;
constexpr std::size_t kReadBytes = 64 << 10;

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool may_pass(int status) {
  return status == 408 || status == 425 || status == 429 || status >= 500;
}

// What a server writes, for a message: one line without anything a terminal would act on.
std::string harmless(std::string_view text) {
  std::string line;
  for (const char c : text.substr(0, kMaxSaid)) {
    const auto byte = static_cast<unsigned char>(c);
    line += byte < 0x20 || byte >= 0x7F ? ' ' : c;
  }
  return line;
}

}  // namespace

std::optional<std::chrono::milliseconds> parse_retry_after(const std::string& text) {
  if (const auto seconds = to_number<std::int64_t>(text)) {
    if (*seconds < 0) return std::nullopt;
    return std::chrono::seconds(std::min<std::int64_t>(*seconds, 1'000'000));
  }
  std::tm parts{};
  if (::strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts) == nullptr) return std::nullopt;
  const std::time_t left = ::timegm(&parts) - std::time(nullptr);
  return std::chrono::seconds(std::clamp<std::time_t>(left, 0, 1'000'000));
}

void sleep_unless(const std::function<bool()>& cancelled, std::chrono::milliseconds time) {
  const Clock::time_point end = Clock::now() + time;
  while (true) {
    if (cancelled && cancelled()) fail(Errc::Cancelled, "interrupted");
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left <= 0ms) return;
    std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(left, 50ms));
  }
}

void Patience::failed(const TryAgain& failure) {
  const RetryPolicy& policy = options_.retry;
  ++n_failures_;
  // A line that was cut in the middle of something is just taken up again.
  if (std::exchange(has_progressed_, false) && !failure.answered) return;
  if (at_ == At::FirstQuestion && !failure.answered && n_failures_ >= policy.most_unreachable)
    fail(Errc::Io,
         "{}; is this machine connected? proxies come from https_proxy, another hub from "
         "HF_ENDPOINT",
         failure.what());
  if (n_failures_ >= policy.most_failures) {
    fail(Errc::Io,
         "{} ({} times in a row); run the same command again later: it goes on where it "
         "was",
         failure.what(), n_failures_);
  }
  auto delay =
      std::min(policy.first_delay * (1 << std::min(n_failures_ - 1, 16)), policy.longest_delay);
  if (failure.wait) {
    if (*failure.wait > policy.longest_wait) {
      fail(Errc::Io, "{}; it asks to come back in {} minutes: run the same command then",
           failure.what(), std::chrono::duration_cast<std::chrono::minutes>(*failure.wait).count());
    }
    delay = *failure.wait;
  }
  if (delay >= 1s && options_.note) {
    options_.note(fmt::format("{}; trying again in {:.0f} s", failure.what(),
                              std::chrono::duration<double>(delay).count()));
  }
  sleep_unless(options_.cancelled, delay);
}

HubClient::HubClient(std::shared_ptr<const HubClientOptions> options,
                     std::shared_ptr<TlsContext> tls)
    : options_(std::move(options)),
      tls_(std::move(tls)),
      endpoint_(parse_url(options_->settings.endpoint)) {}

HttpsConnection& HubClient::connection_to(const Url& url) {
  const auto found = std::find_if(kept_.begin(), kept_.end(),
                                  [&](const Kept& each) { return each.origin.same_origin(url); });
  Kept mine{url, nullptr};
  if (found != kept_.end()) {
    mine = std::move(*found);
    kept_.erase(found);
    if (!mine.connection->is_fresh() && !mine.connection->is_reusable()) mine.connection.reset();
  }
  if (!mine.connection) {
    mine.connection = std::make_unique<HttpsConnection>(
        HttpsConnection::Options{.origin = url,
                                 .proxy = options_->settings.proxies.proxy_for(url),
                                 .tls = tls_,
                                 .timing = options_->timing,
                                 .cancelled = options_->cancelled});
  }
  if (kept_.size() >= kMaxKept) kept_.erase(kept_.begin());
  kept_.push_back(std::move(mine));
  return *kept_.back().connection;
}

void HubClient::drop(const Url& url) {
  std::erase_if(kept_, [&](const Kept& each) { return each.origin.same_origin(url); });
}

// A connection that was kept may have been closed meanwhile; then the request goes on a new one.
ReplyHead HubClient::send(const Url& url, const std::string& method,
                          const HttpsConnection::Headers& headers) {
  while (true) {
    HttpsConnection& connection = connection_to(url);
    const bool was_kept = !connection.is_fresh();
    try {
      return connection.send(method, url.target, headers);
    } catch (const Error& error) {
      drop(url);
      if (error.code() != Errc::Io) throw;
      if (!was_kept) throw TryAgain(error.what());
    }
  }
}

// So that the connection can be used again, where that costs little.
void HubClient::skip_body(const ReplyHead& head) {
  if (!head.length || *head.length > kReadBytes) return;
  std::vector<std::byte> bytes(*head.length);
  try {
    while (!bytes.empty() && body(bytes) > 0) {
    }
  } catch (const TryAgain&) {
    // The next request opens another one.
  }
}

HubClient::Reply HubClient::follow(const std::string& method, Url url,
                                   std::optional<FileRange> range, bool stay_on_endpoint) {
  Reply reply;
  bool with_token = url.same_origin(endpoint_) && !options_->settings.token.empty();
  for (int n_redirects = 0;; ++n_redirects) {
    HttpsConnection::Headers headers;
    if (with_token) headers.emplace_back("Authorization", "Bearer " + options_->settings.token);
    if (range)
      headers.emplace_back("Range", fmt::format("bytes={}-{}", range->begin, range->end - 1));
    reply.head = send(url, method, headers);
    reply.from = url;
    if (n_redirects == 0) reply.first = reply.head;
    if (!is_redirect(reply.head.status)) {
      if (reply.head.status / 100 != 2 && reply.head.status != 416)
        refuse(url, reply.head, with_token);
      return reply;
    }
    const Url next = resolve_url(url, reply.head.header("location"));
    skip_body(reply.head);
    if (stay_on_endpoint && !next.same_origin(url)) return reply;
    reply.first = n_redirects == 0 || stay_on_endpoint ? reply.head : reply.first;
    if (n_redirects >= kMaxRedirects)
      fail(Errc::Io, "{}: more than {} redirects", url.shown(), kMaxRedirects);
    if (url.is_secure() && !next.is_secure())
      fail(Errc::Unsupported, "{} redirects to {}, which is not encrypted; that is not followed",
           url.shown(), next.origin());
    with_token = with_token && next.same_origin(url);
    url = next;
  }
}

HubClient::Reply HubClient::open(const std::string& method, const Url& url,
                                 std::optional<FileRange> range) {
  return follow(method, url, range, /*stay_on_endpoint=*/false);
}

HubClient::Reply HubClient::head(const Url& url) {
  Patience patience(*options_, Patience::At::FirstQuestion);
  while (true) {
    try {
      return follow("HEAD", url, {}, /*stay_on_endpoint=*/true);
    } catch (const TryAgain& failure) {
      patience.failed(failure);
    }
  }
}

std::size_t HubClient::body(std::span<std::byte> out) {
  try {
    return kept_.back().connection->read(out);
  } catch (const Error& error) {
    kept_.pop_back();
    if (error.code() != Errc::Io) throw;
    throw TryAgain(error.what());
  }
}

// What an answer that is an error says of itself.
std::string HubClient::said(const ReplyHead& head) {
  std::string text = head.header("x-error-message");
  if (text.empty() && head.header("content-type").starts_with("application/json")) {
    try {
      std::array<std::byte, 4096> bytes{};
      std::string all;
      while (all.size() < bytes.size()) {
        const std::size_t n = body(bytes);
        if (n == 0) break;
        all.append(reinterpret_cast<const char*>(bytes.data()), n);
      }
      const Json json = parse_json(all, "answer");
      if (json.is_object() && json.contains("error") && json["error"].is_string())
        text = json["error"].get<std::string>();
    } catch (const Error& error) {
      if (error.code() == Errc::Cancelled) throw;
    }
  }
  return harmless(text);
}

void HubClient::refuse(const Url& url, const ReplyHead& head, bool with_token) {
  const int status = head.status;
  const std::string code = head.header("x-error-code");
  const std::string why = harmless(code);
  const std::string words = kept_.empty() ? "" : said(head);
  const std::string what =
      fmt::format("{} answers {}{}{}", url.shown(), status,
                  words.empty() && why.empty() ? "" : ": ", words.empty() ? why : words);
  if (may_pass(status)) throw TryAgain(what, parse_retry_after(head.header("retry-after")));
  const HubSettings& settings = options_->settings;
  const bool is_endpoint = url.same_origin(endpoint_);
  if (!is_endpoint) {
    // A signed address that has run out, or a file that is gone there: the hub gives a new one.
    throw TryAgain(what, std::nullopt);
  }
  if (status == 401 && !with_token) {
    fail(Errc::NotFound,
         "{}; there is no such model, or it is private or gated: check the name; with access, make "
         "a token at {}/settings/tokens and set HF_TOKEN, or write it to {}",
         what, settings.endpoint, settings.token_place);
  }
  if (status == 401) {
    fail(Errc::BadInput,
         "{}; there is no such model, or the token (HF_TOKEN, or {}) is not accepted: check the "
         "name, or make a new token at {}/settings/tokens",
         what, settings.token_place, settings.endpoint);
  }
  if (status == 403 && code == "GatedRepo") {
    fail(Errc::BadInput,
         "{}; accept the model's terms on its page at {} with the account {}, then run the same "
         "command again",
         what, settings.endpoint,
         with_token ? "of your token" : "whose token you give as HF_TOKEN");
  }
  if (status == 403) {
    fail(Errc::BadInput,
         "{}; the {} access: accept the model's terms on its page at {}, or use a token that may "
         "read it (HF_TOKEN, or {})",
         what, with_token ? "token does not give" : "model needs", settings.endpoint,
         settings.token_place);
  }
  if (status == 404 && code == "RevisionNotFound")
    fail(Errc::NotFound, "{}; there is no such revision: leave out @REVISION for main", what);
  if (status == 404 || status == 410) {
    fail(Errc::NotFound,
         "{}; there is no such model, revision or file: names are ORG/NAME as in the address of "
         "its page; HF_ENDPOINT says which hub is asked",
         what);
  }
  fail(Errc::Io, "{}", what);
}

std::string HubClient::text(const Url& url, std::uint64_t max_bytes) {
  Patience patience(*options_, Patience::At::FirstQuestion);
  while (true) {
    try {
      const Reply reply = open("GET", url);
      if (reply.head.length && *reply.head.length > max_bytes)
        fail(Errc::LimitExceeded, "{}: {} bytes, more than {}", url.shown(), *reply.head.length,
             max_bytes);
      std::string text;
      std::vector<std::byte> piece(kReadBytes);
      while (const std::size_t n = body(piece)) {
        if (text.size() + n > max_bytes)
          fail(Errc::LimitExceeded, "{}: more than {} bytes", url.shown(), max_bytes);
        text.append(reinterpret_cast<const char*>(piece.data()), n);
      }
      return text;
    } catch (const TryAgain& failure) {
      patience.failed(failure);
    }
  }
}

std::string HubClient::text(const Url& url, FileRange range) {
  Patience patience(*options_, Patience::At::FirstQuestion);
  while (true) {
    try {
      const Reply reply = open("GET", url, range);
      if (reply.head.status == 416) fail(Errc::Io, "{}: is shorter than it was said", url.shown());
      std::string text;
      std::vector<std::byte> piece(kReadBytes);
      const std::uint64_t wanted = range.end - range.begin;
      std::uint64_t skipped = reply.head.status == 206 ? range.begin : 0;
      while (text.size() < wanted) {
        const std::size_t n = body(piece);
        if (n == 0) break;
        std::string_view bytes(reinterpret_cast<const char*>(piece.data()), n);
        if (skipped < range.begin) {
          const std::uint64_t skip = std::min<std::uint64_t>(n, range.begin - skipped);
          skipped += skip;
          bytes.remove_prefix(skip);
        }
        text += bytes.substr(0, wanted - text.size());
      }
      if (!kept_.empty() && !kept_.back().connection->is_reusable()) kept_.pop_back();
      return text;
    } catch (const TryAgain& failure) {
      patience.failed(failure);
    }
  }
}

Json HubClient::json(const Url& url) {
  return parse_json(text(url, kMaxJsonBytes), url.shown());
}

}  // namespace moeflux
