// What a container is to hold, and the layout that follows from it: files, offsets, records and
// stripes (docs/FORMAT.md). Pure arithmetic; the writer fills in checksums.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "source/container_manifest.h"

namespace moeflux {

// A directory that holds part of every record, in proportion to `weight`.
struct StripeShare {
  std::string directory;
  double weight = 0;
};

struct ContainerSpec {
  struct Tensor {
    std::string name;
    DType dtype = DType::F32;
    std::vector<std::int64_t> shape;  // of a plane: of one expert's slice
    bool is_interleaved = false;      // of a plane
    BlockType blocks = BlockType::None;
  };
  struct Bank {
    std::int64_t n_experts = 0;
    std::vector<Tensor> planes;  // in the order they are to have in the record
  };

  std::vector<Tensor> tensors;  // dense ones, in the order they are to have in the file
  std::vector<Bank> banks;
  std::vector<StripeShare> stripes;  // empty: everything in the container's directory
  std::string source_layout;         // whose conventions the tensors follow: "mlx"
  std::string converted_by;
};

// The manifest, all checksums and the fingerprint still open.
ContainerManifest lay_out(const ContainerSpec& spec);

// Divides `bytes`, a multiple of `unit`, in units as near as they come to the weights' proportions.
std::vector<std::uint64_t> divide(std::uint64_t bytes, std::uint64_t unit,
                                  const std::vector<StripeShare>& shares);

// One file on disk that a container consists of.
struct DataFile {
  std::string path;
  std::uint64_t bytes = 0;
};
// Those of file `index` of the manifest: one, or one per stripe.
std::vector<DataFile> data_files(const ContainerManifest& manifest, std::size_t index,
                                 const std::string& directory);

}  // namespace moeflux
