// Fibers that stand for the threads of a block, and what a warp does together.
#include "support/cuda/emulated_gpu.h"

#include <array>
#include <bit>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include "support/cuda/emulated_launch.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace moeflux::gpu {

thread_local Place place;

namespace {

constexpr std::size_t kStackBytes = 128 << 10;

// Switches stacks: saves what a call must keep, and where it was.
#if defined(__x86_64__)
extern "C" void moeflux_switch_fiber(void** from, void* to);
asm(R"(
.text
.type moeflux_switch_fiber, @function
moeflux_switch_fiber:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  retq
.size moeflux_switch_fiber, .-moeflux_switch_fiber
)");
#define MOEFLUX_HAS_FIBERS 1
#endif

struct WarpState {
  int arrived = 0;
  unsigned round = 0;
  int n_lanes = 32;
  alignas(16) std::array<std::byte, 32 * kMostExchanged> given;
};

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;  // of 16, the others become zeros
};

struct Fiber {
  void* stack_pointer = nullptr;
  std::byte* stack = nullptr;
  bool is_done = false;
  std::vector<std::vector<Copy>> copies;  // batches under way, the last one is open
};

// The blocks of a launch run one after the other, their fibers in turn.
class Executor {
 public:
  ~Executor() {
    for (Fiber& fiber : fibers_) ::munmap(fiber.stack, kStackBytes);
  }

  void run_block(Body body, const void* params, int n_threads) {
    while (static_cast<int>(fibers_.size()) < n_threads) add_fiber();
    body_ = body;
    params_ = params;
    n_threads_ = n_alive_ = n_threads;
    arrived_ = 0;
    warps_.resize(static_cast<std::size_t>((n_threads + 31) / 32));
    for (std::size_t w = 0; w < warps_.size(); ++w) {
      warps_[w].arrived = 0;
      warps_[w].n_lanes = std::min(32, n_threads - static_cast<int>(w) * 32);
    }
    for (int i = 0; i < n_threads; ++i) prepare(fibers_[static_cast<std::size_t>(i)]);
    current_ = 0;
    place.thread = 0;
    enter(fibers_[0], &host_);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  void sync() {
    const unsigned round = round_;
    if (++arrived_ == n_alive_) {
      arrived_ = 0;
      ++round_;
    }
    while (round_ == round) yield();
  }
  void sync_warp() {
    WarpState& w = own_warp();
    const unsigned round = w.round;
    if (++w.arrived == w.n_lanes) {
      w.arrived = 0;
      ++w.round;
    }
    while (w.round == round) yield();
  }
  const std::byte* give(const void* value, std::size_t size) {
    WarpState& w = own_warp();
    std::memcpy(w.given.data() + place.thread % 32 * kMostExchanged, value, size);
    sync_warp();
    return w.given.data();
  }
  void yield() {
    int next = current_;
    do {
      next = next + 1 == n_threads_ ? 0 : next + 1;
    } while (fibers_[static_cast<std::size_t>(next)].is_done);
    if (next == current_) return;
    Fiber& from = fibers_[static_cast<std::size_t>(current_)];
    current_ = next;
    place.thread = next;
    enter(fibers_[static_cast<std::size_t>(next)], &from.stack_pointer);
  }
  Fiber& own() { return fibers_[static_cast<std::size_t>(current_)]; }

 private:
  WarpState& own_warp() { return warps_[static_cast<std::size_t>(current_ / 32)]; }

  void add_fiber() {
    void* memory = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("emulated GPU: no memory for stacks");
    fibers_.emplace_back().stack = static_cast<std::byte*>(memory);
  }

  void prepare(Fiber& fiber) {
    fiber.is_done = false;
    fiber.copies.assign(1, {});
    // As moeflux_switch_fiber leaves a stack: six registers, then where to go on.
    auto* top = reinterpret_cast<void**>(fiber.stack + kStackBytes - 56);
    top[0] = nullptr;  // nobody returns there; keeps the stack aligned as after a call
    *--top = reinterpret_cast<void*>(&Executor::start);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    fiber.stack_pointer = top;
  }

  void enter(Fiber& fiber, void** from) {
#ifdef MOEFLUX_HAS_FIBERS
    moeflux_switch_fiber(from, fiber.stack_pointer);
#else
    static_cast<void>(fiber);
    static_cast<void>(from);
    throw std::runtime_error("the emulated GPU runs on x86-64 only");
#endif
  }

  [[noreturn]] static void start();
  [[noreturn]] void run_fiber() {
    try {
      body_(params_);
    } catch (...) {
      error_ = std::current_exception();
    }
    Fiber& done = own();
    done.is_done = true;
    --n_alive_;
    if (n_alive_ > 0 && arrived_ == n_alive_) {  // barriers count the threads that are left
      arrived_ = 0;
      ++round_;
    }
    WarpState& w = own_warp();
    if (--w.n_lanes > 0 && w.arrived == w.n_lanes) {
      w.arrived = 0;
      ++w.round;
    }
    if (n_alive_ > 0) {
      yield();
    } else {
      void* nowhere;
#ifdef MOEFLUX_HAS_FIBERS
      moeflux_switch_fiber(&nowhere, host_);
#endif
    }
    __builtin_unreachable();
  }

  std::vector<Fiber> fibers_;
  std::vector<WarpState> warps_;
  Body body_ = nullptr;
  const void* params_ = nullptr;
  int n_threads_ = 0, n_alive_ = 0, arrived_ = 0, current_ = 0;
  unsigned round_ = 0;
  void* host_ = nullptr;
  std::exception_ptr error_;
};

Executor& executor() {
  thread_local Executor one;
  return one;
}

void Executor::start() {
  executor().run_fiber();
}

std::map<std::string, EmulatedKernel, std::less<>>& kernels() {
  static std::map<std::string, EmulatedKernel, std::less<>> all;
  return all;
}

}  // namespace

namespace {

// Ends where nobody may touch memory, so that a block that goes beyond its own is seen. Zero bytes
// are unlikely results: what nobody wrote shows.
unsigned char* shared_memory(std::size_t bytes) {
  constexpr std::size_t kPage = 4096, kMost = 256 << 10, kAlignment = 128;
  thread_local unsigned char* const memory = [] {
    void* mapped = ::mmap(nullptr, kMost + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED || ::mprotect(mapped, kMost, PROT_READ | PROT_WRITE) != 0)
      throw std::runtime_error("emulated GPU: no memory for blocks");
    return static_cast<unsigned char*>(mapped);
  }();
  if (bytes > kMost) throw std::logic_error("emulated GPU: a block with too much shared memory");
  unsigned char* begin = memory + kMost - (bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::memset(begin, 0x7F, static_cast<std::size_t>(memory + kMost - begin));
  return begin;
}

}  // namespace

RegisteredKernel::RegisteredKernel(const char* name, Body body, std::size_t params_size,
                                   int most_threads) {
  if (!kernels().emplace(name, EmulatedKernel{body, params_size, most_threads}).second)
    throw std::logic_error(std::string("two kernels are called ") + name);
}

const EmulatedKernel* find_kernel(std::string_view name) {
  const auto found = kernels().find(name);
  return found == kernels().end() ? nullptr : &found->second;
}

void run_kernel(const EmulatedKernel& kernel, const void* params, const Grid& grid) {
  if (grid.threads <= 0 || grid.threads > kernel.most_threads || grid.threads % 32 != 0)
    throw std::logic_error("emulated GPU: a block of a size that its kernel cannot have");
  unsigned char* begin = shared_memory(grid.shared_bytes);
  for (int z = 0; z < grid.z; ++z) {
    for (int y = 0; y < grid.y; ++y) {
      for (int x = 0; x < grid.x; ++x) {
        place = {0, grid.threads, x, y, z, grid.x, begin};
        executor().run_block(kernel.body, params, grid.threads);
      }
    }
  }
}

void sync() {
  executor().sync();
}
void rest() {
  executor().yield();
  std::this_thread::yield();
}
void sync_warp() {
  executor().sync_warp();
}
const std::byte* give_to_warp(const void* value, std::size_t size) {
  return executor().give(value, size);
}
void done_with_warp() {
  executor().sync_warp();
}

std::uint16_t to_half(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t half;
  if (magnitude > 0x7F800000u) {
    half = 0x7E00u;
  } else if (magnitude >= 0x477FF000u) {
    half = 0x7C00u;  // beyond 65504
  } else if (magnitude >= 0x38800000u) {
    half = (magnitude + 0xFFFu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
  } else {
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  }
  return static_cast<std::uint16_t>(sign | half);
}

float from_half(std::uint16_t x) {
  const std::uint32_t sign = std::uint32_t{x & 0x8000u} << 16, rest = x & 0x7FFFu;
  const float magnitude = rest >= 0x7C00u ? std::bit_cast<float>(rest << 13 | 0x7F800000u)
                                          : std::bit_cast<float>(rest << 13) * 0x1p+112f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

std::uint16_t to_bfloat(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

namespace {

float from_bfloat(std::uint16_t x) {
  return std::bit_cast<float>(std::uint32_t{x} << 16);
}

// A lane's part of PTX's m16n8k16: rows lane / 4 and lane / 4 + 8, columns 2 (lane % 4) and the
// next.
template <float (*kDecode)(std::uint16_t)>
void multiply(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  std::array<std::uint32_t, 6> own = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const std::byte* all = give_to_warp(own.data(), sizeof own);
  const auto reg = [&](int lane, int i) {
    std::uint32_t value;
    std::memcpy(&value, all + lane * kMostExchanged + i * 4, sizeof value);
    return value;
  };
  const auto half = [](std::uint32_t pair, int i) {
    return kDecode(static_cast<std::uint16_t>(pair >> (16 * i)));
  };
  const int lane = place.thread % 32;
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + (i >= 2 ? 8 : 0), col = lane % 4 * 2 + i % 2;
    float sum = 0;
    for (int k = 0; k < 16; ++k) {
      const int of_a = (row >= 8 ? 1 : 0) + (k >= 8 ? 2 : 0), of_b = k >= 8 ? 1 : 0;
      sum += half(reg(row % 8 * 4 + k % 8 / 2, of_a), k % 2) *
             half(reg(col * 4 + k % 8 / 2, 4 + of_b), k % 2);
    }
    c[i] += sum;
  }
  done_with_warp();
}

void load_matrices(std::uint32_t (&out)[4], const void* row, bool transposed) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0)
    throw std::logic_error("emulated GPU: a row of a matrix that is not aligned");
  const std::byte* all = give_to_warp(&row, sizeof row);
  const auto at = [&](int matrix, int r, int c) {
    const std::uint16_t* begin;
    std::memcpy(&begin, all + (matrix * 8 + r) * kMostExchanged, sizeof begin);
    return begin[c];
  };
  const int lane = place.thread % 32, r = lane / 4, c = lane % 4 * 2;
  for (int i = 0; i < 4; ++i) {
    out[i] = transposed ? at(i, c, r) | std::uint32_t{at(i, c + 1, r)} << 16
                        : at(i, r, c) | std::uint32_t{at(i, r, c + 1)} << 16;
  }
  done_with_warp();
}

}  // namespace

void multiply_halves(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  multiply<from_half>(c, a, b);
}
void multiply_bfloats(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  multiply<from_bfloat>(c, a, b);
}
void load_matrices(std::uint32_t (&out)[4], const void* row) {
  load_matrices(out, row, false);
}
void load_matrices_transposed(std::uint32_t (&out)[4], const void* row) {
  load_matrices(out, row, true);
}

void copy_16(void* shared, const void* from) {
  copy_up_to_16(shared, from, 16);
}
void copy_up_to_16(void* shared, const void* from, int bytes) {
  if (bytes < 0 || bytes > 16)
    throw std::logic_error("emulated GPU: a copy of more than 16 bytes, or fewer than none");
  if (reinterpret_cast<std::uintptr_t>(shared) % 16 != 0 ||
      reinterpret_cast<std::uintptr_t>(from) % 16 != 0)
    throw std::logic_error("emulated GPU: a copy that is not aligned");
  executor().own().copies.back().push_back({shared, from, static_cast<std::size_t>(bytes)});
}
void close_copies() {
  executor().own().copies.emplace_back();
}
void await_copies_under_way(int n) {
  auto& copies = executor().own().copies;
  while (static_cast<int>(copies.size()) > n + 1) {
    for (const Copy& copy : copies.front()) {
      std::memset(copy.to, 0, 16);
      std::memcpy(copy.to, copy.from, copy.bytes);
    }
    copies.erase(copies.begin());
  }
}

}  // namespace moeflux::gpu
