// The thread of the pool, which alone loads and unloads.
#include <algorithm>

#include <fmt/format.h>

#include "engine/model_plan.h"
#include "server/service/model_pool.h"

namespace moeflux {
namespace {

HttpError load_error(const CatalogEntry& entry, const std::string& why) {
  return {500, "server_error", fmt::format("{} cannot be loaded: {}", entry.name, why)};
}

HttpError too_large(const CatalogEntry& entry, std::uint64_t floor, std::uint64_t ceiling) {
  return HttpError(400, "invalid_request_error",
                   fmt::format("{} needs at least {} of memory, but {} are all that models may "
                               "take; start the server with a larger --ram or a smaller --ctx-size",
                               entry.name, format_needed_bytes(floor), format_bytes(ceiling)))
      .with_param("model")
      .with_number("needed_bytes", static_cast<std::int64_t>(floor))
      .with_number("allowed_bytes", static_cast<std::int64_t>(ceiling));
}

}  // namespace

void ModelPool::run() {
  Lock lock(mutex_);
  while (!stopping_) {
    if (step(lock)) continue;
    if (const auto alarm = next_alarm())
      wake_.wait_until(lock, *alarm);
    else
      wake_.wait(lock);
  }
}

bool ModelPool::step(Lock& lock) {
  room_wanted_ = false;
  if (!waiting_.empty()) {
    if (const auto slot = find_slot(waiting_.front().entry.path)) {
      serve(slot, lock);
      return true;
    }
  }
  if (unload_expired(lock)) return true;
  return !waiting_.empty() && (find_floor(lock) || load_next(lock) || refuse_late(lock));
}

std::optional<ModelPool::Clock::time_point> ModelPool::next_alarm() const {
  std::optional<Clock::time_point> alarm;
  const auto add = [&](Clock::time_point time) { alarm = alarm ? std::min(*alarm, time) : time; };
  for (const Waiter& each : waiting_) add(each.deadline);
  for (const auto& slot : slots_) {
    if (slot->is_free() && slot->keep_alive) add(slot->last_used + *slot->keep_alive);
  }
  return alarm;
}

HttpError ModelPool::no_room(const Waiter& waiter) const {
  const std::uint64_t left = ceiling_ - std::min(ceiling_, used_bytes());
  const bool too_many = slots_.size() >= static_cast<std::size_t>(options_.max_models);
  const std::string why =
      too_many
          ? fmt::format("{} of {} models are in memory and in use", slots_.size(),
                        options_.max_models)
          : fmt::format("it needs {} of memory and the models in use leave {} of {}",
                        format_bytes(waiter.floor), format_bytes(left), format_bytes(ceiling_));
  return HttpError(503, "unavailable_error",
                   fmt::format("{} found no place in {} seconds: {}; try again later",
                               waiter.entry.name, options_.max_wait.count() / 1000, why))
      .with_header("Retry-After", "30");
}

// Only where all models are in use: no request is refused that could be served.
bool ModelPool::refuse_late(Lock& lock) {
  const auto now = Clock::now();
  const auto late = std::find_if(waiting_.begin(), waiting_.end(),
                                 [&](const Waiter& each) { return each.deadline <= now; });
  if (late == waiting_.end()) return false;
  const HttpError error = no_room(*late);
  const Ticket ticket = late->ticket;
  refuse([&](const Waiter& each) { return each.ticket == ticket; }, error, lock);
  return true;
}

bool ModelPool::unload_expired(Lock& lock) {
  const auto now = Clock::now();
  const auto found = std::find_if(slots_.begin(), slots_.end(),
                                  [&](const auto& slot) { return slot->is_expired(now); });
  if (found == slots_.end()) return false;
  unload(std::shared_ptr<Slot>(*found), lock);
  return true;
}

// With the context that would fit if the model were alone.
EngineOptions ModelPool::options_for(const CatalogEntry& entry) const {
  EngineOptions options = options_.engine;
  options.memory_bytes = ceiling_;
  options.context_length = fitting_context(entry.path, options);
  return options;
}

// Finds the floor of the first waiter's model. True: it was found, or the request was refused.
bool ModelPool::find_floor(Lock& lock) {
  if (waiting_.front().floor > 0) return false;
  const CatalogEntry entry = waiting_.front().entry;
  const auto is_for_it = [&](const Waiter& each) { return each.entry.path == entry.path; };
  std::uint64_t floor = 0;
  std::optional<HttpError> error;
  lock.unlock();
  try {
    floor = plan_model(entry.path, options_for(entry)).floor_bytes();
    if (floor > ceiling_) error = too_large(entry, floor, ceiling_);
  } catch (const std::exception& cause) {
    error = load_error(entry, cause.what());
  }
  lock.lock();
  if (error) {
    ++counts_.n_failures;
    refuse(is_for_it, *error, lock);
    return true;
  }
  for (Waiter& each : waiting_) {
    if (is_for_it(each)) each.floor = floor;
  }
  return true;
}

// Loads the model of the first waiter, or unloads an idle one for it. False: all are in use.
bool ModelPool::load_next(Lock& lock) {
  const Waiter& next = waiting_.front();
  const std::uint64_t left = ceiling_ - std::min(ceiling_, used_bytes());
  const auto max_models = static_cast<std::size_t>(options_.max_models);
  const std::size_t n_places = max_models - std::min(slots_.size(), max_models);
  if (n_places > 0 && next.floor <= left) {
    load(next.entry, std::max(next.floor, left / n_places), lock);
    return true;
  }
  std::shared_ptr<Slot> idle;
  for (const auto& slot : slots_) {
    if (slot->is_free() && (idle == nullptr || slot->last_used < idle->last_used)) idle = slot;
  }
  room_wanted_ = idle == nullptr;
  if (idle == nullptr) return false;
  unload(idle, lock);
  return true;
}

void ModelPool::load(CatalogEntry entry, std::uint64_t bytes, Lock& lock) {
  const auto slot = std::make_shared<Slot>();
  std::optional<HttpError> error;
  lock.unlock();
  try {
    if (events_.loading) events_.loading(entry);
    EngineOptions options = options_for(entry);
    options.memory_bytes = bytes;
    options.progress = [&](std::uint64_t done, std::uint64_t total) {
      if (stopping_) fail(Errc::Cancelled, "the server is stopping");
      if (options_.engine.progress) options_.engine.progress(done, total);
    };
    slot->model = std::make_unique<LoadedModel>(entry, options, options_.service);
    slot->bytes = slot->model->engine().plan().used_bytes();
    if (events_.loaded) events_.loaded(*slot->model);
  } catch (const std::exception& cause) {
    error = load_error(entry, cause.what());
    if (events_.warning) events_.warning(error->what());
  }
  lock.lock();
  if (error) {
    ++counts_.n_failures;
    refuse([&](const Waiter& each) { return each.entry.path == entry.path; }, *error, lock);
    return;
  }
  ++counts_.n_loads;
  slot->last_used = Clock::now();
  slot->keep_alive = options_.keep_alive;
  slots_.push_back(slot);
  serve(slot, lock);
}

void ModelPool::unload(const std::shared_ptr<Slot>& slot, Lock& lock) {
  std::erase(slots_, slot);
  ++counts_.n_unloads;
  const CatalogEntry entry = slot->model->entry();
  lock.unlock();
  stop_and_save(*slot->model);
  slot->model.reset();
  if (events_.unloaded) events_.unloaded(entry);
  lock.lock();
}

void ModelPool::stop_and_save(LoadedModel& model) const {
  model.service().stop();
  try {
    model.engine().save_profile();
  } catch (const Error& error) {
    if (events_.warning) events_.warning(error.what());
  }
}

// All waiters for the model, wherever they stand in the queue: they need no further place.
void ModelPool::serve(const std::shared_ptr<Slot>& slot, Lock& lock) {
  const std::string path = slot->model->entry().path;
  std::vector<Waiter> waiters =
      take_waiters([&](const Waiter& each) { return each.entry.path == path; });
  std::vector<ModelLease> leases;
  for (const Waiter& each : waiters) {
    slot->keep_alive = each.keep_alive;
    leases.push_back(make_lease(slot, /*is_use=*/true));
  }
  lock.unlock();
  for (std::size_t i = 0; i < waiters.size(); ++i) waiters[i].receiver(std::move(leases[i]));
  waiters.clear();
  lock.lock();
}

void ModelPool::refuse(const std::function<bool(const Waiter&)>& matches, const HttpError& error,
                       Lock& lock) {
  std::vector<Waiter> waiters = take_waiters(matches);
  lock.unlock();
  for (const Waiter& each : waiters) each.receiver(error);
  waiters.clear();
  lock.lock();
}

}  // namespace moeflux
