// Tells clients what an engine does, as server-sent events: its state first, then what changes,
// at most ten times a second. The engine's thread only leaves frames (engine/watch); they are
// compared and written here, by a worker. While nobody listens nothing happens at all.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/scheduler/scheduler_thread.h"
#include "server/http/exchange.h"
#include "server/service/engine_events.h"

namespace moeflux {

class EngineFeed : public std::enable_shared_from_this<EngineFeed> {
 public:
  // Sets what the engine's watch calls, so it is made before the scheduler's thread is.
  EngineFeed(Engine& engine, int n_parallel);
  // The thread that runs the engine; both live until stop().
  void set_scheduler(SchedulerThread& scheduler) { scheduler_ = &scheduler; }

  // Begins the stream of a client, to whom the model goes by `name`. `run_on_worker` runs work on
  // another thread than the caller's.
  using Workers = std::function<void(std::function<void()>)>;
  void add(ExchangePtr exchange, std::string name, Workers run_on_worker);
  std::size_t n_listeners() const;

  // Ends all streams, with the event "end". No engine and no scheduler is needed afterwards.
  void stop();

 private:
  struct Listener {
    ExchangePtr exchange;
    std::string name;
    bool needs_state = true;  // new, or it did not take what was sent before
  };
  void remove(const Exchange* exchange);
  void on_frame();  // the engine's thread
  void deliver();
  void read_memory();
  void ask_for_frame();  // under the mutex

  EngineWatch& watch_;
  MemoryBudget& budget_;
  const WatchedModel model_;
  SchedulerThread* scheduler_ = nullptr;

  std::mutex workers_mutex_;
  Workers workers_;

  std::mutex order_mutex_;    // frames are written in the order they were taken
  mutable std::mutex mutex_;  // where there are workers, never held by the engine's thread
  bool stopped_ = false;
  std::vector<Listener> listeners_;
  EngineView view_;                        // the last frame
  std::vector<ExpertLocation> locations_;  // that listeners know
  Json sections_;                          // the same
  bool has_view_ = false;
  std::chrono::steady_clock::time_point memory_read_ = {};
};

}  // namespace moeflux
