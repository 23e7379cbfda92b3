// A fixed set of threads that share loops. One thread at a time may call parallel_for; the caller
// works too.
//
// Threads that have nothing to do spin for some microseconds, since the next loop of a forward pass
// usually follows at once, and then sleep.
//
// Which thread runs which part of a loop is not defined, so a body must compute each index
// independently of the others: then results are the same for every number of threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace moeflux {

class ThreadPool {
 public:
  // n_threads >= 1, the caller included. 0: default_thread_count() of
  // processors.h.
  // Throws Error when the system refuses to start that many.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end, worker) for disjoint ranges that cover [0, count), each of at most
  // `grain` indices. worker is in [0, size()): the index of per-thread scratch. The first exception
  // of a body is rethrown here.
  template <class Body>
  void parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
    run({&body,
         [](const void* erased, std::int64_t begin, std::int64_t end, int worker) {
           (*static_cast<const Body*>(erased))(begin, end, worker);
         },
         count, grain});
  }

  // Called by the caller's thread between its parts of a loop: for what must not wait until a long
  // one ends. It is short, and calls no loop.
  void set_poll(std::function<void()> poll) { poll_ = std::move(poll); }

 private:
  struct Loop {  // a reference to the caller's body: no allocation
    const void* body = nullptr;
    void (*call)(const void* body, std::int64_t begin, std::int64_t end, int worker) = nullptr;
    std::int64_t count = 0;
    std::int64_t grain = 1;
  };

  void stop();
  void run(const Loop& loop);
  void work(int worker);
  void run_loop(int worker);

  std::vector<std::jthread> workers_;
  std::function<void()> poll_;
  Loop loop_;  // written only while no worker is busy
  std::atomic<bool> stopping_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
  // Each on a cache line of its own: all threads watch them.
  alignas(64) std::atomic<std::uint32_t> generation_{0};  // counts loops; a worker joins each once
  alignas(64) std::atomic<std::uint32_t> n_busy_{0};
  alignas(64) std::atomic<std::int64_t> next_{0};
};

}  // namespace moeflux
