// Rows of a cache as bytes that do not depend on how the cache lays them out.
//
// Order: [position][head][row], where a row is what the type stores for one head at one position:
// d values, or for q8 d codes and then a bf16 scale for each 32 of them (backends/kv_cache.h). The
// bytes are those of the cache, so what comes back in is bit for bit what went out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/backend.h"

namespace moeflux {

// Of n_positions rows of all heads.
std::uint64_t kv_rows_bytes(const KvShape& shape, std::int64_t n_positions);

// Both: positions [first, first + n) must lie inside the cache, and the span must have exactly
// kv_rows_bytes(shape, n) bytes.
void export_kv_rows(Backend& backend, const KvView& view, std::int64_t first, std::int64_t n,
                    std::span<std::byte> out);
void import_kv_rows(Backend& backend, const KvView& view, std::int64_t first, std::int64_t n,
                    std::span<const std::byte> in);

// The numbers that such rows stand for: [position][head][d]. `rows` must be whole positions.
void decode_kv_rows(const KvShape& shape, std::span<const std::byte> rows, float* out);

}  // namespace moeflux
