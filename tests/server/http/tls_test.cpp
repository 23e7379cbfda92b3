// HTTPS: what the server offers and refuses, and what it says of files that cannot be used.
#include "server/http/tls.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

#include "server/echo_server.h"
#include "support/certificate.h"
#include "support/expect_error.h"

namespace moeflux::test {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

HttpServerOptions with_tls(const Certificate& certificate) {
  return {.port = 0, .n_workers = 2, .tls = TlsFiles{certificate.certificate(), certificate.key()}};
}

// Waits for each step; believes any certificate.
class TlsClient {
 public:
  explicit TlsClient(int port, int max_version = TLS1_3_VERSION)
      : context_(asio::ssl::context::tls_client), stream_(io_, context_) {
    SSL_set_min_proto_version(stream_.native_handle(), TLS1_VERSION);
    SSL_set_max_proto_version(stream_.native_handle(), max_version);
    const asio::ip::tcp::endpoint server(asio::ip::make_address("127.0.0.1"),
                                         static_cast<std::uint16_t>(port));
    stream_.next_layer().connect(server);
    stream_.handshake(asio::ssl::stream_base::client, error_);
  }

  bool is_open() const { return !error_; }
  std::string version() { return SSL_get_version(stream_.native_handle()); }
  void send(const std::string& bytes) { asio::write(stream_, asio::buffer(bytes), error_); }
  // What came when `end` was part of it, or nothing more comes.
  std::string read_until(const std::string& end) {
    std::string text;
    std::array<char, 4096> buffer;
    while (text.find(end) == std::string::npos && !error_)
      text.append(buffer.data(), stream_.read_some(asio::buffer(buffer), error_));
    return text;
  }
  bool was_ended_properly() {  // by a message, not by cutting the line
    std::array<char, 64> buffer;
    while (!error_) stream_.read_some(asio::buffer(buffer), error_);
    return error_ == asio::error::eof;
  }

 private:
  asio::io_context io_;
  asio::ssl::context context_;
  asio::ssl::stream<asio::ip::tcp::socket> stream_;
  boost::system::error_code error_;
};

TEST(TlsTest, RequestsOnOneConnection) {
  const Certificate certificate;
  EchoServer server(with_tls(certificate));
  EXPECT_EQ(server->url(), "https://127.0.0.1:" + std::to_string(server.port()));
  EXPECT_EQ(server->certificate_warning(), "");
  TlsClient client(server.port());
  ASSERT_TRUE(client.is_open());
  EXPECT_EQ(client.version(), "TLSv1.3");
  for (int i = 0; i < 3; ++i) {
    const std::string body(static_cast<std::size_t>(i) * 300'000, 'x');
    client.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n\r\n" + body);
    const std::string expected = "POST /a " + std::to_string(body.size());
    EXPECT_NE(client.read_until(expected).find("200 OK"), std::string::npos);
  }
  client.send("GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_NE(client.read_until("GET /last 0").find("200 OK"), std::string::npos);
  EXPECT_TRUE(client.was_ended_properly());
}

TEST(TlsTest, StreamsWhileItReads) {
  const Certificate certificate;
  EchoServer server(with_tls(certificate));
  TlsClient client(server.port());
  client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  client.read_until("\r\n\r\n");
  const ExchangePtr stream = server.last_stream();
  for (int i = 0; i < 200; ++i) {
    stream->write("piece " + std::to_string(i) + ".");
    if (i % 50 == 0) std::this_thread::sleep_for(1ms);
  }
  stream->finish();
  const std::string all = client.read_until("0\r\n\r\n");
  EXPECT_NE(all.find("piece 0."), std::string::npos);
  EXPECT_NE(all.find("piece 199."), std::string::npos);
  client.send("GET /next HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_NE(client.read_until("GET /next 0").find("200 OK"), std::string::npos);
}

TEST(TlsTest, WhoLeavesIsNoticed) {
  const Certificate certificate;
  EchoServer server(with_tls(certificate));
  {
    TlsClient client(server.port());
    client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read_until("\r\n\r\n");
  }
  EXPECT_TRUE(server.wait_for_gone(1));
  EXPECT_TRUE(server->wait_until_empty(5s));
}

TEST(TlsTest, OldVersionsAreRefusedAndPlainHttpIsTold) {
  const Certificate certificate;
  EchoServer server(with_tls(certificate));
  EXPECT_TRUE(TlsClient(server.port(), TLS1_2_VERSION).is_open());
  EXPECT_FALSE(TlsClient(server.port(), TLS1_1_VERSION).is_open());
  const ClientResponse plain = get(server.port(), "/");
  EXPECT_EQ(plain.status, 400);
  EXPECT_NE(plain.body.find("https://"), std::string::npos) << plain.body;
}

TEST(TlsTest, SilentClientsLoseTheirConnection) {
  const Certificate certificate;
  HttpServerOptions options = with_tls(certificate);
  options.limits.header = 100ms;
  EchoServer server(options);
  HttpClient nothing(server.port());
  EXPECT_TRUE(nothing.wait_for_close(5s));
  HttpClient half(server.port());
  half.send("\x16\x03\x01");
  EXPECT_TRUE(half.wait_for_close(5s));
  EXPECT_TRUE(server->wait_until_empty(5s));
}

TEST(TlsTest, FilesThatCannotBeUsedAreNamed) {
  const Certificate ours, other;
  const std::string key = "-----BEGIN PRIVATE KEY-----";
  EXPECT_NO_THROW(server_tls({ours.certificate(), ours.key()}));
  expect_error(Errc::BadInput, {other.key(), "is not the one of the certificate in"}, [&] {
    server_tls({ours.certificate(), other.key()});
  });
  expect_error(Errc::Unsupported, {"locked.pem", "passphrase", "openssl pkey"}, [&] {
    server_tls({ours.certificate(), ours.locked_key()});
  });
  expect_error(Errc::BadInput, {"no private key in it", key}, [&] {
    server_tls({ours.certificate(), ours.certificate()});
  });
  expect_error(Errc::BadInput, {"no certificate in it", "BEGIN CERTIFICATE"}, [&] {
    server_tls({ours.key(), ours.key()});
  });
  expect_error(Errc::BadInput, {"no certificate that can be used"}, [&] {
    server_tls(
        {ours.write("bad.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
         ours.key()});
  });
  expect_error(Errc::Io, {"/nowhere/cert.pem", "cannot be read"}, [&] {
    server_tls({"/nowhere/cert.pem", ours.key()});
  });
}

TEST(TlsTest, AnExpiredCertificateIsRemarkedOn) {
  const Certificate old("DNS:localhost", -1);
  EchoServer server(with_tls(old));
  EXPECT_NE(server->certificate_warning().find("has expired"), std::string::npos);
}

}  // namespace
}  // namespace moeflux::test
