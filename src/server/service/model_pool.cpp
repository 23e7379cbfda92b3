// What any thread may ask of the pool; model_pool_loader.cpp has its own thread.
#include "server/service/model_pool.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "engine/model_plan.h"

namespace moeflux {
namespace {

std::uint64_t ceiling_of(const PoolOptions& options) {
  const std::uint64_t all = memory_ceiling(options.engine);
  return all - std::min(all, options.other_bytes);
}

HttpError stopping_error() {
  return HttpError(503, "unavailable_error", "the server is stopping")
      .with_header("Retry-After", "30");
}

constexpr double kForEver = 10.0 * 365 * 86400;  // seconds; more is not told apart

[[noreturn]] void refuse_time(std::string_view text) {
  fail(Errc::BadInput,
       "\"{}\" is no time to keep a model: give seconds, or a duration such as 10m or 1h30m",
       text.substr(0, 64));
}

double unit_seconds(std::string_view unit, std::string_view text) {
  if (unit == "ms") return 1e-3;
  if (unit == "s" || unit.empty()) return 1;
  if (unit == "m") return 60;
  if (unit == "h") return 3600;
  if (unit == "d") return 86400;
  refuse_time(text);
}

KeepAlive of_seconds(double seconds, std::string_view text) {
  if (std::isnan(seconds)) refuse_time(text);
  if (seconds < 0 || seconds > kForEver) return std::nullopt;
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
}

}  // namespace

KeepAlive parse_keep_alive(std::string_view text) {
  std::string_view rest = text;
  const bool negative = rest.starts_with('-');
  if (negative) rest.remove_prefix(1);
  if (rest.empty()) refuse_time(text);
  double seconds = 0;
  bool has_plain = false;  // a number without a unit stands alone
  while (!rest.empty()) {
    double value = 0;
    const auto result =
        std::from_chars(rest.data(), rest.data() + rest.size(), value, std::chars_format::fixed);
    if (result.ec != std::errc() || rest[0] == '-' || !std::isfinite(value) || has_plain)
      refuse_time(text);
    rest.remove_prefix(static_cast<std::size_t>(result.ptr - rest.data()));
    const std::string_view unit = rest.substr(0, rest.find_first_of("0123456789."));
    rest.remove_prefix(unit.size());
    has_plain = unit.empty();
    if (has_plain && seconds > 0) refuse_time(text);
    seconds += value * unit_seconds(unit, text);
  }
  return of_seconds(negative && seconds > 0 ? -1 : seconds, text);
}

KeepAlive read_keep_alive(const Json& value) {
  if (value.is_string()) return parse_keep_alive(value.get_ref<const std::string&>());
  if (!value.is_number()) refuse_time(value.dump());
  return of_seconds(value.get<double>(), value.dump());
}

ModelPool::ModelPool(PoolOptions options, PoolEvents events)
    : options_(std::move(options)),
      events_(std::move(events)),
      ceiling_(ceiling_of(options_)),
      catalog_(options_.directory),
      thread_([this] { run(); }) {}

ModelPool::~ModelPool() {
  stop();
}

CatalogEntry ModelPool::find(const std::string& name) {
  const std::vector<CatalogEntry> all = catalog_.list();
  if (!name.empty()) {
    try {
      return find_model(all, name);
    } catch (const Error& error) {
      throw HttpError(error.code() == Errc::NotFound ? 404 : 400, "invalid_request_error",
                      error.what())
          .with_param("model");
    }
  }
  {
    const std::lock_guard lock(mutex_);
    const auto last =
        std::max_element(slots_.begin(), slots_.end(),
                         [](const auto& a, const auto& b) { return a->last_used < b->last_used; });
    if (last != slots_.end()) return (*last)->model->entry();
  }
  const auto is_fine = [](const CatalogEntry& each) { return each.problem.empty(); };
  const auto first = std::find_if(all.begin(), all.end(), is_fine);
  if (std::count_if(all.begin(), all.end(), is_fine) == 1) return *first;
  throw bad_request("name the model: this server has several, see /v1/models", "model");
}

std::optional<ModelLease> ModelPool::try_lease(const CatalogEntry& entry,
                                               std::optional<KeepAlive> keep_alive) {
  const std::lock_guard lock(mutex_);
  if (stopping_ || room_wanted_) return std::nullopt;
  const auto slot = find_slot(entry.path);
  if (slot == nullptr) return std::nullopt;
  slot->keep_alive = keep_alive.value_or(options_.keep_alive);
  return make_lease(slot, /*is_use=*/true);
}

void ModelPool::wait_for(Ticket ticket, const CatalogEntry& entry,
                         std::optional<KeepAlive> keep_alive, Receiver receiver) {
  if (!entry.problem.empty()) {
    throw HttpError(500, "server_error",
                    fmt::format("{} cannot be loaded: {}", entry.name, entry.problem));
  }
  const std::lock_guard lock(mutex_);
  if (stopping_) throw stopping_error();
  if (waiting_.size() >= options_.max_waiting) {
    throw HttpError(429, "rate_limit_error",
                    fmt::format("{} requests wait for models, as many as may; try again later",
                                waiting_.size()))
        .with_header("Retry-After", "30");
  }
  waiting_.push_back({.ticket = ticket,
                      .entry = entry,
                      .keep_alive = keep_alive.value_or(options_.keep_alive),
                      .deadline = Clock::now() + options_.max_wait,
                      .receiver = std::move(receiver)});
  wake_.notify_one();
}

void ModelPool::forget(Ticket ticket) {
  std::vector<Waiter> gone;  // destroyed without the lock: a receiver may hold anything
  {
    const std::lock_guard lock(mutex_);
    gone = take_waiters([&](const Waiter& each) { return each.ticket == ticket; });
    if (!gone.empty()) wake_.notify_one();
  }
}

bool ModelPool::unload(const CatalogEntry& entry) {
  const std::lock_guard lock(mutex_);
  const auto slot = find_slot(entry.path);
  if (slot == nullptr) return false;
  slot->keep_alive = std::chrono::milliseconds(0);
  wake_.notify_one();
  return true;
}

std::vector<PoolModel> ModelPool::loaded() {
  const auto now = Clock::now();
  std::vector<PoolModel> models;
  const std::lock_guard lock(mutex_);
  for (const auto& slot : slots_) {
    PoolModel model{.entry = slot->model->entry(),
                    .lease = make_lease(slot, /*is_use=*/false),
                    .in_use = slot->n_uses > 0};
    if (slot->keep_alive) {
      const auto idle = model.in_use ? Clock::duration(0) : now - slot->last_used;
      model.expires = std::chrono::system_clock::now() + *slot->keep_alive -
                      std::chrono::duration_cast<std::chrono::milliseconds>(idle);
    }
    models.push_back(std::move(model));
  }
  return models;
}

PoolStats ModelPool::stats() const {
  const std::lock_guard lock(mutex_);
  PoolStats stats = counts_;
  stats.n_loaded = slots_.size();
  stats.n_waiting = waiting_.size();
  stats.used_bytes = used_bytes();
  stats.ceiling = ceiling_;
  return stats;
}

void ModelPool::stop_loader() {
  std::vector<Waiter> waiters;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    waiters = take_waiters([](const Waiter&) { return true; });
    wake_.notify_one();
  }
  for (const Waiter& each : waiters) each.receiver(stopping_error());
  if (thread_.joinable()) thread_.join();
}

bool ModelPool::drain(std::chrono::milliseconds at_most) {
  const auto until = Clock::now() + at_most;
  stop_loader();
  std::vector<std::shared_ptr<Slot>> slots;
  {
    const std::lock_guard lock(mutex_);
    slots = slots_;
  }
  bool all = true;
  for (const auto& slot : slots) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    all &= slot->model->service().drain(std::max(left, std::chrono::milliseconds(0)));
  }
  return all;
}

// Stopped models stay in memory: other threads may still read them.
void ModelPool::stop() {
  stop_loader();
  std::vector<std::shared_ptr<Slot>> slots;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    slots = slots_;
  }
  for (const auto& slot : slots) stop_and_save(*slot->model);
}

std::vector<ModelPool::Waiter> ModelPool::take_waiters(
    const std::function<bool(const Waiter&)>& matches) {
  std::vector<Waiter> taken;
  std::deque<Waiter> rest;
  for (Waiter& each : waiting_) {
    if (matches(each))
      taken.push_back(std::move(each));
    else
      rest.push_back(std::move(each));
  }
  waiting_ = std::move(rest);
  return taken;
}

std::shared_ptr<ModelPool::Slot> ModelPool::find_slot(const std::string& path) const {
  const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const auto& slot) {
    return slot->model->entry().path == path;
  });
  return found == slots_.end() ? nullptr : *found;
}

std::uint64_t ModelPool::used_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& slot : slots_) bytes += slot->bytes;
  return bytes;
}

// Releases the model when the last copy of a lease is destroyed.
struct ModelPool::Token {
  ModelPool& pool;
  bool is_use;
  std::shared_ptr<Slot> slot = {};
  ~Token() {
    if (slot != nullptr) pool.release(*slot, is_use);
  }
};

ModelLease ModelPool::make_lease(const std::shared_ptr<Slot>& slot, bool is_use) {
  ModelLease lease{.name = slot->model->entry().name, .service = {}};
  const auto token = std::make_shared<Token>(Token{*this, is_use});
  ++slot->n_leases;
  if (is_use) {
    ++slot->n_uses;
    slot->last_used = Clock::now();
  }
  token->slot = slot;
  lease.service = {token, &slot->model->service()};
  lease.held = token;
  return lease;
}

// Often called by the engine's own thread, so the loader does all that follows from it.
void ModelPool::release(Slot& slot, bool is_use) {
  const std::lock_guard lock(mutex_);
  --slot.n_leases;
  if (is_use) {
    --slot.n_uses;
    slot.last_used = Clock::now();
  }
  wake_.notify_one();
}

}  // namespace moeflux
