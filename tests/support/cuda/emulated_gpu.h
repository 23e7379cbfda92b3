// What src/backends/cuda/kernels/gpu.h offers to kernels, on the host: every thread of a block is a
// fiber, so kernels run on any machine and under the sanitizers. Included by gpu.h only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace moeflux::gpu {

// Of the fiber that runs.
struct Place {
  int thread, n_threads, block_x, block_y, block_z, n_blocks_x;
  unsigned char* dynamic_shared;
};
extern thread_local Place place;

using Body = void (*)(const void* params);
// A kernel of the program, by its name.
struct RegisteredKernel {
  RegisteredKernel(const char* name, Body body, std::size_t params_size, int most_threads);
};

#define GPU_KERNEL(name, Params, most_threads, ...)                                            \
  static void name##_body(const Params& p);                                                    \
  static void name(const void* params) {                                                       \
    name##_body(*static_cast<const Params*>(params));                                          \
  }                                                                                            \
  static const ::moeflux::gpu::RegisteredKernel name##_registered(#name, name, sizeof(Params), \
                                                                  most_threads);               \
  static void name##_body([[maybe_unused]] const Params& p)
#define GPU_EARLY_KERNEL GPU_KERNEL
#define GPU_SHARED static thread_local
#define GPU_UNROLL
#define GPU_ROLLED
#define GPU_INLINE inline
#define GPU_LAMBDA

inline int thread() {
  return place.thread;
}
inline int n_threads() {
  return place.n_threads;
}
inline int block_x() {
  return place.block_x;
}
inline int block_y() {
  return place.block_y;
}
inline int block_z() {
  return place.block_z;
}
inline int n_blocks_x() {
  return place.n_blocks_x;
}
inline unsigned char* dynamic_shared() {
  return place.dynamic_shared;
}

void sync();
void sync_warp();
void rest();

// Every lane gives a value and sees those of all lanes until done_with_warp().
inline constexpr int kMostExchanged = 32;                            // bytes
const std::byte* give_to_warp(const void* value, std::size_t size);  // [32][kMostExchanged]
void done_with_warp();

template <class T>
T shuffle_bits(T value, int lane) {
  const std::byte* all = give_to_warp(&value, sizeof value);
  T out;
  std::memcpy(&out, all + lane * kMostExchanged, sizeof out);
  done_with_warp();
  return out;
}
inline bool any_lane(bool says) {
  bool any = false;
  const int own = says ? 1 : 0;
  const std::byte* all = give_to_warp(&own, sizeof own);
  for (int lane = 0; lane < 32; ++lane) any |= all[lane * kMostExchanged] != std::byte{0};
  done_with_warp();
  return any;
}
inline float shuffle(float value, int lane) {
  return shuffle_bits(value, lane);
}
inline int shuffle(int value, int lane) {
  return shuffle_bits(value, lane);
}
inline float shuffle_xor(float value, int mask) {
  return shuffle_bits(value, place.thread % 32 ^ mask);
}
inline int shuffle_xor(int value, int mask) {
  return shuffle_bits(value, place.thread % 32 ^ mask);
}

inline std::uint32_t ballot(bool value) {
  const std::byte* all = give_to_warp(&value, sizeof value);
  std::uint32_t out = 0;
  for (int i = 0; i < 32; ++i)
    if (all[i * kMostExchanged] != std::byte{0}) out |= 1u << i;
  done_with_warp();
  return out;
}
inline int count_bits(std::uint32_t bits) {
  return __builtin_popcount(bits);
}
inline int count_leading_zeros(std::int32_t positive) {
  return __builtin_clz(static_cast<std::uint32_t>(positive));
}

inline int dot4(int a, int b, int sum) {
  for (int i = 0; i < 4; ++i) {
    const auto byte = [i](int x) {
      return int{static_cast<std::int8_t>(static_cast<std::uint32_t>(x) >> (8 * i))};
    };
    sum += byte(a) * byte(b);
  }
  return sum;
}
inline std::uint32_t pick_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t picks) {
  const std::uint64_t both = std::uint64_t{b} << 32 | a;
  std::uint32_t out = 0;
  for (int i = 0; i < 4; ++i)
    out |= static_cast<std::uint32_t>(both >> (8 * (picks >> (4 * i) & 7)) & 0xFF) << (8 * i);
  return out;
}

std::uint16_t to_half(float x);
float from_half(std::uint16_t x);
std::uint16_t to_bfloat(float x);
inline std::uint32_t to_half2(float first, float second) {
  return to_half(first) | static_cast<std::uint32_t>(to_half(second)) << 16;
}
inline std::uint32_t to_bfloat2(float first, float second) {
  return to_bfloat(first) | static_cast<std::uint32_t>(to_bfloat(second)) << 16;
}

inline std::uint32_t add_halves(std::uint32_t a, std::uint32_t b) {
  const auto sum = [](std::uint32_t x, std::uint32_t y) {
    return from_half(static_cast<std::uint16_t>(x)) + from_half(static_cast<std::uint16_t>(y));
  };
  return to_half2(sum(a, b), sum(a >> 16, b >> 16));
}
inline std::uint32_t scale_halves(std::uint32_t a, std::uint32_t b) {
  const auto product = [](std::uint32_t x, std::uint32_t y) {
    return from_half(static_cast<std::uint16_t>(x)) * from_half(static_cast<std::uint16_t>(y));
  };
  return to_half2(product(a, b), product(a >> 16, b >> 16));
}
// Rounded to a float on the way, where that is not exact.
inline std::uint32_t multiply_add_halves(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const auto value = [](std::uint32_t x, std::uint32_t y, std::uint32_t z) {
    return from_half(static_cast<std::uint16_t>(x)) * from_half(static_cast<std::uint16_t>(y)) +
           from_half(static_cast<std::uint16_t>(z));
  };
  return to_half2(value(a, b, c), value(a >> 16, b >> 16, c >> 16));
}

void multiply_halves(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);
void multiply_bfloats(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);
void load_matrices(std::uint32_t (&out)[4], const void* row);
void load_matrices_transposed(std::uint32_t (&out)[4], const void* row);

// Copies land when they are awaited: who reads earlier reads what was there before.
void copy_16(void* shared, const void* from);
void copy_up_to_16(void* shared, const void* from, int bytes);
void close_copies();
void await_copies_under_way(int n);
template <int kUnderWay>
void await_copies() {
  await_copies_under_way(kUnderWay);
}

inline float exp2(float x) {
  return std::exp2(x);
}
inline float log2(float x) {
  return std::log2(x);
}
inline float inverse(float x) {
  return 1.0f / x;
}
inline float inverse_sqrt(float x) {
  return 1.0f / std::sqrt(x);
}
inline float sqrt(float x) {
  return std::sqrt(x);
}
inline float abs(float x) {
  return std::fabs(x);
}
inline int to_int(float x) {
  return static_cast<int>(std::nearbyint(x));
}

inline std::uint32_t load_16_constant_bits(const void* at) {
  return *static_cast<const std::uint16_t*>(at);
}
inline void prefetch(const void*) {}
inline void wait_for_previous() {}
inline void let_next_begin() {}

template <class Better>
std::uint32_t best_of_warp(std::uint32_t value, Better better) {
  const std::byte* all = give_to_warp(&value, sizeof value);
  for (int lane = 0; lane < 32; ++lane) {
    std::uint32_t other;
    std::memcpy(&other, all + lane * kMostExchanged, sizeof other);
    if (better(other, value)) value = other;
  }
  done_with_warp();
  return value;
}
inline std::uint32_t warp_largest(std::uint32_t value) {
  return best_of_warp(value, [](std::uint32_t a, std::uint32_t b) { return a > b; });
}
inline std::uint32_t warp_smallest(std::uint32_t value) {
  return best_of_warp(value, [](std::uint32_t a, std::uint32_t b) { return a < b; });
}

inline int add_atomically(int* at, int value) {
  return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
inline std::uint32_t load_acquire(const std::uint32_t* at) {
  return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
inline void store_release(std::uint32_t* at, std::uint32_t value) {
  __atomic_store_n(at, value, __ATOMIC_RELEASE);
}
inline std::uint64_t load_volatile(const std::uint64_t* at) {
  return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

}  // namespace moeflux::gpu
