// A checkpoint whose tensors have shapes, and all the same bytes: enough to read a ModelIndex from.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "source/model_source.h"
#include "support/paths.h"

namespace moeflux::test {

class Shapes {
 public:
  explicit Shapes(const Json& config = Json::object())
      : source_("model", ModelSource::Layout::Safetensors) {
    file_ = source_.add_file(File(dir_.write("zeros", std::string(1 << 16, '\0'))));
    source_.set_config(config, "model/config.json");
  }

  Shapes& add(const std::string& name, std::vector<std::int64_t> shape, DType dtype = DType::F32) {
    std::uint64_t bytes = dtype_size(dtype);
    for (const std::int64_t n : shape) bytes *= static_cast<std::uint64_t>(n);
    source_.add_tensor(
        name,
        {.dtype = dtype, .shape = std::move(shape), .file = file_, .offset = 0, .bytes = bytes});
    return *this;
  }

  const ModelSource& source() const { return source_; }

 private:
  TempDir dir_;
  ModelSource source_;
  int file_;
};

}  // namespace moeflux::test
