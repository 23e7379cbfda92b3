// The language that kernels are written in: what one thread of a GPU can do. Two compilers read it:
// clang for the GPU (PTX, without any toolkit), and the host's for the emulated GPU of the tests
// (tests/support/cuda/emulated_gpu.h), which runs the same kernels on any machine.
//
// A kernel is GPU_KERNEL(name, Params, most_threads) { ... p ... }. It takes one struct of plain
// values, found by its name (Driver). Blocks have a multiple of 32 threads in x only. Operations of
// a warp are called by all of its 32 threads. Names in lower case are functions here; macros are
//
//   GPU_KERNEL  GPU_EARLY_KERNEL (see wait_for_previous())  GPU_SHARED (static memory of a block)
//   GPU_UNROLL, GPU_ROLLED (before a loop) GPU_INLINE (what takes the params of a kernel by
//   reference, or is large)  GPU_LAMBDA (the same, before the body of a lambda)
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/operands.h"

#ifdef MOEFLUX_EMULATED_GPU
#include MOEFLUX_EMULATED_GPU
#else

#define GPU_EARLY_KERNEL(name, Params, ...)                                                 \
  extern "C" __attribute__((global)) __attribute__((launch_bounds(__VA_ARGS__))) void name( \
      const Params p)
#define GPU_KERNEL(name, Params, ...)           \
  GPU_INLINE void name##_body(const Params& p); \
  GPU_EARLY_KERNEL(name, Params, __VA_ARGS__) { \
    ::moeflux::gpu::let_next_begin();           \
    ::moeflux::gpu::wait_for_previous();        \
    name##_body(p);                             \
  }                                             \
  GPU_INLINE void name##_body([[maybe_unused]] const Params& p)
#define GPU_SHARED __attribute__((shared))
#define GPU_UNROLL _Pragma("unroll")
#define GPU_ROLLED _Pragma("unroll 1")
#define GPU_INLINE inline __attribute__((always_inline))
#define GPU_LAMBDA __attribute__((always_inline))

#pragma clang force_cuda_host_device begin

namespace moeflux::gpu {

inline int thread() {
  return __nvvm_read_ptx_sreg_tid_x();
}
inline int n_threads() {
  return __nvvm_read_ptx_sreg_ntid_x();
}
inline int block_x() {
  return __nvvm_read_ptx_sreg_ctaid_x();
}
inline int block_y() {
  return __nvvm_read_ptx_sreg_ctaid_y();
}
inline int block_z() {
  return __nvvm_read_ptx_sreg_ctaid_z();
}
inline int n_blocks_x() {
  return __nvvm_read_ptx_sreg_nctaid_x();
}

extern "C" __attribute__((shared))
__attribute__((aligned(128))) unsigned char moeflux_gpu_dynamic[];
// The memory of the block whose size is given at launch.
inline unsigned char* dynamic_shared() {
  return moeflux_gpu_dynamic;
}

// All threads of the block, or of the warp, have come here; what they wrote to memory is seen.
inline void sync() {
  __syncthreads();
}
inline void sync_warp() {
  asm volatile("bar.warp.sync -1;" ::: "memory");
}

inline float shuffle_xor(float value, int mask) {
  return __nvvm_shfl_sync_bfly_f32(-1, value, mask, 31);
}
inline int shuffle_xor(int value, int mask) {
  return __nvvm_shfl_sync_bfly_i32(-1, value, mask, 31);
}
// Whether some lane says so.
inline bool any_lane(bool says) {
  int out;
  asm volatile(
      "{.reg .pred says, any; setp.ne.s32 says, %1, 0; vote.sync.any.pred any, says, -1; "
      "selp.s32 %0, 1, 0, any;}"
      : "=r"(out)
      : "r"(static_cast<int>(says)));
  return out != 0;
}
inline float shuffle(float value, int lane) {
  return __nvvm_shfl_sync_idx_f32(-1, value, lane, 31);
}
inline int shuffle(int value, int lane) {
  return __nvvm_shfl_sync_idx_i32(-1, value, lane, 31);
}

// A bit for each lane.
inline std::uint32_t ballot(bool value) {
  std::uint32_t out;
  asm volatile("{ .reg .pred given; setp.ne.u32 given, %1, 0; vote.sync.ballot.b32 %0, given, -1; }"
               : "=r"(out)
               : "r"(static_cast<std::uint32_t>(value)));
  return out;
}
inline int count_bits(std::uint32_t bits) {
  return __builtin_popcount(bits);
}
inline int count_leading_zeros(std::int32_t positive) {
  return __builtin_clz(static_cast<std::uint32_t>(positive));
}

// sum + four products of signed bytes
inline int dot4(int a, int b, int sum) {
  int out;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(sum));
  return out;
}
// Bytes of (a, b), a being 0 to 3, picked by the low four hex digits of `picks`.
inline std::uint32_t pick_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t picks) {
  std::uint32_t out;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(picks));
  return out;
}

// 16-bit floats. Two in a dword: the first is in the low half.
inline std::uint16_t to_half(float x) {
  std::uint16_t out;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(x));
  return out;
}
inline float from_half(std::uint16_t x) {
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(x));
  return out;
}
inline std::uint32_t to_half2(float first, float second) {
  std::uint32_t out;
  asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(out) : "f"(first), "f"(second));
  return out;
}
inline std::uint32_t to_bfloat2(float first, float second) {
  std::uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(out) : "f"(first), "f"(second));
  return out;
}

// Two halves at once; the product and the sum are rounded together.
inline std::uint32_t add_halves(std::uint32_t a, std::uint32_t b) {
  std::uint32_t out;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}
inline std::uint32_t scale_halves(std::uint32_t a, std::uint32_t b) {  // a * b
  std::uint32_t out;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}
inline std::uint32_t multiply_add_halves(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t out;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
  return out;
}

// c += a b, of a warp: 16x16 halves times 16x8 halves. Registers are those of PTX's
// mma.m16n8k16 (a by rows, b by columns).
inline void multiply_halves(float (&c)[4], const std::uint32_t (&a)[4],
                            const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
inline void multiply_bfloats(float (&c)[4], const std::uint32_t (&a)[4],
                             const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

inline std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(
      reinterpret_cast<std::uintptr_t>((__attribute__((address_space(3))) const void*)(shared)));
}
// Four 8x8 matrices of halves from shared memory: lane 8 i + j gives the address of row j of matrix
// i (16 bytes, aligned), and gets two halves of row lane / 4 of each.
inline void load_matrices(std::uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row))
               : "memory");
}
// The same, each matrix transposed.
inline void load_matrices_transposed(std::uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row))
               : "memory");
}

// Copies of 16 aligned bytes into shared memory that go on while the thread computes. They come in
// batches: close_copies() ends one, await_copies<n>() waits until at most the last n are under way
// (of this thread; sync() for those of others).
inline void copy_16(void* shared, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(from)
               : "memory");
}
// Copies the first `bytes` of 16; the others become zeros.
inline void copy_up_to_16(void* shared, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(from), "r"(bytes)
               : "memory");
}
inline void close_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kUnderWay>
inline void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kUnderWay) : "memory");
}

// 2^x, 1 / x, 1 / sqrt(x), to some 22 bits.
inline float exp2(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}
inline float log2(float x) {
  float out;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}
inline float inverse(float x) {
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}
inline float inverse_sqrt(float x) {
  float out;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}
inline float sqrt(float x) {
  return __builtin_sqrtf(x);
}
inline float abs(float x) {
  return __builtin_fabsf(x);
}
// To the nearest, ties to even.
inline int to_int(float x) {
  int out;
  asm("cvt.rni.s32.f32 %0, %1;" : "=r"(out) : "f"(x));
  return out;
}

// What no kernel writes: loads that may happen earlier than they are written down.
inline std::uint32_t load_16_constant_bits(const void* at) {
  std::uint16_t out;
  asm("ld.global.u16 %0, [%1];" : "=h"(out) : "l"(at));
  return out;
}
inline void prefetch(const void* at) {  // into the second cache
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

inline int add_atomically(int* at, int value) {  // returns what was there
  return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

// What the host reads or writes meanwhile.
inline std::uint32_t load_acquire(const std::uint32_t* at) {
  std::uint32_t out;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(out) : "l"(at) : "memory");
  return out;
}
inline void store_release(std::uint32_t* at, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
inline std::uint64_t load_volatile(const std::uint64_t* at) {
  return *static_cast<const volatile std::uint64_t*>(at);
}
inline void rest() {  // while waiting for the host
  asm volatile("nanosleep.u32 100;");
}

// The largest and the smallest of a warp.
inline std::uint32_t warp_largest(std::uint32_t value) {
  std::uint32_t out;
  asm volatile("redux.sync.max.u32 %0, %1, -1;" : "=r"(out) : "r"(value));
  return out;
}
inline std::uint32_t warp_smallest(std::uint32_t value) {
  std::uint32_t out;
  asm volatile("redux.sync.min.u32 %0, %1, -1;" : "=r"(out) : "r"(value));
  return out;
}

// Kernels overlap on GPUs that can (Device::kernel() takes the comments away there): one is started
// while the one before it still runs. What earlier ones wrote is there after wait_for_previous(),
// and nothing may be written before. The next kernel may start when all blocks have called
// let_next_begin(). GPU_KERNEL calls both; a GPU_EARLY_KERNEL calls them itself, each thread, and
// reads what no kernel writes, its weights, before it waits.
inline void wait_for_previous() {
  asm volatile("//griddepcontrol.wait;" ::: "memory");
}
inline void let_next_begin() {
  asm volatile("//griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace moeflux::gpu
#endif

#ifdef MOEFLUX_EMULATED_GPU
#define GPU_CODE_BEGIN
#define GPU_CODE_END
#else
   // Around all code of a kernel's file, and of headers it shares with the host's side.
#define GPU_CODE_BEGIN _Pragma("clang force_cuda_host_device begin")
#define GPU_CODE_END _Pragma("clang force_cuda_host_device end")
#endif

GPU_CODE_BEGIN
namespace moeflux::gpu {

inline int lane() {
  return thread() % kWarp;
}
inline int warp() {
  return thread() / kWarp;
}
inline float warp_sum(float value) {
  GPU_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}
inline float max(float a, float b) {
  return a > b ? a : b;
}
inline float min(float a, float b) {
  return a < b ? a : b;
}
inline float warp_max(float value) {
  GPU_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = max(value, shuffle_xor(value, mask));
  return value;
}

// Sum over the block, for all of its threads. `memory` is shared, 32 floats, free again after the
// next sync().
inline float block_sum(float value, float* memory) {
  value = warp_sum(value);
  if (lane() == 0) memory[warp()] = value;
  sync();
  float sum = 0;
  for (int w = 0; w < n_threads() / kWarp; ++w) sum += memory[w];
  return sum;
}

struct alignas(16) Quad {
  std::uint32_t x, y, z, w;
};
#ifndef MOEFLUX_EMULATED_GPU
// See load_16_constant_bits(); of memory that is read once.
inline Quad load_constants(const void* at) {
  Quad out;
  asm("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
      : "l"(at));
  return out;
}
#else
inline Quad load_constants(const void* at) {
  return *static_cast<const Quad*>(at);
}
#endif
struct alignas(16) FloatQuad {
  float x, y, z, w;
};
struct alignas(8) FloatPair {
  float x, y;
};
struct alignas(8) Pair {
  std::uint32_t x, y;
};

inline float exp(float x) {
  return exp2(x * 1.4426950408889634f);
}
inline float sigmoid(float x) {
  return 1.0f / (1.0f + exp(-x));
}

inline float from_bfloat(std::uint16_t x) {
  return __builtin_bit_cast(float, std::uint32_t{x} << 16);
}
inline std::uint32_t bits_of(float x) {
  return __builtin_bit_cast(std::uint32_t, x);
}
inline float float_of(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

}  // namespace moeflux::gpu
GPU_CODE_END
