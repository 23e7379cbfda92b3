// moeflux serve: answers over HTTP until it is told to stop.
#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/memory_budget.h"
#include "cli/commands/commands.h"
#include "cli/options/model_argument.h"
#include "cli/options/serve_options.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/stop_signals.h"
#include "engine/model_plan.h"
#include "server/dialects/error_forms.h"

namespace moeflux::cli {
namespace {

std::string describe_memory(const MemoryPlan& plan, std::uint64_t for_requests) {
  return fmt::format(
      "memory: {} of {}: {} dense, {} context, {} passes, {} requests, {} experts ({} of {} at a "
      "time)",
      format_bytes(plan.used_bytes()), format_bytes(plan.ceiling), format_bytes(plan.dense_bytes),
      format_bytes(plan.context_bytes), format_bytes(plan.scratch_bytes()),
      format_bytes(for_requests), format_bytes(plan.cache_bytes()), plan.n_slots, plan.max_slots);
}

void note_ready(const Engine& engine, const std::string& name, const std::string& url,
                const ServeOptions& options) {
  options.general.note(describe_memory(engine.plan(), options.memory.request_bytes));
  options.general.note(fmt::format("ready: {} at {}/v1, context {} tokens, {} at a time", name, url,
                                   engine.context_length(), options.parallel));
}

void note_stopping(std::size_t n_answers, const ServeOptions& options) {
  if (n_answers == 0) return;
  options.general.note(
      fmt::format("stopping: {} answers have {} seconds to end", n_answers, options.drain_seconds));
}

// Listens before any model is there: whoever asks is told, or waits.
class Listening {
 public:
  Listening(ServerApp& app, const ServeOptions& options)
      : server_(
            server_options(options),
            [&app](HttpRequest request, ExchangePtr exchange) {
              app.handle(std::move(request), exchange);
            },
            error_by_path) {
    app.set_connection_count([this] { return server_.n_connections(); });
    options.general.note(fmt::format("listening on {}", server_.url()));
    if (!is_loopback(options.host) && server_.port() > 0 && app.options().api_keys.empty())
      options.general.note("anybody who reaches this machine may use it: set --api-key");
  }
  HttpServer& server() { return server_; }

 private:
  HttpServer server_;
};

// A context that nobody asked for gives way to a small ceiling.
ModelOptions with_fitting_context(const ServeOptions& options, const std::string& model) {
  ModelOptions fitting = options.model;
  const std::int64_t context = fitting_context(model, engine_options(options.model));
  if (context > 0) fitting.context = context;
  return fitting;
}

int serve_one(const ServeOptions& options, const std::string& model) {
  const ServiceOptions for_service = service_options(options);
  const ModelOptions with_context = with_fitting_context(options, model);
  std::unique_ptr<Engine> engine;  // outlives all that follows
  ServerApp app(app_options(options, model));
  std::shared_ptr<GenerationService> service;
  Listening listening(app, options);
  HttpServer& server = listening.server();
  {
    const InterruptGuard guard;
    engine = open_engine(model, with_context, options.general);
  }
  service = std::make_shared<GenerationService>(*engine, for_service);
  const StopSignals signals;
  app.set_service(service);
  note_ready(*engine, app.options().model_id, server.url(), options);
  signals.wait();

  // Lets answers come to their end, then ends what is left.
  server.drain();
  const SchedulerStats stats = service->stats();
  note_stopping(stats.n_running + stats.n_waiting, options);
  service->drain(options.drain_time());
  service->stop();
  server.wait_until_empty(std::chrono::seconds(2));
  save_profile(*engine, options.general);
  return kSuccess;
}

// What is said of models that come and go, by the thread that loads them.
class PoolNotes {
 public:
  explicit PoolNotes(const ServeOptions& options) : options_(options) {}

  void set_url(std::string url) {
    const std::lock_guard lock(mutex_);
    url_ = std::move(url);
  }

  LoadProgress progress() {
    return [this](std::uint64_t done, std::uint64_t total) {
      if (bar_)
        bar_->update(done, total, fmt::format("{} of {}", format_bytes(done), format_bytes(total)));
    };
  }
  PoolEvents events() {
    return {.loading =
                [this](const CatalogEntry& entry) {
                  bar_.emplace(fmt::format("loading {}", entry.name),
                               options_.general.show_progress());
                },
            .loaded = [this](const LoadedModel& model) { loaded(model); },
            .unloaded =
                [this](const CatalogEntry& entry) {
                  options_.general.note(fmt::format("unloaded {}", entry.name));
                },
            .warning =
                [this](const std::string& text) {
                  bar_.reset();
                  options_.general.note(text);
                }};
  }

 private:
  void loaded(const LoadedModel& model) {
    bar_.reset();
    if (!model.engine().profile_warning().empty())
      options_.general.note(model.engine().profile_warning());
    const std::lock_guard lock(mutex_);
    note_ready(model.engine(), model.entry().name, url_, options_);
  }

  const ServeOptions& options_;
  std::mutex mutex_;
  std::string url_;
  std::optional<ProgressBar> bar_;
};

void note_models(const std::vector<CatalogEntry>& models, const ServeOptions& options) {
  std::size_t n_fine = 0;
  for (const CatalogEntry& each : models) {
    if (each.problem.empty())
      ++n_fine;
    else
      options.general.note(fmt::format("{} is left out: {}", each.name, each.problem));
  }
  options.general.note(fmt::format("models: {} in {}, loaded when they are asked for", n_fine,
                                   *options.model.models));
  if (n_fine == 0) options.general.note("there is nothing to serve until a model is put there");
}

int serve_several(const ServeOptions& options) {
  PoolNotes notes(options);
  PoolOptions for_pool = pool_options(options);
  for_pool.engine.progress = notes.progress();
  ModelPool pool(std::move(for_pool), notes.events());
  const std::vector<CatalogEntry> models = pool.models();  // throws where there is no directory
  ServerApp app(app_options(options, ""));
  app.models().set_pool(pool);
  const StopSignals signals;
  Listening listening(app, options);
  HttpServer& server = listening.server();
  notes.set_url(server.url());
  app.models().set_workers([&server](std::function<void()> work) { server.post(std::move(work)); });
  note_models(models, options);
  signals.wait();

  server.drain();
  std::size_t n_answers = 0;
  for (const PoolModel& each : pool.loaded()) {
    const SchedulerStats stats = each.lease.service->stats();
    n_answers += stats.n_running + stats.n_waiting;
  }
  note_stopping(n_answers, options);
  pool.drain(options.drain_time());
  pool.stop();
  server.wait_until_empty(std::chrono::seconds(2));
  return kSuccess;
}

// One model where one is named; --models on the command line says more than a default.
bool wants_several(const ServeOptions& options, const std::vector<std::string>& arguments,
                   const std::vector<std::string>& given) {
  if (!options.model.models || options.model.model || !arguments.empty()) return false;
  return !options.model.default_model ||
         std::find(given.begin(), given.end(), "--models") != given.end();
}

}  // namespace

void add_serve_command(CommandLine& line) {
  const auto options = std::make_shared<ServeOptions>();
  Command& command = line.add("serve", "Answer over HTTP, as the OpenAI API does.");
  command.arguments("[MODEL]", 1);
  add_serve_options(command, *options);
  command.example("serve")
      .example("serve /data/qwen --ram 16G --port 8080")
      .example("serve --models /data/models --max-models 2 --keep-alive 30m")
      .example("serve --host 0.0.0.0 --api-key-file keys.txt --parallel 4")
      .example("serve --host /run/user/1000/moeflux.sock");
  command.note("GET /health answers 503 while the model is loaded and 200 afterwards.")
      .note("With --models and no MODEL, each is loaded when a request names it.")
      .note("SIGTERM or Ctrl-C lets answers come to their end, a second one ends at once.");
  command.run([options, &command](const std::vector<std::string>& arguments) {
    check_serve_options(*options);
    keep_heap_small();
    if (wants_several(*options, arguments, command.given())) return serve_several(*options);
    return serve_one(*options, only_model(options->model, arguments));
  });
}

}  // namespace moeflux::cli
