// Writes the flash-moe directory (see source/flash_moe.h) of a model that is open in MLX form, the
// way the original extractors do: names lose "language_model.", BF16 A_log becomes F32, the MTP
// head and the vision tower are left out, routed experts go into packed layer files.
#pragma once

#include <string>

#include "source/model_source.h"

namespace moeflux::test {

struct FlashMoeOptions {
  enum class Tree { OneDirectory, ParentOfThree };  // ParentOfThree: {mlx,artifacts,root}
  Tree tree = Tree::OneDirectory;
  int expert_bits = 4;      // 4: the source's own codes; 2: requantized, lossy
  bool layout_json = true;  // beside the layer files
  bool config_json = true;  // copied from the source; else only the manifest describes the model
};

void write_flash_moe(const ModelSource& source, const std::string& directory,
                     const FlashMoeOptions& options = {});

}  // namespace moeflux::test
