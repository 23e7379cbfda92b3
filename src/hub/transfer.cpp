#include "hub/transfer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory_budget.h"
#include "base/text.h"
#include "hub/hash.h"

namespace moeflux {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kReadBytes = 256 << 10;
constexpr std::size_t kHashBytes = 1 << 20;
constexpr std::uint64_t kLeastBlock = 1 << 20, kMostBlock = 32 << 20;
constexpr int kMostOpen = 64;  // files at a time
constexpr auto kLockPoll = 200ms, kProgressEvery = 100ms;

// So small that the connections end about together, and so large that asking costs nothing.
std::uint64_t block_bytes_of(std::uint64_t size, const TransferOptions& options) {
  if (options.block_bytes > 0) return options.block_bytes;
  const auto n = static_cast<std::uint64_t>(4 * options.n_connections);
  return std::clamp((size / n + kLeastBlock - 1) / kLeastBlock * kLeastBlock, kLeastBlock,
                    kMostBlock);
}

struct ContentRange {
  std::uint64_t first = 0, last = 0;
  std::optional<std::uint64_t> total;
};

// "bytes 0-99/1000" or "bytes 0-99/*"
std::optional<ContentRange> parse_content_range(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  const std::size_t dash = text.find('-'), slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash)
    return std::nullopt;
  const auto first = to_number<std::uint64_t>(text.substr(0, dash));
  const auto last = to_number<std::uint64_t>(text.substr(dash + 1, slash - dash - 1));
  if (!first || !last || *last < *first) return std::nullopt;
  return ContentRange{*first, *last, to_number<std::uint64_t>(text.substr(slash + 1))};
}

}  // namespace

// The same lock that the hub's own tools take on a file.
class HubTransfer::Lock {
 public:
  explicit Lock(std::string path) : path_(std::move(path)) {}
  ~Lock() { release(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  bool try_take() {
    while (true) {
      const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664);
      if (fd < 0) {
        fail(Errc::Io,
             "{}: cannot be created: {}; the cache must be writable (HF_HUB_CACHE names "
             "another)",
             path_, std::generic_category().message(errno));
      }
      // A file system without locks has none to wait for.
      if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        ::close(fd);
        return false;
      }
      struct stat ours {
      }, named{};
      if (::fstat(fd, &ours) == 0 && ::stat(path_.c_str(), &named) == 0 &&
          ours.st_ino == named.st_ino && ours.st_dev == named.st_dev) {
        fd_ = fd;
        return true;
      }
      ::close(fd);  // it was removed by who held it
    }
  }
  void release() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  std::string path_;
  int fd_ = -1;
};

struct HubTransfer::Item {
  enum class State { Waiting, Open, Whole };

  explicit Item(TransferItem what) : item(std::move(what)), lock(item.lock) {}

  const TransferItem item;
  Lock lock;
  State state = State::Waiting;
  std::shared_ptr<PartFile> part;
  std::vector<bool> claimed;
  std::size_t first_unclaimed = 0;
  std::uint64_t resumed = 0;       // bytes of an earlier process
  std::optional<Url> direct;       // where the redirect of this file led
  bool whole_only = false;         // its server sends no ranges
  bool has_reader_of_all = false;  // of such a one
  std::atomic<std::uint64_t> checked = 0;
};

HubTransfer::HubTransfer(std::vector<TransferItem> items, const HubClientOptions& client,
                         const TransferOptions& options)
    : client_options_(client), options_(options) {
  client_options_.cancelled = [this, outer = client.cancelled] {
    return stopped_ || (outer && outer());
  };
  client_options_.note = [this, outer = client.note](const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (outer) outer(text);
  };
  shared_options_ = std::make_shared<HubClientOptions>(client_options_);
  for (TransferItem& each : items) items_.push_back(std::make_unique<Item>(std::move(each)));
}

HubTransfer::~HubTransfer() = default;

void HubTransfer::failed(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  stopped_ = true;
  changed_.notify_all();
}

TransferState HubTransfer::state() {
  const std::lock_guard lock(mutex_);
  TransferState now;
  now.fetched = fetched_;
  now.waiting = waiting_;
  for (const auto& each : items_) {
    TransferState::File file{.item = &each->item};
    file.whole = each->state == Item::State::Whole;
    file.done = file.whole ? each->item.size : each->part ? each->part->bytes_done() : 0;
    now.total += each->item.size;
    now.done += file.done;
    now.checked += file.whole ? each->item.size : each->checked.load();
    now.files.push_back(file);
  }
  return now;
}

void HubTransfer::run(const std::function<void(const TransferState&)>& progress) {
  std::vector<std::jthread> threads;
  std::atomic<int> n_running = 0;
  const auto start = [&](void (HubTransfer::*what)()) {
    ++n_running;
    threads.emplace_back([this, what, &n_running] {
      try {
        (this->*what)();
      } catch (...) {
        failed(std::current_exception());
      }
      --n_running;
      const std::lock_guard lock(mutex_);
      changed_.notify_all();
    });
  };
  start(&HubTransfer::check_all);
  for (int i = 0; i < options_.n_connections; ++i) start(&HubTransfer::work);
  while (n_running > 0) {
    try {
      if (progress && begun_ && !stopped_) progress(state());
    } catch (...) {
      failed(std::current_exception());
    }
    std::unique_lock lock(mutex_);
    if (n_running > 0) changed_.wait_for(lock, kProgressEvery);
  }
  threads.clear();
  if (error_) std::rethrow_exception(error_);
  if (progress) progress(state());
}

// ---- workers

void HubTransfer::work() {
  HubClient client(shared_options_, tls_);
  Claim mine;
  while (claim(mine)) {
    fetch(client, mine);
    const std::lock_guard lock(mutex_);
    mine.item->claimed[mine.block] = false;
    mine.item->first_unclaimed = std::min(mine.item->first_unclaimed, mine.block);
    changed_.notify_all();
  }
}

HubTransfer::Claim HubTransfer::find_block() {
  for (const auto& each : items_) {
    Item& item = *each;
    if (item.state != Item::State::Open || (item.whole_only && item.has_reader_of_all)) continue;
    for (std::size_t b = item.first_unclaimed; b < item.part->n_blocks(); ++b) {
      if (item.claimed[b] || item.part->is_whole(b)) {
        if (b == item.first_unclaimed) ++item.first_unclaimed;
        continue;
      }
      return {&item, item.part, b};
    }
  }
  return {};
}

// True: something has changed. To be called with the mutex held.
bool HubTransfer::open_next() {
  waiting_.clear();
  for (const auto& each : items_) {
    Item& item = *each;
    if (item.state != Item::State::Waiting) continue;
    if (!item.lock.try_take()) {
      waiting_ = item.item.label;
      continue;
    }
    waiting_.clear();
    std::error_code error;
    if (file_exists(item.item.path) &&
        std::filesystem::file_size(item.item.path, error) == item.item.size && !error) {
      item.lock.release();
      item.state = Item::State::Whole;  // another process was quicker
      return true;
    }
    item.part = std::make_shared<PartFile>(item.item.part, item.item.size,
                                           block_bytes_of(item.item.size, options_));
    item.claimed.assign(item.part->n_blocks(), false);
    item.resumed = item.part->bytes_done();
    item.state = Item::State::Open;
    ++n_open_;
    return true;
  }
  return false;
}

bool HubTransfer::claim(Claim& claim) {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    while (n_open_ < kMostOpen && open_next()) changed_.notify_all();
    begun_ = true;
    claim = find_block();
    if (claim.item != nullptr) {
      claim.item->claimed[claim.block] = true;
      if (claim.item->whole_only) claim.item->has_reader_of_all = true;
      return true;
    }
    // What is checked now may have to be fetched again.
    if (std::all_of(items_.begin(), items_.end(),
                    [](const auto& each) { return each->state == Item::State::Whole; }))
      return false;
    changed_.wait_for(lock, kLockPoll);
    if (client_options_.cancelled()) return false;
  }
  return false;
}

void HubTransfer::fetch(HubClient& client, const Claim& claim) {
  Patience patience(client_options_, Patience::At::Transfer);
  Item& item = *claim.item;
  while (!claim.part->is_whole(claim.block)) {
    try {
      bool whole_only;
      {
        const std::lock_guard lock(mutex_);
        whole_only = item.whole_only;
        if (whole_only && !item.claimed[claim.block]) return;
      }
      if (!whole_only)
        fetch_range(client, claim, patience);
      else if (!fetch_all(client, claim, patience))
        return;
    } catch (const TryAgain& failure) {
      {
        const std::lock_guard lock(mutex_);
        item.direct.reset();  // a signed address that has run out is one reason
      }
      patience.failed(failure);
    }
  }
  const std::lock_guard lock(mutex_);
  if (item.whole_only) item.has_reader_of_all = false;
}

void HubTransfer::check_reply(const Item& item, const HubClient::Reply& reply,
                              FileRange range) const {
  const std::string where = fmt::format("{} ({})", item.item.label, reply.from.origin());
  const auto other_size = [&](std::uint64_t size) {
    fail(Errc::Io,
         "{}: has {} bytes where the hub lists {}; it may have changed just now: run the "
         "same command again, and report it to the model's maker if it stays so",
         where, size, item.item.size);
  };
  const std::string coding = reply.head.header("content-encoding");
  if (!coding.empty() && coding != "identity")
    fail(Errc::Io, "{}: comes compressed ({}), which was not asked for", where, coding);
  if (reply.head.status == 416)
    fail(Errc::Io,
         "{}: ends before byte {}, and the hub lists {} bytes; run the same command "
         "again later",
         where, range.begin, item.item.size);
  if (reply.head.status != 206) {
    if (reply.head.length && *reply.head.length != item.item.size) other_size(*reply.head.length);
    return;
  }
  const auto sent = parse_content_range(reply.head.header("content-range"));
  if (!sent) throw TryAgain(fmt::format("{}: answers with a part and does not say which", where));
  if (sent->total && *sent->total != item.item.size) other_size(*sent->total);
  if (sent->first != range.begin || sent->last >= range.end)
    throw TryAgain(fmt::format("{}: sends bytes {} to {} where {} to {} were asked for", where,
                               sent->first, sent->last, range.begin, range.end - 1));
}

void HubTransfer::fetch_range(HubClient& client, const Claim& claim, Patience& patience) {
  Item& item = *claim.item;
  PartFile& part = *claim.part;
  const FileRange range{part.begin(claim.block) + part.done(claim.block), part.end(claim.block)};
  const bool is_all = range.begin == 0 && range.end == item.item.size;
  Url url = item.item.url;
  {
    const std::lock_guard lock(mutex_);
    if (item.direct) url = *item.direct;
  }
  const HubClient::Reply reply =
      client.open("GET", url, is_all ? std::nullopt : std::optional(range));
  check_reply(item, reply, range);
  if (!is_all && reply.head.status != 206) {
    const std::lock_guard lock(mutex_);
    item.whole_only = true;
    if (!item.has_reader_of_all) {
      item.has_reader_of_all = true;
    } else {
      item.claimed[claim.block] = false;  // somebody reads all of it already
    }
    return;
  }
  if (reply.from.text() != url.text()) {
    const std::lock_guard lock(mutex_);
    item.direct = reply.from;
  }
  std::vector<std::byte> buffer(kReadBytes);
  while (!part.is_whole(claim.block)) {
    const std::size_t n = client.body(buffer);
    if (n == 0) throw TryAgain(fmt::format("{}: ended too early", item.item.label));
    const std::uint64_t left =
        part.end(claim.block) - part.begin(claim.block) - part.done(claim.block);
    if (n > left) fail(Errc::Io, "{}: more bytes come than the hub lists", item.item.label);
    part.append(claim.block, std::span(buffer).first(n));
    fetched_ += n;
    patience.progress();
  }
  client.body(std::span(buffer).first(1));  // takes notice of the end
}

// From a server that knows no ranges: everything from the beginning, kept where it is missing.
// False: this block is somebody else's now.
bool HubTransfer::fetch_all(HubClient& client, const Claim& claim, Patience& patience) {
  Item& item = *claim.item;
  PartFile& part = *claim.part;
  const HubClient::Reply reply = client.open("GET", item.item.url);
  check_reply(item, reply, {0, item.item.size});
  std::vector<std::byte> buffer(kReadBytes);
  std::uint64_t at = 0;
  std::size_t block = 0;
  while (at < item.item.size) {
    const std::size_t n = client.body(buffer);
    if (n == 0) throw TryAgain(fmt::format("{}: ended too early", item.item.label));
    if (n > item.item.size - at)
      fail(Errc::Io, "{}: more bytes come than the hub lists", item.item.label);
    std::span<const std::byte> bytes = std::span(buffer).first(n);
    fetched_ += n;
    while (!bytes.empty()) {
      while (at >= part.end(block)) ++block;
      const std::uint64_t have = part.begin(block) + part.done(block);
      std::uint64_t some = std::min<std::uint64_t>(bytes.size(), part.end(block) - at);
      bool mine = block == claim.block;
      if (!mine) {
        const std::lock_guard lock(mutex_);
        mine = !item.claimed[block];
      }
      if (at < have) {
        some = std::min(some, have - at);
      } else if (mine && at == have) {
        part.append(block, bytes.first(some));
        patience.progress();
      }
      at += some;
      bytes = bytes.subspan(some);
    }
  }
  return true;
}

// ---- checking

HubTransfer::Item* HubTransfer::next_to_check() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    bool all_whole = true;
    for (const auto& each : items_) {
      if (each->state == Item::State::Open) return each.get();
      all_whole = all_whole && each->state == Item::State::Whole;
    }
    if (all_whole) return nullptr;
    changed_.wait_for(lock, kLockPoll);
  }
  return nullptr;
}

void HubTransfer::check_all() {
  while (Item* item = next_to_check()) {
    check(*item);
    if (stopped_) return;
  }
}

// Waits until more than `hashed` bytes have come without a gap. False: stopped.
bool HubTransfer::wait_for_bytes(const Item& item, std::uint64_t hashed, std::uint64_t& frontier) {
  std::unique_lock lock(mutex_);
  const PartFile& part = *item.part;
  while (!stopped_) {
    std::size_t block = 0;
    while (block + 1 < part.n_blocks() && (part.end(block) <= hashed || part.is_whole(block)))
      ++block;
    frontier = part.begin(block) + part.done(block);
    if (frontier >= std::min(hashed + kHashBytes, item.item.size)) return true;
    changed_.wait_for(lock, 50ms);
  }
  return false;
}

void HubTransfer::check(Item& item) {
  const TransferItem& what = item.item;
  std::vector<std::byte> buffer(kHashBytes);
  while (true) {
    BlobHasher hasher(what.hash, what.size);
    std::uint64_t hashed = 0, frontier = 0;
    while (hashed < what.size || !item.part->is_whole(item.part->n_blocks() - 1)) {
      if (!wait_for_bytes(item, hashed, frontier)) return;
      while (hashed < frontier && !stopped_) {
        const auto piece =
            std::span(buffer).first(std::min<std::uint64_t>(kHashBytes, frontier - hashed));
        if (what.hash != BlobHash::Unknown) {
          item.part->read(hashed, piece);
          hasher.add(piece);
        }
        hashed += piece.size();
        item.checked = hashed;
      }
      if (stopped_) return;
    }
    const std::string digest = hasher.finish();
    if (digest == (what.hash == BlobHash::Unknown ? "" : what.digest)) break;
    const std::lock_guard lock(mutex_);
    item.part->clear();
    item.checked = 0;
    item.first_unclaimed = 0;
    const bool again = item.resumed > 0;
    item.resumed = 0;
    changed_.notify_all();
    if (again) continue;  // the bytes of an earlier process may be to blame
    fail(Errc::BadInput,
         "{}: what came has the hash {}, and it should be {}; nothing of it is kept. Somebody "
         "between here and {} may change what is sent (a proxy?): run the same command again",
         what.label, digest, what.digest, what.url.origin());
  }
  item.part->finish(what.path);
  const std::lock_guard lock(mutex_);
  item.part.reset();
  item.lock.release();
  item.state = Item::State::Whole;
  --n_open_;
  changed_.notify_all();
}

}  // namespace moeflux
