#include "server/http/connection.h"

#include <algorithm>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

namespace moeflux {

// Every co_await stands in a statement of its own, its arguments in variables: g++ 12 destroys
// temporaries of larger expressions twice.
namespace asio = boost::asio;
namespace http = boost::beast::http;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kReadBytes = 32 << 10;
constexpr std::size_t kEarlyBytes = 32 << 10;      // of further requests during an answer
constexpr std::size_t kMaxFields = 256;            // of a header: each costs more than it is long
constexpr std::uint64_t kSlowestBody = 128 << 10;  // bytes per second that a body may come at
// Memory of an idle connection: its coroutines, the parser, a buffer that is used in part.
constexpr std::uint64_t kConnectionBytes = 16 << 10;
constexpr std::uint64_t kTlsBytes = 80 << 10;  // buffers of Asio and OpenSSL, keys, certificates
// A body of unknown length grows by doubling, and is copied meanwhile.
constexpr std::uint64_t kGrowingFactor = 3;
constexpr auto kBeforeProbe = 50ms;  // most answers are there by then
constexpr auto kUse = asio::as_tuple(asio::use_awaitable);

HttpHeaders fields_of(const http::request<http::string_body>& message) {
  HttpHeaders fields;
  for (const auto& field : message) {
    const auto name = field.name_string();
    fields.emplace_back(lower_case({name.data(), name.size()}), std::string(field.value()));
  }
  return fields;
}

HttpRequest with_target(const http::request<http::string_body>& message) {
  HttpRequest request;
  const auto target = message.target();
  split_target({target.data(), target.size()}, request);
  return request;
}

HttpRequest to_request(const http::request<http::string_body>& message) {
  HttpRequest request = with_target(message);
  request.method = std::string(message.method_string());
  for (const auto& [name, value] : fields_of(message)) {
    std::string& entry = request.headers[name];
    if (!entry.empty()) entry += ", ";
    entry += value;
  }
  return request;
}

HttpError late_error(const char* what) {
  return {408, "timeout_error", fmt::format("the {} did not arrive in time", what)};
}

HttpError busy_error() {
  return HttpError(503, "unavailable_error", "too many requests at a time; try again later")
      .with_header("Retry-After", "5");
}

// Lines of the header, as far as it has come.
std::size_t count_lines(std::string_view received) {
  const std::string_view header = received.substr(0, received.find("\r\n\r\n"));
  return static_cast<std::size_t>(std::count(header.begin(), header.end(), '\n'));
}

// A handler may keep the exchange until long after the connection is gone.
struct AbandonAtEnd {
  LiveExchange& exchange;
  ~AbandonAtEnd() { exchange.abandon(); }
};

}  // namespace

Connection::Connection(ClientSocket::Plain socket, ConnectionContext& context, bool is_local)
    : is_local_(is_local),
      socket_(std::move(socket), is_local ? nullptr : context.tls),
      context_(context),
      deadline_(context.io),
      wake_(context.io),
      memory_(context.memory),
      has_memory_(memory_.grow_to(own_bytes())),
      buffer_(std::max(context.limits.header_bytes, kEarlyBytes) + kReadBytes) {}

std::uint64_t Connection::own_bytes() const {
  return kConnectionBytes + (socket_.has_tls() ? kTlsBytes : 0);
}

void Connection::close() {
  socket_.close();
}

void Connection::arm(std::chrono::milliseconds at_most) {
  const std::uint64_t mine = ++armed_;
  late_ = false;
  deadline_.expires_after(at_most);
  deadline_.async_wait([self = shared_from_this(), mine](boost::system::error_code error) {
    if (error || self->armed_ != mine) return;
    self->late_ = true;
    self->socket_.cancel();
  });
}

void Connection::disarm() {
  ++armed_;
  deadline_.cancel();
}

asio::awaitable<Connection::Read> Connection::read_some(std::chrono::milliseconds at_most) {
  if (input_ended_) co_return Read::Closed;  // is told only once
  arm(at_most);
  const asio::mutable_buffer room = buffer_.prepare(kReadBytes);
  const auto [error, n] = co_await socket_.read_some(room);
  disarm();
  if (error) co_return late_ ? Read::Late : Read::Closed;
  buffer_.commit(n);
  co_return Read::Data;
}

asio::awaitable<bool> Connection::write_all(std::string bytes) {
  // Piece by piece, so that the limit is for a piece and a slow reader of much is no problem.
  std::string_view rest(bytes);
  while (!rest.empty()) {
    arm(context_.limits.write);
    const asio::const_buffer piece = asio::buffer(rest);
    const auto [error, n] = co_await socket_.write_some(piece);
    disarm();
    if (error) co_return false;
    rest.remove_prefix(n);
  }
  co_return true;
}

asio::awaitable<bool> Connection::fail_with(HttpError error) {
  LiveExchange exchange({.keep_alive = false}, [] {});
  respond_with(exchange, context_.error_form, error);
  std::string bytes = exchange.take().bytes;
  record_.path = error.path();
  record_.bytes_in += buffer_.size();
  log(exchange, /*was_left=*/false);
  const bool written = co_await write_all(std::move(bytes));
  if (written) co_await linger();
  co_return false;
}

// A connection closed with unread bytes is reset, and the client may lose what we said last.
asio::awaitable<void> Connection::linger() {
  constexpr auto kPatience = 500ms;
  arm(kPatience);
  co_await socket_.end_sending();
  disarm();
  const auto end = std::chrono::steady_clock::now() + 2s;
  while (!input_ended_ && std::chrono::steady_clock::now() < end) {
    buffer_.clear();
    arm(kPatience);
    const asio::mutable_buffer room = buffer_.prepare(kReadBytes);
    const auto [error, n] = co_await socket_.read_plain(room);
    disarm();
    if (error) break;
  }
}

// Of TLS. A client that speaks HTTP where TLS is expected is told so.
asio::awaitable<bool> Connection::greet() {
  arm(context_.limits.header);
  const ClientSocket::Greeting greeting = co_await socket_.greet();
  disarm();
  if (greeting != ClientSocket::Greeting::Plain) co_return greeting == ClientSocket::Greeting::Tls;
  LiveExchange exchange({.keep_alive = false}, [] {});
  respond_with(exchange, context_.error_form,
               bad_request("this server speaks TLS only: use https://"));
  const std::string bytes = exchange.take().bytes;
  const asio::const_buffer answer = asio::buffer(bytes);
  arm(context_.limits.write);
  co_await socket_.write_plain(answer);
  disarm();
  co_return false;
}

void Connection::log(const LiveExchange& exchange, bool was_left) {
  if (!context_.log) return;
  exchange.describe(record_);
  record_.was_left = was_left;
  record_.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  asio::post(context_.workers,
             [&context = context_, record = std::exchange(record_, {})] { context.log(record); });
}

std::optional<HttpError> Connection::reserve_body(std::uint64_t bytes) {
  try {
    if (body_memory_ == nullptr) body_memory_ = std::make_shared<MemoryShare>(context_.memory);
    body_memory_->grow(bytes);
    return std::nullopt;
  } catch (const HttpError& error) {
    return error;
  }
}

// Why the parser refuses a request; nothing while it only needs more bytes.
std::optional<HttpError> Connection::parse(Parser& parser) {
  const std::string_view received(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  if (!parser.is_header_done() && count_lines(received) > kMaxFields) {
    return HttpError(431, "invalid_request_error",
                     fmt::format("there are more than {} headers", kMaxFields));
  }
  boost::system::error_code error;
  if (buffer_.size() > 0) buffer_.consume(parser.put(buffer_.data(), error));
  if (!error || error == http::error::need_more) return std::nullopt;
  const auto refuse = [](int status, std::string why) {
    return HttpError(status, "invalid_request_error", why);
  };
  const HttpLimits& limits = context_.limits;
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return refuse(431, fmt::format("the headers are longer than {} bytes", limits.header_bytes));
  if (error == http::error::body_limit) {
    return refuse(413,
                  fmt::format("the body is larger than {} bytes (--max-body)", limits.body_bytes));
  }
  if (error == http::error::bad_version) return refuse(505, "only HTTP/1.0 and 1.1 are spoken");
  return refuse(400, "this is no HTTP request: " + error.message());
}

asio::awaitable<bool> Connection::read_header(Parser& parser) {
  is_idle_ = true;
  if (buffer_.size() == 0) {
    if (context_.draining) co_return false;
    const Read read = co_await read_some(context_.limits.idle);
    if (read != Read::Data) co_return false;
  }
  is_idle_ = false;
  const auto begin = begun_ = std::chrono::steady_clock::now();
  record_ = {.time = std::chrono::system_clock::now(), .client = socket_.peer()};
  while (true) {
    std::optional<HttpError> error = parse(parser);
    if (!error && parser.is_header_done()) co_return true;
    Read read = Read::Data;
    if (!error) {
      const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::steady_clock::now() - begin);
      read = co_await read_some(std::max(context_.limits.header - spent, 1ms));
      if (!memory_.grow_to(buffer_.size())) error = busy_error();
    }
    if (read == Read::Closed) co_return false;
    if (read == Read::Late) error = late_error("header");
    if (!error) continue;
    error->with_path(with_target(parser.get()).path);
    record_.method = std::string(parser.get().method_string());
    const bool result = co_await fail_with(*error);
    co_return result;
  }
}

// Why a request is refused by its header alone.
std::optional<HttpError> Connection::check_header(Parser& parser) {
  if (auto error = check_framing(fields_of(parser.get()), parser.get().version() >= 11))
    return error;
  if (const auto length = parser.content_length()) {
    if (auto error = reserve_body(*length)) return error;
  }
  const auto expect = parser.get()[http::field::expect];
  if (!expect.empty() && lower_case({expect.data(), expect.size()}) != "100-continue")
    return HttpError(417, "invalid_request_error", "unknown Expect header");
  return std::nullopt;
}

asio::awaitable<bool> Connection::read_body(Parser& parser) {
  std::optional<HttpError> error = check_header(parser);
  record_.method = std::string(parser.get().method_string());
  const bool expects = !parser.get()[http::field::expect].empty();
  if (!error && expects && !parser.is_done() && buffer_.size() == 0) {
    std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    const bool written = co_await write_all(std::move(go_on));
    if (!written) co_return false;
  }
  parser.eager(true);
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t n_read = 0;
  while (true) {
    if (!error && !parser.is_done()) error = parse(parser);
    if (error) break;
    if (parser.is_done()) co_return true;
    const std::size_t before = buffer_.size();
    const Read read = co_await read_some(context_.limits.body);
    if (read == Read::Closed) co_return false;
    const std::size_t n = buffer_.size() - before;
    n_read += n;
    const auto allowed = context_.limits.body + 1s * (n_read / kSlowestBody);
    if (read == Read::Late || std::chrono::steady_clock::now() - begin > allowed)
      error = late_error("body");
    else if (!parser.content_length())
      error = reserve_body(kGrowingFactor * n);
  }
  error->with_path(with_target(parser.get()).path);
  const bool result = co_await fail_with(*error);
  co_return result;
}

// Returns when the client has left.
asio::awaitable<bool> Connection::watch(LiveExchange& exchange) {
  using namespace asio::experimental::awaitable_operators;
  while (buffer_.size() < kEarlyBytes) {
    if (input_ended_) {
      co_await (wait_for_reset() || keep_probing(exchange));
      co_return false;
    }
    const asio::mutable_buffer room = buffer_.prepare(kReadBytes);
    const auto [error, n] = co_await socket_.read_some(room);
    input_ended_ = error == asio::error::eof;
    if (error && !input_ended_) co_return false;
    buffer_.commit(n);
  }
  // The client has sent more than is read before its answer.
  const bool left = co_await wait_for_reset();
  co_return left;
}

asio::awaitable<bool> Connection::wait_for_reset() {
  co_await socket_.wait_for_reset();
  co_return false;
}

// Ends only when it is cancelled.
asio::awaitable<bool> Connection::keep_probing(LiveExchange& exchange) {
  exchange.ping();
  asio::steady_timer timer(context_.io);
  for (std::chrono::milliseconds pause = kBeforeProbe;; pause = context_.limits.ping) {
    timer.expires_after(pause);
    const auto [error] = co_await timer.async_wait(kUse);
    if (error) co_return false;
    exchange.probe();
  }
}

asio::awaitable<bool> Connection::write_answer(std::shared_ptr<LiveExchange> exchange) {
  while (true) {
    LiveExchange::Taken taken = exchange->take();
    if (taken.gone) co_return false;
    if (!taken.bytes.empty()) {
      const bool written = co_await write_all(std::move(taken.bytes));
      if (!written) co_return false;
      if (!taken.done) continue;  // there may be more by now
    }
    if (taken.done) co_return taken.keep_alive;
    wake_.expires_after(context_.limits.ping);
    const auto [error] = co_await wake_.async_wait(kUse);
    if (!error) exchange->ping();
  }
}

asio::awaitable<bool> Connection::answer(Parser& parser) {
  using namespace asio::experimental::awaitable_operators;
  const bool is_new = parser.get().version() >= 11;
  const LiveExchange::Form form{.keep_alive = is_new && parser.keep_alive() && !context_.draining,
                                .chunked = is_new,
                                .head_only = parser.get().method() == http::verb::head,
                                .queue_bytes = context_.limits.queue_bytes,
                                .memory = context_.memory};
  const auto wake = [weak = weak_from_this(), &io = context_.io] {
    asio::post(io, [weak] {
      if (const auto self = weak.lock()) self->wake_.cancel();
    });
  };
  const auto exchange = std::make_shared<LiveExchange>(form, wake);
  const AbandonAtEnd abandon_at_end{*exchange};
  HttpRequest request = to_request(parser.get());
  request.memory =
      body_memory_ ? std::move(body_memory_) : std::make_shared<MemoryShare>(context_.memory);
  request.body = std::move(parser.get().body());
  request.is_local = is_local_;
  record_.path = request.path;
  record_.bytes_in = request.body.size();
  asio::post(context_.workers,
             [&context = context_, request = std::move(request), exchange]() mutable {
               context.entry(std::move(request), std::move(exchange));
             });
  const auto ended = co_await (write_answer(exchange) || watch(*exchange));
  log(*exchange, /*was_left=*/ended.index() == 1 || (!std::get<0>(ended) && form.keep_alive));
  if (ended.index() == 1) {
    exchange->abandon();
    co_return false;
  }
  if (!std::get<0>(ended)) {
    exchange->abandon();
    if (form.keep_alive) co_return false;  // it failed: nothing more can be said
    co_await linger();
    co_return false;
  }
  co_return true;
}

asio::awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  bool open = co_await greet();
  while (open) {
    {
      Parser parser;
      parser.header_limit(static_cast<std::uint32_t>(context_.limits.header_bytes));
      parser.body_limit(context_.limits.body_bytes);
      open = co_await read_header(parser);
      if (open) open = co_await read_body(parser);
      if (open) open = co_await answer(parser);
    }
    body_memory_.reset();
    if (buffer_.size() == 0) buffer_.shrink_to_fit();
    memory_.shrink_to(std::max<std::uint64_t>(own_bytes(), buffer_.size()));
  }
  disarm();
  close();
}

asio::awaitable<void> Connection::refuse() {
  const auto self = shared_from_this();
  is_idle_ = false;
  begun_ = std::chrono::steady_clock::now();
  record_ = {.time = std::chrono::system_clock::now(), .client = socket_.peer()};
  const bool can_be_told = co_await greet();
  if (!can_be_told) {
    close();
    co_return;
  }
  HttpError error(503, "unavailable_error", "too many connections; try again later");
  error.with_header("Retry-After", "5");
  co_await fail_with(error);
  close();
}

}  // namespace moeflux
