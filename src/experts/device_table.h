// The host's side of what a device that looks experts up by itself shares with it: the table of
// where experts lie, and the mailbox (backends/expert_table.h). Used by one thread; when it may
// write the table is its user's business.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "experts/expert_cache.h"
#include "experts/expert_store.h"

namespace moeflux {

class DeviceTable {
 public:
  // Whether all experts of each bank have the same formats and shapes.
  static bool can_describe(const ExpertStore& store, const ExpertCache& cache);

  // All must outlive it.
  DeviceTable(const ExpertStore& store, const ExpertCache& cache, Backend& backend);

  ExpertTable table(int bank) const;
  Bytes mailbox() const { return {mailbox_.get(), 0, mailbox_->bytes()}; }

  void publish(int slot);        // a Ready one
  void withdraw(ExpertKey key);  // it is missing now
  bool has(ExpertKey key) const { return !places()[store_.id(key)].missing(); }

  struct Request {
    int bank = 0;
    int round = 0;
    std::span<const std::int32_t> needed;  // distinct
  };
  bool has_request() const;
  // The one that has not been answered. Throws Error when no working device can have written it.
  Request request() const;
  void answer();
  void fail();  // operations end without a result from now on, that which waits included
  bool has_failed() const;
  void forget_failure();

 private:
  ExpertMailbox& box() const;
  ExpertPlace* places() const;

  const ExpertStore& store_;
  const ExpertCache& cache_;
  std::unique_ptr<Buffer> places_, mailbox_;
  std::vector<bool> is_aligned_;  // [bank]
};

}  // namespace moeflux
