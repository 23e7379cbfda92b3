#include "cli/commands/plan_sources.h"

#include <cstdlib>
#include <filesystem>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/file.h"
#include "cli/options/environment.h"
#include "cli/options/hub_options.h"
#include "cli/options/model_names.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "convert/synth/synth.h"
#include "hub/model_headers.h"
#include "source/hub_cache.h"

namespace moeflux::cli {

namespace fs = std::filesystem;

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    path_ = environment_value("TMPDIR").value_or("/tmp") + "/moeflux-plan-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr)
      fail(Errc::Io, "{}: cannot be made; TMPDIR names another place for temporary files", path_);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

namespace {

// Or the nearest directory above it that there is.
std::string existing(const std::string& directory) {
  fs::path path = fs::absolute(directory);
  while (!directory_exists(path.string()) && path.has_relative_path()) path = path.parent_path();
  return path.string();
}

}  // namespace

PlannedModel shape_to_plan(const std::string& shape, const ModelOptions& options) {
  PlannedModel planned{.path = {}, .name = shape, .on_drive = false, .drive = {}};
  planned.drive = existing(options.models.value_or(hub_cache()));
  planned.directory = std::make_shared<TemporaryDirectory>();
  planned.path = planned.directory->path();
  try {
    write_synth_outline(synth_shape(shape, {}), planned.path);
  } catch (const Error& error) {
    if (error.code() != Errc::NotFound) throw;
    throw UsageError(fmt::format("--like: {}", error.what()));
  }
  return planned;
}

std::optional<PlannedModel> hub_model_to_plan(const std::string& word,
                                              const GeneralOptions& general) {
  const bool is_address = word.find("://") != std::string::npos;
  if (!is_address &&
      (begins_like_path(word) || !is_hub_path(word.substr(0, word.find_first_of("@:")))))
    return std::nullopt;
  PullOptions options;
  options.client.settings = hub_settings();
  options.client.cancelled = [] { return interrupted(); };
  options.client.note = [&](const std::string& text) { general.note(safe_line(text)); };
  if (is_foreign_address(word, options.client.settings)) return std::nullopt;
  const HubReference reference = parse_hub_reference(word, options.client.settings);
  PlannedModel planned{.path = {}, .name = word, .on_drive = false, .drive = {}};
  planned.drive = existing(options.client.settings.cache);
  planned.directory = std::make_shared<TemporaryDirectory>();
  const InterruptGuard guard;
  general.detail(fmt::format("{} is not on this machine: its headers are fetched", word));
  planned.path = fetch_headers(reference, {}, planned.directory->path(), options);
  return planned;
}

}  // namespace moeflux::cli
