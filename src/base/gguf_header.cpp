#include "base/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"

namespace moeflux {

static_assert(std::endian::native == std::endian::little);

enum class GgufHeader::Type : std::uint32_t {
  U8,
  I8,
  U16,
  I16,
  U32,
  I32,
  F32,
  Bool,
  String,
  List,
  U64,
  I64,
  F64,
};

namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint64_t kMaxHeaderBytes = 512u << 20;
constexpr std::uint64_t kMaxValues = 1u << 16, kMaxTensors = 1u << 17;
constexpr std::uint64_t kMaxNameBytes = 1024;
constexpr std::uint64_t kMaxDimensions = 4;
constexpr std::uint64_t kDefaultAlignment = 32, kMaxAlignment = 1u << 30;
constexpr std::string_view kAlignmentKey = "general.alignment";

// Of a number or a boolean; 0 for the others.
std::uint64_t element_bytes(std::uint32_t type) {
  constexpr std::uint64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}

template <class T>
T load(std::string_view bytes, std::uint64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

}  // namespace

// Reads forward through the header, a window of the file at a time.
class GgufHeader::Cursor {
 public:
  explicit Cursor(const File& file)
      : file_(file), end_(std::min<std::uint64_t>(file.size(), kMaxHeaderBytes)) {}

  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return end_ - at_; }

  // Valid until the next call.
  std::string_view take(std::uint64_t n, std::string_view what) {
    need(n, what);
    if (at_ < begin_ || at_ + n > begin_ + window_.size()) {
      begin_ = at_;
      window_.resize(std::min(std::max(n, kWindow), end_ - at_));
      file_.read(begin_, std::as_writable_bytes(std::span(window_)));
    }
    const auto bytes = std::string_view(window_).substr(at_ - begin_, n);
    at_ += n;
    return bytes;
  }
  void skip(std::uint64_t n, std::string_view what) {
    need(n, what);
    at_ += n;
  }
  template <class T>
  T read(std::string_view what) {
    return load<T>(take(sizeof(T), what), 0);
  }
  // A length, then as many bytes.
  std::string name(std::string_view what) {
    const auto length = read<std::uint64_t>(what);
    if (length > kMaxNameBytes) {
      fail(Errc::BadInput, "{}: {} before byte {} claims {} bytes, more than {}; it is damaged",
           file_.path(), what, at_, length, kMaxNameBytes);
    }
    std::string text(take(length, what));
    if (find_invalid_utf8(text) != std::string::npos)
      fail(Errc::BadInput, "{}: {} before byte {} is not UTF-8", file_.path(), what, at_);
    return text;
  }
  // Goes over the elements of a value, of which every byte is there.
  void skip_elements(std::uint32_t type, std::uint64_t count, std::string_view what) {
    const std::uint64_t each = element_bytes(type);
    if (each > 0) {
      if (count > left() / each) too_short(what);
      skip(count * each, what);
      return;
    }
    for (std::uint64_t i = 0; i < count; ++i) skip(read<std::uint64_t>(what), what);
  }
  [[noreturn]] void too_short(std::string_view what) const {
    if (end_ < file_.size()) {
      fail(Errc::LimitExceeded, "{}: the header goes on behind byte {} ({}), which is too long",
           file_.path(), end_, what);
    }
    fail(Errc::BadInput,
         "{}: the file ends at byte {}, inside of its header ({}); it is truncated or damaged, "
         "fetch it again",
         file_.path(), end_, what);
  }

 private:
  static constexpr std::uint64_t kWindow = 256u << 10;

  void need(std::uint64_t n, std::string_view what) const {
    if (n > left()) too_short(what);
  }

  const File& file_;
  std::uint64_t end_, at_ = 0, begin_ = 0;
  std::string window_;
};

GgufHeader::GgufHeader(const std::string& path) : file_(path) {
  Cursor in(file_);
  const std::string magic(in.take(std::min<std::uint64_t>(kMagic.size(), in.left()), "the magic"));
  if (magic == "vers") {
    fail(Errc::BadInput,
         "{}: this is a Git LFS pointer, not the file it stands for; run `git lfs pull`", path);
  }
  if (magic != kMagic) fail(Errc::BadInput, "{}: is no GGUF file: it does not begin so", path);
  version_ = in.read<std::uint32_t>("its version");
  if (version_ != 2 && version_ != 3) {
    fail(Errc::Unsupported, "{}: version {} of GGUF is not supported{} (supported: 2, 3)", path,
         version_, version_ > 0xFFFF ? ", perhaps the file is big-endian" : "");
  }
  const auto n_tensors = in.read<std::uint64_t>("its counts");
  const auto n_values = in.read<std::uint64_t>("its counts");
  if (n_tensors > kMaxTensors || n_values > kMaxValues) {
    fail(Errc::BadInput,
         "{}: claims {} tensors and {} keys; at most {} and {} are read, it may be damaged", path,
         n_tensors, n_values, kMaxTensors, kMaxValues);
  }
  read_values(in, n_values);
  read_tensors(in, n_tensors);
  find_data(in.at());
}

void GgufHeader::read_values(Cursor& in, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    Value value{};
    value.entry = in.at();
    const std::string key = in.name("a key");
    auto type = in.read<std::uint32_t>(key);
    value.is_list = type == static_cast<std::uint32_t>(Type::List);
    if (value.is_list) {
      type = in.read<std::uint32_t>(key);
      value.count = in.read<std::uint64_t>(key);
    }
    if (type > static_cast<std::uint32_t>(Type::F64) ||
        type == static_cast<std::uint32_t>(Type::List)) {
      fail(Errc::Unsupported, "{}: key \"{}\" has a value of type {}{}, which is not known", path(),
           key, value.is_list ? "list of " : "", type);
    }
    value.type = static_cast<Type>(type);
    value.begin = in.at();
    in.skip_elements(type, value.count, key);
    value.end = in.at();
    if (!values_.emplace(key, value).second)
      fail(Errc::BadInput, "{}: the key \"{}\" is there twice", path(), key);
  }
}

void GgufHeader::read_tensors(Cursor& in, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    GgufTensor tensor;
    tensor.name = in.name("the name of a tensor");
    const auto n_dimensions = in.read<std::uint32_t>(tensor.name);
    if (n_dimensions > kMaxDimensions) {
      fail(Errc::BadInput, "{}: tensor \"{}\" has {} dimensions, more than {}; it is damaged",
           path(), tensor.name, n_dimensions, kMaxDimensions);
    }
    for (std::uint32_t d = 0; d < n_dimensions; ++d)
      tensor.shape.push_back(in.read<std::int64_t>(tensor.name));
    std::reverse(tensor.shape.begin(), tensor.shape.end());
    tensor.type = in.read<std::uint32_t>(tensor.name);
    tensor.offset = in.read<std::uint64_t>(tensor.name);
    tensors_.push_back(std::move(tensor));
  }
}

void GgufHeader::find_data(std::uint64_t header_end) {
  const std::int64_t alignment = integer_or(kAlignmentKey, kDefaultAlignment, 1, kMaxAlignment);
  alignment_ = static_cast<std::uint64_t>(alignment);
  if (!std::has_single_bit(alignment_)) {
    fail(Errc::BadInput, "{}: \"{}\" is {}, but must be a power of two", path(), kAlignmentKey,
         alignment);
  }
  data_begin_ = (header_end + alignment_ - 1) / alignment_ * alignment_;
  for (const GgufTensor& tensor : tensors_) {
    std::uint64_t begin = 0;
    if (tensor.offset % alignment_ != 0 ||
        __builtin_add_overflow(data_begin_, tensor.offset, &begin)) {
      fail(Errc::BadInput,
           "{}: tensor \"{}\" begins {} bytes into the data, which is no multiple of {}; it is "
           "damaged",
           path(), tensor.name, tensor.offset, alignment_);
    }
  }
}

// ---- values
// -------------------------------------------------------------------------------------------------

std::vector<std::string> GgufHeader::keys() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : values_) names.push_back(key);
  return names;
}

const GgufHeader::Value* GgufHeader::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

const GgufHeader::Value& GgufHeader::need(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) fail(Errc::BadInput, "{}: the key \"{}\" is missing", path(), key);
  return *value;
}

std::string GgufHeader::bytes_of(const Value& value) const {
  std::string bytes(value.end - value.begin, '\0');
  file_.read(value.begin, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

void GgufHeader::wrong_kind(std::string_view key, std::string_view wanted) const {
  fail(Errc::BadInput, "{}: the value of \"{}\" is not {}", path(), key, wanted);
}

std::uint64_t GgufHeader::count(std::string_view key) const {
  return need(key).count;
}

bool GgufHeader::is_list(std::string_view key) const {
  return need(key).is_list;
}

std::string GgufHeader::raw(std::string_view key) const {
  Value whole = need(key);
  whole.begin = whole.entry;
  return bytes_of(whole);
}

std::vector<std::int64_t> GgufHeader::integers(std::string_view key) const {
  const Value& value = need(key);
  const std::string bytes = bytes_of(value);
  std::vector<std::int64_t> numbers;
  for (std::uint64_t i = 0; i < value.count; ++i) {
    switch (value.type) {
      case Type::U8:
      case Type::Bool:
        numbers.push_back(load<std::uint8_t>(bytes, i));
        break;
      case Type::I8:
        numbers.push_back(load<std::int8_t>(bytes, i));
        break;
      case Type::U16:
        numbers.push_back(load<std::uint16_t>(bytes, i));
        break;
      case Type::I16:
        numbers.push_back(load<std::int16_t>(bytes, i));
        break;
      case Type::U32:
        numbers.push_back(load<std::uint32_t>(bytes, i));
        break;
      case Type::I32:
        numbers.push_back(load<std::int32_t>(bytes, i));
        break;
      case Type::I64:
        numbers.push_back(load<std::int64_t>(bytes, i));
        break;
      case Type::U64: {
        constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
        numbers.push_back(static_cast<std::int64_t>(std::min(load<std::uint64_t>(bytes, i), kMax)));
        break;
      }
      default:
        wrong_kind(key, "an integer");
    }
  }
  return numbers;
}

std::vector<float> GgufHeader::numbers(std::string_view key) const {
  const Value& value = need(key);
  if (value.type != Type::F32 && value.type != Type::F64) {
    const std::vector<std::int64_t> whole = integers(key);
    return {whole.begin(), whole.end()};
  }
  const std::string bytes = bytes_of(value);
  std::vector<float> out;
  for (std::uint64_t i = 0; i < value.count; ++i) {
    out.push_back(value.type == Type::F32 ? load<float>(bytes, i)
                                          : static_cast<float>(load<double>(bytes, i)));
  }
  return out;
}

std::vector<std::string> GgufHeader::strings(std::string_view key) const {
  const Value& value = need(key);
  if (value.type != Type::String) wrong_kind(key, "a text");
  const std::string bytes = bytes_of(value);
  std::vector<std::string> texts;
  std::string_view rest = bytes;  // lengths were checked when the header was read
  for (std::uint64_t i = 0; i < value.count; ++i) {
    MOEFLUX_ASSERT(rest.size() >= sizeof(std::uint64_t));
    const auto length = load<std::uint64_t>(rest, 0);
    rest.remove_prefix(sizeof length);
    MOEFLUX_ASSERT(length <= rest.size());
    texts.emplace_back(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  return texts;
}

std::int64_t GgufHeader::integer(std::string_view key, std::int64_t min, std::int64_t max) const {
  if (need(key).is_list || need(key).type == Type::Bool) wrong_kind(key, "an integer");
  const std::int64_t value = integers(key).front();
  if (value < min || value > max) {
    fail(Errc::BadInput, "{}: \"{}\" is {}, outside of {} to {}", path(), key, value, min, max);
  }
  return value;
}

std::int64_t GgufHeader::integer_or(std::string_view key, std::int64_t fallback, std::int64_t min,
                                    std::int64_t max) const {
  return has(key) ? integer(key, min, max) : fallback;
}

double GgufHeader::number(std::string_view key) const {
  const Value& value = need(key);
  if (value.is_list || value.type == Type::String || value.type == Type::Bool)
    wrong_kind(key, "a number");
  const double number =
      value.type == Type::F64 ? load<double>(bytes_of(value), 0) : double{numbers(key).front()};
  if (!std::isfinite(number)) wrong_kind(key, "a finite number");
  return number;
}

double GgufHeader::number_or(std::string_view key, double fallback) const {
  return has(key) ? number(key) : fallback;
}

bool GgufHeader::boolean_or(std::string_view key, bool fallback) const {
  const Value* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_list || value->type != Type::Bool) wrong_kind(key, "true or false");
  return integers(key).front() != 0;
}

std::string GgufHeader::string(std::string_view key) const {
  if (need(key).is_list) wrong_kind(key, "a text");
  return std::move(strings(key).front());
}

std::string GgufHeader::string_or(std::string_view key, std::string fallback) const {
  return has(key) ? string(key) : std::move(fallback);
}

}  // namespace moeflux
