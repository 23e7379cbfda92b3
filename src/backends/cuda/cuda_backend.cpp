#include "backends/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "backends/cuda/kernels/elementwise.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/operands.h"
#include "base/error.h"
#include "quant/interleave.h"

namespace moeflux::cuda {
namespace {

constexpr std::size_t kUploadBytes = 4u << 20, kDownloadBytes = 16u << 20;
constexpr std::size_t kStagedAtMost = 2u << 20;  // larger ones go straight
constexpr std::int64_t kManyRows = 16;

std::size_t aligned(std::size_t offset) {
  return (offset + 63) / 64 * 64;
}

class DeviceBuffer final : public Buffer {
 public:
  DeviceBuffer(std::uint64_t bytes, CUdeviceptr address, std::function<void(CUdeviceptr)> free)
      : Buffer(MemoryKind::Device, bytes, reinterpret_cast<std::byte*>(address), nullptr),
        free_(std::move(free)) {}
  ~DeviceBuffer() override { free_(reinterpret_cast<CUdeviceptr>(address())); }

 private:
  std::function<void(CUdeviceptr)> free_;
};

class PinnedBuffer final : public Buffer {
 public:
  PinnedBuffer(MemoryKind kind, std::uint64_t bytes, std::byte* memory,
               std::function<void(std::byte*)> free)
      : Buffer(kind, bytes, memory, memory), free_(std::move(free)) {}
  ~PinnedBuffer() override { free_(host()); }

 private:
  std::function<void(std::byte*)> free_;
};

std::byte* allocate_pinned(const Driver& driver, std::size_t bytes) {
  void* memory = nullptr;
  MOEFLUX_CUDA(driver, cuMemHostAlloc, &memory, bytes,
               CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  return static_cast<std::byte*>(memory);
}

}  // namespace

std::uint64_t scratch_needed(const WidestOps& ops, int) {
  // Activations as halves, lists of experts, parts of attention: see scratch().
  const auto values = static_cast<std::uint64_t>(
      std::max({ops.matmul_values, ops.ffn_rows * std::max(ops.d_ff, ops.d_model),
                ops.expert_rows * std::max(ops.d_expert, ops.d_model)}));
  return 7 * values + (160u << 20);
}

CudaBackend::CudaBackend(const BackendOptions& options, const Driver& driver, int device_index)
    : driver_(driver),
      device_(driver, device_index),
      precision_(options.precision),
      pool_(options.n_threads),
      program_(device_),
      uploads_(allocate_pinned(driver, kUploadBytes)),
      downloads_(allocate_pinned(driver, kDownloadBytes)) {}

CudaBackend::~CudaBackend() {
  round_places_.reset();
  driver_.cuStreamSynchronize(device_.compute());
  driver_.cuStreamSynchronize(device_.copies());
  for (std::deque<Moment>* moments : {&moments_, &transfers_}) {
    for (const Moment& moment : *moments) driver_.cuEventDestroy(moment.event);
  }
  for (CUevent event : free_events_) driver_.cuEventDestroy(event);
  for (const ScratchMemory& memory : scratches_) {
    if (memory.address != 0) driver_.cuMemFree(memory.address);
  }
  for (const auto& [values, address] : constants_) driver_.cuMemFree(address);
  if (found_ != 0) driver_.cuMemFree(found_);
  driver_.cuMemFreeHost(uploads_);
  driver_.cuMemFreeHost(downloads_);
}

std::string CudaBackend::name() const {
  return fmt::format("cuda ({})", device_.name());
}

std::unique_ptr<Buffer> CudaBackend::allocate(std::uint64_t bytes, MemoryKind kind, Backing) {
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  if (kind != MemoryKind::Device) {
    std::byte* memory = allocate_pinned(driver_, size);
    std::memset(memory, 0, size);
    return std::make_unique<PinnedBuffer>(kind, bytes, memory, [this](std::byte* at) {
      wait_for_all();
      driver_.cuStreamSynchronize(device_.compute());
      driver_.cuStreamSynchronize(device_.copies());
      driver_.cuMemFreeHost(at);
    });
  }
  CUdeviceptr address = 0;
  MOEFLUX_CUDA(driver_, cuMemAlloc, &address, size);
  MOEFLUX_CUDA(driver_, cuMemsetD8Async, address, 0, size, device_.compute());
  MOEFLUX_CUDA(driver_, cuStreamSynchronize, device_.compute());  // before copies beside it
  return std::make_unique<DeviceBuffer>(bytes, address, [this](CUdeviceptr at) {
    wait_for_all();
    driver_.cuStreamSynchronize(device_.compute());
    driver_.cuStreamSynchronize(device_.copies());
    driver_.cuMemFree(at);
  });
}

WeightFormat CudaBackend::layout_for(const WeightFormat& format, WeightUse) const {
  return arranged(format, false);
}

std::uint64_t CudaBackend::scratch_bytes() const {
  std::uint64_t bytes = 0;
  for (const ScratchMemory& memory : scratches_) bytes += memory.bytes;
  return bytes;
}

CUdeviceptr CudaBackend::scratch(Scratch which, std::size_t bytes) {
  ScratchMemory& memory = scratches_[static_cast<int>(which)];
  if (memory.bytes < bytes) {
    wait_for_all();
    if (memory.address != 0) MOEFLUX_CUDA(driver_, cuMemFree, memory.address);
    memory = {};
    const std::size_t size = (bytes + (1u << 20) - 1) >> 20 << 20;
    MOEFLUX_CUDA(driver_, cuMemAlloc, &memory.address, size);
    memory.bytes = size;
  }
  return memory.address;
}

const float* CudaBackend::constants(const std::vector<float>& values) {
  auto found = constants_.find(values);
  if (found == constants_.end()) {
    CUdeviceptr address = 0;
    const std::size_t bytes = std::max<std::size_t>(values.size(), 1) * sizeof(float);
    MOEFLUX_CUDA(driver_, cuMemAlloc, &address, bytes);
    MOEFLUX_CUDA(driver_, cuMemcpyAsync, address, reinterpret_cast<std::uintptr_t>(values.data()),
                 values.size() * sizeof(float), device_.compute());
    MOEFLUX_CUDA(driver_, cuStreamSynchronize, device_.compute());
    found = constants_.emplace(values, address).first;
  }
  return reinterpret_cast<const float*>(found->second);
}

// Order.

CUevent CudaBackend::take_event() {
  if (free_events_.empty()) {
    CUevent event = nullptr;
    MOEFLUX_CUDA(driver_, cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    return event;
  }
  CUevent event = free_events_.back();
  free_events_.pop_back();
  return event;
}

void CudaBackend::record(std::deque<Moment>& moments, Mark mark, CUstream stream) {
  CUevent event = take_event();
  MOEFLUX_CUDA(driver_, cuEventRecord, event, stream);
  moments.push_back({mark, event});
}

bool CudaBackend::reached(std::deque<Moment>& moments, Mark& reached_mark, Mark mark) {
  while (!moments.empty() && reached_mark < mark) {
    const CUresult result = driver_.cuEventQuery(moments.front().event);
    if (result == CUDA_ERROR_NOT_READY) return false;
    check(driver_, result, "an operation");
    reached_mark = moments.front().mark;
    free_events_.push_back(moments.front().event);
    moments.pop_front();
  }
  return reached_mark >= mark;
}

void CudaBackend::note_enqueued() {
  ++n_enqueued_;
  if (is_wide_) flush();
}

void CudaBackend::note_rows(std::int64_t rows) {
  if (is_wide_ || rows <= kManyRows) return;
  flush();
  is_wide_ = true;
}

void CudaBackend::flush() {
  settle();
  if (n_flushed_ == n_enqueued_) return;
  n_flushed_ = n_enqueued_;  // what fails is not tried again
  program_.run(!is_wide_);
  if (!is_wide_) record(moments_, n_flushed_, device_.compute());
}

bool CudaBackend::done(Mark mark) {
  if (n_done_ >= mark) return true;
  flush();
  if (moments_.empty() || moments_.back().mark < n_flushed_)
    record(moments_, n_flushed_, device_.compute());
  return reached(moments_, n_done_, mark);
}

void CudaBackend::wait(Mark mark) {
  while (!done(mark)) {
    if (poll_) poll_();
  }
  deliver(mark);
  rounded_.clear();  // the host may change what was rounded
  if (n_done_ == n_enqueued_) {
    is_wide_ = false;
    uploads_used_ = downloads_used_ = 0;
  }
}

void CudaBackend::deliver(Mark until) {
  while (!pending_.empty() && pending_.front().mark <= until) {
    const Download& download = pending_.front();
    std::memcpy(download.to.data(), download.from, download.to.size());
    pending_.pop_front();
  }
}

// Copies.

void CudaBackend::upload(std::span<const std::byte> from, const Bytes& to) {
  MOEFLUX_ASSERT(from.size() == to.size);
  if (from.empty()) return;
  const std::size_t at = aligned(uploads_used_);
  if (from.size() > kStagedAtMost) {
    wait_for_all();
    MOEFLUX_CUDA(driver_, cuMemcpyAsync, address(to), reinterpret_cast<std::uintptr_t>(from.data()),
                 from.size(), device_.compute());
    MOEFLUX_CUDA(driver_, cuStreamSynchronize, device_.compute());
    return;
  }
  if (at + from.size() > kUploadBytes) {
    wait_for_all();
    return upload(from, to);
  }
  std::memcpy(uploads_ + at, from.data(), from.size());
  uploads_used_ = at + from.size();
  copy_bytes(address(to), reinterpret_cast<std::uintptr_t>(uploads_ + at), from.size());
}

void CudaBackend::download(const Bytes& from, std::span<std::byte> to) {
  MOEFLUX_ASSERT(to.size() == from.size);
  if (to.empty()) return;
  const std::size_t at = aligned(downloads_used_);
  if (to.size() > kStagedAtMost) {
    wait_for_all();
    MOEFLUX_CUDA(driver_, cuMemcpyAsync, reinterpret_cast<std::uintptr_t>(to.data()), address(from),
                 to.size(), device_.compute());
    MOEFLUX_CUDA(driver_, cuStreamSynchronize, device_.compute());
    return;
  }
  if (at + to.size() > kDownloadBytes) {
    wait_for_all();
    return download(from, to);
  }
  downloads_used_ = at + to.size();
  const CUdeviceptr staged = reinterpret_cast<std::uintptr_t>(downloads_ + at);
  if (waiting_.experts && waiting_.ids_copy == 0 &&
      from.size == waiting_.experts->ids.bytes().size &&
      address(from) == address(waiting_.experts->ids.bytes())) {
    waiting_.ids_copy = staged;  // by the launch that is to come
    ++n_enqueued_;
  } else {
    copy_bytes(staged, address(from), to.size());
  }
  pending_.push_back({n_enqueued_, downloads_ + at, to});
}

void CudaBackend::copy(const Bytes& from, const Bytes& to) {
  MOEFLUX_ASSERT(from.size == to.size);
  if (from.size == 0 || address(from) == address(to)) return;
  copy_bytes(address(to), address(from), from.size);
}

// A kernel copies few bytes sooner than the copy engine, and overlaps with its neighbours.
void CudaBackend::copy_bytes(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  constexpr std::size_t kFewBytes = 256u << 10;
  if (bytes > kFewBytes || bytes % 4 != 0 || to % 4 != 0 || from % 4 != 0 || is_wide_) {
    settle();
    program_.copy(to, from, bytes);
    note_enqueued();
    return;
  }
  auto p = zeroed<gpu::CopyWordsParams>();
  p.to = reinterpret_cast<std::uint32_t*>(to);
  p.from = reinterpret_cast<const std::uint32_t*>(from);
  p.n = static_cast<std::int64_t>(bytes / 4);
  const Grid grid{.x = pieces(p.n, 256), .threads = 256};
  launch("copy_words", p, grid);
}

void CudaBackend::clear(const Bytes& bytes) {
  if (bytes.empty()) return;
  settle();
  program_.clear(address(bytes), bytes.size);
  note_enqueued();
}

Mark CudaBackend::transfer(const Bytes& from, const Bytes& to) {
  MOEFLUX_ASSERT(from.size == to.size);
  MOEFLUX_CUDA(driver_, cuMemcpyAsync, address(to), address(from), from.size, device_.copies());
  record(transfers_, ++n_transfers_, device_.copies());
  return n_transfers_;
}

bool CudaBackend::transferred(Mark mark) {
  return reached(transfers_, n_transferred_, mark);
}

void CudaBackend::wait_for_transfer(Mark mark) {
  while (!transferred(mark)) {
    if (poll_) poll_();
  }
}

std::vector<KernelTime> CudaBackend::kernel_times() {
  wait_for_all();
  std::vector<KernelTime> times;
  for (const auto& [kernel, time] : program_.kernel_times())
    times.push_back({std::string(kernel), time.calls, time.seconds});
  return times;
}

void CudaBackend::parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& body) {
  pool_.parallel_for(n, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

std::unique_ptr<Backend> make_backend(const BackendOptions& options, const Driver& driver) {
  return std::make_unique<CudaBackend>(options, driver, 0);
}

std::uint64_t free_memory() {
  constexpr std::uint64_t kReserve = 512u << 20;  // for others, and what the driver takes itself
  const Driver& driver = loaded_driver().driver;
  CUcontext context = nullptr;
  std::size_t free = 0, total = 0;
  MOEFLUX_CUDA(driver, cuDevicePrimaryCtxRetain, &context, 0);
  MOEFLUX_CUDA(driver, cuCtxSetCurrent, context);
  MOEFLUX_CUDA(driver, cuMemGetInfo, &free, &total);
  return free - std::min<std::uint64_t>(free, kReserve);
}

std::string missing() {
  if (kernel_modules().empty())
    return "this program was built without clang-19, which compiles its kernels";
  return loaded_driver().missing;
}

}  // namespace moeflux::cuda
