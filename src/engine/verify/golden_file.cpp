#include "engine/verify/golden_file.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "source/safetensors.h"

namespace moeflux {

GoldenFile::GoldenFile(const std::string& path) : file_(open_tensor_file(path)) {
  for (const auto& [name, info] : file_->tensors()) {
    if (!name.ends_with("ids") || name.find("route.") != std::string::npos) continue;
    const std::string prefix = name.substr(0, name.size() - 3);
    if (prefix.empty() || prefix.back() == '.') prompts_.push_back(prefix);
  }
  if (prompts_.empty())
    fail(Errc::BadInput, "{}: not a golden file: it has no \"ids\" tensor", path);
}

bool GoldenFile::must_have(const std::string& prompt, std::string_view kind) const {
  if (prompt.empty()) return true;
  for (const auto& [name, info] : file_->tensors()) {
    for (const std::string& prefix : prompts_) {
      if (name.starts_with(prefix) &&
          std::string_view(name).substr(prefix.size()).starts_with(kind))
        return true;
    }
  }
  return false;
}

const TensorInfo& GoldenFile::tensor(const std::string& name) const {
  const TensorInfo* info = file_->find(name);
  if (info == nullptr) {
    fail(
        Errc::NotFound,
        "{}: tensor \"{}\" is missing, so that part of the model cannot be compared; write it with "
        "the reference implementation",
        file_->path(), name);
  }
  return *info;
}

template <class T>
std::vector<T> GoldenFile::read(const std::string& name, DType dtype,
                                std::initializer_list<std::int64_t> shape) {
  const TensorInfo& info = tensor(name);
  if (!std::equal(info.shape.begin(), info.shape.end(), shape.begin(), shape.end())) {
    fail(Errc::BadInput, "{}: tensor \"{}\" is {}, but this model and prompt give {}",
         file_->path(), name, shape_text(info.shape), shape_text(std::vector(shape)));
  }
  if (info.dtype != dtype) {
    fail(Errc::BadInput, "{}: tensor \"{}\" is {}, expected {}", file_->path(), name,
         dtype_name(info.dtype), dtype_name(dtype));
  }
  std::vector<T> values(info.bytes / sizeof(T));
  file_->read(info.extent(), std::as_writable_bytes(std::span(values)));
  read_.insert(name);
  return values;
}

std::vector<float> GoldenFile::floats(const std::string& name,
                                      std::initializer_list<std::int64_t> shape) {
  return read<float>(name, DType::F32, shape);
}

std::vector<std::int32_t> GoldenFile::ints(const std::string& name,
                                           std::initializer_list<std::int64_t> shape) {
  return read<std::int32_t>(name, DType::I32, shape);
}

std::vector<std::int32_t> GoldenFile::tokens(const std::string& name) {
  const TensorInfo& info = tensor(name);
  const std::int64_t n = info.shape.empty() ? 0 : info.shape.front();
  if (n == 0) fail(Errc::BadInput, "{}: tensor \"{}\" has no tokens", file_->path(), name);
  return ints(name, {n});
}

std::string GoldenFile::unread() const {
  std::string names;
  for (const auto& [name, info] : file_->tensors()) {
    if (!read_.contains(name)) names += (names.empty() ? "" : " ") + name;
  }
  return names;
}

}  // namespace moeflux
