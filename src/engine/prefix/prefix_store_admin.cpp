#include "engine/prefix/prefix_store_admin.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <map>
#include <system_error>

#include <unistd.h>

#include "base/error.h"
#include "engine/prefix/prefix_store_file.h"
#include "engine/prefix/prefix_store_ledger.h"
#include "source/checksum.h"

namespace moeflux {
namespace {

bool remove_file(const std::string& path) {
  if (::unlink(path.c_str()) == 0) return true;
  if (errno == ENOENT) return false;  // another process was faster
  fail(Errc::Io, "{}: deleting it failed: {}", path, std::generic_category().message(errno));
}

}  // namespace

PrefixStoreSummary summarize_prefix_store(const std::string& directory) {
  const PrefixScan scan = scan_prefix_store(directory);
  std::map<std::uint64_t, PrefixStoreModel> models;
  for (const PrefixFile& file : scan.files) {
    PrefixStoreModel& model = models[file.root];
    model.root = file.root;
    if (model.identity.empty()) model.identity = peek_prefix_identity(file.path(directory));
    model.n_states += file.name.part == PrefixPart::State ? 1 : 0;
    model.n_blocks += file.name.part == PrefixPart::Kv ? 1 : 0;
    model.bytes += file.bytes;
    model.longest = std::max(model.longest, file.name.end);
    model.used_ns = std::max(model.used_ns, file.used_ns);
  }
  PrefixStoreSummary summary;
  for (auto& [root, model] : models) summary.models.push_back(std::move(model));
  std::sort(summary.models.begin(), summary.models.end(),
            [](const auto& a, const auto& b) { return a.used_ns > b.used_ns; });
  summary.bytes = scan.bytes;
  summary.n_files = scan.files.size();
  summary.n_leftovers = scan.leftovers.size();
  summary.n_foreign = scan.n_foreign;
  summary.written_today = bytes_written_on(directory, std::time(nullptr) / kSecondsPerDay);
  return summary;
}

PrefixStoreCheck verify_prefix_store(const std::string& directory) {
  PrefixStoreCheck check;
  for (const PrefixFile& file : scan_prefix_store(directory).files) {
    const std::string path = file.path(directory);
    try {
      check_prefix_file(path);
      ++check.n_files;
      check.bytes += file.bytes;
    } catch (const Error& error) {
      if (error.code() == Errc::NotFound) continue;  // given up meanwhile
      const bool removed = error.code() == Errc::BadInput && remove_file(path);
      check.damaged.push_back(fmt::format("{}{}", error.what(), removed ? "; removed" : ""));
    }
  }
  return check;
}

std::uint64_t clear_prefix_store(const std::string& directory) {
  const PrefixScan scan = scan_prefix_store(directory);
  std::uint64_t n_removed = 0;
  for (const PrefixFile& file : scan.files) n_removed += remove_file(file.path(directory)) ? 1 : 0;
  remove_leftovers(scan.leftovers, 0);
  for (const PrefixFile& file : scan.files) {
    // Stays where somebody else keeps something in it.
    ::rmdir((directory + "/" + checksum_text(file.root)).c_str());
  }
  return n_removed;
}

}  // namespace moeflux
