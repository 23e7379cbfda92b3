// Operations of the CUDA backend on the emulated GPU, against the scalar kernels of the CPU.
#include "backends/cuda/cuda_backend.h"

#include <cmath>

#include <gtest/gtest.h>

#include "support/cuda/emulated_driver.h"
#include "support/random.h"

namespace moeflux {
namespace {

// The same operands in the memory of both backends.
class Both {
 public:
  explicit Both(Precision precision = Precision::Exact)
      : gpu(cuda::make_backend({.n_threads = 1, .precision = precision},
                               test::emulated_cuda_driver())),
        cpu(make_backend({.isa = "scalar", .n_threads = 1}, "cpu")) {}

  struct Pair {
    View gpu, cpu;
  };
  Pair floats(std::int64_t rows, std::int64_t cols, const std::vector<float>& values) {
    return {view(*gpu, rows, cols, values), view(*cpu, rows, cols, values)};
  }
  std::vector<float> read(Backend& backend, const View& view) {
    std::vector<float> values(static_cast<std::size_t>(view.size()));
    backend.download(view.bytes(), std::as_writable_bytes(std::span(values)));
    backend.wait_for_all();
    return values;
  }
  double difference(const Pair& pair) {
    const auto a = read(*gpu, pair.gpu), b = read(*cpu, pair.cpu);
    double off = 0, all = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      off += std::pow(double{a[i]} - b[i], 2);
      all += std::pow(double{b[i]}, 2);
    }
    return std::sqrt(off / all);
  }

  std::unique_ptr<Backend> gpu, cpu;

 private:
  View view(Backend& backend, std::int64_t rows, std::int64_t cols,
            const std::vector<float>& values) {
    buffers_.push_back(backend.allocate(values.size() * sizeof(float), MemoryKind::Device));
    const View v{buffers_.back().get(), 0, rows, cols, cols};
    backend.upload(std::as_bytes(std::span(values)), v.bytes());
    return v;
  }
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

TEST(CudaBackend, NormsAreThoseOfTheCpu) {
  test::Random random(1);
  for (const std::int64_t d : {1, 31, 64, 1000, 2048}) {
    Both both;
    const auto x = both.floats(5, d, random.floats(5 * d));
    const auto w = both.floats(1, d, random.floats(d));
    const auto out = both.floats(5, d, std::vector<float>(static_cast<std::size_t>(5 * d)));
    both.gpu->rms_norm({.x = x.gpu, .weight = w.gpu, .eps = 1e-6f, .out = out.gpu});
    both.cpu->rms_norm({.x = x.cpu, .weight = w.cpu, .eps = 1e-6f, .out = out.cpu});
    EXPECT_LT(both.difference(out), 1e-6) << d;
  }
}

}  // namespace
}  // namespace moeflux
