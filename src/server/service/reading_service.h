// Requests to read texts and not to answer them (engine/text_reading.h): embeddings, judgements.
// They run on the engine's thread, one request after the other, one pass at a time between the
// passes of answers. Any thread may call this.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <variant>
#include <vector>

#include "engine/scheduler/scheduler_thread.h"
#include "engine/text_reading.h"

namespace moeflux {

class ReadingService {
 public:
  using Rows = std::vector<std::vector<float>>;  // one for each text
  using Result = std::variant<Rows, Error>;
  struct Request {
    std::vector<std::vector<TokenId>> texts = {};  // none empty, none longer than the context
    ReadingKind kind = ReadingKind::Mean;
    // What is kept of what was read of a text; called by the engine's thread. Empty: all of it.
    std::function<std::vector<float>(const std::vector<float>&)> reduce = {};
  };

  // `engine` must outlive it. `max_waiting` requests besides the one that runs.
  ReadingService(Engine& engine, std::size_t max_waiting)
      : engine_(engine), max_waiting_(max_waiting) {}
  void set_scheduler(SchedulerThread& scheduler) { scheduler_ = &scheduler; }  // before the first

  // Cancels when it is called.
  using Cancel = std::function<void()>;
  // `done` is called once by the engine's thread, which it must not keep. Throws Error:
  // LimitExceeded where too many wait, Cancelled after close().
  Cancel start(Request request, std::function<void(Result)> done);

  void close();  // no more requests
  bool wait_until_idle(std::chrono::milliseconds at_most);

 private:
  struct Job {
    Request request;
    std::function<void(Result)> done;
    std::atomic<bool> cancelled{false};
    std::size_t next = 0;  // text
    bool in_text = false;
    std::unique_ptr<TextReading> reading = {};
    Rows rows = {};
  };
  void pump();
  bool advance(Job& job);  // false: it has read everything
  void end(const Result& result);
  static void tell(Job& job, const Result& result);
  void end_all(const Error& error);

  Engine& engine_;
  SchedulerThread* scheduler_ = nullptr;
  const std::size_t max_waiting_;
  std::mutex mutex_;
  std::condition_variable idle_;
  std::deque<std::shared_ptr<Job>> jobs_;  // the first one runs
  bool pumping_ = false;                   // pump() is posted or runs
  bool closed_ = false;
};

}  // namespace moeflux
