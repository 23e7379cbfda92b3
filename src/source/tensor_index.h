// Parsers of the JSON texts that say where tensors lie: the header of a safetensors file, the index
// of a sharded checkpoint, the manifest of a flash-moe directory. These texts name up to a hundred
// thousand tensors, so they are read in linear time and never become a document tree.
//
// What they check: types, dtypes, ranks, begin <= end, duplicate keys, tensors that overlap.
// What only the file can tell (do the bytes exist?) is checked by ModelSource::add_tensor().
// `origin` names the text in messages.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"

namespace moeflux {

struct ListedTensor {
  std::string name;
  DType dtype = DType::F32;
  std::string unread_dtype = {};  // its name, when it is none of ours; `dtype` then means nothing
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // bytes from the start of the data
  std::uint64_t end = 0;
  int bits = 0;  // manifest: bits of a code in a U32 tensor; 0 for other tensors
};

struct SafetensorsHeader {
  std::vector<ListedTensor> tensors;  // by ascending position in the file
  std::string format;                 // metadata "format": "pt", "mlx", ... or empty
};
SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& origin);

// Tensor name -> name of the shard that holds it.
std::map<std::string, std::string> parse_weight_map(std::string_view json,
                                                    const std::string& origin);

struct FlashMoeManifest {
  std::vector<ListedTensor> tensors;
  Json config = Json::object();
};
FlashMoeManifest parse_flash_moe_manifest(std::string_view json, const std::string& origin);

}  // namespace moeflux
