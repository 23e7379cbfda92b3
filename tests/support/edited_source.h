// A checkpoint on disk with changes that exist only in memory: another config, tensors that are
// missing, renamed, copied or of another shape. For tests of what a family reads and refuses.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "source/model_source.h"

namespace moeflux::test {

class EditedSource {
 public:
  explicit EditedSource(const std::string& path)
      : original_(open_source(path)), config_(original_->config()) {}

  Json& config() { return config_; }
  // The object with the text model's sizes.
  Json& text() { return config_.contains("text_config") ? config_["text_config"] : config_; }

  // All of these act on every tensor whose name contains `part`.
  EditedSource& remove(std::string part) { return edit({std::move(part), Edit::Remove, {}, {}}); }
  EditedSource& rename(std::string part, std::string to) {
    return edit({std::move(part), Edit::Rename, std::move(to), {}});
  }
  // The new shape must need the same bytes.
  EditedSource& reshape(std::string part, std::vector<std::int64_t> shape) {
    return edit({std::move(part), Edit::Reshape, {}, std::move(shape)});
  }

  // The tensor of that name once more, under another one.
  EditedSource& copy(std::string from, std::string to) {
    copies_.emplace_back(std::move(from), std::move(to));
    return *this;
  }

  std::shared_ptr<const ModelSource> build() const {
    auto source = std::make_shared<ModelSource>(original_->path(), original_->layout());
    source->set_config(config_, original_->config_origin());
    for (int i = 0; i < original_->n_files(); ++i)
      source->add_file(File(original_->file(i).path()));
    for (const auto& [name, info] : original_->tensors()) {
      std::string new_name = name;
      TensorInfo tensor = info;
      if (apply(new_name, tensor)) source->add_tensor(new_name, std::move(tensor));
    }
    for (const auto& [from, to] : copies_) source->add_tensor(to, original_->tensors().at(from));
    return source;
  }

 private:
  struct Edit {
    enum Kind { Remove, Rename, Reshape };
    std::string part;
    Kind kind;
    std::string to;
    std::vector<std::int64_t> shape;
  };

  EditedSource& edit(Edit e) {
    edits_.push_back(std::move(e));
    return *this;
  }

  bool apply(std::string& name, TensorInfo& tensor) const {  // false: the tensor is gone
    for (const Edit& e : edits_) {
      const std::size_t at = name.find(e.part);
      if (at == std::string::npos) continue;
      if (e.kind == Edit::Remove) return false;
      if (e.kind == Edit::Rename) name.replace(at, e.part.size(), e.to);
      if (e.kind == Edit::Reshape) {
        tensor.shape = e.shape;
        tensor.slice_stride = 0;
      }
    }
    return true;
  }

  std::shared_ptr<const ModelSource> original_;
  Json config_;
  std::vector<Edit> edits_;
  std::vector<std::pair<std::string, std::string>> copies_;
};

}  // namespace moeflux::test
