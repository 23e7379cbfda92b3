// Reader of our own container (docs/FORMAT.md): dense tensors in one file, one aligned record with
// a checksum for each routed expert, records optionally striped over several drives.
//
// Experts appear as stacked tensors [n_experts, ...] whose slices are interleaved; their records
// and the dense tensors are ModelSource::records(). Opening checks the manifest, the sizes of all
// files and the fingerprint; it reads no weights.
#pragma once

#include <memory>
#include <string>

#include "source/container_manifest.h"
#include "source/model_source.h"

namespace moeflux {

// True when the directory has a manifest, which a conversion writes last.
bool holds_container(const std::string& directory);
// True when a conversion into the directory has begun and not ended.
bool holds_unfinished_container(const std::string& directory);

std::shared_ptr<const ModelSource> open_container(const std::string& directory);

// As if `manifest` were the directory's. For the writer, which tries before it publishes.
std::shared_ptr<const ModelSource> open_container(const std::string& directory,
                                                  const ContainerManifest& manifest);

// Where the stripe's file is.
std::string stripe_path(const std::string& container, const ContainerStripe& stripe,
                        const std::string& name);

}  // namespace moeflux
