#include "hub/hash.h"

#include <array>

#include <openssl/evp.h>

#include "base/error.h"

namespace moeflux {

struct BlobHasher::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { EVP_MD_CTX_free(context); }
};

BlobHasher::BlobHasher(BlobHash kind, std::uint64_t size) {
  if (kind == BlobHash::Unknown) return;
  state_ = std::make_unique<State>();
  const EVP_MD* const digest = kind == BlobHash::Sha256 ? EVP_sha256() : EVP_sha1();
  if (state_->context == nullptr || EVP_DigestInit_ex(state_->context, digest, nullptr) != 1)
    fail(Errc::Unsupported, "OpenSSL on this machine computes no {}; files cannot be checked",
         kind == BlobHash::Sha256 ? "SHA-256" : "SHA-1");
  if (kind == BlobHash::GitSha1) {
    const std::string head = fmt::format("blob {}", size) + '\0';
    add(std::as_bytes(std::span(head)));
  }
}

BlobHasher::~BlobHasher() = default;
BlobHasher::BlobHasher(BlobHasher&&) noexcept = default;

void BlobHasher::add(std::span<const std::byte> bytes) {
  if (state_) EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
}

std::string BlobHasher::finish() {
  if (!state_) return "";
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_DigestFinal_ex(state_->context, digest.data(), &size);
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace moeflux
