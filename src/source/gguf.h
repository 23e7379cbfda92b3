// Reader of GGUF files, in place: one file, or parts named -00001-of-00003. Names and config
// become those of the families (source/gguf_architecture.h); tensors stay where and as they are. A
// file holds everything: sizes, tokenizer, chat template. Every header is read and checked at open;
// no tensor data is.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "source/model_source.h"

namespace moeflux {

bool is_gguf_name(std::string_view name);

// Of the files of a directory those that are models: of a model in parts the first one, and no
// projectors of images ("mmproj-...").
std::vector<std::string> gguf_models(const std::vector<std::string>& names);
// What a model in a file is called: "Qwen3-30B-A3B-Q4_K_M" of
// "Qwen3-30B-A3B-Q4_K_M-00001-of-00002.gguf". Other names stay.
std::string gguf_model_name(std::string_view file_name);

// The one of these models whose name has this tag between other characters than letters and digits:
// in any case, and "Q4_K" is not "Q4_K_M". "" when there is none.
std::string find_gguf_by_tag(const std::vector<std::string>& models, std::string_view tag);

// True when the directory has a file that is a model.
bool holds_gguf(const std::string& directory);

// The only model of a directory. Throws Error naming them where there are several.
std::shared_ptr<const ModelSource> open_gguf_directory(const std::string& directory);

// A file, or any part of a model in parts, which lie beside it.
std::shared_ptr<const ModelSource> open_gguf_file(const std::string& path);

}  // namespace moeflux
