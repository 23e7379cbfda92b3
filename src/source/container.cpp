#include "source/container.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "source/checkpoint_files.h"
#include "source/checksum.h"
#include "source/container_manifest.h"
#include "source/model_source.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kMaxManifestBytes = 100'000'000;

std::string path_in(const std::string& directory, std::string_view name) {
  return fmt::format("{}/{}", directory, name);
}

SourceFile open_data(const std::string& directory, const ContainerFile& file) {
  if (!file.stripes.empty()) {
    std::uint64_t record_bytes = 0;
    for (const ContainerStripe& stripe : file.stripes) record_bytes += stripe.bytes_per_record;
    std::vector<SourceFile::Stripe> stripes;
    for (const ContainerStripe& stripe : file.stripes) {
      stripes.push_back({File(stripe_path(directory, stripe, file.name)), stripe.bytes_per_record});
    }
    return SourceFile(path_in(directory, file.name), file.bytes / record_bytes, std::move(stripes));
  }
  File plain(path_in(directory, file.name));
  if (plain.size() != file.bytes) {
    fail(Errc::BadInput,
         "{}: has {} bytes, but the manifest says {}; it is truncated or belongs to another "
         "container",
         plain.path(), plain.size(), file.bytes);
  }
  return plain;
}

void add_tensors(ModelSource& source, const ContainerManifest& manifest,
                 std::vector<Record>& records) {
  for (const ContainerTensor& t : manifest.tensors) {
    source.add_tensor(t.name, {.dtype = t.dtype,
                               .blocks = t.blocks,
                               .shape = t.shape,
                               .file = t.file,
                               .offset = t.offset,
                               .bytes = t.bytes});
    if (t.bytes > 0) records.push_back({{t.file, t.offset, t.bytes}, t.checksum, t.name});
  }
}

// "model.layers.3.mlp.switch_mlp.gate_proj.weight" -> "model.layers.3.mlp.switch_mlp"
std::string module_of(const std::string& plane) {
  const std::size_t last = plane.rfind('.');
  const std::size_t before =
      last == std::string::npos || last == 0 ? last : plane.rfind('.', last - 1);
  return before == std::string::npos ? plane : plane.substr(0, before);
}

void add_bank(ModelSource& source, const ContainerBank& bank,
              std::span<const std::uint64_t> checksums, std::vector<Record>& records) {
  const auto n = static_cast<std::uint64_t>(bank.n_experts);
  for (const ContainerPlane& plane : bank.planes) {
    TensorInfo tensor{.dtype = plane.dtype,
                      .blocks = plane.blocks,
                      .shape = plane.shape,
                      .file = bank.file,
                      .offset = plane.offset,
                      .bytes = plane.bytes * n,
                      .slice_stride = bank.record_bytes,
                      .is_interleaved = plane.is_interleaved};
    tensor.shape.insert(tensor.shape.begin(), bank.n_experts);
    source.add_tensor(plane.tensor, std::move(tensor));
  }
  const std::string module = module_of(bank.planes.front().tensor);
  for (std::uint64_t e = 0; e < n; ++e) {
    records.push_back({{bank.file, e * bank.record_bytes, bank.record_bytes},
                       checksums[bank.first_checksum + e],
                       fmt::format("{} expert {}", module, e)});
  }
}

ModelSource::Layout read_conventions(const ContainerManifest& manifest, const std::string& origin) {
  const auto layout = parse_layout(manifest.source_layout);
  if (!layout || *layout == ModelSource::Layout::Container) {
    fail(Errc::BadInput, "{}: \"layout\" is \"{}\", which is no layout of a checkpoint", origin,
         manifest.source_layout.substr(0, 80));
  }
  return *layout;
}

}  // namespace

bool holds_container(const std::string& directory) {
  return file_exists(path_in(directory, kManifestFile));
}

bool holds_unfinished_container(const std::string& directory) {
  return !holds_container(directory) && file_exists(path_in(directory, kProgressFile));
}

std::string stripe_path(const std::string& container, const ContainerStripe& stripe,
                        const std::string& name) {
  return (std::filesystem::path(container) / stripe.directory / name).string();
}

std::shared_ptr<const ModelSource> open_container(const std::string& directory) {
  const std::string path = path_in(directory, kManifestFile);
  return open_container(directory, parse_manifest(read_text_file(path, kMaxManifestBytes), path));
}

std::shared_ptr<const ModelSource> open_container(const std::string& directory,
                                                  const ContainerManifest& manifest) {
  const std::string origin = path_in(directory, kManifestFile);
  auto source = std::make_shared<ModelSource>(directory, ModelSource::Layout::Container);
  source->set_conventions(read_conventions(manifest, origin + ": source"));
  const std::string config = path_in(directory, "config.json");
  source->set_config(read_config(config), config);
  source->set_generation_config(read_generation_config({directory}));
  source->set_text(find_text_assets({directory}));

  const std::vector<std::uint64_t> checksums =
      read_checksums(path_in(directory, kChecksumsFile), manifest.n_records());
  if (container_fingerprint(manifest, checksums) != manifest.fingerprint) {
    fail(Errc::BadInput,
         "{}: the fingerprint does not fit the tensors and {}; one of the two is damaged", origin,
         kChecksumsFile);
  }
  source->set_fingerprint(manifest.fingerprint);

  for (const ContainerFile& file : manifest.files) source->add_file(open_data(directory, file));
  std::vector<Record> records;
  add_tensors(*source, manifest, records);
  for (const ContainerBank& bank : manifest.banks) add_bank(*source, bank, checksums, records);
  source->set_records(std::move(records));
  std::vector<TextRecord> texts;
  for (const ContainerText& text : manifest.texts) {
    texts.push_back({text.name, path_in(directory, text.name), text.bytes, text.checksum});
  }
  source->set_text_records(std::move(texts));
  return source;
}

}  // namespace moeflux
