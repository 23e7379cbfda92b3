#include "convert/container_spec.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "source/container.h"

namespace moeflux {
namespace {

void add_dense(const ContainerSpec& spec, ContainerManifest& manifest) {
  std::uint64_t end = 0;
  for (const ContainerSpec::Tensor& tensor : spec.tensors) {
    const std::uint64_t bytes =
        tensor_bytes(tensor.dtype, tensor.blocks, tensor.shape, tensor.name);
    manifest.tensors.push_back({.name = tensor.name,
                                .dtype = tensor.dtype,
                                .blocks = tensor.blocks,
                                .shape = tensor.shape,
                                .file = 0,
                                .offset = end,
                                .bytes = bytes});
    end = round_up_to(end + bytes, kRecordAlignment);
  }
  manifest.files.push_back({.name = "dense.bin", .bytes = end, .stripes = {}});
}

std::vector<ContainerStripe> stripes_of(std::uint64_t record_bytes,
                                        const std::vector<StripeShare>& shares) {
  std::vector<ContainerStripe> stripes;
  if (shares.empty()) return stripes;
  const std::vector<std::uint64_t> parts = divide(record_bytes, kRecordAlignment, shares);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] > 0) stripes.push_back({shares[i].directory, parts[i]});
  }
  return stripes;
}

void add_bank(const ContainerSpec& spec, std::size_t index, ContainerManifest& manifest) {
  const ContainerSpec::Bank& wanted = spec.banks[index];
  ContainerBank bank{.file = static_cast<int>(manifest.files.size()),
                     .n_experts = wanted.n_experts,
                     .record_bytes = 0,
                     .first_checksum = manifest.n_records(),
                     .planes = {}};
  std::uint64_t end = 0;
  for (const ContainerSpec::Tensor& plane : wanted.planes) {
    const std::uint64_t bytes = tensor_bytes(plane.dtype, plane.blocks, plane.shape, plane.name);
    bank.planes.push_back(
        {plane.name, plane.dtype, plane.shape, end, bytes, plane.is_interleaved, plane.blocks});
    end = round_up_to(end + bytes, kPlaneAlignment);
  }
  bank.record_bytes = round_up_to(end, kRecordAlignment);
  manifest.files.push_back({.name = fmt::format("experts-{:03}.bin", index),
                            .bytes = bank.record_bytes * static_cast<std::uint64_t>(bank.n_experts),
                            .stripes = stripes_of(bank.record_bytes, spec.stripes)});
  manifest.banks.push_back(std::move(bank));
}

}  // namespace

ContainerManifest lay_out(const ContainerSpec& spec) {
  ContainerManifest manifest;
  manifest.source_layout = spec.source_layout;
  manifest.converted_by = spec.converted_by;
  add_dense(spec, manifest);
  for (std::size_t i = 0; i < spec.banks.size(); ++i) add_bank(spec, i, manifest);
  return manifest;
}

std::vector<std::uint64_t> divide(std::uint64_t bytes, std::uint64_t unit,
                                  const std::vector<StripeShare>& shares) {
  MOEFLUX_ASSERT(bytes % unit == 0 && !shares.empty());
  double total = 0;
  for (const StripeShare& share : shares) total += share.weight;
  MOEFLUX_ASSERT(total > 0 && std::isfinite(total));
  // Cut at the rounded prefix sums: the parts add up, and each is within one unit of its due.
  const double units = static_cast<double>(bytes / unit);
  std::vector<std::uint64_t> parts;
  double prefix = 0;
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    prefix += shares[i].weight;
    const bool last = i + 1 == shares.size();
    const auto end =
        last ? bytes / unit
             : std::min(bytes / unit,
                        static_cast<std::uint64_t>(std::llround(units * prefix / total)));
    parts.push_back((end - before) * unit);
    before = end;
  }
  return parts;
}

std::vector<DataFile> data_files(const ContainerManifest& manifest, std::size_t index,
                                 const std::string& directory) {
  const ContainerFile& file = manifest.files[index];
  if (file.stripes.empty()) return {{directory + "/" + file.name, file.bytes}};
  std::uint64_t record_bytes = 0;
  for (const ContainerStripe& stripe : file.stripes) record_bytes += stripe.bytes_per_record;
  std::vector<DataFile> files;
  for (const ContainerStripe& stripe : file.stripes) {
    files.push_back({stripe_path(directory, stripe, file.name),
                     file.bytes / record_bytes * stripe.bytes_per_record});
  }
  return files;
}

}  // namespace moeflux
