#include "convert/synth/synth.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "convert/synth/synth_files.h"
#include "convert/synth/synth_text.h"
#include "source/container.h"
#include "source/flash_moe.h"
#include "source/safetensors.h"

namespace moeflux {
namespace {

constexpr int kMaxThreads = 8;
constexpr double kMaxSkew = 4;
// Part of a container's identity: another way of making weights must not go on where an older one
// stopped.
constexpr int kGeneratorVersion = 2;

// Files of two layouts in one directory would be read as either.
void refuse_other_layouts(const std::string& directory, SynthFormat format) {
  if (!directory_exists(directory)) return;
  const bool other = (format != SynthFormat::Container && holds_container(directory)) ||
                     (format != SynthFormat::Mlx && holds_safetensors(directory)) ||
                     (format != SynthFormat::FlashMoe && holds_flash_moe(directory));
  if (other) {
    fail(Errc::BadInput, "{}: holds a model of another layout; give another directory", directory);
  }
}

std::string identity_of(const SynthShape& shape, const SynthStatistics& statistics) {
  return checksum_text(checksum(fmt::format(
      "synth {} {} {} {} {} {} {}", kGeneratorVersion, shape.name, dump_json(shape.config),
      shape.mtp, statistics.skew, statistics.locality, statistics.seed)));
}

int thread_count(int wanted) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return wanted > 0 ? wanted : std::clamp(cores, 1, kMaxThreads);
}

}  // namespace

SynthDense::SynthDense(const std::variant<SynthMatrix, SynthVector>& of, SynthPlane plane,
                       std::uint64_t seed)
    : of_(&of),
      plane_(std::move(plane)),
      random_(seed, std::holds_alternative<SynthMatrix>(of) ? std::get<SynthMatrix>(of).module
                                                            : plane_.name) {}

int SynthDense::bits() const {
  const auto* matrix = std::get_if<SynthMatrix>(of_);
  return matrix != nullptr && plane_.part == SynthPlane::Part::Codes ? matrix->bits : 0;
}

void SynthDense::fill(std::uint64_t offset, std::span<std::byte> out) const {
  if (const auto* vector = std::get_if<SynthVector>(of_)) return fill_plane(*vector, offset, out);
  fill_plane(std::get<SynthMatrix>(*of_), plane_, random_, offset, out);
}

std::vector<SynthDense> dense_planes(const SynthPlan& plan, std::uint64_t seed) {
  std::vector<SynthDense> planes;
  for (const auto& tensor : plan.dense) {
    if (const auto* vector = std::get_if<SynthVector>(&tensor)) {
      planes.emplace_back(tensor, plane_of(*vector), seed);
      continue;
    }
    for (SynthPlane& plane : planes_of(std::get<SynthMatrix>(tensor))) {
      planes.emplace_back(tensor, std::move(plane), seed);
    }
  }
  return planes;
}

std::vector<SynthExpertPlane> expert_planes(const SynthBank& bank, std::uint64_t seed) {
  std::vector<SynthExpertPlane> planes;
  for (const SynthMatrix& matrix : bank.matrices) {
    for (SynthPlane& plane : planes_of(matrix)) planes.emplace_back(matrix, std::move(plane), seed);
  }
  return planes;
}

void write_synth_outline(const SynthShape& shape, const std::string& directory) {
  const SynthOptions options;
  SynthPlan plan = plan_synthesis(shape, options.statistics);
  add_token_ids(plan.config);
  write_synth_mlx_outline({.plan = plan,
                           .options = options,
                           .directory = directory,
                           .identity = {},
                           .text = synth_text_files(plan.config),
                           .n_threads = 1});
}

SynthReport synthesize(const SynthShape& shape, const std::string& directory,
                       const SynthOptions& options) {
  const SynthStatistics& statistics = options.statistics;
  if (!(statistics.skew >= 0 && statistics.skew <= kMaxSkew)) {
    fail(Errc::BadInput, "the skew must be from 0 to {}, not {}", kMaxSkew, statistics.skew);
  }
  if (shape.mtp && options.format == SynthFormat::FlashMoe) {
    fail(Errc::BadInput, "{}: the flash-moe layout has no place for an MTP head", directory);
  }
  refuse_other_layouts(directory, options.format);
  SynthPlan plan = plan_synthesis(shape, statistics);
  add_token_ids(plan.config);
  const SynthJob job{.plan = plan,
                     .options = options,
                     .directory = directory,
                     .identity = identity_of(shape, statistics),
                     .text = synth_text_files(plan.config),
                     .n_threads = thread_count(options.n_threads)};
  switch (options.format) {
    case SynthFormat::Container:
      return write_synth_container(job);
    case SynthFormat::Mlx:
      return write_synth_mlx(job);
    case SynthFormat::FlashMoe:
      return write_synth_flash_moe(job);
  }
  MOEFLUX_ASSERT(false);
  return {};
}

}  // namespace moeflux
