// A file of golden values: tensors by name, with checked types and shapes. It knows which of them
// were read, so that none is left out of a comparison unnoticed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "source/model_source.h"

namespace moeflux {

class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path);

  // "" for a file with one prompt, "p0.", "p1.", ... for several.
  const std::vector<std::string>& prompts() const { return prompts_; }
  // Whether the prompt must come with such tensors ("greedy", "route."): a file of one prompt holds
  // everything; of several prompts all hold what one of them does.
  bool must_have(const std::string& prompt, std::string_view kind) const;
  bool has(const std::string& name) const { return file_->find(name) != nullptr; }

  std::vector<float> floats(const std::string& name, std::initializer_list<std::int64_t> shape);
  std::vector<std::int32_t> ints(const std::string& name,
                                 std::initializer_list<std::int64_t> shape);
  // A vector of any length but 0.
  std::vector<std::int32_t> tokens(const std::string& name);

  std::string unread() const;  // the names of tensors that nothing asked for

 private:
  const TensorInfo& tensor(const std::string& name) const;
  template <class T>
  std::vector<T> read(const std::string& name, DType dtype,
                      std::initializer_list<std::int64_t> shape);

  std::shared_ptr<const ModelSource> file_;
  std::vector<std::string> prompts_;
  std::set<std::string> read_;
};

}  // namespace moeflux
