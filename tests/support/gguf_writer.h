// Writes GGUF files for tests, and on request files that no writer should make.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace moeflux::test {

class GgufWriter {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;  // written as a key only where another is set by number()
  std::uint64_t claimed_tensors = 0, claimed_keys = 0;  // added to the true counts

  GgufWriter& text(std::string_view key, std::string_view value) {
    begin(key, 8);
    put_text(values_, value);
    return *this;
  }
  GgufWriter& texts(std::string_view key, const std::vector<std::string>& list) {
    begin_list(key, 8, list.size());
    for (const std::string& each : list) put_text(values_, each);
    return *this;
  }
  GgufWriter& boolean(std::string_view key, bool value) {
    begin(key, 7);
    put<std::uint8_t>(values_, value ? 1 : 0);
    return *this;
  }
  template <class T>
  GgufWriter& number(std::string_view key, T value) {
    begin(key, type_of<T>());
    put(values_, value);
    return *this;
  }
  template <class T>
  GgufWriter& numbers(std::string_view key, const std::vector<T>& list) {
    begin_list(key, type_of<T>(), list.size());
    for (const T& each : list) put(values_, each);
    return *this;
  }
  // A key with any bytes behind it.
  GgufWriter& raw(std::string_view key, std::uint32_t type, std::string_view bytes) {
    begin(key, type);
    values_ += bytes;
    return *this;
  }

  // shape: the outermost dimension first. `data` follows that of the tensors before, aligned.
  GgufWriter& tensor(std::string_view name, const std::vector<std::int64_t>& shape,
                     std::uint32_t type, std::string_view data) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    tensor_at(name, shape, type, data_.size());
    data_ += data;
    return *this;
  }
  GgufWriter& tensor_at(std::string_view name, const std::vector<std::int64_t>& shape,
                        std::uint32_t type, std::uint64_t offset) {
    ++n_tensors_;
    put_text(tensors_, name);
    put(tensors_, static_cast<std::uint32_t>(shape.size()));
    for (auto it = shape.rbegin(); it != shape.rend(); ++it) put(tensors_, *it);
    put(tensors_, type);
    put(tensors_, offset);
    return *this;
  }
  GgufWriter& floats(std::string_view name, const std::vector<std::int64_t>& shape,
                     std::span<const float> values) {
    return tensor(name, shape, 0,
                  {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }

  std::string header() const {
    std::string out = "GGUF";
    put(out, version);
    put(out, n_tensors_ + claimed_tensors);
    put(out, n_keys_ + claimed_keys);
    return out + values_ + tensors_;
  }
  std::string bytes() const {
    std::string out = header();
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data_;
  }
  void write(const std::string& path) const {
    const std::string all = bytes();
    std::ofstream(path, std::ios::binary)
        .write(all.data(), static_cast<std::streamsize>(all.size()));
  }

 private:
  template <class T>
  static std::uint32_t type_of() {
    if constexpr (std::is_same_v<T, float>) return 6;
    if constexpr (std::is_same_v<T, double>) return 12;
    constexpr bool is_signed = std::is_signed_v<T>;
    switch (sizeof(T)) {
      case 1:
        return is_signed ? 1 : 0;
      case 2:
        return is_signed ? 3 : 2;
      case 4:
        return is_signed ? 5 : 4;
      default:
        return is_signed ? 11 : 10;
    }
  }
  template <class T>
  static void put(std::string& out, T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out.append(bytes, sizeof value);
  }
  static void put_text(std::string& out, std::string_view text) {
    put<std::uint64_t>(out, text.size());
    out += text;
  }
  void begin(std::string_view key, std::uint32_t type) {
    ++n_keys_;
    put_text(values_, key);
    put(values_, type);
  }
  void begin_list(std::string_view key, std::uint32_t type, std::uint64_t count) {
    begin(key, 9);
    put(values_, type);
    put(values_, count);
  }

  std::uint64_t n_keys_ = 0, n_tensors_ = 0;
  std::string values_, tensors_, data_;
};

}  // namespace moeflux::test
