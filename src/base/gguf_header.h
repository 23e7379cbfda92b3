// The header of a GGUF file: its metadata, by key, and where its tensors lie. Values stay in the
// file until they are asked for, so that a header takes the memory of its names. Nothing in a file
// is trusted: no count is believed before the bytes behind it are there. Immutable, safe to share
// between threads.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"

namespace moeflux {

struct GgufTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // the outermost dimension first, unlike in the file
  std::uint32_t type = 0;           // as the file numbers element types
  std::uint64_t offset = 0;         // from data_begin()
};

class GgufHeader {
 public:
  // Throws Error naming what is wrong and at which byte.
  explicit GgufHeader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const File& file() const { return file_; }
  File take_file() && { return std::move(file_); }
  std::uint32_t version() const { return version_; }
  std::uint64_t alignment() const { return alignment_; }
  std::uint64_t data_begin() const { return data_begin_; }  // may lie behind the end of the file
  std::span<const GgufTensor> tensors() const { return tensors_; }

  bool has(std::string_view key) const { return values_.find(key) != values_.end(); }
  std::vector<std::string> keys() const;  // sorted

  // The value of a key; Error(BadInput) names the key when it is missing or of another kind.
  // Writers differ in the width of integers, and write one number where others write a list.
  std::int64_t integer(std::string_view key, std::int64_t min, std::int64_t max) const;
  std::int64_t integer_or(std::string_view key, std::int64_t fallback, std::int64_t min,
                          std::int64_t max) const;
  double number(std::string_view key) const;  // finite
  double number_or(std::string_view key, double fallback) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::string string(std::string_view key) const;
  std::string string_or(std::string_view key, std::string fallback) const;
  std::vector<std::int64_t> integers(std::string_view key) const;  // booleans as 0 and 1
  std::vector<float> numbers(std::string_view key) const;
  std::vector<std::string> strings(std::string_view key) const;
  bool is_list(std::string_view key) const;
  std::uint64_t count(std::string_view key) const;  // of a list; 1 of a single value

  // Key and value as they are written in the file.
  std::string raw(std::string_view key) const;

 private:
  enum class Type : std::uint32_t;
  class Cursor;
  struct Value {
    Type type;  // of the elements, of a list
    bool is_list = false;
    std::uint64_t count = 1;
    std::uint64_t entry = 0;  // where key, type and value begin in the file
    std::uint64_t begin = 0;  // and where the value's elements do
    std::uint64_t end = 0;
  };

  void read_values(Cursor& in, std::uint64_t count);
  void read_tensors(Cursor& in, std::uint64_t count);
  void find_data(std::uint64_t header_end);
  const Value* find(std::string_view key) const;
  const Value& need(std::string_view key) const;
  std::string bytes_of(const Value& value) const;
  [[noreturn]] void wrong_kind(std::string_view key, std::string_view wanted) const;

  File file_;
  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 0;
  std::uint64_t data_begin_ = 0;
  std::map<std::string, Value, std::less<>> values_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace moeflux
