#include "backends/kv_cache.h"

namespace moeflux {

std::string_view kv_type_name(KvType type) {
  switch (type) {
    case KvType::F32:
      return "f32";
    case KvType::F16:
      return "f16";
    case KvType::BF16:
      return "bf16";
    case KvType::Q8:
      return "q8";
  }
  return "?";
}

std::int64_t KvShape::row_bytes() const {
  switch (type) {
    case KvType::F32:
      return std::int64_t{4} * d;
    case KvType::F16:
    case KvType::BF16:
      return std::int64_t{2} * d;
    case KvType::Q8:
      return d + std::int64_t{2} * ((d + kKvQ8Group - 1) / kKvQ8Group);
  }
  return 0;
}

std::int64_t KvShape::head_bytes() const {
  return (capacity + kKvLanes - 1) / kKvLanes * kKvLanes * row_bytes();
}

}  // namespace moeflux
