#include "text/jinja/runtime.h"

#include "base/error.h"

namespace moeflux::jinja {
namespace {

constexpr std::size_t kMaxHint = 300;  // bytes of an explanation that may never be shown

}  // namespace

Value Runtime::string(MarkedString text, bool safe) {
  meter.step(2);
  meter.check_string(text.size());
  MemoryCharge charge(meter, text.memory_bytes());
  return Value::string(
      std::make_shared<const StringObject>(StringObject{std::move(text), safe, std::move(charge)}));
}

Value Runtime::sequence(Kind kind, std::vector<Value> items) {
  meter.step(4 + items.size());
  return Value::object(kind, heap.make<SequenceObject>(meter, std::move(items)));
}

Value Runtime::iterator(std::vector<Value> items) {
  meter.step(4 + items.size());
  return Value::object(Kind::Iterator, heap.make<IteratorObject>(meter, std::move(items)));
}

Value Runtime::function(std::string name, FunctionObject::Body body) {
  return Value::object(Kind::Function,
                       heap.make<FunctionObject>(meter, std::move(name), std::move(body)));
}

Value Runtime::undefined(std::string_view hint) {
  meter.step(2);
  MarkedString text(std::string(hint.substr(0, kMaxHint)), Origin::Markup);
  MemoryCharge charge(meter, text.memory_bytes());
  return Value::undefined(std::make_shared<const StringObject>(
      StringObject{std::move(text), false, std::move(charge)}));
}

Value Runtime::from_json(const Json& json, Origin origin) {
  const DepthGuard guard(meter);
  meter.step();
  switch (json.type()) {
    case Json::value_t::null:
    case Json::value_t::discarded:
      return Value::none(origin);
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>(), origin);
    case Json::value_t::number_unsigned:
      if (json.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
        fail(Errc::Unsupported, "the integer {} does not fit in 64 bits with a sign",
             json.get<std::uint64_t>());
      }
      return Value::integer(json.get<std::int64_t>(), origin);
    case Json::value_t::number_integer:
      return Value::integer(json.get<std::int64_t>(), origin);
    case Json::value_t::number_float:
      return Value::real(json.get<double>(), origin);
    case Json::value_t::string:
      return string(json.get_ref<const std::string&>(), origin);
    case Json::value_t::binary:
      fail(Errc::BadInput, "binary values cannot be given to a template");
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(from_json(item, origin));
      const auto object = heap.make<SequenceObject>(meter, std::move(items));
      object->is_input = origin == Origin::Data;
      return Value::object(Kind::List, object, origin);
    }
    case Json::value_t::object: {
      const Ref<DictObject> dict = new_dict();
      for (const auto& [key, item] : json.items()) {
        dict->set(string(key, origin), from_json(item, origin));
      }
      dict->is_input = origin == Origin::Data;
      return Value::object(Kind::Dict, dict, origin);
    }
  }
  return Value::none(origin);
}

void TextBuilder::fill(std::string_view bytes, std::uint64_t count, Origin origin) {
  if (bytes.empty() || count == 0) return;
  runtime_.meter.check_string(count);  // so that the product cannot overflow
  runtime_.meter.check_string(count * bytes.size() + text_.size());
  runtime_.meter.text(count * bytes.size());
  std::string all;
  all.reserve(count * bytes.size());
  for (std::uint64_t i = 0; i < count; ++i) all += bytes;
  text_.append(all, origin);
  recharge();
}

}  // namespace moeflux::jinja
