// Encrypted connections, with an authority of our own, and through a proxy.
#include <array>
#include <cstdlib>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hub/hub_fixture.h"
#include "support/expect_error.h"

namespace moeflux::test {
namespace {

// An authority that trusts itself, or a certificate that it signs. Written as PEM.
struct Certificate {
  X509* x509 = X509_new();
  EVP_PKEY* key = EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256");

  Certificate(const char* name, const char* names, const Certificate* signer) {
    X509_set_version(x509, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x509), signer == nullptr ? 1 : 2);
    X509_gmtime_adj(X509_getm_notBefore(x509), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
    X509_set_pubkey(x509, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x509), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
    const X509* const issuer = signer == nullptr ? x509 : signer->x509;
    X509_set_issuer_name(x509, X509_get_subject_name(issuer));
    add(NID_basic_constraints, signer == nullptr ? "critical,CA:TRUE" : "CA:FALSE");
    if (names != nullptr) add(NID_subject_alt_name, names);
    X509_sign(x509, signer == nullptr ? key : signer->key, EVP_sha256());
  }
  ~Certificate() {
    X509_free(x509);
    EVP_PKEY_free(key);
  }
  Certificate(const Certificate&) = delete;
  Certificate& operator=(const Certificate&) = delete;

  void add(int what, const char* value) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, what, value);
    X509_add_ext(x509, extension, -1);
    X509_EXTENSION_free(extension);
  }
  void write(const std::string& path, const std::string& key_path) const {
    std::FILE* file = std::fopen(path.c_str(), "w");
    PEM_write_X509(file, x509);
    std::fclose(file);
    file = std::fopen(key_path.c_str(), "w");
    PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
  }
};

// Passes bytes on, as a proxy does after CONNECT.
class TunnelProxy {
 public:
  TunnelProxy() {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ::listen(fd_, 16);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] {
      for (int fd; (fd = ::accept(fd_, nullptr, nullptr)) >= 0;)
        threads_.emplace_back([this, fd] { serve(fd); });
    });
  }
  ~TunnelProxy() {
    ::shutdown(fd_, SHUT_RDWR);
    acceptor_.join();
    for (std::thread& each : threads_) each.join();
    ::close(fd_);
  }
  std::string url(const std::string& user = "") const {
    return fmt::format("http://{}127.0.0.1:{}", user, port_);
  }
  std::vector<std::string> heads() {
    const std::lock_guard lock(mutex_);
    return heads_;
  }

 private:
  void serve(int fd) {
    std::string head;
    char c;
    while (!head.ends_with("\r\n\r\n") && ::recv(fd, &c, 1, 0) == 1) head += c;
    {
      const std::lock_guard lock(mutex_);
      heads_.push_back(head);
    }
    const std::size_t colon = head.find(':');
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(head.c_str() + colon + 1)));
    const int to = ::socket(AF_INET, SOCK_STREAM, 0);
    if (head.starts_with("CONNECT ") &&
        ::connect(to, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      const std::string answer = "HTTP/1.1 200 Connection established\r\n\r\n";
      ::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
      pump(fd, to);
    }
    ::close(to);
    ::close(fd);
  }
  static void pump(int a, int b) {
    std::array<char, 65536> buffer;
    std::array<pollfd, 2> both{{{a, POLLIN, 0}, {b, POLLIN, 0}}};
    while (::poll(both.data(), 2, 10'000) > 0) {
      for (int i = 0; i < 2; ++i) {
        if (both[static_cast<std::size_t>(i)].revents == 0) continue;
        const ssize_t n = ::recv(i == 0 ? a : b, buffer.data(), buffer.size(), 0);
        if (n <= 0) return;
        ::send(i == 0 ? b : a, buffer.data(), static_cast<std::size_t>(n), MSG_NOSIGNAL);
      }
    }
  }

  int fd_, port_ = 0;
  std::mutex mutex_;
  std::vector<std::string> heads_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

class TlsTest : public HubTest {
 protected:
  TlsTest() {
    const Certificate authority("authority of a test", nullptr, nullptr);
    authority.write(directory_.file("ca.pem"), directory_.file("ca.key"));
    Certificate("server", "DNS:localhost,IP:127.0.0.1", &authority)
        .write(directory_.file("server.pem"), directory_.file("server.key"));
    Certificate("server", "DNS:elsewhere.example", &authority)
        .write(directory_.file("other.pem"), directory_.file("other.key"));
    secure_ =
        std::make_unique<HubServer>(directory_.file("server.pem"), directory_.file("server.key"));
    for (const auto& [path, content] : files_)
      secure_->add(kModel, path, {content, path.ends_with(".safetensors")});
  }
  ~TlsTest() override { ::unsetenv("SSL_CERT_FILE"); }
  void trust() { ::setenv("SSL_CERT_FILE", directory_.file("ca.pem").c_str(), 1); }
  PullOptions with(const HubServer& server, const std::string& host = "localhost") {
    PullOptions options = HubTest::options();
    options.client.settings.endpoint = server.url(host);
    return options;
  }
  std::unique_ptr<HubServer> secure_;
};

TEST_F(TlsTest, AnAuthorityThatIsTrusted) {
  trust();
  secure_->set({.cut_chance = 0.3});
  pull(with(*secure_));
  EXPECT_EQ(server_.commit(kModel), secure_->commit(kModel));
  expect_whole();
  std::filesystem::remove_all(cache());
  secure_->set({});
  pull(with(*secure_, "127.0.0.1"));
  expect_whole();
}

TEST_F(TlsTest, AnAuthorityThatIsNotTrusted) {
  ::setenv("SSL_CERT_FILE", "/dev/null", 1);
  expect_error(Errc::Unsupported,
               {"certificate cannot be trusted", "ca-certificates", "SSL_CERT_FILE"},
               [&] { pull(with(*secure_)); });
}

TEST_F(TlsTest, ACertificateOfAnotherHost) {
  trust();
  HubServer other(directory_.file("other.pem"), directory_.file("other.key"));
  for (const char* host : {"localhost", "127.0.0.1"}) {
    expect_error(Errc::Unsupported, {"certificate"}, [&] { pull(with(other, host)); });
  }
  EXPECT_TRUE(other.requests().empty());
}

TEST_F(TlsTest, AServerWithoutEncryption) {
  PullOptions options = HubTest::options();
  options.client.settings.endpoint = fmt::format("https://127.0.0.1:{}", server_.port());
  options.client.timing.connect = std::chrono::milliseconds(500);
  expect_error(Errc::Io, {"no encrypted connection"}, [&] { pull(options); });
}

TEST_F(TlsTest, NoRedirectLeadsOutOfEncryption) {
  trust();
  secure_->set({.lfs_host = server_.url()});
  expect_error(Errc::Unsupported, {"not encrypted"}, [&] { pull(with(*secure_)); });
}

TEST_F(TlsTest, ThroughAProxy) {
  trust();
  TunnelProxy proxy;
  PullOptions options = with(*secure_);
  options.client.settings.token = "hf_secret";
  options.client.settings.proxies.https = proxy.url("user:pass@");
  pull(options);
  expect_whole();
  ASSERT_FALSE(proxy.heads().empty());
  for (const std::string& head : proxy.heads()) {
    EXPECT_TRUE(
        head.starts_with(fmt::format("CONNECT localhost:{} HTTP/1.1\r\n", secure_->port())));
    EXPECT_NE(head.find("Proxy-Authorization: Basic dXNlcjpwYXNz\r\n"), std::string::npos);
    EXPECT_EQ(head.find("hf_secret"), std::string::npos);
  }
  const std::size_t n = proxy.heads().size();
  options.client.settings.proxies.no_proxy = {"localhost"};
  pull(options);
  EXPECT_EQ(proxy.heads().size(), n);
}

TEST_F(TlsTest, AProxyWithoutATunnel) {
  PullOptions options = HubTest::options();
  options.client.settings.endpoint = "http://hub.example";
  options.client.settings.proxies.http = server_.url();
  server_.set({.script = [](const SeenRequest& request, int) -> std::string {
    return request.target.starts_with("http://hub.example/api/models/")
               ? "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"
               : "HTTP/1.1 400 Wrong\r\nContent-Length: 0\r\n\r\n";
  }});
  expect_error(Errc::NotFound, {"hub.example", "404"}, [&] { pull(options); });
}

}  // namespace
}  // namespace moeflux::test
