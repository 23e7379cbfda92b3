// What everything that runs during one rendering shares: the meter, the heap, how values are made.
// Errors are thrown as plain Error; the template's name and the line are added where the rendering
// was started, from `line`.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/jinja/heap.h"
#include "text/jinja/meter.h"
#include "text/jinja/value.h"

namespace moeflux::jinja {

struct RenderOptions {
  RenderLimits limits;
  std::optional<std::tm> local_time;  // what strftime_now() sees; the system's clock when absent
};

class Runtime {
 public:
  explicit Runtime(const RenderOptions& options) : meter(options.limits), options_(options) {}

  const RenderOptions& options() const { return options_; }

  Value string(MarkedString text, bool safe = false);
  Value string(std::string_view bytes, Origin origin = Origin::Markup) {
    return string(MarkedString(std::string(bytes), origin));
  }
  Value sequence(Kind kind, std::vector<Value> items);  // List or Tuple
  Value list(std::vector<Value> items) { return sequence(Kind::List, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(Kind::Tuple, std::move(items)); }
  Value iterator(std::vector<Value> items);
  Ref<DictObject> new_dict() { return heap.make<DictObject>(meter); }
  Value function(std::string name, FunctionObject::Body body);
  // `hint` is the error when the value is used.
  Value undefined(std::string_view hint);

  // A variable of the caller. Everything in it is data.
  Value from_json(const Json& json, Origin origin = Origin::Data);

  Meter meter;
  Heap heap;  // after the meter: objects give their memory back
  int line = 0;

 private:
  const RenderOptions& options_;
};

// Collects a string piece by piece; a limit is noticed before memory is gone.
class TextBuilder {
 public:
  explicit TextBuilder(Runtime& runtime) : runtime_(runtime), charge_(runtime.meter, 0) {}

  void append(const MarkedString& text) {
    reserve(text.size());
    text_.append(text);
    recharge();
  }
  void append(const MarkedString& text, std::size_t begin, std::size_t end) {
    reserve(end - begin);
    text_.append(text, begin, end);
    recharge();
  }
  void append(std::string_view bytes, Origin origin = Origin::Markup) {
    reserve(bytes.size());
    text_.append(bytes, origin);
    recharge();
  }
  void fill(std::string_view bytes, std::uint64_t count, Origin origin);

  const MarkedString& text() const { return text_; }
  bool empty() const { return text_.empty(); }
  MarkedString take() {
    charge_.set(0);
    return std::move(text_);
  }
  Value value(bool safe = false) { return runtime_.string(take(), safe); }

 private:
  void reserve(std::size_t bytes) {
    runtime_.meter.text(bytes);
    runtime_.meter.check_string(text_.size() + bytes);
  }

  void recharge() {
    if (text_.memory_bytes() > charge_.bytes()) charge_.set(text_.memory_bytes());
  }

  Runtime& runtime_;
  MarkedString text_;
  MemoryCharge charge_;
};

}  // namespace moeflux::jinja
