// Bytes of a backend's memory where the host can read and write them: in place, or, where it cannot
// reach them, in a copy that store() writes back.
#pragma once

#include <cstddef>
#include <vector>

#include "backends/backend.h"

namespace moeflux {

class HostBytes {
 public:
  // Waits until all operations that were enqueued have been done.
  HostBytes(Backend& backend, const Bytes& bytes) : backend_(backend), bytes_(bytes) {
    if (bytes.buffer->host() == nullptr) {
      copy_.resize(bytes.size);
      backend.download(bytes, copy_);
    }
    backend.wait_for_all();
  }
  std::byte* data() { return copy_.empty() ? bytes_.buffer->host() + bytes_.offset : copy_.data(); }
  void store() {
    if (!copy_.empty()) backend_.upload(copy_, bytes_);
  }

 private:
  Backend& backend_;
  Bytes bytes_;
  std::vector<std::byte> copy_;
};

}  // namespace moeflux
