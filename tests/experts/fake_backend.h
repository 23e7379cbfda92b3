// A backend for tests of the experts: memory, copies and marks, no operations but experts().
//
// Copies run late: when somebody asks whether they are done, and then only sometimes. Its device
// memory can be out of the host's reach. With a device, a thread plays one that looks experts up by
// itself, in order, and hands each expert it computes with to `on_expert`.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "backends/backend.h"
#include "base/aligned_buffer.h"
#include "quant/interleave.h"
#include "support/random.h"

namespace moeflux::test {

// For tests, which know where a backend's bytes are.
inline std::byte* address_of(const Buffer* buffer, std::uint64_t offset) {
  return offset == Weight::kNoPlane ? nullptr : buffer->address() + offset;
}
inline WeightView on_host(const Weight& w) {
  return {.format = w.format,
          .rows = w.rows,
          .cols = w.cols,
          .data = address_of(w.buffer, w.data),
          .scales = address_of(w.buffer, w.scales),
          .biases = address_of(w.buffer, w.biases),
          .block_row0 = w.block_row0};
}

struct FakeBackendOptions {
  bool reachable = true;        // device memory, by the host
  bool has_device = false;      // drives_experts()
  bool is_interleaved = false;  // how affine weights are to lie
  std::uint64_t seed = 1;
};

class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(FakeBackendOptions options = {}) : options_(options), random_(options.seed) {
    if (options_.has_device) device_ = std::thread([this] { run_device(); });
  }
  ~FakeBackend() override {
    if (!device_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    device_.join();
  }

  // Called on the device's thread with every expert that an operation finds.
  std::function<void(const ExpertsOp&, int expert, const ExpertPlace&)> on_expert;
  int n_operations_failed() const { return n_failed_; }  // when all is done
  int n_rounds() const { return n_rounds_; }

  std::string name() const override { return "fake"; }
  std::unique_ptr<Buffer> allocate(std::uint64_t bytes, MemoryKind kind, Backing) override {
    return std::make_unique<Memory>(kind, bytes, kind != MemoryKind::Device || options_.reachable);
  }
  void discard(const Bytes& bytes) override {
    ::madvise(bytes.buffer->address() + bytes.offset, bytes.size, MADV_DONTNEED);
  }
  WeightFormat layout_for(const WeightFormat& format, WeightUse) const override {
    return arranged(format, options_.is_interleaved);
  }
  std::uint64_t scratch_bytes() const override { return 0; }

  void upload(std::span<const std::byte>, const Bytes&) override { no(); }
  void download(const Bytes&, std::span<std::byte>) override { no(); }
  void copy(const Bytes&, const Bytes&) override { no(); }
  void clear(const Bytes&) override { no(); }
  Mark transfer(const Bytes& from, const Bytes& to) override {
    transfers_.push_back({from, to});
    return ++n_transfers_;
  }
  bool transferred(Mark mark) override {
    if (random_.chance(0.3)) run_transfers(mark);
    return n_transferred_ >= mark;
  }
  void wait_for_transfer(Mark mark) override {
    if (poll_) poll_();
    run_transfers(mark);
  }

  // Operations that are not experts(): enqueue() stands for one that takes its time.
  void enqueue() { ++n_enqueued_; }
  Mark mark() override { return n_enqueued_; }
  bool done(Mark mark) override {
    if (!options_.has_device && random_.chance(0.2)) n_done_ = n_enqueued_;
    return n_done_.load(std::memory_order_acquire) >= mark;
  }
  void wait(Mark mark) override {
    ++n_waits;
    if (poll_) poll_();
    if (!options_.has_device) n_done_ = std::max<Mark>(n_done_, mark);
    for (int i = 1; n_done_.load(std::memory_order_acquire) < mark; ++i) {
      if (poll_) poll_();
      if (i % kPollsInARow == 0) std::this_thread::yield();
    }
  }
  int n_waits = 0;

  int n_threads() const override { return 1; }
  void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& body) override {
    for (std::int64_t i = 0; i < n; ++i) body(i);
    if (poll_) poll_();
  }
  void set_poll(std::function<void()> poll) override { poll_ = std::move(poll); }

  bool drives_experts() const override { return options_.has_device; }
  void experts(const ExpertsOp& op) override {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(op);
    ++n_enqueued_;
    changed_.notify_all();
  }

  void embed(const EmbedOp&) override { no(); }
  void rms_norm(const RmsNormOp&) override { no(); }
  void matmuls(std::span<const MatmulOp>) override { no(); }
  void add(const AddOp&) override { no(); }
  void softcap(const SoftcapOp&) override { no(); }
  void rope(const RopeOp&) override { no(); }
  void store_kv(const StoreKvOp&) override { no(); }
  void attention(const AttentionOp&) override { no(); }
  void clamp(const ClampOp&) override { no(); }
  void short_conv(const ShortConvOp&) override { no(); }
  void gated_delta(const GatedDeltaOp&) override { no(); }
  void latent_attention(const LatentAttentionOp&) override { no(); }
  void expanded_attention(const ExpandedAttentionOp&) override { no(); }
  void head_matmul(const HeadMatmulOp&) override { no(); }
  void ffns(std::span<const FfnOp>) override { no(); }
  void route(const RouteOp&) override { no(); }
  void combine(const CombineOp&) override { no(); }

 private:
  class Memory final : public Buffer {
   public:
    Memory(MemoryKind kind, std::uint64_t bytes, bool reachable)
        : Memory(kind, AlignedBuffer(bytes), reachable) {}

   private:
    Memory(MemoryKind kind, AlignedBuffer memory, bool reachable)
        : Buffer(kind, memory.size(), memory.data(), reachable ? memory.data() : nullptr),
          memory_(std::move(memory)) {}
    AlignedBuffer memory_;
  };
  struct Transfer {
    Bytes from, to;
  };
  static constexpr int kPollsInARow = 64;  // on a busy machine others run for long after a yield

  static void no() { throw std::logic_error("not an operation of these tests"); }

  void run_transfers(Mark until) {
    while (n_transferred_ < until) {
      const auto [from, to] = transfers_.front();
      transfers_.pop_front();
      std::memcpy(to.buffer->address() + to.offset, from.buffer->address() + from.offset, to.size);
      ++n_transferred_;
    }
  }

  void run_device() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const ExpertsOp op = jobs_.front();
      jobs_.pop_front();
      lock.unlock();
      if (!run_experts(op)) ++n_failed_;
      n_done_.fetch_add(1, std::memory_order_release);
      lock.lock();
    }
  }

  // The device's side of the mailbox; false when the host says that it failed.
  bool run_experts(const ExpertsOp& op) {
    auto& box = *reinterpret_cast<ExpertMailbox*>(op.mailbox.buffer->address());
    const auto* places = reinterpret_cast<const ExpertPlace*>(op.table.places.buffer->address() +
                                                              op.table.places.offset);
    const auto* ids =
        reinterpret_cast<const std::int32_t*>(op.ids.buffer->address() + op.ids.offset);
    std::vector<std::int32_t> needed(ids, ids + op.ids.size());
    std::sort(needed.begin(), needed.end());
    needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
    for (int round = 0; !needed.empty(); ++round) {
      if (box.failed.load(std::memory_order_acquire) != 0) return false;
      std::vector<std::int32_t> there, missing;
      for (const std::int32_t e : needed) (places[e].missing() ? missing : there).push_back(e);
      const std::uint32_t ticket = box.asked.load(std::memory_order_relaxed) + 1;
      if (!missing.empty()) {
        box.bank = op.bank;
        box.round = round;
        box.n_needed = static_cast<std::int32_t>(needed.size());
        std::copy(needed.begin(), needed.end(), box.needed());
        box.asked.store(ticket, std::memory_order_release);
        ++n_rounds_;
      }
      for (const std::int32_t e : there) on_expert(op, e, places[e]);
      needed = missing;
      while (!missing.empty() && box.answered.load(std::memory_order_acquire) != ticket) {
        if (box.failed.load(std::memory_order_acquire) != 0) return false;
        std::this_thread::yield();
      }
    }
    return true;
  }

  FakeBackendOptions options_;
  Random random_;
  std::function<void()> poll_;
  std::deque<Transfer> transfers_;
  Mark n_transfers_ = 0, n_transferred_ = 0;
  Mark n_enqueued_ = 0;
  std::atomic<Mark> n_done_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ExpertsOp> jobs_;
  bool stopping_ = false;
  std::atomic<int> n_failed_ = 0, n_rounds_ = 0;
  std::thread device_;
};

}  // namespace moeflux::test
