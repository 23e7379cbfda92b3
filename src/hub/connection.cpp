#include "hub/connection.h"

#include <algorithm>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>

#include "base/error.h"
#include "base/text.h"

namespace moeflux {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace ssl = boost::asio::ssl;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using ErrorCode = boost::system::error_code;

class TlsContext {
 public:
  TlsContext() : context(ssl::context::tls_client) {
    ErrorCode error;
    context.set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 |
                        ssl::context::no_tlsv1_1);
    context.set_default_verify_paths(error);
    if (error) fail(Errc::Io, "trusted certificates cannot be read: {}", error.message());
    context.set_verify_mode(ssl::verify_peer);
  }
  ssl::context context;
};

std::shared_ptr<TlsContext> make_tls_context() {
  return std::make_shared<TlsContext>();
}

class HttpsConnection::Impl {
 public:
  using Parser = http::response_parser<http::buffer_body>;

  explicit Impl(Options options) : options_(std::move(options)), socket_(io_) {}

  ReplyHead send(const std::string& request, bool is_head) {
    if (!connected_) connect();
    write(request);
    return read_head(is_head);
  }

  std::string target_of(const std::string& target) const {  // a proxy without a tunnel wants all
    return options_.proxy && !options_.origin.is_secure() ? options_.origin.origin() + target
                                                          : target;
  }
  std::string proxy_header() const {
    if (!options_.proxy || options_.origin.is_secure() || options_.proxy->authorization.empty())
      return "";
    return fmt::format("Proxy-Authorization: {}\r\n", options_.proxy->authorization);
  }
  const Url& origin() const { return options_.origin; }

  std::size_t read(std::span<std::byte> out) {
    if (!parser_ || parser_->is_done()) return 0;
    auto& body = parser_->get().body();
    body.data = out.data();
    body.size = out.size();
    body.more = true;
    while (!parser_->is_done() && body.size == out.size()) {
      ErrorCode error = wait(
          [&](auto done) {
            on_stream([&](auto& stream) {
              http::async_read_some(stream, buffer_, *parser_, on_bytes(done));
            });
          },
          options_.timing.silence);
      if (error == http::error::need_buffer) error = {};
      if (error) broken(error, "in the middle of its answer");
    }
    return out.size() - body.size;
  }

  bool is_reusable() const {
    return connected_ && parser_ && parser_->is_done() && parser_->keep_alive();
  }
  bool is_fresh() const { return !answered_; }

 private:
  template <class Done>
  static auto on_bytes(Done done) {
    return [done](const ErrorCode& error, std::size_t) mutable { done(error); };
  }
  template <class Use>
  void on_stream(Use use) {
    if (tls_)
      use(*tls_);
    else
      use(socket_);
  }

  // Starts one operation and returns its result, or timed_out.
  template <class Start>
  ErrorCode wait(Start start, std::chrono::milliseconds at_most) {
    const auto is_cancelled = [&] { return options_.cancelled && options_.cancelled(); };
    if (is_cancelled()) fail(Errc::Cancelled, "interrupted");
    std::optional<ErrorCode> result;
    io_.restart();
    start([&result](const ErrorCode& error) { result = error; });
    const Clock::time_point end = Clock::now() + at_most;
    while (!result) {
      io_.run_one_for(kPollTime);
      if (result) break;
      const bool cancelled = is_cancelled();
      if (!cancelled && Clock::now() < end) continue;
      // The operation refers to this frame: it must have ended before we leave.
      ErrorCode ignored;
      socket_.close(ignored);
      io_.restart();
      io_.run();
      connected_ = false;
      if (cancelled) fail(Errc::Cancelled, "interrupted");
      return asio::error::timed_out;
    }
    return *result;
  }

  const Url& next_hop() const { return options_.proxy ? options_.proxy->address : options_.origin; }

  void connect() {
    const Url& to = next_hop();
    tcp::resolver resolver(io_);
    tcp::resolver::results_type found;
    ErrorCode error = wait(
        [&](auto done) {
          resolver.async_resolve(to.host, to.port,
                                 [&found, done](const ErrorCode& result,
                                                const tcp::resolver::results_type& all) mutable {
                                   found = all;
                                   done(result);
                                 });
        },
        options_.timing.connect);
    if (error) {
      fail(Errc::Io, "cannot find {}{}: {}", options_.proxy ? "the proxy " : "", to.host,
           error.message());
    }
    error = asio::error::host_not_found;
    for (const auto& each : found) {
      ErrorCode ignored;
      socket_.close(ignored);
      error = wait([&](auto done) { socket_.async_connect(each.endpoint(), done); },
                   options_.timing.connect);
      if (!error) break;
    }
    if (error) {
      fail(Errc::Io, "cannot reach {}{}: {}", options_.proxy ? "the proxy " : "", to.origin(),
           error.message());
    }
    ErrorCode ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    if (options_.origin.is_secure()) {
      if (options_.proxy) open_tunnel();
      start_tls();
    }
    connected_ = true;
  }

  void open_tunnel() {
    const Url& url = options_.origin;
    const std::string host =
        url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]";
    const std::string to = host + ":" + url.port;
    std::string request = fmt::format("CONNECT {} HTTP/1.1\r\nHost: {}\r\n", to, to);
    if (!options_.proxy->authorization.empty())
      request += fmt::format("Proxy-Authorization: {}\r\n", options_.proxy->authorization);
    write(request + "\r\n");
    http::response_parser<http::empty_body> parser;
    parser.header_limit(kMaxHeaderBytes);
    parser.skip(true);
    beast::flat_buffer buffer(kMaxHeaderBytes);
    const ErrorCode error =
        wait([&](auto done) { http::async_read_header(socket_, buffer, parser, on_bytes(done)); },
             options_.timing.silence);
    if (error) broken(error, "before a tunnel was open");
    const int status = static_cast<int>(parser.get().result_int());
    if (status / 100 != 2) {
      fail(status == 407 ? Errc::Unsupported : Errc::Io, "the proxy {} answers {} for {}{}",
           options_.proxy->address.origin(), status, to,
           status == 407 ? ": give user and password as http://USER:PASSWORD@HOST in https_proxy"
                         : "");
    }
    if (buffer.size() > 0)
      fail(Errc::Io, "the proxy {} sends what was not asked for", options_.proxy->address.origin());
  }

  void name_host(const std::string& host) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"  // a macro of OpenSSL
    SSL_set_tlsext_host_name(tls_->native_handle(), host.c_str());
#pragma GCC diagnostic pop
  }

  void start_tls() {
    tls_.emplace(socket_, options_.tls->context);
    const std::string& host = options_.origin.host;
    ErrorCode not_an_address;
    asio::ip::make_address(host, not_an_address);
    if (not_an_address) name_host(host);
    tls_->set_verify_callback(ssl::host_name_verification(host));
    const ErrorCode error =
        wait([&](auto done) { tls_->async_handshake(ssl::stream_base::client, done); },
             options_.timing.connect);
    if (!error) return;
    const long verified = SSL_get_verify_result(tls_->native_handle());
    if (verified != X509_V_OK) {
      fail(Errc::Unsupported,
           "{}: its certificate cannot be trusted: {}; install ca-certificates, or name the "
           "authority's file in SSL_CERT_FILE",
           options_.origin.origin(), X509_verify_cert_error_string(verified));
    }
    if (error.category() == asio::error::get_ssl_category() &&
        ERR_GET_REASON(static_cast<unsigned long>(error.value())) ==
            SSL_R_CERTIFICATE_VERIFY_FAILED)
      fail(Errc::Unsupported, "{}: its certificate is for another host", options_.origin.origin());
    fail(Errc::Io, "{}: no encrypted connection: {}", options_.origin.origin(), error.message());
  }

  void write(const std::string& bytes) {
    const ErrorCode error = wait(
        [&](auto done) {
          on_stream([&](auto& stream) {
            asio::async_write(stream, asio::buffer(bytes), on_bytes(done));
          });
        },
        options_.timing.silence);
    // A server that refuses a request early may have closed, but its answer is there to be read.
    if (error == asio::error::timed_out) broken(error, "");
  }

  ReplyHead read_head(bool is_head) {
    do {  // 100 Continue and its like come before the reply
      parser_.emplace();
      parser_->header_limit(kMaxHeaderBytes);
      parser_->body_limit(boost::none);
      parser_->skip(is_head);
      const ErrorCode error = wait(
          [&](auto done) {
            on_stream([&](auto& stream) {
              http::async_read_header(stream, buffer_, *parser_, on_bytes(done));
            });
          },
          options_.timing.silence);
      if (error) broken(error, "without an answer");
    } while (parser_->get().result_int() < 200 && parser_->get().result_int() != 101);
    answered_ = true;
    ReplyHead head;
    head.status = static_cast<int>(parser_->get().result_int());
    for (const auto& field : parser_->get()) {
      const auto name = field.name_string();
      head.headers[in_lower_case({name.data(), name.size()})] =
          std::string(field.value().data(), field.value().size());
    }
    if (!parser_->chunked()) head.length = to_number<std::uint64_t>(head.header("content-length"));
    head.keep_alive = parser_->keep_alive();
    return head;
  }

  [[noreturn]] void broken(const ErrorCode& error, const char* when) {
    connected_ = false;
    const std::string where = options_.origin.origin();
    if (error == asio::error::timed_out) {
      fail(Errc::Io, "{}: not a byte came for {} s", where,
           std::chrono::duration<double>(options_.timing.silence).count());
    }
    if (error.category() == http::make_error_code(http::error::end_of_stream).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message) {
      fail(Errc::Io, "what {} answers is no HTTP response, or too large: {}", where,
           error.message());
    }
    fail(Errc::Io, "{} closed the connection {}", where, when);
  }

  const Options options_;
  asio::io_context io_;
  tcp::socket socket_;
  std::optional<ssl::stream<tcp::socket&>> tls_;
  beast::flat_buffer buffer_{512 << 10};
  std::optional<Parser> parser_;
  bool connected_ = false, answered_ = false;
};

HttpsConnection::HttpsConnection(Options options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}

HttpsConnection::~HttpsConnection() = default;

ReplyHead HttpsConnection::send(std::string_view method, const std::string& target,
                                const Headers& headers) {
  std::string request = fmt::format(
      "{} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: moeflux\r\nAccept: */*\r\n"
      "Accept-Encoding: identity\r\n",
      method, impl_->target_of(target), impl_->origin().authority());
  request += impl_->proxy_header();
  for (const auto& [name, value] : headers) request += fmt::format("{}: {}\r\n", name, value);
  return impl_->send(request + "\r\n", method == "HEAD");
}

std::size_t HttpsConnection::read(std::span<std::byte> out) {
  return impl_->read(out);
}

bool HttpsConnection::is_reusable() const {
  return impl_->is_reusable();
}

bool HttpsConnection::is_fresh() const {
  return impl_->is_fresh();
}

}  // namespace moeflux
