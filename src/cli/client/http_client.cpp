#include "cli/client/http_client.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/parser.hpp>

#include "base/error.h"
#include "cli/terminal/terminal.h"
#include "server/http/http.h"
#include "server/http/tls.h"

namespace moeflux::cli {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using ErrorCode = boost::system::error_code;

namespace {

constexpr std::size_t kReadBytes = 16 << 10;
constexpr std::size_t kShownBytes = 1000;  // of what a server says of an error

// A body that is passed on as it comes, for the parser of Beast.
struct PieceBody {
  using value_type = std::function<void(std::string_view)>;

  class reader {
   public:
    template <bool is_request, class Fields>
    reader(http::header<is_request, Fields>& /*header*/, value_type& sink) : sink_(sink) {}
    void init(const boost::optional<std::uint64_t>& /*length*/, ErrorCode& error) { error = {}; }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, ErrorCode& error) {
      error = {};
      std::size_t n = 0;
      for (const auto buffer : beast::buffers_range_ref(buffers)) {
        sink_({static_cast<const char*>(buffer.data()), buffer.size()});
        n += buffer.size();
      }
      return n;
    }
    void finish(ErrorCode& error) { error = {}; }

   private:
    value_type& sink_;
  };
};
using Parser = http::response_parser<PieceBody>;

// One request and its response.
class Exchange {
 public:
  Exchange(const ServerAddress& address, const HttpCall& call)
      : address_(address), call_(call), socket_(io_) {}

  HttpReply run(const std::string& request) {
    connect();
    if (address_.tls) begin_tls();
    const auto write = [&](auto done) {
      if (tls_)
        asio::async_write(*tls_, asio::buffer(request), on_bytes(done));
      else
        asio::async_write(socket_, asio::buffer(request), on_bytes(done));
    };
    const ErrorCode error = wait(write, call_.silence);
    // A server that refuses a request early may have closed, but its answer is there to be read.
    if (error == asio::error::timed_out) no_answer();
    receive();
    return std::move(reply_);
  }

 private:
  // The handlers of reads and writes also get the number of bytes.
  template <class Done>
  auto on_bytes(Done done) {
    return [this, done](const ErrorCode& error, std::size_t n) mutable {
      n_bytes_ = n;
      done(error);
    };
  }

  // Starts one operation and returns its result, or timed_out.
  template <class Start>
  ErrorCode wait(Start start, std::chrono::milliseconds at_most) {
    const auto is_cancelled = [&] { return call_.cancelled && call_.cancelled(); };
    if (is_cancelled()) fail(Errc::Cancelled, "interrupted");
    std::optional<ErrorCode> result;
    io_.restart();
    start([&result](const ErrorCode& error) { result = error; });
    const Clock::time_point end = Clock::now() + at_most;
    while (!result) {
      io_.run_one_for(HttpClient::kPollTime);
      if (result) break;
      const bool cancelled = is_cancelled();
      if (!cancelled && Clock::now() < end) continue;
      // The operation refers to this frame: it must have ended before we leave.
      ErrorCode ignored;
      socket_.close(ignored);
      io_.run();
      if (cancelled) fail(Errc::Cancelled, "interrupted");
      return asio::error::timed_out;
    }
    return *result;
  }

  ErrorCode connect_to(const asio::generic::stream_protocol::endpoint& endpoint) {
    ErrorCode ignored;
    socket_.close(ignored);
    return wait([&](auto done) { socket_.async_connect(endpoint, done); },
                HttpClient::kConnectTime);
  }

  void connect() {
    ErrorCode error = asio::error::host_not_found;
    if (!address_.socket.empty()) {
      error = connect_to(asio::local::stream_protocol::endpoint(address_.socket));
    } else {
      tcp::resolver resolver(io_);
      tcp::resolver::results_type found;
      const auto lookup = [&](auto done) {
        resolver.async_resolve(address_.host, address_.port,
                               [&found, done](const ErrorCode& result,
                                              const tcp::resolver::results_type& all) mutable {
                                 found = all;
                                 done(result);
                               });
      };
      error = wait(lookup, HttpClient::kConnectTime);
      for (auto each = found.begin(); each != found.end(); ++each) {
        error = connect_to(each->endpoint());
        if (!error) break;
      }
      ErrorCode ignored;
      if (!error) socket_.set_option(tcp::no_delay(true), ignored);
    }
    if (!error) return;
    std::string why = error.message();
    why[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(why[0])));
    fail(Errc::Io, "cannot reach {}: {}; is `moeflux serve` running?", address_.text(), why);
  }

  void begin_tls() {
    tls_.emplace(socket_, *context_);
    expect_host(tls_->native_handle(), address_.host);
    const ErrorCode error =
        wait([&](auto done) { tls_->async_handshake(asio::ssl::stream_base::client, done); },
             HttpClient::kConnectTime);
    if (!error) return;
    if (error == asio::error::timed_out)
      fail(Errc::Io, "{}: the TLS handshake did not end in time", address_.text());
    fail(Errc::Io, "cannot talk to {}: {}", address_.text(),
         tls_problem(tls_->native_handle(), error));
  }

  void receive() {
    std::optional<Parser> parser;
    do {  // 100 Continue and its like come before the response
      parser.emplace();
      parser->header_limit(HttpClient::kMaxHeaderBytes);
      parser->body_limit(HttpClient::kMaxStreamBytes);
      while (parse(*parser), !parser->is_header_done()) read(*parser);
    } while (parser->get().result_int() < 200);
    take_header(*parser);
    while (parse(*parser), !parser->is_done() && !has_enough_) read(*parser);
  }

  // Takes what it can of what was received: up to the end of the header, or a piece of the body.
  void parse(Parser& parser) {
    const bool has_header = parser.is_header_done();
    while (!received_.empty() && !parser.is_done() && parser.is_header_done() == has_header) {
      ErrorCode error;
      const std::size_t n = parser.put(asio::buffer(received_), error);
      received_.erase(0, n);
      if (error == http::error::need_more || (!error && n == 0)) return;
      if (error) {
        fail(Errc::Io, "what {} answers is no HTTP response, or too large: {}", address_.text(),
             error.message());
      }
    }
  }

  void read(Parser& parser) {
    const auto read = [&](auto done) {
      if (tls_)
        tls_->async_read_some(asio::buffer(buffer_), on_bytes(done));
      else
        socket_.async_read_some(asio::buffer(buffer_), on_bytes(done));
    };
    const ErrorCode error = wait(read, call_.silence);
    if (!error) {
      received_.append(buffer_.data(), n_bytes_);
      has_answered_ = true;
      return;
    }
    if (error == asio::error::timed_out) no_answer();
    ErrorCode at_end;
    if (error == asio::error::eof && parser.is_header_done()) parser.put_eof(at_end);
    if (error == asio::error::eof && parser.is_done() && !at_end) return;
    fail(Errc::Io, "{} closed the connection {}", address_.text(),
         has_answered_ ? "in the middle of its answer" : "without an answer");
  }

  [[noreturn]] void no_answer() {
    fail(Errc::Io, "{}: not a byte came for {} s", address_.text(),
         std::chrono::duration<double>(call_.silence).count());
  }

  void take_header(Parser& parser) {
    const auto& header = parser.get();
    reply_.status = static_cast<int>(header.result_int());
    const auto text = [&](http::field field) {
      const auto value = header[field];
      return std::string(value.data(), value.size());
    };
    const std::string type = text(http::field::content_type);
    reply_.content_type = lower_case(type.substr(0, type.find_first_of("; \t")));
    reply_.location = text(http::field::location);
    if (call_.on_piece && reply_.ok() && reply_.content_type != "application/json") {
      parser.get().body() = [this](std::string_view piece) {
        if (!has_enough_) has_enough_ = !call_.on_piece(piece);
      };
      return;
    }
    parser.get().body() = [this](std::string_view piece) {
      if (reply_.body.size() + piece.size() > HttpClient::kMaxBodyBytes) {
        fail(Errc::LimitExceeded, "{} answers with more than {} MiB", address_.text(),
             HttpClient::kMaxBodyBytes >> 20);
      }
      reply_.body += piece;
    };
  }

  const ServerAddress& address_;
  const HttpCall& call_;
  asio::io_context io_;
  asio::generic::stream_protocol::socket socket_;
  TlsContext context_ = address_.tls ? client_tls() : nullptr;
  std::optional<asio::ssl::stream<asio::generic::stream_protocol::socket&>> tls_;
  std::array<char, kReadBytes> buffer_;
  std::size_t n_bytes_ = 0;
  std::string received_;
  bool has_answered_ = false, has_enough_ = false;
  HttpReply reply_;
};

// What to show of a body that reports an error, whatever it is.
std::string shown_error(const std::string& body) {
  std::string text;
  try {
    text = error_message(parse_json(body, "the answer"));
  } catch (const Error&) {
    text = body.substr(0, body.find_first_of("\r\n"));
    if (!text.empty() && text.front() == '<') text.clear();  // a page for a browser
  }
  return safe_line(std::string_view(text).substr(0, kShownBytes));
}

}  // namespace

HttpClient::HttpClient(ServerAddress address, std::string api_key)
    : address_(std::move(address)), api_key_(std::move(api_key)) {
  if (!std::all_of(api_key_.begin(), api_key_.end(),
                   [](unsigned char c) { return c > ' ' && c < 0x7F; }))
    fail(Errc::BadInput, "the API key has blanks or characters that are not ASCII");
}

HttpReply HttpClient::send(const HttpCall& call) const {
  std::string request = fmt::format(
      "{} {}{} HTTP/1.1\r\nHost: {}\r\nUser-Agent: moeflux\r\nAccept: */*\r\n"
      "Connection: close\r\n",
      call.method, address_.base, call.path, address_.authority());
  if (!api_key_.empty()) request += fmt::format("Authorization: Bearer {}\r\n", api_key_);
  const std::string body = call.body.is_null() ? "" : dump_json(call.body);
  if (!call.body.is_null()) request += "Content-Type: application/json\r\n";
  if (call.method != "GET") request += fmt::format("Content-Length: {}\r\n", body.size());
  request += "\r\n" + body;
  return Exchange(address_, call).run(request);
}

void HttpClient::check(const HttpReply& reply) const {
  if (reply.ok()) return;
  const std::string said = shown_error(reply.body);
  const std::string where = address_.text();
  if (reply.status == 401) {
    fail(Errc::BadInput, "{} asks for a key{}: set --api-key or MOEFLUX_API_KEY", where,
         said.empty() ? "" : fmt::format(" ({})", said));
  }
  if (reply.status >= 300 && reply.status < 400) {
    fail(Errc::Unsupported, "{} redirects to {}, which is not followed; name that address", where,
         safe_line(std::string_view(reply.location).substr(0, kShownBytes)));
  }
  const Errc code = reply.status == 404  ? Errc::NotFound
                    : reply.status < 500 ? Errc::BadInput
                                         : Errc::Io;
  fail(code, "{} answers {}{}", where, reply.status, said.empty() ? "" : ": " + said);
}

Json HttpClient::json(const HttpCall& call) const {
  const HttpReply reply = send(call);
  check(reply);
  return parse_json(reply.body, fmt::format("{}{}", address_.text(), call.path));
}

std::string error_message(const Json& body) {
  if (!body.is_object()) return "";
  const auto text_at = [](const Json& object, const char* key) -> std::string {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return "";
    return found->is_string() ? found->get<std::string>() : dump_json(*found);
  };
  const auto error = body.find("error");
  if (error != body.end() && error->is_object()) {
    const std::string message = text_at(*error, "message");
    return message.empty() ? dump_json(*error) : message;
  }
  if (error != body.end() && error->is_string()) return error->get<std::string>();
  // Servers built on FastAPI, and older ones of vLLM.
  if (std::string text = text_at(body, "detail"); !text.empty()) return text;
  return text_at(body, "object") == "error" ? text_at(body, "message") : "";
}

}  // namespace moeflux::cli
