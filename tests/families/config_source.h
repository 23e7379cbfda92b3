// A checkpoint that is only a config and the names of a few tensors: enough to read a ModelConfig
// from.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "families/family.h"
#include "source/model_source.h"
#include "support/paths.h"

namespace moeflux::test {

class ConfigSource {
 public:
  // Each named tensor exists, with one number in it.
  explicit ConfigSource(const Json& config, const std::vector<std::string>& tensors = {})
      : source_("model", ModelSource::Layout::Safetensors) {
    source_.set_config(config, "model/config.json");
    const int file = source_.add_file(File(dir_.write("four_bytes", "abcd")));
    for (const std::string& name : tensors) {
      source_.add_tensor(
          name, {.dtype = DType::F32, .shape = {1}, .file = file, .offset = 0, .bytes = 4});
    }
  }

  ModelConfig read() const {
    const std::string type = source_.config().at("model_type").get<std::string>();
    for (const Family* family : families()) {
      for (const std::string_view known : family->model_types) {
        if (known != type) continue;
        ModelConfig config = family->read_config(source_);
        validate(config, source_.config_origin());
        return config;
      }
    }
    throw std::runtime_error("no family reads " + type);
  }

 private:
  TempDir dir_;
  ModelSource source_;
};

}  // namespace moeflux::test
