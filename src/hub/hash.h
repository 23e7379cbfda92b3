// Hashes that name files on the hub, taken piece by piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "hub/repository.h"

namespace moeflux {

class BlobHasher {
 public:
  // `size` is that of the whole file: git's hash begins with it.
  BlobHasher(BlobHash kind, std::uint64_t size);
  ~BlobHasher();
  BlobHasher(BlobHasher&&) noexcept;

  void add(std::span<const std::byte> bytes);
  std::string finish();  // in hexadecimal; "" of kind Unknown

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moeflux
