// The backend of NVIDIA GPUs: memory of the device and pinned memory of the host, operations that
// run in order on a stream, copies beside them on another.
//
// Operations are put down as a list (Program) and handed over when the host waits; lists of few
// rows become graphs. A list with many rows is handed over as it grows: then the device has enough
// to do that launches do not count. What the host uploads and downloads in a pass goes through
// pinned memory at places that depend on the list alone, so that a graph can run again.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/cuda/kernels/matvec.h"
#include "backends/cuda/program.h"
#include "base/thread_pool.h"

namespace moeflux::gpu {
struct AttentionParams;
struct DeltaParams;
struct FindExpertsParams;
struct RouteParams;
struct DeviceKv;
struct ProductParams;
struct RmsNormParams;
}  // namespace moeflux::gpu

namespace moeflux::cuda {

struct ManyPlan;

// See BackendInfo.
std::uint64_t scratch_needed(const WidestOps& ops, int n_threads);

class CudaBackend final : public Backend {
 public:
  CudaBackend(const BackendOptions& options, const Driver& driver, int device_index);
  ~CudaBackend() override;

  std::string name() const override;
  Device& device() { return device_; }
  // Memory for copies of caches that attention of many tokens works on at a time.
  void limit_copies(std::size_t bytes) { copies_bytes_ = bytes; }
  std::uint64_t n_graph_launches() const { return program_.n_graph_launches(); }

  std::unique_ptr<Buffer> allocate(std::uint64_t bytes, MemoryKind kind, Backing backing) override;
  void discard(const Bytes&) override {}
  WeightFormat layout_for(const WeightFormat& format, WeightUse use) const override;
  std::uint64_t scratch_bytes() const override;

  void upload(std::span<const std::byte> from, const Bytes& to) override;
  void download(const Bytes& from, std::span<std::byte> to) override;
  void copy(const Bytes& from, const Bytes& to) override;
  void clear(const Bytes& bytes) override;
  Mark transfer(const Bytes& from, const Bytes& to) override;
  bool transferred(Mark mark) override;
  void wait_for_transfer(Mark mark) override;

  Mark mark() override {
    settle();
    return n_enqueued_;
  }
  bool done(Mark mark) override;
  void wait(Mark mark) override;

  void time_kernels() override {
    program_.time_kernels([this] {
      if (poll_) poll_();
    });
  }
  std::vector<KernelTime> kernel_times() override;

  int n_threads() const override { return pool_.size(); }
  void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& body) override;
  void set_poll(std::function<void()> poll) override { poll_ = std::move(poll); }

  void embed(const EmbedOp& op) override;
  void rms_norm(const RmsNormOp& op) override;
  void matmuls(std::span<const MatmulOp> ops) override;
  void add(const AddOp& op) override;
  void clamp(const ClampOp& op) override;
  void softcap(const SoftcapOp& op) override;
  void rope(const RopeOp& op) override;
  void store_kv(const StoreKvOp& op) override;
  void attention(const AttentionOp& op) override;
  void short_conv(const ShortConvOp& op) override;
  void gated_delta(const GatedDeltaOp& op) override;
  void latent_attention(const LatentAttentionOp& op) override;
  void expanded_attention(const ExpandedAttentionOp& op) override;
  void head_matmul(const HeadMatmulOp& op) override;
  void ffns(std::span<const FfnOp> ops) override;
  void route(const RouteOp& op) override;
  void combine(const CombineOp& op) override;
  bool drives_experts() const override { return true; }
  void experts(const ExpertsOp& op) override;

 private:
  // Memory that operations use between two of them, of at least so many bytes. What an operation
  // asks for is valid until the next one asks.
  enum class Scratch { Activations, Partial, Lists };
  static constexpr int kScratches = 3;
  CUdeviceptr scratch(Scratch which, std::size_t bytes);
  // A copy on the device of numbers that belong to a spec, made once.
  const float* constants(const std::vector<float>& values);

  template <class Params>
  void launch(std::string_view kernel, const Params& params, const Grid& grid) {
    MOEFLUX_ASSERT(grid.shared_bytes <= shared_bytes_of_block());
    settle();
    program_.launch(kernel, params, grid);
    note_enqueued();
  }

  // Operations of few rows that have not been launched, since the next one may be able to take them
  // along: a norm becomes part of the products that follow, a sum part of the product before it,
  // and the experts of a row, their shared one and their sum are two launches (fused_rows.cpp).
  // One kind at a time, or route, shared, experts and combine in this order.
  struct Waiting {
    std::optional<RmsNormOp> norm;
    std::optional<MatmulOp> product;
    std::optional<RouteOp> route;
    std::optional<FfnOp> shared;       // whose hidden values `experts` has where it waits as well
    std::optional<ExpertsOp> experts;  // whose hidden values are there
    std::optional<CombineOp> combine;
    CUdeviceptr ids_copy = 0;  // where the ids of `experts` are to be copied
    bool is_empty = true;
  };
  bool may_wait(std::int64_t n_rows) const {
    return !is_wide_ && precision_ != Precision::Exact && n_rows > 0 && n_rows <= kFewRows;
  }
  // Launches what waits.
  void settle();
  void launch_norm(const RmsNormOp& op);
  void launch_add(const AddOp& op);
  void launch_route(const RouteOp& op);
  void launch_combine(const CombineOp& op);
  gpu::RouteParams route_params(const RouteOp& op);
  static gpu::DeviceWeight shape_of(Weight w);
  bool can_sum(const ExpertsOp& op) const;
  bool can_take_norm(std::span<const MatmulOp> ops) const;
  bool can_take_shared(const FfnOp& shared, const ExpertsOp& op) const;
  void expert_sums(const Waiting& waiting, const View& total);

  // Products of few rows of activations, and of many. `norm`: of what all of them multiply;
  // `total`: what the result is added to.
  void few_rows(std::span<const MatmulOp> ops, const RmsNormOp* norm = nullptr,
                const View& total = {});
  std::size_t launch_size(std::span<const MatmulOp> ops) const;
  void few_rows_alike(std::span<const MatmulOp> ops, const RmsNormOp* norm, const View& total);
  void many_rows(const MatmulOp& op);
  void few_rows(const FfnOp& op);
  void many_rows(const FfnOp& op);
  std::int32_t times_for(std::int64_t n_warps, std::int64_t warps_of_processor) const;
  // Rows of activations that a launch for few takes.
  std::int64_t rows_at_once(std::size_t bytes_per_row) const;

  static constexpr std::int64_t kFewRows = 8;
  static constexpr std::size_t kMostPairs = 512, kFoundAt = 64;
  void experts_of_few_rows(const ExpertsOp& op);
  // `places` is an ExpertPlace for each expert of the bank, as words. Pairs whose expert is missing
  // there are left out: their rows of `out` are not written.
  void experts_of_many_rows(const ExpertsOp& op, const std::uint64_t* places);
  void experts_that_are_there(const ExpertsOp& op, const std::uint64_t* places);
  void experts_in_rounds(const ExpertsOp& op);
  gpu::FindExpertsParams find_params(const ExpertsOp& op, const std::uint64_t* places, bool asks);
  // Hidden values of pairs, and of the shared expert where there is one; and what is made of those
  // of pairs.
  void hidden_of_pairs(const ExpertsOp& op, const std::optional<FfnOp>& shared);
  void results_of_pairs(const ExpertsOp& op);
  static const std::uint64_t* place_words(const Bytes& places);
  const gpu::FoundExpert* found();
  CUdeviceptr found_memory();  // a round, and from kFoundAt on a FoundExpert for each pair
  // Dynamic ones: static memory takes some, and so does the device.
  std::int64_t shared_bytes_of_block() const {
    return static_cast<std::int64_t>(device_.most_shared_bytes()) - (8 << 10);
  }
  // Any kind of attention that reads keys and values from a cache.
  void attend(const gpu::AttentionParams& op, std::int64_t capacity);
  // Copies of keys and values as halves, positions [begin, end) of up to `segment`.
  struct Copies {
    int d, values;  // numbers of a key and a value
    std::int64_t segment;
    std::uint16_t *keys = nullptr, *value_rows = nullptr;
    float *key_factors = nullptr, *value_factors = nullptr;  // of each 16 positions
    std::int32_t begin = 0, end = 0;

    std::int64_t halves(int width) const { return segment * width; }  // of a head
  };
  // Makes them. False: without factors.
  using MakeCopies = std::function<bool(const Copies& copies)>;
  void attend_many(const ManyPlan& plan, const gpu::AttentionParams& op, std::int64_t capacity,
                   const MakeCopies& make_copies);
  struct Rows16 {
    std::uint16_t* data;
    float* factors;
    std::int64_t head_stride, factors_head;
    int width;
  };
  void stage_kv(const gpu::DeviceKv& from, const gpu::AttentionParams& op, int n_heads,
                const Rows16& to, std::int32_t begin, std::int32_t end);
  // Keys and values of latents on tensor cores. False: they do not take them.
  bool multiply_out(const ExpandedAttentionOp& op);
  // Rows of heads that lie anywhere on the device.
  struct HeadRows {
    float* data;
    std::int64_t stride, head_stride;
  };
  void head_products(const HeadMatrix& matrix, int n_heads, std::int64_t n, const HeadRows& x,
                     const HeadRows& y);
  void product(gpu::ProductParams& p, std::int64_t most_rows, std::int64_t n_x);
  void round(gpu::ProductParams& p, std::int64_t n_x, bool is_direct);
  void opened_product(const gpu::ProductParams& p);
  void walk_chunks(gpu::DeltaParams p);
  bool norm_of_many_rows(const gpu::RmsNormParams& norm, std::int64_t rows);

  // Between the host and the device, or on the device.
  void copy_bytes(CUdeviceptr to, CUdeviceptr from, std::size_t bytes);
  void note_enqueued();
  void note_rows(std::int64_t rows);
  void flush();
  void deliver(Mark until);

  // A moment on a stream.
  struct Moment {
    Mark mark;
    CUevent event;
  };
  void record(std::deque<Moment>& moments, Mark mark, CUstream stream);
  bool reached(std::deque<Moment>& moments, Mark& reached_mark, Mark mark);
  CUevent take_event();

  const Driver& driver_;
  Device device_;
  Precision precision_;
  std::size_t copies_bytes_ = 48u << 20;
  ThreadPool pool_;
  std::function<void()> poll_;
  Program program_;
  bool is_wide_ = false;  // the list has operations of many rows
  Waiting waiting_;

  Mark n_enqueued_ = 0, n_flushed_ = 0, n_done_ = 0;
  std::deque<Moment> moments_;
  Mark n_transfers_ = 0, n_transferred_ = 0;
  std::deque<Moment> transfers_;
  std::vector<CUevent> free_events_;

  // Pinned memory between the host and the device, for what is enqueued and not done.
  std::byte *uploads_ = nullptr, *downloads_ = nullptr;
  std::size_t uploads_used_ = 0, downloads_used_ = 0;
  struct Download {
    Mark mark;
    const std::byte* from;
    std::span<std::byte> to;
  };
  std::deque<Download> pending_;

  struct ScratchMemory {
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
  };
  ScratchMemory scratches_[kScratches];
  // What products rounded last (RoundRowsParams), and the mark up to which it is still there.
  std::vector<std::byte> rounded_;
  Mark rounded_at_ = 0;
  std::map<std::vector<float>, CUdeviceptr> constants_;
  CUdeviceptr found_ = 0;
  std::unique_ptr<Buffer> round_places_;
};

// With the driver of this machine, or one of a test.
std::unique_ptr<Backend> make_backend(const BackendOptions& options, const Driver& driver);
std::string missing();  // why this machine cannot run it; empty: it can
std::uint64_t free_memory();

}  // namespace moeflux::cuda
