#include "base/thread_pool.h"

#include <algorithm>
#include <system_error>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/error.h"
#include "base/processors.h"

namespace moeflux {
namespace {

void pause_a_moment() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns when `value` is no longer `old`.
void wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  constexpr int kSpins = 1000;  // some ten microseconds
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause_a_moment();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int n_threads) {
  const int n = thread_count_or_default(n_threads);
  try {
    for (int worker = 1; worker < n; ++worker)
      workers_.emplace_back([this, worker] { work(worker); });
  } catch (const std::system_error& error) {
    const int started = size();
    stop();  // the destructor will not run, and the threads that did start wait for us
    fail(Errc::LimitExceeded,
         "the system lets this process start only {} of {} threads ({}); ask for fewer", started, n,
         error.what());
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  stopping_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  workers_.clear();  // joins while the members they use are still alive
}

void ThreadPool::work(int worker) {
  std::uint32_t seen = 0;
  while (true) {
    wait_while(generation_, seen);
    ++seen;
    if (stopping_.load()) return;
    run_loop(worker);
    if (n_busy_.fetch_sub(1) == 1) n_busy_.notify_one();
  }
}

void ThreadPool::run_loop(int worker) {
  while (true) {
    const std::int64_t begin = next_.fetch_add(loop_.grain, std::memory_order_relaxed);
    if (begin >= loop_.count) return;
    try {
      loop_.call(loop_.body, begin, std::min(begin + loop_.grain, loop_.count), worker);
      if (worker == 0 && poll_) poll_();
    } catch (...) {
      const std::lock_guard lock(error_mutex_);
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
      if (poll_) poll_();
    }
    return;
  }
  loop_ = loop;
  next_.store(0, std::memory_order_relaxed);
  n_busy_.store(static_cast<std::uint32_t>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1);  // publishes the above
  generation_.notify_all();
  run_loop(0);
  for (std::uint32_t busy = n_busy_.load(); busy != 0; busy = n_busy_.load()) {
    wait_while(n_busy_, busy);
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace moeflux
