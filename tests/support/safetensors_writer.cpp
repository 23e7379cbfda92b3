#include "support/safetensors_writer.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace moeflux::test {

SafetensorsWriter& SafetensorsWriter::add(const std::string& name, DType dtype,
                                          std::vector<std::int64_t> shape, std::string_view data) {
  const std::size_t begin = data_.size();
  data_ += data;
  header_[name] = {{"dtype", std::string(dtype_name(dtype))},
                   {"shape", std::move(shape)},
                   {"data_offsets", {begin, data_.size()}}};
  return *this;
}

SafetensorsWriter& SafetensorsWriter::add_f32(const std::string& name,
                                              std::vector<std::int64_t> shape,
                                              std::span<const float> values) {
  std::string bytes(values.size_bytes(), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return add(name, DType::F32, std::move(shape), bytes);
}

SafetensorsWriter& SafetensorsWriter::add_counting(const std::string& name, DType dtype,
                                                   std::vector<std::int64_t> shape) {
  std::size_t count = dtype_size(dtype);
  for (const std::int64_t n : shape) count *= static_cast<std::size_t>(n);
  std::string bytes(count, '\0');
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>((data_.size() + i) & 0xFF);
  return add(name, dtype, std::move(shape), bytes);
}

SafetensorsWriter& SafetensorsWriter::metadata(const std::string& key, const std::string& value) {
  header_["__metadata__"][key] = value;
  return *this;
}

void SafetensorsWriter::write(const std::string& path) const {
  write_file(path, bytes());
}

std::string SafetensorsWriter::file_bytes(std::string_view header, std::string_view data) {
  return file_bytes(header.size(), header, data);
}

std::string SafetensorsWriter::file_bytes(std::uint64_t length, std::string_view header,
                                          std::string_view data) {
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file.append(header).append(data);
}

void write_file(const std::string& path, std::string_view content) {
  std::remove(path.c_str());  // ext4 flushes a file that is replaced by truncation
  std::ofstream out(path, std::ios::binary);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  out.close();
  if (!out) throw std::runtime_error("cannot write " + path);
}

}  // namespace moeflux::test
