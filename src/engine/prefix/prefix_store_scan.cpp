#include "engine/prefix/prefix_store_scan.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <memory>
#include <queue>
#include <tuple>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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

}  // namespace moeflux
