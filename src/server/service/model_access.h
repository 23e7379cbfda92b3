// How a request gets its model: the only one of a server, or one of several by its name.
//
// With one model every name means it, and until it is loaded requests get 503. With a pool, a
// request for a model that is not in memory is put aside, no thread waits for it, and it is handled
// when the model is there; a client that leaves meanwhile is forgotten.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/json.h"
#include "server/http/router.h"
#include "server/service/model_pool.h"

namespace moeflux {

// A request with the model it is for.
struct ModelRequest {
  std::shared_ptr<MemoryShare> memory;  // reserved for all of it; null: not counted
  ModelLease model;
  Json body;  // an object; empty where the request has none
  ExchangePtr exchange;
};
using ModelHandler = std::function<void(const ModelRequest&)>;

struct ModelRoute {
  ModelHandler handler;
  ErrorForm error_form;
  // Ollama's bodies may say how long the model is to be kept, and of old call it "name".
  bool is_ollama = false;
  // Of several models: answers where the model need not be in memory. False: it must.
  std::function<bool(ModelPool&, const CatalogEntry&, const Json& body, const ExchangePtr&)>
      without_model = {};
};

// Has the answer given by the service: cancelled when the client leaves, and the model stays until
// it has ended. As GenerationService::start().
void start_answer(const ModelRequest& request, const GenerationRequest& generation,
                  GenerationSink sink, const std::function<void()>& accepted);

// The model a request names: of its path, its query or its body; "" when none. Throws HttpError.
std::string named_model(const HttpRequest& http, const Json& body, bool is_ollama);

class ModelAccess {
 public:
  // For a server of one model, which clients see under that name.
  explicit ModelAccess(std::string model_id) : model_id_(std::move(model_id)) {}

  void set_service(std::shared_ptr<GenerationService> service);
  void set_pool(ModelPool& pool) { pool_ = &pool; }  // before the first request
  // What the pool's thread has to do for requests is handed to them, so the pool is to be stopped
  // before they go.
  using Workers = std::function<void(std::function<void()>)>;
  void set_workers(Workers workers);

  ModelPool* pool() const { return pool_; }  // null: there is one model
  ModelLease only() const;                   // throws HttpError 503 while it is loaded
  bool is_ready() const;

  void answer(const std::shared_ptr<const ModelRoute>& route, const HttpRequest& http,
              const ExchangePtr& exchange) const;

 private:
  void wait(const std::shared_ptr<const ModelRoute>& route, const CatalogEntry& entry,
            std::optional<KeepAlive> keep_alive, ModelRequest request) const;
  void have_done(std::function<void()> work) const;

  const std::string model_id_;
  ModelPool* pool_ = nullptr;
  mutable std::mutex mutex_;
  Workers workers_;
  std::shared_ptr<GenerationService> service_;
};

}  // namespace moeflux
