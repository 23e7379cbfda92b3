#include "backends/cuda/program.h"

#include <algorithm>
#include <cstring>

#include <xxhash.h>

namespace moeflux::cuda {
namespace {

constexpr std::size_t kMostKnown = 32;
constexpr std::size_t kFewestSteps = 8;  // of a list that is worth a graph

}  // namespace

Program::~Program() {
  for (const Known& known : known_) forget(known);
}

void Program::forget(const Known& known) {
  if (known.graph != nullptr) device_.driver().cuGraphExecDestroy(known.graph);
}

void Program::add(Kind kind, CUfunction function, const Grid& grid, const void* params,
                  std::size_t size) {
  const std::size_t offset = (params_.size() + 15) / 16 * 16;
  params_.resize(offset + size);
  std::memcpy(params_.data() + offset, params, size);
  steps_.push_back({kind, grid, function, offset, size, {}});
}

void Program::copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  const Move move{to, from, bytes};
  add(Kind::Copy, nullptr, {}, &move, sizeof move);
}

void Program::clear(CUdeviceptr at, std::size_t bytes) {
  const Move move{at, 0, bytes};
  add(Kind::Clear, nullptr, {}, &move, sizeof move);
}

void Program::issue(const Step& step, bool early) {
  const Driver& driver = device_.driver();
  CUstream stream = device_.compute();
  std::byte* params = running_params_.data() + step.offset;
  if (step.kind == Kind::Launch) {
    void* arguments[] = {params};
    CUlaunchAttribute overlap{};
    overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    overlap.value.programmaticStreamSerializationAllowed = 1;
    const CUlaunchConfig config{
        step.grid.x, step.grid.y, step.grid.z,    step.grid.threads, 1, 1, step.grid.shared_bytes,
        stream,      &overlap,    early ? 1u : 0u};
    MOEFLUX_CUDA(driver, cuLaunchKernelEx, &config, step.function, arguments, nullptr);
    return;
  }
  Move move;
  std::memcpy(&move, params, sizeof move);
  if (step.kind == Kind::Copy) {
    MOEFLUX_CUDA(driver, cuMemcpyAsync, move.to, move.from, move.bytes, stream);
  } else {
    MOEFLUX_CUDA(driver, cuMemsetD8Async, move.to, 0, move.bytes, stream);
  }
}

void Program::issue(bool overlapping) {
  const Step* before = nullptr;
  for (const Step& step : running_) {
    issue(step, overlapping && before != nullptr && before->kind == Kind::Launch);
    before = &step;
  }
}

void Program::issue_timed() {
  const Driver& driver = device_.driver();
  CUstream stream = device_.compute();
  CUevent begin = nullptr, end = nullptr;
  MOEFLUX_CUDA(driver, cuEventCreate, &begin, 0);
  MOEFLUX_CUDA(driver, cuEventCreate, &end, 0);
  for (const Step& step : running_) {
    MOEFLUX_CUDA(driver, cuEventRecord, begin, stream);
    issue(step, false);
    MOEFLUX_CUDA(driver, cuEventRecord, end, stream);
    while (true) {
      const CUresult result = driver.cuEventQuery(end);
      if (result == CUDA_SUCCESS) break;
      if (result != CUDA_ERROR_NOT_READY) check(driver, result, "a kernel");
      poll_();
    }
    float ms = 0;
    MOEFLUX_CUDA(driver, cuEventElapsedTime, &ms, begin, end);
    Time& time = times_[step.kind == Kind::Launch ? step.name
                        : step.kind == Kind::Copy ? std::string_view("copy")
                                                  : std::string_view("clear")];
    ++time.calls;
    time.seconds += 1e-3 * static_cast<double>(ms);
  }
  driver.cuEventDestroy(begin);
  driver.cuEventDestroy(end);
}

Program::Hash Program::hash() const {
  XXH3_state_t* state = XXH3_createState();
  XXH3_128bits_reset(state);
  for (const Step& step : running_) {
    const std::uint64_t head[] = {
        static_cast<std::uint64_t>(step.kind), reinterpret_cast<std::uintptr_t>(step.function),
        std::uint64_t{step.grid.x} << 32 | step.grid.y,
        std::uint64_t{step.grid.z} << 32 | step.grid.threads, step.grid.shared_bytes};
    XXH3_128bits_update(state, head, sizeof head);
  }
  XXH3_128bits_update(state, running_params_.data(), running_params_.size());
  const XXH128_hash_t digest = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return {digest.low64, digest.high64};
}

CUgraphExec Program::instantiate() {
  const Driver& driver = device_.driver();
  MOEFLUX_CUDA(driver, cuStreamBeginCapture, device_.compute(), CU_STREAM_CAPTURE_MODE_RELAXED);
  CUgraph graph = nullptr;
  try {
    issue(device_.overlaps());
  } catch (...) {
    if (driver.cuStreamEndCapture(device_.compute(), &graph) == CUDA_SUCCESS)
      driver.cuGraphDestroy(graph);
    throw;
  }
  MOEFLUX_CUDA(driver, cuStreamEndCapture, device_.compute(), &graph);
  CUgraphExec exec = nullptr;
  const CUresult result = driver.cuGraphInstantiate(&exec, graph, 0);
  driver.cuGraphDestroy(graph);
  check(driver, result, "cuGraphInstantiate");
  return exec;
}

void Program::run(bool as_graph) {
  if (steps_.empty()) return;
  running_.swap(steps_);  // while it waits for kernels, others may be enqueued
  running_params_.swap(params_);
  steps_.clear();
  params_.clear();
  if (times_kernels_) {
    issue_timed();
  } else if (!as_graph || running_.size() < kFewestSteps) {
    issue(false);
  } else {
    const Hash own = hash();
    auto found = std::find_if(known_.begin(), known_.end(),
                              [&](const Known& known) { return known.hash == own; });
    if (found == known_.end()) {
      issue(false);
      known_.push_front({own, nullptr});
      if (known_.size() > kMostKnown) {
        forget(known_.back());
        known_.pop_back();
      }
    } else {
      known_.splice(known_.begin(), known_, found);
      if (found->graph == nullptr) found->graph = instantiate();
      MOEFLUX_CUDA(device_.driver(), cuGraphLaunch, found->graph, device_.compute());
      ++n_graph_launches_;
    }
  }
}

}  // namespace moeflux::cuda
