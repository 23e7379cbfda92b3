// The CUDA backend on the emulated GPU beside the scalar kernels of the CPU, and operands in the
// memory of both.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "backends/cuda/cuda_backend.h"
#include "backends/random_weight.h"
#include "support/cuda/emulated_driver.h"

namespace moeflux::test {

// What the GPU runs.
inline std::vector<WeightFormat> cuda_formats() {
  std::vector<WeightFormat> formats = all_formats();
  std::erase_if(formats, [](const WeightFormat& f) { return f.kind == WeightKind::Block; });
  return formats;
}

// With as much shared memory as large GPUs have.
inline const cuda::Driver& large_driver() {
  static const cuda::Driver driver = [] {
    cuda::Driver large = cuda_test_driver();
    large.cuDeviceGetAttribute = [](int* value, int which, cuda::CUdevice device) {
      const auto result = cuda_test_driver().cuDeviceGetAttribute(value, which, device);
      if (which == cuda::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) *value = 227 << 10;
      return result;
    };
    return large;
  }();
  return driver;
}

class CudaAndCpu {
 public:
  explicit CudaAndCpu(Precision precision = Precision::Exact,
                      const cuda::Driver& driver = cuda_test_driver())
      : gpu(cuda::make_backend({.n_threads = 1, .precision = precision}, driver)),
        cpu(make_backend({.isa = "scalar", .n_threads = 1}, "cpu")) {}

  template <class Operand>
  struct Pair {
    Operand gpu, cpu;
  };

  Pair<View> floats(std::int64_t rows, std::int64_t cols, const std::vector<float>& values) {
    return {view(*gpu, rows, cols, values, ElementType::F32),
            view(*cpu, rows, cols, values, ElementType::F32)};
  }
  // Of values that no result should keep.
  Pair<View> results(std::int64_t rows, std::int64_t cols) {
    return floats(rows, cols, std::vector<float>(static_cast<std::size_t>(rows * cols), 1e30f));
  }
  Pair<View> ints(std::int64_t rows, std::int64_t cols, const std::vector<std::int32_t>& values) {
    return {view(*gpu, rows, cols, values, ElementType::I32),
            view(*cpu, rows, cols, values, ElementType::I32)};
  }
  // Planes at multiples of 64, or at odd addresses.
  Pair<Weight> weight(const WeightView& w, bool is_aligned = true) {
    return {weight_of(*gpu, w, is_aligned), weight_of(*cpu, w, is_aligned)};
  }
  Pair<KvView> cache(const KvShape& shape) {
    const std::vector<std::byte> zeros(shape.bytes());
    return {{shape, buffer(*gpu, zeros), 0}, {shape, buffer(*cpu, zeros), 0}};
  }

  static std::vector<float> read(Backend& backend, const View& view) {
    std::vector<float> values(static_cast<std::size_t>(view.size()));
    backend.download(view.bytes(), std::as_writable_bytes(std::span(values)));
    backend.wait_for_all();
    return values;
  }
  static std::vector<std::int32_t> read_ints(Backend& backend, const View& view) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(view.size()));
    backend.download(view.bytes(), std::as_writable_bytes(std::span(values)));
    backend.wait_for_all();
    return values;
  }
  // |gpu - cpu| / |cpu|
  double difference(const Pair<View>& pair) {
    const auto a = read(*gpu, pair.gpu), b = read(*cpu, pair.cpu);
    double off = 0, all = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      off += std::pow(double{a[i]} - b[i], 2);
      all += std::pow(double{b[i]}, 2);
    }
    return all == 0 ? std::sqrt(off) : std::sqrt(off / all);
  }

  std::unique_ptr<Backend> gpu, cpu;

 private:
  const Buffer* buffer(Backend& backend, std::span<const std::byte> bytes) {
    buffers_.push_back(backend.allocate(bytes.size(), MemoryKind::Device));
    backend.upload(bytes, whole(*buffers_.back()));
    return buffers_.back().get();
  }
  template <class T>
  View view(Backend& backend, std::int64_t rows, std::int64_t cols, const std::vector<T>& values,
            ElementType type) {
    return {buffer(backend, std::as_bytes(std::span(values))), 0, rows, cols, cols, type};
  }
  Weight weight_of(Backend& backend, const WeightView& w, bool is_aligned) {
    Weight weight{.format = w.format, .rows = w.rows, .cols = w.cols, .block_row0 = w.block_row0};
    std::vector<std::byte> all;
    const auto add = [&](const std::byte* plane, std::int64_t bytes) {
      if (plane == nullptr) return Weight::kNoPlane;
      all.resize((all.size() + 63) / 64 * 64 + (is_aligned ? 0 : 1));
      const std::uint64_t at = all.size();
      all.insert(all.end(), plane, plane + bytes);
      return at;
    };
    weight.data = add(w.data, w.rows * data_row_bytes(w.format, w.cols));
    weight.scales = add(w.scales, scale_bytes(w.format, w.rows, w.cols, w.block_row0));
    weight.biases = add(w.biases, bias_bytes(w.format, w.rows, w.cols));
    all.resize(all.size() + 64);
    weight.buffer = buffer(backend, all);
    return weight;
  }

  std::vector<std::unique_ptr<Buffer>> buffers_;
};

}  // namespace moeflux::test
