// The rounding of activations for AVX2 with BMI2; reached only through the table.
#if defined(__x86_64__)

#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "backends/cpu/q8.h"

namespace moeflux::cpu {

void q8_quantize_avx2(const Q8Layout& layout, const float* x, std::byte* out,
                      std::byte* rest) noexcept;

namespace {

constexpr int kLanes = Q8Layout::kLanes;
constexpr int kBlock = Q8Layout::kBlockBytes;

float* floats_at(std::byte* base, std::int64_t offset) noexcept {
  return static_cast<float*>(static_cast<void*>(base + offset));
}

__m256i to_codes(const float* x, __m256 inverse) noexcept {
  const __m256 limit = _mm256_set1_ps(127.0f), least = _mm256_set1_ps(-127.0f);
  const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x), inverse);
  return _mm256_cvtps_epi32(_mm256_max_ps(_mm256_min_ps(scaled, limit), least));
}

// A group in element order. Gives its scale; the sum of its codes goes to `sum`.
float quantize_group(const float* x, int group, std::byte* codes, std::int32_t& sum) noexcept {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  const __m256 infinity = _mm256_castsi256_ps(_mm256_set1_epi32(0x7F800000));
  __m256 largest = _mm256_setzero_ps(), bad = _mm256_setzero_ps();
  for (int k = 0; k < group; k += 8) {
    const __m256 size = _mm256_and_ps(_mm256_loadu_ps(x + k), magnitude);
    bad = _mm256_or_ps(bad, _mm256_cmp_ps(size, infinity, _CMP_NLT_UQ));
    largest = _mm256_max_ps(largest, size);
  }
  sum = 0;
  if (_mm256_movemask_ps(bad) != 0) {
    std::memset(codes, 0, static_cast<std::size_t>(group));
    return __builtin_nanf("");
  }
  alignas(32) float tops[8];
  _mm256_store_ps(tops, largest);
  float top = 0;
  for (const float value : tops) top = value > top ? value : top;
  const __m256 inverse = _mm256_set1_ps(top > 0 ? 127.0f / top : 0.0f);
  __m256i sums = _mm256_setzero_si256();
  for (int k = 0; k < group; k += 32) {
    const __m256i a = to_codes(x + k, inverse), b = to_codes(x + k + 8, inverse),
                  c = to_codes(x + k + 16, inverse), d = to_codes(x + k + 24, inverse);
    sums = _mm256_add_epi32(sums, _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d)));
    // Packing works within halves of 128 bits; the permutation puts the words back in order.
    const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(codes + k)),
                        _mm256_permutevar8x32_epi32(packed, order));
  }
  alignas(32) std::int32_t parts[8];
  _mm256_store_si256(static_cast<__m256i*>(static_cast<void*>(parts)), sums);
  for (const std::int32_t part : parts) sum += part;
  return top / 127.0f;
}

// The codes of a block from element order to [step][byte].
template <int Steps>
void deal_block(std::byte* block) noexcept {
  constexpr std::uint64_t kMask = Steps == 2 ? 0x00FF00FF00FF00FFu : 0x000000FF000000FFu;
  constexpr int kTaken = 8 / Steps;  // codes of one step in a word
  alignas(32) std::byte from[kBlock * Steps];
  std::memcpy(from, block, sizeof from);
  for (int i = 0; i < kBlock * Steps / 8; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, from + i * 8, 8);
    for (int step = 0; step < Steps; ++step) {
      const std::uint64_t taken = _pext_u64(word, kMask << (8 * step));
      std::memcpy(block + step * kBlock + i * kTaken, &taken, kTaken);
    }
  }
}

// x less what its codes, in element order, stand for.
void leave_rest(const float* x, int group, const std::byte* codes, float scale,
                float* rest) noexcept {
  for (int k = 0; k < group; k += 8) {
    const __m128i some =
        _mm_loadl_epi64(static_cast<const __m128i*>(static_cast<const void*>(codes + k)));
    const __m256 values = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(some));
    _mm256_store_ps(rest + k,
                    _mm256_fnmadd_ps(values, _mm256_set1_ps(scale), _mm256_loadu_ps(x + k)));
  }
}

// Codes of all groups are there in element order: the rest of the row's layout.
void finish_row(const Q8Layout& layout, std::byte* out) noexcept {
  for (std::int64_t g = layout.n_groups; g < layout.n_chunks() * kLanes; ++g) {
    floats_at(out, layout.scales_at)[g] = floats_at(out, layout.sums_at)[g] = 0;
  }
  std::memset(out + layout.cols, 0, static_cast<std::size_t>(layout.scales_at - layout.cols));
  for (std::int64_t b = 0; b < layout.n_blocks && layout.steps > 1; ++b) {
    std::byte* block = out + b * layout.block_codes();
    layout.steps == 2 ? deal_block<2>(block) : deal_block<4>(block);
  }
}

float place_group(const Q8Layout& layout, std::int64_t g, const float* x, std::byte* out) noexcept {
  std::int32_t sum = 0;
  const float scale = quantize_group(x, layout.group, out + g * layout.group, sum);
  floats_at(out, layout.scales_at)[g] = scale;
  floats_at(out, layout.sums_at)[g] = scale * static_cast<float>(sum);
  return scale;
}

}  // namespace

void q8_quantize_avx2(const Q8Layout& layout, const float* x, std::byte* out,
                      std::byte* rest) noexcept {
  alignas(32) float left[Q8Layout::kMaxGroup];
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    const float* values = x + g * layout.group;
    const float scale = place_group(layout, g, values, out);
    if (rest == nullptr) continue;
    leave_rest(values, layout.group, out + g * layout.group, scale, left);
    place_group(layout, g, left, rest);
  }
  finish_row(layout, out);
  if (rest != nullptr) finish_row(layout, rest);
}

}  // namespace moeflux::cpu

#endif
