#include "support/cuda/emulated_driver.h"

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include "support/cuda/emulated_launch.h"

namespace moeflux::cuda {

struct CUfunc_st {
  const gpu::EmulatedKernel* kernel;
};
struct CUmod_st {
  std::deque<CUfunc_st> functions;
};
struct CUgraph_st {
  std::vector<std::function<void()>> work;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> work;
};
struct CUevent_st {
  std::atomic<std::uint64_t> recorded = 0, reached = 0;
};

// Runs its work in order on a thread of its own.
struct CUstream_st {
  CUstream_st() : thread([this] { run(); }) {}
  ~CUstream_st() {
    {
      const std::lock_guard lock(mutex);
      is_stopping = true;
    }
    changed.notify_all();
    thread.join();
  }

  void add(std::function<void()> step) {
    if (captured != nullptr) {
      captured->work.push_back(std::move(step));
      return;
    }
    {
      const std::lock_guard lock(mutex);
      work.push_back(std::move(step));
      ++n_added;
    }
    changed.notify_all();
  }
  void synchronize() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return n_done == n_added; });
  }
  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return is_stopping || !work.empty(); });
      if (work.empty()) return;
      const std::function<void()> step = std::move(work.front());
      work.pop_front();
      lock.unlock();
      step();
      lock.lock();
      ++n_done;
      changed.notify_all();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;
  std::uint64_t n_added = 0, n_done = 0;
  bool is_stopping = false;
  CUgraph_st* captured = nullptr;
  std::thread thread;  // after all that it uses
};

}  // namespace moeflux::cuda

namespace moeflux::test {
namespace {

using namespace cuda;

constexpr CUresult kInvalidValue = 1, kNotFound = 500, kLaunchFailed = 719;

std::atomic<long> launches_left = -1;

void* at(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);
}

// Each piece ends where memory ends that nobody may touch, so that a kernel that goes beyond it is
// seen; but for less than kAlignment bytes.
class Pieces {
 public:
  void* add(std::size_t bytes) {
    constexpr std::size_t kPage = 4096, kAlignment = 64;
    const std::size_t used = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    const std::size_t pages = (used + kPage - 1) / kPage * kPage;
    void* mapped = ::mmap(nullptr, pages + 2 * kPage, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    auto* first = static_cast<std::byte*>(mapped) + kPage;
    if (::mprotect(first, pages, PROT_READ | PROT_WRITE) != 0) return nullptr;
    void* piece = first + (pages - used);
    if (bytes < kMostPoisoned) std::memset(piece, 0xA5, bytes);  // what nobody wrote shows
    const std::lock_guard lock(mutex_);
    sizes_[piece] = {mapped, pages + 2 * kPage};
    return piece;
  }
  void remove(void* piece) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(piece);
    if (found == sizes_.end()) return;
    ::munmap(found->second.first, found->second.second);
    sizes_.erase(found);
  }

 private:
  static constexpr std::size_t kMostPoisoned = 64 << 20;
  std::mutex mutex_;
  std::map<void*, std::pair<void*, std::size_t>> sizes_;
};

Pieces& pieces() {
  static auto* all = new Pieces;
  return *all;
}

CUresult allocate(void** memory, std::size_t bytes) {
  *memory = pieces().add(bytes);
  return *memory == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult launch(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads,
                unsigned threads_y, unsigned threads_z, unsigned shared, CUstream stream,
                void** params, void**) {
  if (threads_y != 1 || threads_z != 1 || x == 0 || y == 0 || z == 0) return kInvalidValue;
  if (launches_left == 0) return kLaunchFailed;
  if (launches_left > 0) --launches_left;
  const auto* bytes = static_cast<const std::byte*>(params[0]);
  // Aligned as any parameters are.
  auto copy = std::make_shared<std::vector<std::max_align_t>>(
      function->kernel->params_size / sizeof(std::max_align_t) + 1);
  std::memcpy(copy->data(), bytes, function->kernel->params_size);
  const gpu::Grid grid{static_cast<int>(x), static_cast<int>(y), static_cast<int>(z),
                       static_cast<int>(threads), shared};
  stream->add([kernel = function->kernel, copy, grid] {
    try {
      gpu::run_kernel(*kernel, copy->data(), grid);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "emulated GPU: %s\n", error.what());
      std::abort();
    }
  });
  return CUDA_SUCCESS;
}

Driver make() {
  Driver d;
  d.cuInit = [](unsigned) { return CUDA_SUCCESS; };
  d.cuDriverGetVersion = [](int* version) {
    *version = 12000;
    return CUDA_SUCCESS;
  };
  d.cuDeviceGetCount = [](int* n) {
    *n = 1;
    return CUDA_SUCCESS;
  };
  d.cuDeviceGet = [](CUdevice* device, int index) {
    *device = index;
    return index == 0 ? CUDA_SUCCESS : kInvalidValue;
  };
  d.cuDeviceGetName = [](char* name, int size, CUdevice) {
    std::snprintf(name, static_cast<std::size_t>(size), "emulated GPU");
    return CUDA_SUCCESS;
  };
  d.cuDeviceGetAttribute = [](int* value, int which, CUdevice) {
    *value = which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT                ? 2
             : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR          ? 8
             : which == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? 99 << 10
                                                                              : 0;
    return CUDA_SUCCESS;
  };
  d.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) {
    *context = nullptr;
    return CUDA_SUCCESS;
  };
  d.cuDevicePrimaryCtxRelease = [](CUdevice) { return CUDA_SUCCESS; };
  d.cuCtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
  d.cuMemGetInfo = [](std::size_t* free, std::size_t* total) {
    *free = *total = std::size_t{4} << 30;
    return CUDA_SUCCESS;
  };
  d.cuMemAlloc = [](CUdeviceptr* address, std::size_t bytes) {
    void* memory = nullptr;
    const CUresult result = allocate(&memory, bytes);
    *address = reinterpret_cast<CUdeviceptr>(memory);
    return result;
  };
  d.cuMemFree = [](CUdeviceptr address) {
    pieces().remove(at(address));
    return CUDA_SUCCESS;
  };
  d.cuMemHostAlloc = [](void** memory, std::size_t bytes, unsigned) {
    return allocate(memory, bytes);
  };
  d.cuMemFreeHost = [](void* memory) {
    pieces().remove(memory);
    return CUDA_SUCCESS;
  };
  d.cuMemHostGetDevicePointer = [](CUdeviceptr* address, void* memory, unsigned) {
    *address = reinterpret_cast<CUdeviceptr>(memory);
    return CUDA_SUCCESS;
  };
  d.cuMemsetD8Async = [](CUdeviceptr address, unsigned char value, std::size_t n, CUstream s) {
    s->add([=] { std::memset(at(address), value, n); });
    return CUDA_SUCCESS;
  };
  d.cuMemcpyAsync = [](CUdeviceptr to, CUdeviceptr from, std::size_t n, CUstream s) {
    s->add([=] { std::memmove(at(to), at(from), n); });
    return CUDA_SUCCESS;
  };
  d.cuStreamCreate = [](CUstream* stream, unsigned) {
    *stream = new CUstream_st;
    return CUDA_SUCCESS;
  };
  d.cuStreamDestroy = [](CUstream stream) {
    delete stream;
    return CUDA_SUCCESS;
  };
  d.cuStreamSynchronize = [](CUstream stream) {
    stream->synchronize();
    return CUDA_SUCCESS;
  };
  d.cuEventCreate = [](CUevent* event, unsigned) {
    *event = new CUevent_st;
    return CUDA_SUCCESS;
  };
  d.cuEventDestroy = [](CUevent event) {
    delete event;
    return CUDA_SUCCESS;
  };
  d.cuEventRecord = [](CUevent event, CUstream stream) {
    const std::uint64_t mark = ++event->recorded;
    stream->add([=] { event->reached = mark; });
    return CUDA_SUCCESS;
  };
  d.cuEventQuery = [](CUevent event) {
    if (event->reached == event->recorded) return CUDA_SUCCESS;
    std::this_thread::yield();
    return CUDA_ERROR_NOT_READY;
  };
  d.cuEventSynchronize = [](CUevent event) {
    while (event->reached != event->recorded) std::this_thread::yield();
    return CUDA_SUCCESS;
  };
  d.cuEventElapsedTime = [](float* ms, CUevent, CUevent) {
    *ms = 1;
    return CUDA_SUCCESS;
  };
  d.cuModuleLoadData = [](CUmodule* module, const void*) {
    *module = new CUmod_st;
    return CUDA_SUCCESS;
  };
  d.cuModuleUnload = [](CUmodule module) {
    delete module;
    return CUDA_SUCCESS;
  };
  d.cuModuleGetFunction = [](CUfunction* function, CUmodule module, const char* name) {
    const gpu::EmulatedKernel* kernel = gpu::find_kernel(name);
    if (kernel == nullptr) return kNotFound;
    module->functions.push_back({kernel});
    *function = &module->functions.back();
    return CUDA_SUCCESS;
  };
  d.cuFuncSetAttribute = [](CUfunction, int, int) { return CUDA_SUCCESS; };
  d.cuLaunchKernelEx = [](const CUlaunchConfig* c, CUfunction function, void** params,
                          void** more) {
    return launch(function, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY,
                  c->blockDimZ, c->sharedMemBytes, c->hStream, params, more);
  };
  d.cuStreamBeginCapture = [](CUstream stream, int) {
    stream->captured = new CUgraph_st;
    return CUDA_SUCCESS;
  };
  d.cuStreamEndCapture = [](CUstream stream, CUgraph* graph) {
    *graph = stream->captured;
    stream->captured = nullptr;
    return CUDA_SUCCESS;
  };
  d.cuGraphInstantiate = [](CUgraphExec* exec, CUgraph graph, unsigned long long) {
    *exec = new CUgraphExec_st{graph->work};
    return CUDA_SUCCESS;
  };
  d.cuGraphLaunch = [](CUgraphExec exec, CUstream stream) {
    if (launches_left == 0) return kLaunchFailed;
    if (launches_left > 0) --launches_left;
    for (const auto& step : exec->work) stream->add(step);
    return CUDA_SUCCESS;
  };
  d.cuGraphExecDestroy = [](CUgraphExec exec) {
    delete exec;
    return CUDA_SUCCESS;
  };
  d.cuGraphDestroy = [](CUgraph graph) {
    delete graph;
    return CUDA_SUCCESS;
  };
  d.cuGetErrorName = [](CUresult, const char** name) {
    *name = "CUDA_ERROR_EMULATED";
    return CUDA_SUCCESS;
  };
  d.cuGetErrorString = [](CUresult, const char** what) {
    *what = "an error of the emulated GPU";
    return CUDA_SUCCESS;
  };
  return d;
}

}  // namespace

const cuda::Driver& emulated_cuda_driver() {
  static const cuda::Driver driver = make();
  return driver;
}

const cuda::Driver& cuda_test_driver() {
  const char* device = std::getenv("MOEFLUX_TEST_DEVICE");
  return device != nullptr && std::string_view(device) == "cuda-gpu" ? cuda::loaded_driver().driver
                                                                     : emulated_cuda_driver();
}

void fail_launches_after(long n) {
  launches_left = n;
}

}  // namespace moeflux::test
