#include "text/jinja/value.h"

#include "text/jinja/objects.h"

namespace moeflux::jinja {

std::string_view Value::hint() const {
  return is_undefined() && string_ ? string_->text.view() : std::string_view{};
}

bool Value::same_as(const Value& other) const {
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::None:
      return true;
    case Kind::Bool:
      return as_bool() == other.as_bool();
    case Kind::Int:
      return as_int() == other.as_int();
    case Kind::Float:
      return as_real() == other.as_real();
    case Kind::Undefined:
      return false;
    case Kind::String:
      return view() == other.view();
    default:
      break;
  }
  return object_.get() == other.object_.get();
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
      return "Undefined";
    case Kind::None:
      return "NoneType";
    case Kind::Bool:
      return "bool";
    case Kind::Int:
      return "int";
    case Kind::Float:
      return "float";
    case Kind::String:
      return value.is_safe() ? "Markup" : "str";
    case Kind::List:
      return "list";
    case Kind::Tuple:
      return "tuple";
    case Kind::Dict:
      return "dict";
    case Kind::View:
      switch (value.as<ViewObject>().what) {
        case ViewObject::What::Keys:
          return "dict_keys";
        case ViewObject::What::Values:
          return "dict_values";
        case ViewObject::What::Items:
          return "dict_items";
      }
      break;
    case Kind::Range:
      return "range";
    case Kind::Iterator:
      return "generator";
    case Kind::Namespace:
      return "Namespace";
    case Kind::Function:
      return "function";
    case Kind::Loop:
      return "LoopContext";
    case Kind::Cycler:
      return "Cycler";
  }
  return "object";
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
    case Kind::None:
      return false;
    case Kind::Bool:
      return value.as_bool();
    case Kind::Int:
      return value.as_int() != 0;
    case Kind::Float:
      return value.as_real() != 0;
    case Kind::String:
      return !value.text().empty();
    case Kind::List:
    case Kind::Tuple:
      return !value.as<SequenceObject>().items.empty();
    case Kind::Dict:
      return value.as<DictObject>().size() != 0;
    case Kind::View:
      return value.as<ViewObject>().dict->size() != 0;
    case Kind::Range:
      return value.as<RangeObject>().size() != 0;
    default:
      return true;
  }
}

}  // namespace moeflux::jinja
