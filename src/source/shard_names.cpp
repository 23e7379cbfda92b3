#include "source/shard_names.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/error.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".safetensors";
constexpr int kMaxShards = 100'000;

// Takes the digits at the end of `text` off it.
std::optional<int> take_number(std::string_view& text) {
  const std::size_t last = text.find_last_not_of("0123456789");
  const std::string_view digits = text.substr(last == text.npos ? 0 : last + 1);
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc() || value > kMaxShards) return std::nullopt;
  text.remove_suffix(digits.size());
  return value;
}

struct NumberedName {
  std::string_view stem;  // "model-"
  std::size_t index_width = 0;
  std::string_view tail;  // "-of-00005.safetensors"
  ShardNumber number;
};

std::optional<NumberedName> split_numbered(std::string_view name) {
  if (!name.ends_with(kSuffix)) return std::nullopt;
  std::string_view rest = name.substr(0, name.size() - kSuffix.size());
  const auto count = take_number(rest);
  constexpr std::string_view kOf = "-of-";
  if (!count || !rest.ends_with(kOf)) return std::nullopt;
  rest.remove_suffix(kOf.size());
  const std::size_t tail = rest.size();
  const auto index = take_number(rest);
  if (!index || *index < 1 || *index > *count) return std::nullopt;
  return NumberedName{rest, tail - rest.size(), name.substr(tail), {*index, *count}};
}

}  // namespace

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

std::optional<ShardNumber> parse_shard_number(std::string_view name) {
  const auto split = split_numbered(name);
  if (!split) return std::nullopt;
  return split->number;
}

std::vector<std::string> list_files(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) names.push_back(it->path().filename().string());
  }
  if (error) fail(Errc::Io, "{}: cannot list the directory: {}", directory, error.message());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> list_model_shards(const std::string& directory) {
  std::vector<std::string> names = list_files(directory);
  std::erase_if(names, [](const std::string& name) {
    return !name.starts_with("model") || !name.ends_with(kSuffix);
  });
  return names;
}

void check_shards_complete(const std::string& directory, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto split = split_numbered(name);
    if (!split) continue;
    for (int i = 1; i <= split->number.count; ++i) {
      const std::string want =
          fmt::format("{}{:0{}}{}", split->stem, i, split->index_width, split->tail);
      if (!std::binary_search(names.begin(), names.end(), want)) {
        fail(Errc::NotFound, "{}: the shard {} is missing; the download is incomplete", directory,
             want);
      }
    }
    return;  // the names agree on the set, or the tensors of the rest collide or are missing
  }
}

}  // namespace moeflux
