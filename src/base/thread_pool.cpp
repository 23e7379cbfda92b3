#include "base/thread_pool.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <sched.h>

#include "base/error.h"

namespace moeflux {
namespace {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace

ThreadPool::ThreadPool(int n_threads) {
  const int n = n_threads > 0 ? n_threads : usable_cores();
  try {
    for (int worker = 1; worker < n; ++worker) workers_.emplace_back([this, worker] { work(worker); });
  } catch (const std::system_error& error) {
    const int started = size();
    stop();  // the destructor will not run, and the threads that did start wait for us
    fail(Errc::LimitExceeded, "the system lets this process start only {} of {} threads ({}); ask for fewer", started, n,
         error.what());
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  workers_.clear();  // joins while the members they use are still alive
}

void ThreadPool::work(int worker) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stopping_ || generation_ != seen; });
    if (stopping_) return;
    seen = generation_;
    lock.unlock();
    run_loop(worker);
    lock.lock();
    if (--n_busy_ == 0) done_.notify_one();
  }
}

void ThreadPool::run_loop(int worker) {
  while (true) {
    const std::int64_t begin = next_.fetch_add(loop_.grain, std::memory_order_relaxed);
    if (begin >= loop_.count) return;
    try {
      loop_.call(loop_.body, begin, std::min(begin + loop_.grain, loop_.count), worker);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      next_.store(loop_.count, std::memory_order_relaxed);
    }
  }
}

void ThreadPool::run(const Loop& loop) {
  MOEFLUX_ASSERT(loop.grain > 0);
  if (loop.count <= 0) return;
  if (workers_.empty() || loop.count <= loop.grain) {
    for (std::int64_t begin = 0; begin < loop.count; begin += loop.grain) {
      loop.call(loop.body, begin, std::min(begin + loop.grain, loop.count), 0);
    }
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    loop_ = loop;
    next_.store(0, std::memory_order_relaxed);
    n_busy_ = static_cast<int>(workers_.size());
    ++generation_;
  }
  wake_.notify_all();
  run_loop(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return n_busy_ == 0; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace moeflux
