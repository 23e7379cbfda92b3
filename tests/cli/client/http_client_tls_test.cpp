// The client with servers that speak TLS: whom it believes, and what it says where it does not.
#include <cstdlib>

#include <gtest/gtest.h>

#include "cli/client/http_client.h"
#include "cli/program.h"
#include "server/echo_server.h"
#include "support/certificate.h"
#include "support/expect_error.h"

namespace moeflux::test {
namespace {

class HttpsClientTest : public testing::Test {
 protected:
  ~HttpsClientTest() override { ::unsetenv("SSL_CERT_FILE"); }  // NOLINT(concurrency-mt-unsafe)

  static HttpServerOptions with(const Certificate& certificate) {
    return {
        .port = 0, .n_workers = 2, .tls = TlsFiles{certificate.certificate(), certificate.key()}};
  }
  static void trust(const Certificate& certificate) {
    ::setenv("SSL_CERT_FILE", certificate.certificate().c_str(),
             1);  // NOLINT(concurrency-mt-unsafe)
  }
  static cli::HttpReply ask(const std::string& host, int port, const std::string& path = "/x") {
    const std::string url = "https://" + host + ":" + std::to_string(port);
    return cli::HttpClient(cli::parse_server_address(url), "").send({.path = path});
  }
};

TEST_F(HttpsClientTest, BelievesWhomItIsToldToBelieve) {
  const Certificate certificate;
  trust(certificate);
  EchoServer server(with(certificate));
  EXPECT_EQ(ask("127.0.0.1", server.port()).body, "GET /x 0");
  EXPECT_EQ(ask("localhost", server.port()).body, "GET /x 0");
}

TEST_F(HttpsClientTest, RefusesOthers) {
  const Certificate certificate, unknown, elsewhere("DNS:example.org"), old("IP:127.0.0.1", -1);
  trust(certificate);
  EchoServer server(with(unknown));
  expect_error(Errc::Io, {"https://127.0.0.1", "not trusted", "SSL_CERT_FILE"},
               [&] { ask("127.0.0.1", server.port()); });
  trust(elsewhere);
  EchoServer other(with(elsewhere));
  for (const char* host : {"127.0.0.1", "localhost"})
    expect_error(Errc::Io, {"certificate is for another name"}, [&] { ask(host, other.port()); });
  trust(old);
  EchoServer expired(with(old));
  expect_error(Errc::Io, {"not valid now", "expired"}, [&] { ask("127.0.0.1", expired.port()); });
}

TEST_F(HttpsClientTest, AServerWithoutTlsIsNamed) {
  EchoServer plain;
  expect_error(Errc::Io, {"does not speak TLS", "http://"},
               [&] { ask("127.0.0.1", plain.port()); });
}

TEST_F(HttpsClientTest, ALongStreamComesWhole) {
  const Certificate certificate;
  trust(certificate);
  EchoServer server(with(certificate));
  std::thread writer([&] {
    const ExchangePtr stream = server.last_stream();
    for (int i = 0; i < 100; ++i)
      stream->write(std::string(10'000, static_cast<char>('a' + i % 26)));
    stream->finish();
  });
  std::string all;
  const std::string url = "https://localhost:" + std::to_string(server.port());
  cli::HttpClient(cli::parse_server_address(url), "")
      .send({.path = "/stream", .on_piece = [&](std::string_view piece) {
               all += piece;
               return true;
             }});
  writer.join();
  EXPECT_EQ(all.size(), 1'000'000u);
  EXPECT_EQ(all.back(), 'a' + 99 % 26);
}

// A command, end to end.
TEST_F(HttpsClientTest, CommandsAskIt) {
  const Certificate certificate, unknown;
  EchoServer server(with(certificate));
  const std::string url = "https://localhost:" + std::to_string(server.port());
  const auto ps = [&](const Certificate& trusted) {
    return run_moeflux({"ps", "--server", url},
                       {.text = "", .env = {{"SSL_CERT_FILE", trusted.certificate()}}})
        .err;
  };
  EXPECT_NE(ps(certificate).find(url), std::string::npos) << "an echo is no answer to ps";
  EXPECT_EQ(ps(certificate).find("not trusted"), std::string::npos) << ps(certificate);
  EXPECT_NE(ps(unknown).find("not trusted"), std::string::npos) << ps(unknown);
}

}  // namespace
}  // namespace moeflux::test
