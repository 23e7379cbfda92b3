// Several models in one server, under one ceiling of memory. A model is loaded when a request names
// it and unloaded when it was idle for its keep-alive.
//
// The rules. At most `max_models` are in memory. A new model gets an even share of the free memory:
// the bytes left, divided by the free places, but never less than its floor. Where no place is
// free, or less than its floor is left, idle models are unloaded, the longest idle first. Where all
// models are in use the request waits, and so do later ones for other models: first come, first
// served.
//
// One thread loads and unloads; other threads only take leases and never wait. Any thread may call
// anything here. The pool must outlive its leases.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "base/json.h"
#include "engine/model_catalog.h"
#include "server/http/http.h"
#include "server/service/generation_service.h"

namespace moeflux {

// How long a model stays in memory after its last use. None: for ever.
using KeepAlive = std::optional<std::chrono::milliseconds>;

inline constexpr std::chrono::minutes kDefaultKeepAlive{5};

// "5m", "1h30m", "90s", "500ms", "90" (seconds); negative: for ever. Throws Error(BadInput).
KeepAlive parse_keep_alive(std::string_view text);
// A text, or a number of seconds.
KeepAlive read_keep_alive(const Json& value);

// A model in memory, with the service that answers for it.
class LoadedModel {
 public:
  // Throws Error, as Engine does.
  LoadedModel(CatalogEntry entry, const EngineOptions& engine, const ServiceOptions& service)
      : entry_(std::move(entry)), engine_(entry_.path, engine), service_(engine_, service) {}

  const CatalogEntry& entry() const { return entry_; }
  // Belongs to the service's thread until the service is stopped, except for what never changes.
  Engine& engine() { return engine_; }
  const Engine& engine() const { return engine_; }
  GenerationService& service() { return service_; }

 private:
  CatalogEntry entry_;
  Engine engine_;
  GenerationService service_;  // uses the engine
};

// The right to use a loaded model for a while.
struct ModelLease {
  std::string name;  // how answers call it
  std::shared_ptr<GenerationService> service;
  // With a pool: the model is not unloaded as long as a copy of this or of `service` lives.
  std::shared_ptr<const void> held = {};
};

struct PoolOptions {
  std::string directory = {};
  EngineOptions engine = {};      // memory_bytes is for all models together
  std::uint64_t other_bytes = 0;  // of these, not for models
  ServiceOptions service = {};
  int max_models = 1;
  KeepAlive keep_alive = kDefaultKeepAlive;
  std::size_t max_waiting = 64;                 // requests for models that are not in memory
  std::chrono::milliseconds max_wait{120'000};  // for a place in memory
};

// Called by the loader's thread.
struct PoolEvents {
  std::function<void(const CatalogEntry&)> loading = {};
  std::function<void(const LoadedModel&)> loaded = {};
  std::function<void(const CatalogEntry&)> unloaded = {};
  std::function<void(const std::string&)> warning = {};  // a load that failed, a profile not kept
};

struct PoolStats {
  std::uint64_t n_loads = 0, n_unloads = 0, n_failures = 0;
  std::size_t n_loaded = 0, n_waiting = 0;
  std::uint64_t used_bytes = 0, ceiling = 0;  // by the plans of the models
};

// What `/api/ps` and the like say of a model in memory.
struct PoolModel {
  CatalogEntry entry;
  ModelLease lease;  // taking it does not count as use
  bool in_use = false;
  std::optional<std::chrono::system_clock::time_point> expires = {};  // none: never
};

class ModelPool {
 public:
  explicit ModelPool(PoolOptions options, PoolEvents events = {});
  ~ModelPool();  // stop()
  ModelPool(const ModelPool&) = delete;
  ModelPool& operator=(const ModelPool&) = delete;

  std::vector<CatalogEntry> models() { return catalog_.list(); }
  // The model of that name. "": the one used last, else the only one there is. Throws HttpError:
  // 404, or 400 where one has to be named.
  CatalogEntry find(const std::string& name);

  // Nothing if the model is not in memory, or if an earlier request waits for its place. Without a
  // keep-alive the pool's is taken.
  std::optional<ModelLease> try_lease(const CatalogEntry& entry,
                                      std::optional<KeepAlive> keep_alive);

  // Waits for the model: the receiver is called once by the loader's thread, which it must not
  // block, unless the ticket is forgotten first. Throws HttpError 429 or 503 if no more requests
  // may wait, 500 for a model that is known to be broken.
  using Ticket = std::uint64_t;
  using LeaseResult = std::variant<ModelLease, HttpError>;
  using Receiver = std::function<void(LeaseResult)>;
  Ticket new_ticket() { return ++last_ticket_; }
  void wait_for(Ticket ticket, const CatalogEntry& entry, std::optional<KeepAlive> keep_alive,
                Receiver receiver);
  void forget(Ticket ticket);  // the client has left; no effect if it was served

  // Unloads the model as soon as it is idle. False: it is not in memory.
  bool unload(const CatalogEntry& entry);

  std::vector<PoolModel> loaded();
  PoolStats stats() const;
  const PoolOptions& options() const { return options_; }

  // No more requests; returns when all answers have ended or after so long. False: some go on.
  bool drain(std::chrono::milliseconds at_most);
  // Ends all answers and saves the profiles.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  struct Slot {
    std::unique_ptr<LoadedModel> model;
    std::uint64_t bytes = 0;       // of its plan
    int n_leases = 0, n_uses = 0;  // leases that only look do not count as uses
    KeepAlive keep_alive = {};
    Clock::time_point last_used = {};
    bool is_free() const { return n_leases == 0; }
    bool is_expired(Clock::time_point now) const {
      return is_free() && keep_alive && now - last_used >= *keep_alive;
    }
  };
  struct Waiter {
    Ticket ticket;
    CatalogEntry entry;
    KeepAlive keep_alive;
    Clock::time_point deadline;
    Receiver receiver;
    std::uint64_t floor = 0;  // bytes; 0: not known yet
  };
  struct Token;
  using Lock = std::unique_lock<std::mutex>;

  // Of the loader's thread; all are called with the lock and release it while they work.
  void run();
  bool step(Lock& lock);  // false: nothing to do for now
  bool refuse_late(Lock& lock);
  bool unload_expired(Lock& lock);
  bool load_next(Lock& lock);
  bool find_floor(Lock& lock);
  void load(CatalogEntry entry, std::uint64_t bytes, Lock& lock);
  void unload(const std::shared_ptr<Slot>& slot, Lock& lock);
  void serve(const std::shared_ptr<Slot>& slot, Lock& lock);
  void refuse(const std::function<bool(const Waiter&)>& matches, const HttpError& error,
              Lock& lock);
  HttpError no_room(const Waiter& waiter) const;
  EngineOptions options_for(const CatalogEntry& entry) const;
  std::optional<Clock::time_point> next_alarm() const;

  void stop_loader();
  void stop_and_save(LoadedModel& model) const;
  std::vector<Waiter> take_waiters(const std::function<bool(const Waiter&)>& matches);
  std::shared_ptr<Slot> find_slot(const std::string& path) const;
  std::uint64_t used_bytes() const;
  ModelLease make_lease(const std::shared_ptr<Slot>& slot, bool is_use);
  void release(Slot& slot, bool is_use);

  PoolOptions options_;
  const PoolEvents events_;
  const std::uint64_t ceiling_;
  ModelCatalog catalog_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::shared_ptr<Slot>> slots_;
  std::deque<Waiter> waiting_;
  bool room_wanted_ = false;  // the first waiter needs a model that is in use to be unloaded
  PoolStats counts_;
  bool stopped_ = false;
  std::atomic<Ticket> last_ticket_{0};
  std::atomic<bool> stopping_{false};  // changed under the mutex; a load looks at it in passing
  std::thread thread_;                 // last: it uses all of the above
};

}  // namespace moeflux
