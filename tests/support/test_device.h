// A device without a device: behaves like a GPU and computes with the CPU's kernels, so that every
// difference to the CPU is a mistake of the seam.
//
// Device memory is not readable at the addresses the engine sees: it is mapped twice, once without
// any permission and once for the thread that executes. Operations run later, on that thread, in
// order, with seeded delays; marks complete late; what is uploaded has been copied when the call
// returns. It can look its experts up by itself and ask for missing ones through the mailbox.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backends/backend.h"
#include "support/random.h"

namespace moeflux::test {

struct TestDeviceOptions {
  bool drives_experts = false;
  std::uint64_t seed = 1;
  int most_delay_us = 30;  // before an operation
};

class TestDevice final : public Backend {
 public:
  TestDevice(std::unique_ptr<Backend> kernels, const TestDeviceOptions& options);
  ~TestDevice() override;

  std::string name() const override { return "test device on " + kernels_->name(); }
  std::uint64_t n_executed() const { return n_done_; }
  // Every operation and copy from now on is also put down here, with all of its operands; null:
  // no longer.
  void record_to(std::vector<std::string>* list) { list_ = list; }

  std::unique_ptr<Buffer> allocate(std::uint64_t bytes, MemoryKind kind, Backing backing) override;
  void discard(const Bytes& bytes) override;
  WeightFormat layout_for(const WeightFormat& format, WeightUse use) const override {
    return kernels_->layout_for(format, use);
  }
  std::uint64_t scratch_bytes() const override { return 0; }

  void upload(std::span<const std::byte> from, const Bytes& to) override;
  void download(const Bytes& from, std::span<std::byte> to) override;
  void copy(const Bytes& from, const Bytes& to) override;
  void clear(const Bytes& bytes) override;
  Mark transfer(const Bytes& from, const Bytes& to) override;
  bool transferred(Mark mark) override;
  void wait_for_transfer(Mark mark) override;

  Mark mark() override { return n_enqueued_; }
  bool done(Mark mark) override { return n_done_.load(std::memory_order_acquire) >= mark; }
  void wait(Mark mark) override;

  int n_threads() const override { return 1; }
  void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& body) override;
  void set_poll(std::function<void()> poll) override { poll_ = std::move(poll); }

  void embed(const EmbedOp& op) override { enqueue_op(op, &Backend::embed); }
  void rms_norm(const RmsNormOp& op) override { enqueue_op(op, &Backend::rms_norm); }
  void matmuls(std::span<const MatmulOp> ops) override;
  void add(const AddOp& op) override { enqueue_op(op, &Backend::add); }
  void clamp(const ClampOp& op) override { enqueue_op(op, &Backend::clamp); }
  void softcap(const SoftcapOp& op) override { enqueue_op(op, &Backend::softcap); }
  void rope(const RopeOp& op) override { enqueue_op(op, &Backend::rope); }
  void store_kv(const StoreKvOp& op) override { enqueue_op(op, &Backend::store_kv); }
  void attention(const AttentionOp& op) override { enqueue_op(op, &Backend::attention); }
  void short_conv(const ShortConvOp& op) override { enqueue_op(op, &Backend::short_conv); }
  void gated_delta(const GatedDeltaOp& op) override { enqueue_op(op, &Backend::gated_delta); }
  void latent_attention(const LatentAttentionOp& op) override {
    enqueue_op(op, &Backend::latent_attention);
  }
  void expanded_attention(const ExpandedAttentionOp& op) override {
    enqueue_op(op, &Backend::expanded_attention);
  }
  void head_matmul(const HeadMatmulOp& op) override { enqueue_op(op, &Backend::head_matmul); }
  void ffns(std::span<const FfnOp> ops) override;
  void route(const RouteOp& op) override { enqueue_op(op, &Backend::route); }
  void combine(const CombineOp& op) override { enqueue_op(op, &Backend::combine); }
  bool drives_experts() const override { return options_.drives_experts; }
  void experts(const ExpertsOp& op) override;

 private:
  void enqueue(std::function<void()> work);
  template <class Op>
  void enqueue_op(const Op& op, void (Backend::*run)(const Op&));
  template <class Op>
  void record(Op op);
  void execute();
  void run_experts(const ExpertsOp& op);
  void run_expert(const ExpertsOp& op, int expert, std::span<const std::int32_t> ids);
  void run_transfers(Mark until);

  std::unique_ptr<Backend> kernels_;
  TestDeviceOptions options_;
  std::function<void()> poll_;
  std::vector<std::string>* list_ = nullptr;

  struct Transfer {
    Bytes from, to;
  };
  std::deque<Transfer> transfers_;
  Mark n_transfers_ = 0, n_transferred_ = 0;
  Random late_;  // when transfers are done

  Mark n_enqueued_ = 0;
  std::atomic<Mark> n_done_ = 0;
  std::mutex mutex_;
  std::condition_variable has_work_, has_done_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::thread executor_;  // after all that it uses
};

// Where the engine would look for the bytes of a buffer of such a device.
const std::byte* seen_by_host(const Buffer& buffer);

}  // namespace moeflux::test
