#include "server/http/tls.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <system_error>

#include <arpa/inet.h>
#include <boost/asio/ssl/error.hpp>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "base/error.h"

namespace moeflux {

namespace ssl = boost::asio::ssl;

namespace {

constexpr std::string_view kHttp11 = "http/1.1";

struct KeyDeleter {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Key = std::unique_ptr<EVP_PKEY, KeyDeleter>;
struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

File open_pem(const std::string& path) {
  File file(std::fopen(path.c_str(), "re"));
  if (!file) fail(Errc::Io, "{}: cannot be read: {}", path, std::generic_category().message(errno));
  return file;
}

// What OpenSSL says first of what failed, and forgets.
std::string reason() {
  const unsigned long code = ERR_peek_error();
  ERR_clear_error();
  const char* text = code == 0 ? nullptr : ERR_reason_error_string(code);
  return text == nullptr ? "no further reason" : text;
}

void use_certificate(SSL_CTX* context, const std::string& path) {
  open_pem(path);
  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(context, path.c_str()) == 1) return;
  if (ERR_GET_REASON(ERR_peek_error()) == PEM_R_NO_START_LINE) {
    ERR_clear_error();
    fail(Errc::BadInput,
         "{}: there is no certificate in it; --tls-cert takes PEM, which begins with "
         "-----BEGIN CERTIFICATE-----",
         path);
  }
  fail(Errc::BadInput, "{}: is no certificate that can be used: {}", path, reason());
}

// A server that starts by itself has nobody to ask for a passphrase.
int refuse_passphrase(char*, int, int, void* was_asked) {
  *static_cast<bool*>(was_asked) = true;
  return -1;
}

Key read_key(const std::string& path) {
  const File file = open_pem(path);
  ERR_clear_error();
  bool was_asked = false;
  Key key(PEM_read_PrivateKey(file.get(), nullptr, refuse_passphrase, &was_asked));
  if (key) return key;
  const std::string why = reason();
  if (was_asked) {
    fail(Errc::Unsupported,
         "{}: the key is locked with a passphrase; write one without it: openssl pkey -in {} -out "
         "FILE",
         path, path);
  }
  fail(Errc::BadInput,
       "{}: there is no private key in it ({}); --tls-key takes PEM, which begins with -----BEGIN "
       "PRIVATE KEY----- or the like",
       path, why);
}

// Speaks HTTP/1.1 with whoever offers it, and with who offers nothing.
int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* n_chosen,
                    const unsigned char* offered, unsigned int n_offered, void*) {
  for (unsigned int at = 0; at < n_offered; at += 1u + offered[at]) {
    const unsigned int size = std::min<unsigned int>(offered[at], n_offered - at - 1);
    const std::string_view name(reinterpret_cast<const char*>(offered + at + 1), size);
    if (name != kHttp11) continue;
    *chosen = offered + at + 1;
    *n_chosen = static_cast<unsigned char>(size);
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_NOACK;
}

TlsContext new_context(ssl::context::method method) {
  auto context = std::make_shared<ssl::context>(method);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  // An idle connection keeps no buffers.
  SSL_CTX_set_mode(context->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  return context;
}

bool is_address(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return ::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

}  // namespace

TlsContext server_tls(const TlsFiles& files) {
  TlsContext context = new_context(ssl::context::tls_server);
  SSL_CTX* handle = context->native_handle();
  SSL_CTX_set_options(handle, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_alpn_select_cb(handle, choose_protocol, nullptr);
  use_certificate(handle, files.certificate);
  const Key key = read_key(files.key);
  if (X509_check_private_key(SSL_CTX_get0_certificate(handle), key.get()) != 1) {
    ERR_clear_error();
    fail(Errc::BadInput, "{}: this key is not the one of the certificate in {}", files.key,
         files.certificate);
  }
  if (SSL_CTX_use_PrivateKey(handle, key.get()) == 1) return context;
  fail(Errc::BadInput, "{}: the key cannot be used: {}", files.key, reason());
}

std::string certificate_warning(const TlsContext& context) {
  const X509* certificate = SSL_CTX_get0_certificate(context->native_handle());
  if (certificate == nullptr) return "";
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
    return "the certificate has expired: clients will refuse it";
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
    return "the certificate is not valid yet: clients will refuse it";
  return "";
}

TlsContext client_tls() {
  TlsContext context = new_context(ssl::context::tls_client);
  context->set_verify_mode(ssl::verify_peer);
  // Without any, the handshake says that nobody is trusted.
  SSL_CTX_set_default_verify_paths(context->native_handle());
  ERR_clear_error();
  return context;
}

void expect_host(SSL* connection, const std::string& host) {
  X509_VERIFY_PARAM* expected = SSL_get0_param(connection);
  if (is_address(host)) {
    X509_VERIFY_PARAM_set1_ip_asc(expected, host.c_str());
    return;
  }
  X509_VERIFY_PARAM_set_hostflags(expected, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  X509_VERIFY_PARAM_set1_host(expected, host.c_str(), host.size());
  // SSL_set_tlsext_host_name, without its cast.
  SSL_ctrl(connection, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
           const_cast<char*>(host.c_str()));
}

std::string tls_problem(SSL* connection, const boost::system::error_code& error) {
  const long verdict = SSL_get_verify_result(connection);
  if (verdict == X509_V_OK) {
    if (error == ssl::error::stream_truncated || error == boost::asio::error::eof)
      return "it closed the connection during the TLS handshake";
    if (error.category() == boost::asio::error::get_ssl_category()) {
      const auto code = static_cast<unsigned long>(error.value());
      if (ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER ||
          ERR_GET_REASON(code) == SSL_R_HTTP_REQUEST)
        return "it does not speak TLS there; try http://";
    }
    return "the TLS handshake failed: " + error.message();
  }
  if (verdict == X509_V_ERR_HOSTNAME_MISMATCH || verdict == X509_V_ERR_IP_ADDRESS_MISMATCH)
    return "its certificate is for another name";
  const std::string why = X509_verify_cert_error_string(verdict);
  if (verdict == X509_V_ERR_CERT_HAS_EXPIRED || verdict == X509_V_ERR_CERT_NOT_YET_VALID)
    return fmt::format("its certificate is not valid now ({})", why);
  return fmt::format(
      "its certificate is not trusted ({}); SSL_CERT_FILE may name a file with the certificate "
      "that vouches for it",
      why);
}

}  // namespace moeflux
