#include "source/tensor_index.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include <simdjson.h>

#include "base/error.h"

namespace moeflux {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::size_t kMaxRank = 8;
constexpr std::size_t kMaxNameBytes = 512;
constexpr std::size_t kMaxDTypeBytes = 32;
constexpr std::uint64_t kMaxConfigBytes = 1u << 20;

// One tensor's entry and how to speak of it.
struct Entry {
  const std::string& origin;
  std::string_view name;
  object fields;

  template <class... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail(Errc::BadInput, "{}: tensor \"{}\": {}", origin, name,
         fmt::format(format, std::forward<Args>(args)...));
  }
};

// Calls read(top) with the top-level object; its elements live as long as that call.
template <class Read>
void read_object(std::string_view json, const std::string& origin, Read read) {
  simdjson::dom::parser parser;
  element top;
  if (const auto error = parser.parse(json.data(), json.size()).get(top)) {
    fail(Errc::BadInput, "{}: not valid JSON: {}", origin, simdjson::error_message(error));
  }
  if (!top.is_object()) fail(Errc::BadInput, "{}: must be a JSON object", origin);
  read(object(top));
}

// Names go into messages and may come from anywhere: nothing that a terminal would interpret.
void check_name(std::string_view name, const std::string& origin) {
  const bool printable =
      std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; });
  if (name.empty() || name.size() > kMaxNameBytes || !printable) {
    fail(Errc::BadInput, "{}: a name of {} bytes is empty, too long or not printable", origin,
         name.size());
  }
}

// The member of that name; a second one is an error because readers would differ in which to take.
std::optional<element> find_member(const object& in, std::string_view key,
                                   const std::string& origin) {
  std::optional<element> found;
  for (const auto field : in) {
    if (field.key != key) continue;
    if (found) fail(Errc::BadInput, "{}: the key \"{}\" occurs twice", origin, key);
    found = field.value;
  }
  return found;
}

element need_member(const Entry& entry, std::string_view key) {
  std::optional<element> found;
  for (const auto field : entry.fields) {
    if (field.key != key) continue;
    if (found) entry.bad("the key \"{}\" occurs twice", key);
    found = field.value;
  }
  if (!found) entry.bad("\"{}\" is missing", key);
  return *found;
}

std::uint64_t read_size(const Entry& entry, element value, std::string_view what) {
  std::uint64_t size = 0;
  if (value.get(size) != simdjson::SUCCESS || size > INT64_MAX) {
    entry.bad("\"{}\" must hold integers from 0 to 2^63-1", what);
  }
  return size;
}

std::string_view read_dtype_name(const Entry& entry) {
  std::string_view text;
  if (need_member(entry, "dtype").get(text) != simdjson::SUCCESS) {
    entry.bad("\"dtype\" must be a string");
  }
  return text;
}

DType read_dtype(const Entry& entry) {
  const std::string_view text = read_dtype_name(entry);
  const auto dtype = parse_dtype(text);
  if (!dtype) entry.bad("the dtype \"{}\" is not known", text.substr(0, kMaxDTypeBytes));
  return *dtype;
}

// Checkpoints hold more than the model needs, and the format gains element types: one that is not
// known only matters when its tensor is asked for.
void read_any_dtype(const Entry& entry, ListedTensor& tensor) {
  const std::string_view text = read_dtype_name(entry);
  if (const auto dtype = parse_dtype(text)) {
    tensor.dtype = *dtype;
    return;
  }
  const bool is_name = !text.empty() && text.size() <= kMaxDTypeBytes &&
                       std::all_of(text.begin(), text.end(), [](char c) {
                         return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
                       });
  if (!is_name) entry.bad("\"dtype\" is not the name of an element type");
  tensor.unread_dtype = text;
}

std::vector<std::int64_t> read_shape(const Entry& entry) {
  array dims;
  if (need_member(entry, "shape").get(dims) != simdjson::SUCCESS) {
    entry.bad("\"shape\" must be an array");
  }
  std::vector<std::int64_t> shape;
  for (const element dim : dims) {
    if (shape.size() == kMaxRank) entry.bad("has more than {} dimensions", kMaxRank);
    shape.push_back(static_cast<std::int64_t>(read_size(entry, dim, "shape")));
  }
  return shape;
}

object entry_fields(std::string_view name, element value, const std::string& origin) {
  object fields;
  if (value.get(fields) != simdjson::SUCCESS) {
    fail(Errc::BadInput, "{}: tensor \"{}\": must be a JSON object", origin, name);
  }
  return fields;
}

ListedTensor read_header_entry(std::string_view name, element value, const std::string& origin) {
  check_name(name, origin);
  const Entry entry{origin, name, entry_fields(name, value, origin)};
  ListedTensor tensor{.name = std::string(name), .shape = read_shape(entry)};
  read_any_dtype(entry, tensor);
  array offsets;
  if (need_member(entry, "data_offsets").get(offsets) != simdjson::SUCCESS || offsets.size() != 2) {
    entry.bad("\"data_offsets\" must be an array of two numbers");
  }
  tensor.begin = read_size(entry, offsets.at(0).value(), "data_offsets");
  tensor.end = read_size(entry, offsets.at(1).value(), "data_offsets");
  if (tensor.begin > tensor.end) {
    entry.bad("\"data_offsets\" [{}, {}] ends before it begins", tensor.begin, tensor.end);
  }
  return tensor;
}

ListedTensor read_manifest_entry(std::string_view name, element value, const std::string& origin) {
  check_name(name, origin);
  const Entry entry{origin, name, entry_fields(name, value, origin)};
  ListedTensor tensor{
      .name = std::string(name), .dtype = read_dtype(entry), .shape = read_shape(entry)};
  tensor.begin = read_size(entry, need_member(entry, "offset"), "offset");
  const std::uint64_t size = read_size(entry, need_member(entry, "size"), "size");
  tensor.end = tensor.begin + size;  // both are below 2^63
  if (tensor.dtype != DType::U32) return tensor;
  tensor.bits = 4;  // what the extractors that do not write "bits" made
  if (const auto bits = find_member(entry.fields, "bits", origin)) {
    const std::uint64_t n = read_size(entry, *bits, "bits");
    if (n < 2 || n > 8 || n == 7) entry.bad("\"bits\" is {}; 2, 3, 4, 5, 6 or 8 can be read", n);
    tensor.bits = static_cast<int>(n);
  }
  return tensor;
}

void check_unique_names(const std::vector<ListedTensor>& tensors, const std::string& origin) {
  std::unordered_set<std::string_view> seen;
  for (const ListedTensor& tensor : tensors) {
    if (!seen.insert(tensor.name).second) {
      fail(Errc::BadInput, "{}: tensor \"{}\" is listed twice", origin, tensor.name);
    }
  }
}

// Sorts by position. Bytes that two tensors share are never meant; gaps between them are harmless.
void sort_disjoint(std::vector<ListedTensor>& tensors, const std::string& origin) {
  std::sort(tensors.begin(), tensors.end(), [](const ListedTensor& a, const ListedTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  const ListedTensor* last = nullptr;  // of those with any bytes
  for (const ListedTensor& tensor : tensors) {
    if (tensor.begin == tensor.end) continue;
    if (last != nullptr && tensor.begin < last->end) {
      fail(Errc::BadInput,
           "{}: tensors \"{}\" (bytes {} to {}) and \"{}\" (bytes {} to {}) overlap", origin,
           last->name, last->begin, last->end, tensor.name, tensor.begin, tensor.end);
    }
    last = &tensor;
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& origin) {
  SafetensorsHeader header;
  read_object(json, origin, [&](const object& top) {
    for (const auto field : top) {
      if (field.key != "__metadata__") {
        header.tensors.push_back(read_header_entry(field.key, field.value, origin));
      }
    }
    const auto metadata = find_member(top, "__metadata__", origin);
    object members;
    if (!metadata || metadata->get(members) != simdjson::SUCCESS) return;
    std::string_view format;
    const auto member = find_member(members, "format", origin);
    if (member && member->get(format) == simdjson::SUCCESS) header.format = format;
  });
  check_unique_names(header.tensors, origin);
  sort_disjoint(header.tensors, origin);
  return header;
}

std::map<std::string, std::string> parse_weight_map(std::string_view json,
                                                    const std::string& origin) {
  std::map<std::string, std::string> shards;
  read_object(json, origin, [&](const object& top) {
    const auto map = find_member(top, "weight_map", origin);
    object members;
    if (!map || map->get(members) != simdjson::SUCCESS) {
      fail(Errc::BadInput, "{}: \"weight_map\" must be a JSON object", origin);
    }
    for (const auto field : members) {
      check_name(field.key, origin);
      std::string_view shard;
      if (field.value.get(shard) != simdjson::SUCCESS) {
        fail(Errc::BadInput, "{}: tensor \"{}\": the file name must be a string", origin,
             field.key);
      }
      check_name(shard, origin);
      if (!shards.emplace(field.key, shard).second) {
        fail(Errc::BadInput, "{}: tensor \"{}\" is listed twice", origin, field.key);
      }
    }
  });
  return shards;
}

FlashMoeManifest parse_flash_moe_manifest(std::string_view json, const std::string& origin) {
  FlashMoeManifest manifest;
  read_object(json, origin, [&](const object& top) {
    const auto tensors = find_member(top, "tensors", origin);
    object members;
    if (!tensors || tensors->get(members) != simdjson::SUCCESS) {
      fail(Errc::BadInput, "{}: \"tensors\" must be a JSON object", origin);
    }
    for (const auto field : members) {
      manifest.tensors.push_back(read_manifest_entry(field.key, field.value, origin));
    }
    const auto config = find_member(top, "config", origin);
    if (!config || config->is_null()) return;
    const std::string text = simdjson::minify(*config);
    if (text.size() > kMaxConfigBytes) {
      fail(Errc::LimitExceeded, "{}: \"config\" has {} bytes, more than the {} allowed", origin,
           text.size(), kMaxConfigBytes);
    }
    manifest.config = parse_json(text, origin + ": config");
    if (!manifest.config.is_object()) {
      fail(Errc::BadInput, "{}: \"config\" must be a JSON object", origin);
    }
  });
  check_unique_names(manifest.tensors, origin);
  sort_disjoint(manifest.tensors, origin);
  return manifest;
}

}  // namespace moeflux
