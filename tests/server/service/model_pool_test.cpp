// The rules by which models come and go, without a server around them.
#include "server/service/model_pool.h"

#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "engine/model_plan.h"
#include "server/pool_server.h"
#include "support/expect_error.h"

namespace moeflux::test {
namespace {

using namespace std::chrono_literals;

// What has become of a request: waits for the loader.
class Asked {
 public:
  Asked(ModelPool& pool, const std::string& name, std::optional<KeepAlive> keep_alive = {})
      : ticket_(pool.new_ticket()) {
    const CatalogEntry entry = pool.find(name);
    if (auto lease = pool.try_lease(entry, keep_alive)) {
      result_.set_value(std::move(*lease));
      return;
    }
    pool.wait_for(ticket_, entry, keep_alive,
                  [this](ModelPool::LeaseResult result) { result_.set_value(std::move(result)); });
  }
  ModelPool::Ticket ticket() const { return ticket_; }
  bool waits() { return future_.wait_for(0s) != std::future_status::ready; }
  ModelLease lease() {
    ModelPool::LeaseResult result = future_.get();
    if (const auto* error = std::get_if<HttpError>(&result)) ADD_FAILURE() << error->what();
    return std::get<ModelLease>(std::move(result));
  }
  HttpError error() {
    ModelPool::LeaseResult result = future_.get();
    return std::get<HttpError>(std::move(result));
  }

 private:
  ModelPool::Ticket ticket_;
  std::promise<ModelPool::LeaseResult> result_;
  std::future<ModelPool::LeaseResult> future_ = result_.get_future();
};

class ModelPoolTest : public testing::Test {
 protected:
  void open(PoolOptions options, PoolEvents events = {}) {
    options.directory = directory_.path();
    pool_ = std::make_unique<ModelPool>(std::move(options), std::move(events));
  }
  std::string loaded() {
    std::string names;
    for (const PoolModel& each : pool_->loaded())
      names += (names.empty() ? "" : " ") + each.entry.name;
    return names;
  }
  std::uint64_t floor(const std::string& name) {
    return plan_model(pool_->find(name).path, pool_->options().engine).floor_bytes();
  }

  ModelDirectory directory_;
  std::unique_ptr<ModelPool> pool_;
};

TEST_F(ModelPoolTest, NamesOfModels) {
  open(pool_options());
  EXPECT_EQ(pool_->find("mla").name, "org/mla");
  EXPECT_EQ(pool_->find("DEMO:latest").name, "demo");
  const auto status = [&](const std::string& name) {
    try {
      return pool_->find(name).name;
    } catch (const HttpError& error) {
      return std::to_string(error.status()) + " " + error.param();
    }
  };
  EXPECT_EQ(status("gpt-4o"), "404 model");
  EXPECT_EQ(status(""), "400 model");  // two that could be meant
  { const ModelLease lease = Asked(*pool_, "demo").lease(); }
  EXPECT_EQ(status(""), "demo");
}

TEST_F(ModelPoolTest, OneTakesThePlaceOfTheOther) {
  open(pool_options());
  { EXPECT_EQ(Asked(*pool_, "demo").lease().name, "demo"); }
  EXPECT_EQ(loaded(), "demo");
  EXPECT_TRUE(pool_->try_lease(pool_->find("demo"), {}).has_value());
  EXPECT_FALSE(pool_->try_lease(pool_->find("mla"), {}).has_value());
  { EXPECT_EQ(Asked(*pool_, "mla").lease().name, "org/mla"); }
  EXPECT_EQ(loaded(), "org/mla");
  const PoolStats stats = pool_->stats();
  EXPECT_EQ(stats.n_loads, 2u);
  EXPECT_EQ(stats.n_unloads, 1u);
}

TEST_F(ModelPoolTest, ManyWaitForOneLoad) {
  std::promise<void> go;
  std::shared_future<void> gate = go.get_future().share();
  open(pool_options(), {.loading = [gate](const CatalogEntry&) { gate.wait(); }});
  Asked first(*pool_, "demo"), second(*pool_, "demo"), third(*pool_, "demo");
  pool_->forget(second.ticket());
  go.set_value();
  const ModelLease a = first.lease(), c = third.lease();
  EXPECT_EQ(a.service, c.service);
  EXPECT_TRUE(second.waits());
  EXPECT_EQ(pool_->stats().n_loads, 1u);
}

TEST_F(ModelPoolTest, AModelInUseStaysAndOthersWaitInTurn) {
  open(pool_options());
  std::optional<ModelLease> demo = Asked(*pool_, "demo").lease();
  Asked mla(*pool_, "mla");
  // Somebody waits for its place: who comes now is later.
  ASSERT_TRUE(comes_true([&] { return !pool_->try_lease(pool_->find("demo"), {}); }));
  Asked again(*pool_, "demo");
  EXPECT_TRUE(mla.waits());
  EXPECT_TRUE(again.waits());
  EXPECT_EQ(loaded(), "demo");
  demo.reset();
  { EXPECT_EQ(mla.lease().name, "org/mla"); }
  { EXPECT_EQ(again.lease().name, "demo"); }
  EXPECT_EQ(pool_->stats().n_loads, 3u);
}

TEST_F(ModelPoolTest, WaitingForAPlaceHasAnEnd) {
  PoolOptions options = pool_options();
  options.max_wait = 20ms;
  open(std::move(options));
  const ModelLease demo = Asked(*pool_, "demo").lease();
  const HttpError error = Asked(*pool_, "mla").error();
  EXPECT_EQ(error.status(), 503);
  EXPECT_EQ(error.headers().at(0), std::pair(std::string("Retry-After"), std::string("30")));
  EXPECT_NE(std::string(error.what()).find("1 of 1 models"), std::string::npos) << error.what();
  EXPECT_TRUE(pool_->try_lease(pool_->find("demo"), {}) ||
              comes_true([&] { return pool_->try_lease(pool_->find("demo"), {}).has_value(); }));
}

TEST_F(ModelPoolTest, NotAllMayWait) {
  PoolOptions options = pool_options();
  options.max_waiting = 1;
  open(std::move(options));
  const ModelLease demo = Asked(*pool_, "demo").lease();
  Asked waits(*pool_, "mla");
  try {
    Asked(*pool_, "mla");
    ADD_FAILURE();
  } catch (const HttpError& error) {
    EXPECT_EQ(error.status(), 429);
  }
  pool_->forget(waits.ticket());
  EXPECT_EQ(pool_->stats().n_waiting, 0u);
}

TEST_F(ModelPoolTest, SeveralShareTheMemory) {
  PoolOptions options = pool_options();
  options.max_models = 2;
  open(options);
  options.engine.memory_bytes = floor("demo") + floor("mla") + (1 << 20);
  open(options);
  const ModelLease demo = Asked(*pool_, "demo").lease(), mla = Asked(*pool_, "mla").lease();
  EXPECT_EQ(loaded(), "demo org/mla");
  const MemoryPlan& a = demo.service->engine().plan();
  const MemoryPlan& b = mla.service->engine().plan();
  EXPECT_LE(a.used_bytes() + b.used_bytes(), options.engine.memory_bytes);
  EXPECT_LE(a.ceiling, options.engine.memory_bytes - floor("mla"));
  EXPECT_EQ(pool_->stats().used_bytes, a.used_bytes() + b.used_bytes());
  EXPECT_EQ(pool_->stats().ceiling, options.engine.memory_bytes);
}

TEST_F(ModelPoolTest, AnIdleModelGivesItsMemory) {
  PoolOptions options = pool_options();
  options.max_models = 2;
  open(options);
  options.engine.memory_bytes = std::max(floor("demo"), floor("mla")) + (4 << 20);
  options.max_wait = 20ms;
  open(options);
  std::optional<ModelLease> demo = Asked(*pool_, "demo").lease();
  const HttpError error = Asked(*pool_, "mla").error();  // in use: it does not
  EXPECT_EQ(error.status(), 503);
  EXPECT_NE(std::string(error.what()).find("of memory and the models in use leave"),
            std::string::npos)
      << error.what();
  demo.reset();
  const ModelLease mla = Asked(*pool_, "mla").lease();
  EXPECT_EQ(loaded(), "org/mla");
  EXPECT_LE(mla.service->engine().plan().used_bytes(), options.engine.memory_bytes);
}

TEST_F(ModelPoolTest, WhatCanNeverFitIsRefusedAtOnce) {
  PoolOptions options = pool_options();
  options.engine.memory_bytes = 32 << 20;
  open(std::move(options));
  const HttpError error = Asked(*pool_, "demo").error();
  EXPECT_EQ(error.status(), 400);
  EXPECT_EQ(error.param(), "model");
  EXPECT_NE(std::string(error.what()).find("32.0 MiB are all"), std::string::npos) << error.what();
  EXPECT_EQ(error.numbers().at(1),
            (std::pair<std::string, std::int64_t>("allowed_bytes", 32 << 20)));
  EXPECT_EQ(pool_->stats().n_failures, 1u);
}

TEST_F(ModelPoolTest, KeepAlive) {
  PoolOptions options = pool_options();
  options.keep_alive = 30s;
  open(std::move(options));
  {
    const ModelLease lease = Asked(*pool_, "demo").lease();
    EXPECT_TRUE(pool_->loaded().at(0).in_use);
  }
  const PoolModel idle = pool_->loaded().at(0);
  EXPECT_FALSE(idle.in_use);
  EXPECT_GT(*idle.expires, std::chrono::system_clock::now() + 20s);
  EXPECT_LE(*idle.expires, std::chrono::system_clock::now() + 30s);
  { const ModelLease lease = Asked(*pool_, "demo", KeepAlive()).lease(); }
  EXPECT_FALSE(pool_->loaded().at(0).expires.has_value());  // for ever
  {
    const ModelLease lease = Asked(*pool_, "demo", KeepAlive(0ms)).lease();
    EXPECT_EQ(loaded(), "demo");
  }
}

TEST_F(ModelPoolTest, AnIdleModelGoesWhenItsTimeIsOver) {
  std::promise<std::string> unloaded;
  open(pool_options(),
       {.unloaded = [&](const CatalogEntry& entry) { unloaded.set_value(entry.name); }});
  { const ModelLease lease = Asked(*pool_, "demo", KeepAlive(1ms)).lease(); }
  EXPECT_EQ(unloaded.get_future().get(), "demo");
  EXPECT_EQ(loaded(), "");
  EXPECT_EQ(pool_->stats().used_bytes, 0u);
}

TEST_F(ModelPoolTest, UnloadingWaitsForWhoUsesIt) {
  open(pool_options());
  std::optional<ModelLease> lease = Asked(*pool_, "demo").lease();
  EXPECT_FALSE(pool_->unload(pool_->find("mla")));
  EXPECT_TRUE(pool_->unload(pool_->find("demo")));
  EXPECT_EQ(loaded(), "demo");
  EXPECT_EQ(lease->service->tokenizer().decode(lease->service->tokenizer().encode_data("a b")),
            "a b");
  lease.reset();
  EXPECT_TRUE(comes_true([&] { return loaded().empty(); }));
}

TEST_F(ModelPoolTest, ALoadThatFailsHarmsNobodyElse) {
  std::string warned;
  open(pool_options(), {.loading =
                            [](const CatalogEntry& entry) {
                              if (entry.name == "demo") fail(Errc::Io, "the drive is gone");
                            },
                        .warning = [&](const std::string& text) { warned = text; }});
  const HttpError error = Asked(*pool_, "demo").error();
  EXPECT_EQ(error.status(), 500);
  EXPECT_STREQ(error.what(), "demo cannot be loaded: the drive is gone");
  EXPECT_EQ(Asked(*pool_, "mla").lease().name, "org/mla");
  EXPECT_EQ(warned, error.what());
  try {
    Asked(*pool_, "broken");
    ADD_FAILURE();
  } catch (const HttpError& known) {
    EXPECT_EQ(known.status(), 500);
    EXPECT_NE(std::string(known.what()).find("no weights"), std::string::npos) << known.what();
  }
}

TEST_F(ModelPoolTest, StoppingEndsWaiting) {
  open(pool_options());
  const ModelLease demo = Asked(*pool_, "demo").lease();
  Asked mla(*pool_, "mla");
  EXPECT_TRUE(pool_->drain(1s));
  EXPECT_EQ(mla.error().status(), 503);
  EXPECT_FALSE(pool_->try_lease(pool_->find("demo"), {}).has_value());
  EXPECT_THROW(Asked(*pool_, "demo"), HttpError);
  pool_->stop();
}

TEST(KeepAliveTest, IsReadInAllForms) {
  const auto ms = [](const Json& value) {
    const KeepAlive keep = read_keep_alive(value);
    return keep ? keep->count() : -1;
  };
  EXPECT_EQ(ms(300), 300'000);
  EXPECT_EQ(ms(1.5), 1500);
  EXPECT_EQ(ms(0), 0);
  EXPECT_EQ(ms(-1), -1);
  EXPECT_EQ(ms("5m"), 300'000);
  EXPECT_EQ(ms("1h30m"), 5'400'000);
  EXPECT_EQ(ms("1m1.5s"), 61'500);
  EXPECT_EQ(ms("250ms"), 250);
  EXPECT_EQ(ms("90"), 90'000);
  EXPECT_EQ(ms("0"), 0);
  EXPECT_EQ(ms("-1m"), -1);
}

TEST(KeepAliveTest, WhatIsNoTimeIsRefused) {
  for (const Json& value :
       {Json("soon"), Json(""), Json("-"), Json("5 m"), Json("5x"), Json("m"), Json("1m5"),
        Json("--5m"), Json("nan"), Json("1e9"), Json(true), Json::array()}) {
    expect_error(Errc::BadInput, {"is no time"}, [&] { read_keep_alive(value); });
  }
  EXPECT_FALSE(read_keep_alive(1e300).has_value());
}

}  // namespace
}  // namespace moeflux::test
