#include "support/test_device.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include <sys/mman.h>
#include <unistd.h>

namespace moeflux::test {
namespace {

// What the executor's kernels get: the same bytes, where they can be read.
class ExecutorBuffer final : public Buffer {
 public:
  ExecutorBuffer(MemoryKind kind, std::uint64_t bytes, std::byte* address)
      : Buffer(kind, bytes, address, address) {}
};

std::byte* map(int file, std::size_t bytes, int protection) {
  void* memory = ::mmap(nullptr, bytes, protection, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("test device: mmap failed");
  return static_cast<std::byte*>(memory);
}

// One piece of memory, mapped for the engine and for the executor.
struct Mappings {
  Mappings(std::uint64_t bytes, MemoryKind kind) : size(std::max<std::uint64_t>(bytes, 1)) {
    const int file = ::memfd_create("test device", 0);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(size)) != 0)
      throw std::runtime_error("test device: no memory");
    executor = map(file, size, PROT_READ | PROT_WRITE);
    engine = map(file, size, kind == MemoryKind::Device ? PROT_NONE : PROT_READ | PROT_WRITE);
    ::close(file);
  }
  ~Mappings() {
    ::munmap(executor, size);
    ::munmap(engine, size);
  }
  Mappings(const Mappings&) = delete;
  Mappings& operator=(const Mappings&) = delete;

  std::size_t size;
  std::byte *executor, *engine;
};

class DeviceBuffer final : private Mappings, public Buffer {
 public:
  DeviceBuffer(MemoryKind kind, std::uint64_t bytes, std::function<void()> finish)
      : Mappings(bytes, kind),
        Buffer(kind, bytes, engine, kind == MemoryKind::Device ? nullptr : engine),
        for_executor(kind, bytes, executor),
        finish_(std::move(finish)) {}
  ~DeviceBuffer() override { finish_(); }

  const ExecutorBuffer for_executor;

 private:
  std::function<void()> finish_;
};

const Buffer* executed(const Buffer* buffer) {
  return buffer == nullptr ? nullptr : &dynamic_cast<const DeviceBuffer&>(*buffer).for_executor;
}

void check(const Buffer* buffer, std::uint64_t offset, std::uint64_t bytes) {
  if (buffer == nullptr) return;
  if (offset > buffer->bytes() || bytes > buffer->bytes() - offset)
    throw std::out_of_range("an operand reaches beyond its buffer");
}

Bytes executed(const Bytes& bytes) {
  check(bytes.buffer, bytes.offset, bytes.size);
  return {executed(bytes.buffer), bytes.offset, bytes.size};
}
std::byte* at(const Bytes& bytes) {
  const Bytes of_executor = executed(bytes);
  return of_executor.buffer->address() + of_executor.offset;
}

// Operands of an operation, as the executor takes them.
void resolve(View& view) {
  check(view.buffer, view.offset, view.bytes().size);
  view.buffer = executed(view.buffer);
}
void resolve(Weight& weight) {
  if (weight.empty()) return;
  check(weight.buffer, weight.data, 1);
  weight.buffer = executed(weight.buffer);
}
void resolve(KvView& cache) {
  check(cache.buffer, cache.offset, cache.shape.bytes());
  cache.buffer = executed(cache.buffer);
}
void resolve(HeadMatrix& matrix) {
  resolve(matrix.weight);
}
template <class... Operands>
void resolve_all(Operands&... operands) {
  (resolve(operands), ...);
}

void resolve(EmbedOp& op) {
  resolve_all(op.table, op.tokens, op.out);
}
void resolve(RmsNormOp& op) {
  resolve_all(op.x, op.weight, op.out);
}
void resolve(MatmulOp& op) {
  resolve_all(op.weight, op.bias, op.x, op.y);
}
void resolve(AddOp& op) {
  resolve_all(op.x, op.y, op.scale);
}
void resolve(SoftcapOp& op) {
  resolve_all(op.x);
}
void resolve(ClampOp& op) {
  resolve_all(op.x);
}
void resolve(RopeOp& op) {
  resolve_all(op.x, op.positions);
}
void resolve(StoreKvOp& op) {
  resolve_all(op.cache, op.x, op.positions);
}
void resolve(AttentionOp& op) {
  resolve_all(op.q, op.k, op.v, op.sinks, op.positions, op.out);
}
void resolve(ShortConvOp& op) {
  resolve_all(op.x, op.weight, op.state, op.out);
}
void resolve(GatedDeltaOp& op) {
  resolve_all(op.qkv, op.z, op.b, op.a, op.a_log, op.dt_bias, op.norm, op.state, op.out);
}
void resolve(LatentAttentionOp& op) {
  resolve_all(op.q_latent, op.q, op.kv, op.positions, op.out);
}
void resolve(ExpandedAttentionOp& op) {
  resolve_all(op.keys, op.values, op.q, op.kv, op.positions, op.out);
}
void resolve(HeadMatmulOp& op) {
  resolve_all(op.matrix, op.x, op.y);
}
void resolve(FfnOp& op) {
  resolve_all(op.gate, op.up, op.down, op.gate_bias, op.up_bias, op.down_bias, op.x, op.rows_in,
              op.rows_out, op.hidden, op.y);
}
void resolve(RouteOp& op) {
  resolve_all(op.logits, op.correction_bias, op.expert_scales, op.ids, op.weights);
}
void resolve(CombineOp& op) {
  resolve_all(op.experts, op.weights, op.shared, op.shared_gate, op.out);
}

template <class Op>
Op resolved(Op op) {
  resolve(op);
  return op;
}

template <class Op>
std::vector<Op> resolved(std::span<const Op> ops) {
  std::vector<Op> list(ops.begin(), ops.end());
  for (Op& op : list) resolve(op);
  return list;
}

}  // namespace

const std::byte* seen_by_host(const Buffer& buffer) {
  return buffer.address();
}

TestDevice::TestDevice(std::unique_ptr<Backend> kernels, const TestDeviceOptions& options)
    : kernels_(std::move(kernels)),
      options_(options),
      late_(options.seed),
      executor_([this] { execute(); }) {}

TestDevice::~TestDevice() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  has_work_.notify_all();
  executor_.join();
}

std::unique_ptr<Buffer> TestDevice::allocate(std::uint64_t bytes, MemoryKind kind, Backing) {
  return std::make_unique<DeviceBuffer>(kind, bytes, [this] {
    std::unique_lock lock(mutex_);
    has_done_.wait(lock, [&] { return done(n_enqueued_); });
  });
}

void TestDevice::discard(const Bytes& bytes) {
  static_cast<void>(::madvise(at(bytes), bytes.size, MADV_REMOVE));
}

void TestDevice::enqueue(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    ++n_enqueued_;
  }
  has_work_.notify_one();
}

// As bytes; those between members are no part of an operation.
template <class Op>
void TestDevice::record(Op op) {
  if (list_ == nullptr) return;
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&op);
#endif
  std::string bytes(sizeof op, '\0');
  std::memcpy(bytes.data(), &op, sizeof op);
  list_->push_back(std::move(bytes));
}

template <class Op>
void TestDevice::enqueue_op(const Op& op, void (Backend::*run)(const Op&)) {
  record(op);
  enqueue([this, run, op = resolved(op)] { (kernels_.get()->*run)(op); });
}

void TestDevice::execute() {
  Random random(options_.seed);
  std::unique_lock lock(mutex_);
  while (true) {
    has_work_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    if (random.chance(0.2))
      std::this_thread::sleep_for(std::chrono::microseconds(
          random.bits() % static_cast<std::uint64_t>(options_.most_delay_us + 1)));
    work();
    lock.lock();
    n_done_.fetch_add(1, std::memory_order_release);
    has_done_.notify_all();
  }
}

void TestDevice::wait(Mark mark) {
  while (!done(mark)) {
    if (poll_) poll_();
    std::unique_lock lock(mutex_);
    has_done_.wait_for(lock, std::chrono::microseconds(50), [&] { return done(mark); });
  }
}

void TestDevice::parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& body) {
  for (std::int64_t i = 0; i < n; ++i) body(i);
}

void TestDevice::upload(std::span<const std::byte> from, const Bytes& to) {
  if (from.size() != to.size) throw std::logic_error("an upload of another size");
  if (from.empty()) return;
  record(to);
  enqueue([bytes = std::vector(from.begin(), from.end()), out = at(to)] {
    std::memcpy(out, bytes.data(), bytes.size());
  });
}

void TestDevice::download(const Bytes& from, std::span<std::byte> to) {
  if (to.size() != from.size) throw std::logic_error("a download of another size");
  if (to.empty()) return;
  record(from);
  enqueue([in = at(from), to] { std::memcpy(to.data(), in, to.size()); });
}

void TestDevice::copy(const Bytes& from, const Bytes& to) {
  if (from.size != to.size) throw std::logic_error("a copy of another size");
  if (from.empty()) return;
  record(std::array{from, to});
  enqueue([in = at(from), out = at(to), size = from.size] { std::memmove(out, in, size); });
}

void TestDevice::clear(const Bytes& bytes) {
  if (bytes.empty()) return;
  record(bytes);
  enqueue([out = at(bytes), size = bytes.size] { std::memset(out, 0, size); });
}

Mark TestDevice::transfer(const Bytes& from, const Bytes& to) {
  transfers_.push_back({from, to});
  return ++n_transfers_;
}

bool TestDevice::transferred(Mark mark) {
  if (late_.chance(0.3)) run_transfers(mark);
  return n_transferred_ >= mark;
}

void TestDevice::wait_for_transfer(Mark mark) {
  if (poll_) poll_();
  run_transfers(mark);
}

void TestDevice::run_transfers(Mark until) {
  while (n_transferred_ < until) {
    const auto [from, to] = transfers_.front();
    transfers_.pop_front();
    std::memcpy(at(to), at(from), to.size);
    ++n_transferred_;
  }
}

void TestDevice::matmuls(std::span<const MatmulOp> ops) {
  for (const MatmulOp& op : ops) record(op);
  enqueue([this, list = resolved(ops)] { kernels_->matmuls(list); });
}

void TestDevice::ffns(std::span<const FfnOp> ops) {
  for (const FfnOp& op : ops) record(op);
  enqueue([this, list = resolved(ops)] { kernels_->ffns(list); });
}

void TestDevice::experts(const ExpertsOp& op) {
  record(op);
  ExpertsOp of_executor = op;
  resolve_all(of_executor.h, of_executor.ids, of_executor.gate_bias, of_executor.up_bias,
              of_executor.down_bias, of_executor.hidden, of_executor.out);
  of_executor.table.slots = executed(op.table.slots);
  of_executor.table.places = executed(op.table.places);
  of_executor.mailbox = executed(op.mailbox);
  enqueue([this, of_executor] { run_experts(of_executor); });
}

// The device's side of backends/expert_table.h.
void TestDevice::run_experts(const ExpertsOp& op) {
  const auto address = [](const Bytes& bytes) { return bytes.buffer->address() + bytes.offset; };
  auto& box = *reinterpret_cast<ExpertMailbox*>(address(op.mailbox));
  const auto* places = reinterpret_cast<const ExpertPlace*>(address(op.table.places));
  const std::span ids(reinterpret_cast<const std::int32_t*>(address(op.ids.bytes())),
                      static_cast<std::size_t>(op.ids.size()));
  std::vector<std::int32_t> needed(ids.begin(), ids.end());
  std::sort(needed.begin(), needed.end());
  needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
  for (int round = 0; !needed.empty(); ++round) {
    if (box.failed.load(std::memory_order_acquire) != 0) return;
    std::vector<std::int32_t> there, missing;
    for (const std::int32_t e : needed) (places[e].missing() ? missing : there).push_back(e);
    const std::uint32_t ticket = box.asked.load(std::memory_order_relaxed) + 1;
    if (!missing.empty()) {
      box.bank = op.bank;
      box.round = round;
      box.n_needed = static_cast<std::int32_t>(needed.size());
      std::copy(needed.begin(), needed.end(), box.needed());
      box.asked.store(ticket, std::memory_order_release);
    }
    for (const std::int32_t e : there) run_expert(op, e, ids);
    needed = missing;
    while (!missing.empty() && box.answered.load(std::memory_order_acquire) != ticket) {
      if (box.failed.load(std::memory_order_acquire) != 0) return;
      std::this_thread::yield();
    }
  }
}

void TestDevice::run_expert(const ExpertsOp& op, int expert, std::span<const std::int32_t> ids) {
  const auto* places = reinterpret_cast<const ExpertPlace*>(op.table.places.buffer->address() +
                                                            op.table.places.offset);
  const ExpertPlace& place = places[expert];
  std::vector<std::int32_t> lists;  // tokens, then pairs
  for (std::size_t p = 0; p < ids.size(); ++p)
    if (ids[p] == expert) lists.push_back(static_cast<std::int32_t>(p) / op.spec->top_k);
  const auto n = static_cast<std::int64_t>(lists.size());
  for (std::size_t p = 0; p < ids.size(); ++p)
    if (ids[p] == expert) lists.push_back(static_cast<std::int32_t>(p));
  const ExecutorBuffer memory(MemoryKind::Host, lists.size() * sizeof(std::int32_t),
                              std::as_writable_bytes(std::span(lists)).data());
  const View both{&memory, 0, 2, n, n, ElementType::I32};
  const auto bias = [&](const View& table) {
    return table.empty() ? table : table.row_range(expert, 1);
  };
  const auto& planes = place.matrices;
  const FfnOp ffn{.gate = ExpertTable::at(op.table.gate, op.table.slots, planes[0]),
                  .up = ExpertTable::at(op.table.up, op.table.slots, planes[1]),
                  .down = ExpertTable::at(op.table.down, op.table.slots, planes[2]),
                  .gate_bias = bias(op.gate_bias),
                  .up_bias = bias(op.up_bias),
                  .down_bias = bias(op.down_bias),
                  .activation = op.spec->activation,
                  .x = op.h,
                  .rows_in = both.row_range(0, 1),
                  .rows_out = both.row_range(1, 1),
                  .hidden = op.hidden.row_range(0, n),
                  .y = op.out};
  kernels_->ffns({&ffn, 1});
}

}  // namespace moeflux::test
