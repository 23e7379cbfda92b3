// The variables of a loop body, a macro call or a with block. What a scope does not have is looked
// up in its parent; writing never leaves the scope. The outermost scope is the evaluator's own.
#pragma once

#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/heap.h"
#include "text/jinja/meter.h"
#include "text/jinja/value.h"

namespace moeflux::jinja {

class Scope : public Object {
 public:
  Scope(Heap& heap, Meter& meter, Ref<Scope> outer)
      : Object(heap), parent_(std::move(outer)), charge_(meter, kBytes) {}

  void drop_children() noexcept override {
    parent_ = {};
    variables_.clear();
  }

  const Ref<Scope>& parent() const { return parent_; }
  std::size_t size() const { return variables_.size(); }

  const Value* find(NameId name) const {
    for (const auto& [id, value] : variables_) {
      if (id == name) return &value;
    }
    return nullptr;
  }

  void set(NameId name, Value value) {
    for (auto& [id, old] : variables_) {
      if (id == name) {
        old = std::move(value);
        return;
      }
    }
    variables_.emplace_back(name, std::move(value));
  }

 private:
  static constexpr std::size_t kBytes = 256;  // with a few variables

  Ref<Scope> parent_;
  std::vector<std::pair<NameId, Value>> variables_;
  MemoryCharge charge_;
};

}  // namespace moeflux::jinja
