// TLS by OpenSSL, 1.2 and newer: the certificate of a server, and what a client demands of one.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/ssl/context.hpp>

#include "server/http/tls_files.h"

namespace moeflux {

using TlsContext = std::shared_ptr<boost::asio::ssl::context>;

// Throws Error that names the file and what is wrong with it.
TlsContext server_tls(const TlsFiles& files);
// What is unusual about the certificate without being an error, such as that it has expired; "".
std::string certificate_warning(const TlsContext& context);

// Trusts those who vouch as the system does, or as SSL_CERT_FILE and SSL_CERT_DIR say.
TlsContext client_tls();
// The certificate must be for that name or address; the server is told the name.
void expect_host(SSL* connection, const std::string& host);
// Why a handshake failed, for a message: "its certificate is not trusted (...)".
std::string tls_problem(SSL* connection, const boost::system::error_code& error);

}  // namespace moeflux
