// The files that a checkpoint consists of: names of its shards, config.json,
// generation_config.json, tokenizer and chat template. A config that asks for a way of storing
// weights that this engine does not read is refused here, by its name, before any tensor is looked
// at.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "source/model_source.h"

namespace moeflux {

// A name that stays inside its directory: no separators, not "." or "..".
bool is_plain_file_name(std::string_view name);

// "model-00002-of-00005.safetensors" is shard 2 of 5, and so with ".gguf".
struct ShardNumber {
  int index = 0;
  int count = 0;
};
std::optional<ShardNumber> parse_shard_number(std::string_view name);
// The names of all shards of the set that `name` is one of, itself included; of another name
// itself.
std::vector<std::string> shard_set(const std::string& name);

// The sorted names of a directory's regular files; throws Error when it cannot be read.
std::vector<std::string> list_files(const std::string& directory);

// Those of the form model*.safetensors.
std::vector<std::string> list_model_shards(const std::string& directory);

// Throws Error naming the first shard that the numbers in the names say must exist and does not.
void check_shards_complete(const std::string& directory, const std::vector<std::string>& names);

// A JSON object whose quantization can be read, with the settings of a hf_quant_config.json beside
// it. Throws Error when the file is missing.
Json read_config(const std::string& path);

// From the first directory that has one; {} when none has.
Json read_generation_config(const std::vector<std::string>& directories);

// The object that holds the sizes of the text model: config["text_config"] of a multimodal
// checkpoint, else the config itself.
const Json& text_config(const Json& config);

// The tokenizer files and the chat template. Each file is taken from the first of the directories
// that has it. A template that is there but cannot be one (not text, not a string or a list of
// named strings) is an Error.
TextAssets find_text_assets(const std::vector<std::string>& directories);

}  // namespace moeflux
