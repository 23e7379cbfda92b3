// Fetches files: in ranges over several connections at a time, resumed where a line was cut or an
// earlier process was killed, and checked against their hashes while the rest still comes. A file
// gets its name once its hash is right.
//
// Worker threads claim blocks, in the order of the files; one thread follows with the hash of what
// has come without a gap. Other processes that fetch the same file, this program or the hub's own
// tools, are waited for: each file has a lock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "hub/client.h"
#include "hub/part_file.h"
#include "hub/repository.h"

namespace moeflux {

struct TransferItem {
  std::string label;  // for messages
  Url url;
  std::uint64_t size = 0;
  BlobHash hash = BlobHash::Unknown;
  std::string digest = {};  // that the bytes must have
  std::string path;         // when it is whole
  std::string part;         // until then
  std::string lock;
};

struct TransferOptions {
  int n_connections = 8;
  std::uint64_t block_bytes = 0;  // 0: by the size of each file
};

// How far it has come. Bytes that lay on the drive before count as done, not as fetched.
struct TransferState {
  struct File {
    const TransferItem* item = nullptr;
    std::uint64_t done = 0;
    bool whole = false;  // checked, and under its name
  };
  std::vector<File> files;
  std::uint64_t total = 0, done = 0, fetched = 0, checked = 0;
  std::string waiting;  // for another process that fetches this file; "": for none
};

class HubTransfer {
 public:
  // Items that are whole already must not be among them.
  HubTransfer(std::vector<TransferItem> items, const HubClientOptions& client,
              const TransferOptions& options);
  ~HubTransfer();

  // Returns when all are whole. `progress` is called some times a second by this thread and may
  // throw, which stops the work. Throws the first failure.
  void run(const std::function<void(const TransferState&)>& progress);

  std::uint64_t fetched_bytes() const { return fetched_; }

 private:
  class Lock;
  struct Item;
  struct Claim {
    Item* item = nullptr;
    std::shared_ptr<PartFile> part;  // outlives the item's
    std::size_t block = 0;
  };

  void work();
  void check_all();
  Item* next_to_check();     // null: all are whole, or stopped
  bool claim(Claim& claim);  // false: nothing is left to claim, now or ever
  Claim find_block();
  bool open_next();
  void fetch(HubClient& client, const Claim& claim);
  void fetch_range(HubClient& client, const Claim& claim, Patience& patience);
  bool fetch_all(HubClient& client, const Claim& claim, Patience& patience);
  void check_reply(const Item& item, const HubClient::Reply& reply, FileRange range) const;
  void check(Item& item);
  bool wait_for_bytes(const Item& item, std::uint64_t hashed, std::uint64_t& frontier);
  void failed(std::exception_ptr error);
  TransferState state();

  HubClientOptions client_options_;
  std::shared_ptr<TlsContext> tls_ = make_tls_context();
  std::shared_ptr<const HubClientOptions> shared_options_;
  const TransferOptions options_;
  std::vector<std::unique_ptr<Item>> items_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr error_;
  std::string waiting_;
  int n_open_ = 0;
  std::atomic<bool> begun_ = false;  // what lay on the drive is known
  std::atomic<bool> stopped_ = false;
  std::atomic<std::uint64_t> fetched_ = 0;
};

}  // namespace moeflux
