#include "engine/prefix/prefix_store_directory.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <map>
#include <memory>
#include <queue>
#include <system_error>
#include <thread>
#include <tuple>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/system_file.h"
#include "engine/prefix/prefix_store_file.h"
#include "source/checksum.h"

namespace moeflux {
namespace {

constexpr std::string_view kPartSuffix = ".part";

// Calls visit(descriptor of the directory, name) for all entries but "." and "..".
template <class Visit>
void for_each_entry(const std::string& directory, Visit visit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(directory.c_str()), ::closedir);
  if (stream == nullptr) return;
  // Streams are not shared between threads.
  while (const dirent* entry = ::readdir(stream.get())) {  // NOLINT(concurrency-mt-unsafe)
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") visit(::dirfd(stream.get()), name);
  }
}

bool is_leftover(std::string_view name) {
  return name.ends_with(kPartSuffix) &&
         PrefixName::parse(name.substr(0, name.size() - kPartSuffix.size())).has_value();
}

void scan_root(const std::string& directory, std::uint64_t root, PrefixScan& scan) {
  const std::string folder = directory + "/" + checksum_text(root);
  for_each_entry(folder, [&](int fd, std::string_view text) {
    const auto name = PrefixName::parse(text);
    struct stat info {};
    if (is_leftover(text)) {
      scan.leftovers.push_back(folder + "/" + std::string(text));
    } else if (!name) {
      ++scan.n_foreign;
    } else if (::fstatat(fd, std::string(text).c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
      if (!S_ISREG(info.st_mode)) {
        ++scan.n_foreign;
        return;
      }
      const auto bytes = static_cast<std::uint64_t>(info.st_size);
      scan.files.push_back(
          {root, *name, bytes,
           static_cast<std::int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec});
      scan.bytes += bytes;
    }
  });
}

// A block or a state, with the MTP rows that go with it.
struct Node {
  std::vector<const PrefixFile*> files;
  std::int64_t used_ns = 0;
  Node* parent = nullptr;
  int n_children = 0;
  bool usable = false;  // everything before it is there
};

using NodeKey = std::tuple<std::uint64_t, std::int64_t, std::uint64_t, std::uint64_t>;
NodeKey key_of(const PrefixFile& file) {
  return {file.root, file.name.end, file.name.parent, file.name.key};
}

// Nodes by (root, end, parent, key): what continues a node comes after it.
std::map<NodeKey, Node> build_tree(std::span<const PrefixFile> files) {
  std::map<NodeKey, Node> nodes;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Node*> blocks;  // by (root, key)
  for (const PrefixFile& file : files) {
    Node& node = nodes[key_of(file)];
    node.files.push_back(&file);
    node.used_ns = std::max(node.used_ns, file.used_ns);
    if (file.name.part == PrefixPart::Kv) blocks[{file.root, file.name.key}] = &node;
  }
  for (auto& [key, node] : nodes) {
    const auto& [root, end, parent, own] = key;
    const bool has_own = std::any_of(node.files.begin(), node.files.end(), [](const auto* file) {
      return file->name.part != PrefixPart::Mtp;
    });
    if (parent == root) {
      node.usable = has_own;
    } else if (const auto found = blocks.find({root, parent});
               found != blocks.end() && found->second != &node) {
      node.parent = found->second;
      ++node.parent->n_children;
      node.usable = has_own && node.parent->usable;
    }
  }
  return nodes;
}

bool in_use(const std::string& part) {
  const int fd = ::open(part.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return true;
  const bool locked = ::flock(fd, LOCK_EX | LOCK_NB) != 0;
  ::close(fd);
  return locked;
}

bool remove_file(const std::string& path) {
  if (::unlink(path.c_str()) == 0) return true;
  if (errno == ENOENT) return false;  // another process was faster
  fail(Errc::Io, "{}: deleting it failed: {}", path, std::generic_category().message(errno));
}

}  // namespace

std::string PrefixFile::path(const std::string& directory) const {
  return directory + "/" + checksum_text(root) + "/" + name.text();
}

PrefixScan scan_prefix_store(const std::string& directory) {
  PrefixScan scan;
  for_each_entry(directory, [&](int, std::string_view name) {
    std::uint64_t root = 0;
    if (parse_checksum(name, root)) {
      scan_root(directory, root, scan);
    } else if (name != "lock" && name != "written" && name != "written.part") {
      ++scan.n_foreign;
    }
  });
  return scan;
}

std::vector<PrefixName> scan_prefix_names(const std::string& directory, std::uint64_t root) {
  std::vector<PrefixName> names;
  for_each_entry(directory + "/" + checksum_text(root), [&](int, std::string_view text) {
    if (const auto name = PrefixName::parse(text)) names.push_back(*name);
  });
  return names;
}

std::vector<const PrefixFile*> choose_victims(std::span<const PrefixFile> files,
                                              std::uint64_t bytes) {
  std::map<NodeKey, Node> nodes = build_tree(files);
  struct Later {  // of two leaves, the one to keep
    bool operator()(const Node* a, const Node* b) const {
      return std::pair(a->usable, a->used_ns) > std::pair(b->usable, b->used_ns);
    }
  };
  std::priority_queue<Node*, std::vector<Node*>, Later> leaves;
  for (auto& [key, node] : nodes) {
    if (node.n_children == 0 && node.used_ns != kInUse) leaves.push(&node);
  }
  std::vector<const PrefixFile*> victims;
  for (std::uint64_t freed = 0; freed < bytes && !leaves.empty();) {
    Node* const node = leaves.top();
    leaves.pop();
    for (const PrefixFile* file : node->files) {
      victims.push_back(file);
      freed += file->bytes;
    }
    Node* const parent = node->parent;
    if (parent != nullptr && --parent->n_children == 0 && parent->used_ns != kInUse)
      leaves.push(parent);
  }
  return victims;
}

void remove_leftovers(std::span<const std::string> paths, std::int64_t min_age_seconds) {
  for (const std::string& path : paths) {
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) continue;
    if (std::time(nullptr) - info.st_mtim.tv_sec < min_age_seconds) continue;
    if (!in_use(path)) ::unlink(path.c_str());
  }
}

std::optional<PrefixStoreLock> PrefixStoreLock::take(const std::string& directory, int timeout_ms) {
  const std::string path = directory + "/lock";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0)
    fail(Errc::Io, "{}: opening it failed: {}", path, std::generic_category().message(errno));
  PrefixStoreLock lock(fd);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) break;  // a filesystem without locks grants all
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return lock;
}

PrefixStoreLock::~PrefixStoreLock() {
  if (fd_ >= 0) ::close(fd_);
}

std::uint64_t bytes_written_on(const std::string& directory, std::int64_t day) {
  const auto text = read_system_file(directory + "/written", 64);
  if (!text) return 0;
  const auto words = split_words(*text);
  if (words.size() != 2) return 0;
  const auto of_day = parse_number(words[0]);
  const auto bytes = parse_number(words[1]);
  return of_day && bytes && *of_day == static_cast<std::uint64_t>(day) ? *bytes : 0;
}

void set_bytes_written(const std::string& directory, std::int64_t day, std::uint64_t bytes) {
  AtomicFile file(directory + "/written", FileAccess::Private);
  file.write(fmt::format("{} {}\n", day, bytes));
  file.commit();
}

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
      if (error.code() == Errc::NotFound) continue;  // evicted meanwhile
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
