#include "server/http/body_price.h"

namespace moeflux {
namespace {

// Of a value itself, of a place in an object besides that, and of what the allocator adds to each.
constexpr std::uint64_t kValueBytes = 48, kMemberBytes = 64;

// The length of a string from after its opening quote to its closing one.
std::size_t string_length(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
  return std::min(i, text.size());
}

}  // namespace

std::uint64_t body_price(std::string_view text) {
  std::uint64_t n_values = 1, n_text = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '"': {
        const std::size_t length = string_length(text.substr(i + 1));
        n_text += length;
        i += length + 1;
        break;
      }
      case ',':  // a value follows, and the first one of a list or an object follows its bracket
      case '[':
      case '{':
        ++n_values;
        break;
      default:
        break;
    }
  }
  return n_values * kPriceOfValue + n_text * kPriceOfTextByte;
}

std::uint64_t json_bytes(const Json& value) {
  std::uint64_t bytes = kValueBytes;
  if (value.is_string()) bytes += value.get_ref<const std::string&>().size();
  if (value.is_array()) {
    for (const Json& each : value) bytes += json_bytes(each);
  }
  if (value.is_object()) {
    for (const auto& [key, each] : value.items()) {
      bytes += kMemberBytes + key.size() + json_bytes(each);
    }
  }
  return bytes;
}

}  // namespace moeflux
