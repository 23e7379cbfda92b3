// A certificate for 127.0.0.1 and localhost that signs itself, as files. Made anew in each test:
// one that lies in the tree would expire.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "support/paths.h"

namespace moeflux::test {

class Certificate {
 public:
  // `names` as OpenSSL writes them. `days`: from now; negative: it has expired.
  explicit Certificate(const std::string& names = "DNS:localhost,IP:127.0.0.1", long days = 1)
      : key_(EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"), EVP_PKEY_free) {
    const std::unique_ptr<X509, void (*)(X509*)> certificate(X509_new(), X509_free);
    X509* const x = certificate.get();
    constexpr long kDay = 24 * 3600;
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -kDay * (days < 0 ? 2 - days : 1));
    X509_gmtime_adj(X509_getm_notAfter(x), kDay * days);
    X509_set_pubkey(x, key_.get());
    X509_NAME* const name = X509_get_subject_name(x);
    const std::string common = "test";
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(common.c_str()), -1, -1, 0);
    X509_set_issuer_name(x, name);
    extend(x, NID_basic_constraints, "critical,CA:TRUE");
    extend(x, NID_subject_alt_name, names.c_str());
    if (X509_sign(x, key_.get(), EVP_sha256()) == 0) throw std::runtime_error("not signed");
    certificate_ = directory_.write("cert.pem", pem([&](BIO* to) { PEM_write_bio_X509(to, x); }));
    key_file_ = directory_.write("key.pem", pem([&](BIO* to) {
                                   PEM_write_bio_PrivateKey(to, key_.get(), nullptr, nullptr, 0,
                                                            nullptr, nullptr);
                                 }));
  }

  const std::string& certificate() const { return certificate_; }
  const std::string& key() const { return key_file_; }
  // The same key, locked with a passphrase.
  std::string locked_key() const {
    return directory_.write("locked.pem", pem([&](BIO* to) {
                              PEM_write_bio_PKCS8PrivateKey(to, key_.get(), EVP_aes_128_cbc(),
                                                            "secret", 6, nullptr, nullptr);
                            }));
  }
  std::string write(const std::string& name, const std::string& text) const {
    return directory_.write(name, text);
  }

 private:
  static void extend(X509* certificate, int nid, const char* value) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value);
    if (extension == nullptr) throw std::runtime_error(std::string("no extension: ") + value);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }
  template <class Write>
  static std::string pem(Write write) {
    const std::unique_ptr<BIO, int (*)(BIO*)> memory(BIO_new(BIO_s_mem()), BIO_free);
    write(memory.get());
    char* text = nullptr;
    const long size = BIO_ctrl(memory.get(), BIO_CTRL_INFO, 0, &text);
    return {text, static_cast<std::size_t>(size)};
  }

  TempDir directory_;
  std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key_;
  std::string certificate_, key_file_;
};

}  // namespace moeflux::test
