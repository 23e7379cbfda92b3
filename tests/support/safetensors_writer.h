// Writes safetensors files for tests, and on request files that no writer should make.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"

namespace moeflux::test {

class SafetensorsWriter {
 public:
  // The data must have the bytes that dtype and shape ask for only if the file is meant to be good.
  SafetensorsWriter& add(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
                         std::string_view data);
  SafetensorsWriter& add_f32(const std::string& name, std::vector<std::int64_t> shape,
                             std::span<const float> values);
  // Bytes 0, 1, 2, ... counted on over the whole file, so that every position has its own value.
  SafetensorsWriter& add_counting(const std::string& name, DType dtype,
                                  std::vector<std::int64_t> shape);
  SafetensorsWriter& metadata(const std::string& key, const std::string& value);

  Json& header() { return header_; }  // to be spoiled
  std::string& data() { return data_; }

  std::string bytes() const { return file_bytes(dump_json(header_), data_); }
  void write(const std::string& path) const;

  // Any text as the header, with its true length before it.
  static std::string file_bytes(std::string_view header, std::string_view data);
  // The same with a length of our choice.
  static std::string file_bytes(std::uint64_t length, std::string_view header,
                                std::string_view data);

 private:
  Json header_ = Json::object();
  std::string data_;
};

void write_file(const std::string& path, std::string_view content);

}  // namespace moeflux::test
