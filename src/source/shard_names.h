// The names of the files a checkpoint consists of.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moeflux {

// A name that stays inside its directory: no separators, not "." or "..".
bool is_plain_file_name(std::string_view name);

// "model-00002-of-00005.safetensors" is shard 2 of 5.
struct ShardNumber {
  int index = 0;
  int count = 0;
};
std::optional<ShardNumber> parse_shard_number(std::string_view name);

// The sorted names of a directory's regular files; throws Error when it cannot be read.
std::vector<std::string> list_files(const std::string& directory);

// Those of the form model*.safetensors.
std::vector<std::string> list_model_shards(const std::string& directory);

// Throws Error naming the first shard that the numbers in the names say must exist and does not.
void check_shards_complete(const std::string& directory, const std::vector<std::string>& names);

}  // namespace moeflux
