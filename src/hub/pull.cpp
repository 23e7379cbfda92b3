#include "hub/pull.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/memory_budget.h"
#include "base/text.h"
#include "hub/blob_store.h"
#include "source/checkpoint_files.h"
#include "source/gguf.h"
#include "source/hub_cache.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSpareBytes = 64u << 20;  // that stay free on the drive

std::uint64_t free_of(const PullOptions& options, const std::string& directory) {
  if (options.free) return options.free(directory);
  std::error_code error;
  const fs::space_info space = fs::space(directory, error);
  return error ? UINT64_MAX : space.available;
}

void check_room(std::uint64_t needed, const std::string& directory, const PullOptions& options) {
  if (needed == 0) return;
  const std::uint64_t has = free_of(options, directory);
  if (has >= kSpareBytes && has - kSpareBytes >= needed) return;
  fail(Errc::Io,
       "{}: {} are to be fetched and {} are free on that drive; make room, keep the "
       "cache on another drive (HF_HUB_CACHE), or fetch less (--include)",
       directory, format_bytes(needed), format_bytes(has));
}

// The parts of a name that go into a folder: for models without a tag nothing, and for GGUF the
// file that a tag means.
HubListing list(HubClient& client, const HubReference& reference) {
  if (client.options().settings.offline) {
    fail(Errc::Unsupported, "HF_HUB_OFFLINE is set: nothing is fetched; unset it to pull {}",
         reference.name);
  }
  return list_repository(client, reference);
}

struct Prepared {
  PullPlan plan;
  HubListing listing;
};

Prepared prepare(const HubReference& reference, FileChoice choice, const PullOptions& options) {
  HubClient client(std::make_shared<HubClientOptions>(options.client), make_tls_context());
  Prepared result{.plan = {}, .listing = list(client, reference)};
  if (choice.tag.empty()) choice.tag = reference.tag;
  if (choice.file.empty()) choice.file = reference.file;
  PullPlan& plan = result.plan;
  plan.name = reference.name;
  plan.revision = reference.revision;
  plan.commit = result.listing.commit;
  plan.files = choose_files(result.listing, choice);
  for (HubFile& file : plan.files) {
    complete_file(client, result.listing, file);
    plan.total_bytes += file.size;
  }
  // Small ones first: what is wrong with a token or a proxy shows at once.
  std::stable_sort(plan.files.begin(), plan.files.end(), [](const HubFile& a, const HubFile& b) {
    return (a.hash == BlobHash::Sha256) < (b.hash == BlobHash::Sha256);
  });
  return result;
}

}  // namespace

PullPlan plan_pull(const HubReference& reference, FileChoice choice, const PullOptions& options) {
  PullPlan plan = prepare(reference, std::move(choice), options).plan;
  const std::string blobs =
      options.client.settings.cache + "/" + hub_folder(reference.name) + "/blobs/";
  for (const HubFile& file : plan.files) {
    std::error_code error;
    if (file_exists(blobs + file.blob) && fs::file_size(blobs + file.blob, error) == file.size)
      plan.present_bytes += file.size;
  }
  return plan;
}

PullReport pull_model(const HubReference& reference, FileChoice choice,
                      const PullOptions& options) {
  const HubSettings& settings = options.client.settings;
  Prepared prepared = prepare(reference, std::move(choice), options);
  PullReport report{.plan = std::move(prepared.plan), .path = {}, .fetched_bytes = 0};
  PullPlan& plan = report.plan;
  const BlobStore store(settings.cache, reference.name);

  std::map<std::string, TransferItem> missing;  // files may have the same bytes
  std::vector<TransferItem> items;
  std::uint64_t needed = 0;
  for (const HubFile& file : plan.files) {
    if (store.has(file)) {
      plan.present_bytes += file.size;
      continue;
    }
    if (missing.contains(file.blob)) continue;
    const Url url = hub_file_url(settings, plan.name, plan.commit, file.path);
    items.push_back(store.item(file, url));
    missing.emplace(file.blob, items.back());
    needed += file.size - store.begun_bytes(file);
  }
  check_room(needed, store.folder(), options);
  if (options.planned) options.planned(plan);
  if (!items.empty()) {
    HubTransfer transfer(std::move(items), options.client, options.transfer);
    transfer.run(options.progress);
    report.fetched_bytes = transfer.fetched_bytes();
  }
  if (options.linking) options.linking();
  report.path = store.link(plan.commit, plan.files);
  store.set_revision(plan.revision, plan.commit);
  return report;
}

PullReport pull_address(const Url& url, const std::string& directory, const std::string& sha256,
                        const PullOptions& options) {
  const std::string path = decode_path(url.target.substr(0, url.target.find('?')));
  const std::string name = path.substr(path.rfind('/') + 1);
  if (!is_plain_file_name(name) || !is_hub_file(name) || !is_gguf_name(name))
    fail(Errc::BadInput, "{}: names no .gguf file; models of several files are pulled as ORG/NAME",
         url.shown());
  HubClient client(std::make_shared<HubClientOptions>(options.client), make_tls_context());
  HubFile file{.path = name, .size = 0, .blob = sha256, .hash = BlobHash::Unknown};
  {
    Patience patience(client.options(), Patience::At::FirstQuestion);
    while (file.size == 0) {
      try {
        const HubClient::Reply reply = client.open("HEAD", url);
        if (!reply.head.length || *reply.head.length == 0)
          fail(Errc::Unsupported, "{}: its server does not say how large it is", url.shown());
        file.size = *reply.head.length;
      } catch (const TryAgain& failure) {
        patience.failed(failure);
      }
    }
  }
  if (!sha256.empty()) file.hash = BlobHash::Sha256;
  PullReport report{.plan = {.name = name,
                             .revision = {},
                             .commit = {},
                             .files = {file},
                             .total_bytes = file.size,
                             .present_bytes = 0},
                    .path = directory + "/" + name,
                    .fetched_bytes = 0};
  if (file_exists(report.path)) {
    std::error_code error;
    const std::uint64_t has = fs::file_size(report.path, error);
    if (has != file.size) {
      fail(Errc::Io, "{}: is there already and has {} bytes, not {}; move it away first",
           report.path, has, file.size);
    }
    report.plan.present_bytes = has;
    return report;
  }
  const std::string part = directory + "/." + name + ".part";
  check_room(file.size - std::min(allocated_bytes(part), file.size), directory, options);
  if (options.planned) options.planned(report.plan);
  HubTransfer transfer({{.label = name,
                         .url = url,
                         .size = file.size,
                         .hash = file.hash,
                         .digest = sha256,
                         .path = report.path,
                         .part = part,
                         .lock = directory + "/." + name + ".lock"}},
                       options.client, options.transfer);
  transfer.run(options.progress);
  report.fetched_bytes = transfer.fetched_bytes();
  std::error_code ignored;
  fs::remove(directory + "/." + name + ".lock", ignored);
  return report;
}

}  // namespace moeflux
