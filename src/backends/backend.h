// A backend: memory, operations on it (op.h), and when they are done.
//
// Operations are enqueued and run in order. What the host gives them (lists of operations,
// uploaded bytes) has been read when a call returns; what they write is complete, and may be read
// by the host, after wait(). Specs that operations point to must live that long. On a backend that
// computes on the host all of it happens at once. Calls come from one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/op.h"
#include "base/error.h"

namespace moeflux {

inline constexpr std::size_t kMostMatmuls = 8;

enum class WeightUse {
  Product,  // matmuls() and ffns()
  Rows,     // single rows or heads are taken: embed(), head_matmul(), expanded_attention()
};

// The widest operations of a forward pass, as far as a backend takes memory of its own for them.
struct WidestOps {
  std::int64_t matmul_values = 0;  // rows * columns of the largest input of a product
  std::int64_t cols = 0;           // of any weight
  std::int64_t d_model = 0;
  // Feed-forwards that come alone in a call, and several in one: rows of activations, and hidden
  // values of each.
  std::int64_t ffn_rows = 0, d_ff = 0;
  std::int64_t expert_rows = 0, d_expert = 0;
  std::int64_t d_query = 0, d_value = 0, d_latent = 0;  // of a head of attention
};

// What a kernel of a device has taken so far.
struct KernelTime {
  std::string name;
  std::uint64_t calls = 0;
  double seconds = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;

  // Memory. Zero-filled. Throws Error(OutOfMemory). Buffers must not outlive the backend; freeing
  // one waits for the operations that were enqueued before.
  virtual std::unique_ptr<Buffer> allocate(std::uint64_t bytes, MemoryKind kind,
                                           Backing backing = Backing::Touched) = 0;
  // Returns the memory behind whole pages of the run to the system; their contents are lost.
  virtual void discard(const Bytes& bytes) = 0;
  // How a stored format should lie in memory for a use; the same bytes in another order.
  virtual WeightFormat layout_for(const WeightFormat& format, WeightUse use) const = 0;
  // Memory of its own that it holds between operations; at most BackendInfo::scratch_needed().
  virtual std::uint64_t scratch_bytes() const = 0;

  // Copies, in the order of operations.
  virtual void upload(std::span<const std::byte> from, const Bytes& to) = 0;
  virtual void download(const Bytes& from, std::span<std::byte> to) = 0;
  virtual void copy(const Bytes& from, const Bytes& to) = 0;
  virtual void clear(const Bytes& bytes) = 0;  // zeros
  // A copy beside the order of operations, between bytes that no operation enqueued so far uses.
  // Where experts() can wait for the host it must make progress meanwhile. Its marks are a count of
  // their own.
  virtual Mark transfer(const Bytes& from, const Bytes& to) {
    copy(from, to);
    return mark();
  }
  virtual bool transferred(Mark mark_of_transfer) { return done(mark_of_transfer); }
  virtual void wait_for_transfer(Mark mark_of_transfer) { wait(mark_of_transfer); }

  // Order.
  virtual Mark mark() = 0;  // of all that has been enqueued
  virtual bool done(Mark mark) = 0;
  virtual void wait(Mark mark) = 0;
  void wait_for_all() { wait(mark()); }

  // Where operations are kernels of a device: times each by itself from now on, which makes all of
  // them slower, and what they took.
  virtual void time_kernels() {}
  virtual std::vector<KernelTime> kernel_times() { return {}; }

  // Threads of the host that lend themselves: calls the body for 0 .. n - 1.
  virtual int n_threads() const = 0;
  virtual void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& body) = 0;
  // Called now and then by the thread that calls operations, while it computes or waits for them.
  // Where experts() can wait for the host, or the host cannot reach device memory, never from
  // inside of parallel_for().
  virtual void set_poll(std::function<void()> poll) = 0;

  virtual void embed(const EmbedOp& op) = 0;
  virtual void rms_norm(const RmsNormOp& op) = 0;
  // Independent of each other, at most kMostMatmuls: one dispatch serves all.
  virtual void matmuls(std::span<const MatmulOp> ops) = 0;
  void matmul(const MatmulOp& op) { matmuls({&op, 1}); }
  virtual void add(const AddOp& op) = 0;
  virtual void clamp(const ClampOp& op) = 0;
  virtual void softcap(const SoftcapOp& op) = 0;
  virtual void rope(const RopeOp& op) = 0;
  virtual void store_kv(const StoreKvOp& op) = 0;
  virtual void attention(const AttentionOp& op) = 0;
  virtual void short_conv(const ShortConvOp& op) = 0;
  virtual void gated_delta(const GatedDeltaOp& op) = 0;
  virtual void latent_attention(const LatentAttentionOp& op) = 0;
  virtual void expanded_attention(const ExpandedAttentionOp& op) = 0;
  virtual void head_matmul(const HeadMatmulOp& op) = 0;
  // Independent of each other: one dispatch serves all.
  virtual void ffns(std::span<const FfnOp> ops) = 0;
  void ffn(const FfnOp& op) { ffns({&op, 1}); }
  virtual void route(const RouteOp& op) = 0;
  virtual void combine(const CombineOp& op) = 0;
  // Whether a device looks experts up by itself. Then experts() may wait for the host, which
  // answers in poll.
  virtual bool drives_experts() const { return false; }
  virtual void experts(const ExpertsOp& /*op*/) { MOEFLUX_ASSERT(drives_experts()); }
};

// What activations become in products with quantized weights.
enum class Precision {
  Exact,  // they stay f32
  Fine,   // rounded to 16 bits: far less than the rounding of the weights, at the same bytes
  Fast,   // to 8 bits in feed-forwards, where that hardly shows: half of their arithmetic
};
std::string_view precision_name(Precision precision);  // "exact", "fine", "fast"

struct BackendOptions {
  std::string_view isa = {};  // "scalar", "avx2", ...; empty: the best this machine has
  int n_threads = 0;          // 0: one per physical core this process may use
  Precision precision = Precision::Exact;
};

// The backends this program has.
struct BackendInfo {
  std::string_view name;
  std::string_view what;     // for people, half a line
  std::string (*missing)();  // why this machine cannot run it; empty: it can
  // The memory of its own that these operations take, at any precision.
  std::uint64_t (*scratch_needed)(const WidestOps& ops, int n_threads);
  std::unique_ptr<Backend> (*make)(const BackendOptions& options);  // throws Error
  // Whether experts are read straight into its memory. Else they come through pinned memory.
  bool is_reached_by_host = true;
  // Memory of its own that is free now, less what is better left; null: it has none but the
  // host's.
  std::uint64_t (*free_memory)() = nullptr;
};
std::span<const BackendInfo> backend_list();
inline constexpr std::string_view kAutoBackend = "auto";

// Adds one of a program's own, before any is used: what was added last is the default.
void add_backend(const BackendInfo& info);
// Without a name: the default, else "cpu". "auto": the default, else the first of the list that
// this machine can run. Both throw Error(BadInput) for an unknown name, the latter for one this
// machine cannot run, too.
const BackendInfo& find_backend(std::string_view name = {});
std::unique_ptr<Backend> make_backend(const BackendOptions& options, std::string_view name = {});

}  // namespace moeflux
