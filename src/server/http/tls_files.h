// Where the certificate of a server lies.
#pragma once

#include <string>

namespace moeflux {

struct TlsFiles {
  std::string certificate;  // PEM: the server's own first, then those that vouch for it
  std::string key;          // PEM, without a passphrase
};

}  // namespace moeflux
