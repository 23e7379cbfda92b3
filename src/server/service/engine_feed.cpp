#include "server/service/engine_feed.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "base/system_file.h"

namespace moeflux {
namespace {

// A client that has so much left to take gets nothing until it has, and a new state then.
constexpr std::size_t kMostBacklog = 256 << 10;

std::string sse_event(std::string_view name, const std::string& data) {
  return fmt::format("event: {}\ndata: {}\n\n", name, data);
}

std::uint64_t resident_bytes() {
  const std::optional<std::string> text = read_system_file("/proc/self/statm");
  if (!text) return 0;
  const auto words = split_words(*text);
  const std::uint64_t pages = words.size() < 2 ? 0 : parse_number(words[1]).value_or(0);
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

EngineFeed::EngineFeed(Engine& engine, int n_parallel)
    : watch_(engine.watch()), budget_(engine.budget()), model_(watched_model(engine, n_parallel)) {
  watch_.set_on_frame([this] { on_frame(); });
}

std::size_t EngineFeed::n_listeners() const {
  const std::lock_guard lock(mutex_);
  return listeners_.size();
}

void EngineFeed::add(ExchangePtr exchange, std::string name, Workers run_on_worker) {
  {
    const std::lock_guard lock(workers_mutex_);
    workers_ = std::move(run_on_worker);
  }
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) throw HttpError(503, "unavailable_error", "the model is being unloaded");
    exchange->begin_stream({});
    listeners_.push_back({exchange, std::move(name)});
    watch_.set_wanted(true);
    ask_for_frame();
  }
  exchange->on_gone([weak = weak_from_this(), key = exchange.get()] {
    if (const auto self = weak.lock()) self->remove(key);
  });
}

void EngineFeed::remove(const Exchange* exchange) {
  const std::lock_guard lock(mutex_);
  std::erase_if(listeners_, [&](const Listener& each) { return each.exchange.get() == exchange; });
  if (listeners_.empty()) watch_.set_wanted(false);
}

// Between two passes; the machine is measured where nobody has to wait for that.
void EngineFeed::ask_for_frame() {
  try {
    scheduler_->post([&watch = watch_](Scheduler& scheduler) {
      if (scheduler.n_jobs() == 0) watch.measure_limits();
      watch.publish();
    });
  } catch (const Error&) {  // it has been stopped: so will the streams be
  }
}

void EngineFeed::on_frame() {
  Workers workers;
  {
    const std::lock_guard lock(workers_mutex_);
    workers = workers_;
  }
  if (!workers) return;
  workers([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->deliver();
  });
}

void EngineFeed::read_memory() {
  const auto now = std::chrono::steady_clock::now();
  if (now - memory_read_ < std::chrono::seconds(1)) return;
  memory_read_ = now;
  view_.memory = budget_.by_tag();
  view_.resident_bytes = resident_bytes();
}

void EngineFeed::deliver() {
  const std::lock_guard order(order_mutex_);
  std::vector<std::pair<ExchangePtr, std::string>> to_write;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_ || !watch_.take(view_.frame)) return;
    const SchedulerStats stats = scheduler_->stats();
    view_.n_drawn = stats.n_drawn;
    view_.n_prompt_rows = stats.prompt_rows;
    view_.n_running = stats.n_running;
    view_.n_waiting = stats.n_waiting;
    read_memory();
    Json sections = engine_sections(model_, view_);
    std::string change;
    if (has_view_)
      change = sse_event("change", engine_change(locations_, view_.frame, sections_, sections));
    locations_ = view_.frame.locations;
    sections_ = std::move(sections);
    has_view_ = true;
    for (Listener& each : listeners_) {
      if (each.exchange->backlog() > kMostBacklog) {
        each.needs_state = true;
      } else if (std::exchange(each.needs_state, false)) {
        to_write.emplace_back(
            each.exchange, sse_event("state", engine_state(model_, each.name, view_, sections_)));
      } else {
        to_write.emplace_back(each.exchange, change);
      }
    }
  }
  // Without the lock: whoever is found to be gone is removed at once.
  for (auto& [exchange, text] : to_write) exchange->write(std::move(text));
  const std::lock_guard lock(mutex_);
  if (!stopped_ && watch_.has_missed_one()) ask_for_frame();
}

void EngineFeed::stop() {
  std::vector<Listener> listeners;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    watch_.set_wanted(false);
    listeners = std::move(listeners_);
    listeners_.clear();
  }
  for (const Listener& each : listeners) {
    each.exchange->write(sse_event("end", "{}"));
    each.exchange->finish();
  }
}

}  // namespace moeflux
