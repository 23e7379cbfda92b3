#include "server/dialects/ollama/pull.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "hub/pull.h"
#include "server/dialects/errors.h"
#include "server/dialects/ollama/ollama.h"
#include "server/dialects/request_fields.h"
#include "server/service/model_pool.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxPulls = 4;

// The lines that tell how far each large file has come, as often as something has changed.
class PullLines {
 public:
  explicit PullLines(ExchangePtr exchange) : exchange_(std::move(exchange)) {}

  void status(const std::string& text) { write({{"status", text}}); }
  void write(const Json& line) { exchange_->write(dump_json(line) + "\n"); }

  void progress(const TransferState& state) {
    if (exchange_->backlog() > 0) return;  // the client takes its time
    for (const TransferState::File& file : state.files) {
      if (file.item->hash != BlobHash::Sha256) continue;
      std::uint64_t& told = told_.try_emplace(file.item->digest, UINT64_MAX).first->second;
      if (told == file.done) continue;
      told = file.done;
      write({{"status", "pulling " + file.item->digest.substr(0, 12)},
             {"digest", "sha256:" + file.item->digest},
             {"total", file.item->size},
             {"completed", file.done}});
    }
  }

 private:
  const ExchangePtr exchange_;
  std::map<std::string, std::uint64_t> told_;
};

struct PullJob {
  HubReference reference;
  HubSettings settings;
  ExchangePtr exchange;
  bool stream = true;
  std::shared_ptr<std::atomic<bool>> left = std::make_shared<std::atomic<bool>>(false);
};

void fetch(const PullJob& job, const std::atomic<bool>& stopped, PullLines& lines) {
  PullOptions options;
  options.client.settings = job.settings;
  options.client.cancelled = [&] { return stopped || *job.left; };
  if (job.stream) {
    options.progress = [&](const TransferState& state) { lines.progress(state); };
    options.linking = [&] {
      lines.status("verifying sha256 digest");  // it was, while the bytes came
      lines.status("writing manifest");
    };
  }
  pull_model(job.reference, {}, options);
}

void run(const PullJob& job, const std::atomic<bool>& stopped) {
  PullLines lines(job.exchange);
  if (!job.stream) {
    answering(*job.exchange, ollama_error, [&] {
      fetch(job, stopped, lines);
      job.exchange->respond({.body = dump_json({{"status", "success"}})});
    });
    return;
  }
  job.exchange->begin_stream({.content_type = "application/x-ndjson", .ping = " "});
  lines.status("pulling manifest");
  try {
    fetch(job, stopped, lines);
    lines.status("success");
  } catch (const std::exception& error) {
    lines.write({{"error", error.what()}});
  }
  job.exchange->finish();
}

class PullJobs {
 public:
  ~PullJobs() { stopped_ = true; }  // threads_ waits for them

  void start(PullJob job) {
    const std::lock_guard lock(mutex_);
    threads_.remove_if([](const Running& each) { return each.ended->load(); });
    if (threads_.size() >= kMaxPulls) {
      throw HttpError(
          429, "rate_limit_error",
          fmt::format("{} models are being pulled already; try again later", kMaxPulls));
    }
    auto ended = std::make_shared<std::atomic<bool>>(false);
    job.exchange->on_gone([left = job.left] { *left = true; });
    threads_.push_back({ended, std::jthread([this, job = std::move(job), ended] {
                          run(job, stopped_);
                          *ended = true;
                        })});
  }

 private:
  struct Running {
    std::shared_ptr<std::atomic<bool>> ended;
    std::jthread thread;
  };
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  std::list<Running> threads_;
};

void pull(const ServerApp& app, const HttpRequest& request, const ExchangePtr& exchange,
          PullJobs& jobs) {
  const ModelPool* const pool = app.models().pool();
  if (pool == nullptr || !app.options().hub) {
    throw HttpError(501, "not_supported_error",
                    "this server has one model and pulls no others; start it with --models DIR, or "
                    "run moeflux pull");
  }
  const Json body = parse_body(request);
  const RequestFields fields(body);
  const std::string name = read_ollama_model(body);
  if (name.empty()) fields.refuse("model", "is missing");
  PullJob job{.reference = {}, .settings = app.options().hub(), .exchange = exchange};
  job.settings.cache = pool->options().directory;
  job.stream = fields.boolean("stream").value_or(true);
  try {
    job.reference = parse_hub_reference(name, job.settings);
  } catch (const Error& error) {
    fields.refuse("model", fmt::format("is {}", error.what()));
  }
  jobs.start(std::move(job));
}

}  // namespace

void add_pull_route(ServerApp& app) {
  const auto jobs = std::make_shared<PullJobs>();
  app.add_route({.method = "POST",
                 .pattern = "/api/pull",
                 .handler =
                     [&app, jobs](const HttpRequest& request, const ExchangePtr& exchange) {
                       pull(app, request, exchange, *jobs);
                     },
                 .error_form = ollama_error});
}

}  // namespace moeflux
