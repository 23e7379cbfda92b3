// The events that say what an engine does.
#include "server/service/engine_feed.h"

#include <gtest/gtest.h>

#include "server/demo_server.h"
#include "server/pool_server.h"
#include "server/recording_exchange.h"

namespace moeflux::test {
namespace {

struct Event {
  std::string name;
  Json data;
};

// A client of /engine/events.
class Listener {
 public:
  explicit Listener(int port, const std::string& query = "") : client_(port) {
    client_.get("/engine/events" + query);
    head = client_.read_head();
  }
  // The next event; pings are left out.
  Event next() {
    while (true) {
      const std::string text = client_.read_until("\n\n");
      const std::size_t name = text.find("event: "), data = text.find("data: ");
      if (text.empty()) return {};
      if (name == std::string::npos || data == std::string::npos) continue;
      return {text.substr(name + 7, text.find('\n', name) - name - 7),
              parse_json(text.substr(data + 6, text.find('\n', data) - data - 6), "event")};
    }
  }
  void leave() { client_.close(); }

  ClientResponse head;

 private:
  HttpClient client_;
};

// What a client knows after some events.
struct Known {
  std::string locations;
  Json state;
  std::uint64_t n_hits = 0, n_misses = 0;

  void take(const Event& event) {
    if (event.name == "state") {
      locations = event.data.at("locations");
      state = event.data;
      return;
    }
    const std::vector<std::string> names{"drive", "reading", "memory", "device"};
    for (const auto& [name, ids] : event.data.at("moved").items()) {
      const auto digit = std::find(names.begin(), names.end(), name) - names.begin();
      for (const Json& id : ids)
        locations.at(id.get<std::size_t>()) = static_cast<char>('0' + digit);
    }
    n_hits += event.data.at("hits").size();
    n_misses += event.data.at("misses").size();
    for (const auto& [name, value] : event.data.items()) state[name] = value;
  }
  std::uint64_t counter(const std::string& name) const {
    return state.at("counters").at(name).get<std::uint64_t>();
  }
};

DemoOptions small_memory() {
  return {.n_parallel = 1, .context = 512, .adjust = [](EngineOptions& engine) {
            engine.memory_bytes = std::uint64_t{100} << 20;
          }};
}

TEST(EngineFeedTest, TheStateComesFirst) {
  DemoServer server(small_memory());
  Listener listener(server.port());
  EXPECT_EQ(listener.head.status, 200);
  EXPECT_EQ(listener.head.headers.at("content-type"), "text/event-stream");
  const Event first = listener.next();
  EXPECT_EQ(first.name, "state");
  const Json& state = first.data;
  EXPECT_EQ(state.at("version"), 1);
  EXPECT_EQ(state.at("model").at("name"), "demo");
  EXPECT_EQ(state.at("model").at("family"), "qwen3_5_moe");
  EXPECT_EQ(state.at("model").at("context"), 512);
  EXPECT_EQ(state.at("model").at("parallel"), 1);
  EXPECT_EQ(state.at("model").at("threads"), 1);
  EXPECT_EQ(state.at("model").at("expert_bytes_per_token"), 8 * 8 * 27648);
  ASSERT_EQ(state.at("layers").size(), 9u);
  EXPECT_EQ(state.at("layers")[2],
            Json({{"layer", "2"}, {"experts", 64}, {"top_k", 8}, {"expert_bytes", 27648}}));
  EXPECT_EQ(state.at("layers")[8].at("layer"), "mtp");
  EXPECT_EQ(state.at("locations").get<std::string>().size(), 576u);
  for (const char* section :
       {"counters", "answers", "cache", "lookahead", "drafts", "memory", "machine"})
    EXPECT_TRUE(state.contains(section)) << section;
  EXPECT_EQ(state.at("memory").at("ceiling"), std::uint64_t{100} << 20);
  std::uint64_t sum = 0;
  for (const auto& [owner, bytes] : state.at("memory").at("owners").items())
    sum += bytes.get<std::uint64_t>();
  EXPECT_LE(sum, std::uint64_t{100} << 20);
  EXPECT_GT(state.at("memory").at("owners").at("expert cache").get<std::uint64_t>(), 0u);
  EXPECT_GT(state.at("memory").at("resident").get<std::uint64_t>(), 1u << 20);
}

TEST(EngineFeedTest, ChangesAddUpToTheState) {
  DemoServer server(small_memory());
  server.post("/v1/chat/completions", sum_question());  // something has been counted already
  Listener listener(server.port());
  Known known;
  known.take(listener.next());
  ASSERT_FALSE(known.state.empty());
  const std::uint64_t hits = known.counter("hits"), misses = known.counter("misses");
  EXPECT_GT(hits + misses, 0u);
  const std::uint64_t tokens = known.counter("tokens");
  EXPECT_GT(tokens, 5u);

  const ClientResponse answer =
      server.post("/v1/chat/completions", question("Tell me a short story about a frog."));
  const std::uint64_t n_answer = answer.json().at("usage").at("completion_tokens");
  double last = known.state.at("seconds");
  bool had_reads = false;
  while (known.counter("tokens") < tokens + n_answer ||
         known.state.at("answers").at("running") != 0) {
    const Event event = listener.next();
    ASSERT_EQ(event.name, "change");
    EXPECT_GT(event.data.at("seconds").get<double>(), last);
    last = event.data.at("seconds");
    had_reads |= event.data.at("moved").contains("reading");
    known.take(event);
  }
  EXPECT_TRUE(had_reads);
  EXPECT_EQ(known.counter("hits") - hits, known.n_hits);
  EXPECT_EQ(known.counter("misses") - misses, known.n_misses);
  EXPECT_GT(known.n_misses, 100u);
  EXPECT_GE(known.counter("prompt_tokens"), 20u);

  // The engine rests now, and nobody else looks at it.
  const Event now = Listener(server.port()).next();
  EXPECT_EQ(now.data.at("locations"), known.locations);
  EXPECT_EQ(now.data.at("counters"), known.state.at("counters"));
  EXPECT_EQ(std::count(known.locations.begin(), known.locations.end(), '2'),
            static_cast<std::ptrdiff_t>(server.engine().experts().cache().n_held()));
}

TEST(EngineFeedTest, OnlyWhatHasChangedIsSaid) {
  DemoServer server(small_memory());
  Listener listener(server.port());
  ASSERT_EQ(listener.next().name, "state");
  Listener second(server.port());  // asks the engine for another frame
  const Event change = listener.next();
  EXPECT_EQ(change.name, "change");
  for (const char* section : {"lookahead", "drafts", "cache", "machine", "answers", "model"})
    EXPECT_FALSE(change.data.contains(section)) << section;
  EXPECT_EQ(change.data.at("hits"), Json::array());
  EXPECT_EQ(second.next().name, "state");
}

TEST(EngineFeedTest, NothingHappensWhileNobodyListens) {
  DemoServer server(small_memory());
  {
    Listener listener(server.port());
    ASSERT_EQ(listener.next().name, "state");
    EXPECT_EQ(server.service().feed().n_listeners(), 1u);
    listener.leave();
  }
  EXPECT_TRUE(comes_true([&] { return server.service().feed().n_listeners() == 0; }));
  server.post("/v1/chat/completions", sum_question());
  EngineFrame frame;
  server.engine().watch().take(frame);  // one may have been on its way
  server.post("/v1/chat/completions", sum_question());
  EXPECT_FALSE(server.engine().watch().take(frame));
}

TEST(EngineFeedTest, ManyListenAtATime) {
  DemoServer server(small_memory());
  std::vector<std::unique_ptr<Listener>> listeners;
  for (int i = 0; i < 5; ++i) listeners.push_back(std::make_unique<Listener>(server.port()));
  for (const auto& each : listeners) EXPECT_EQ(each->next().name, "state");
  listeners[2]->leave();
  EXPECT_TRUE(comes_true([&] { return server.service().feed().n_listeners() == 4; }));
  server.post("/v1/chat/completions", sum_question());
  for (const int i : {0, 1, 3, 4}) {
    std::size_t n_hits = 0;
    while (n_hits < 100)
      n_hits += listeners[static_cast<std::size_t>(i)]->next().data.at("hits").size();
  }
}

// A client whose bytes are not taken, as a test says.
class SlowExchange final : public Exchange {
 public:
  void add_header(std::string, std::string) override {}
  void respond(HttpResponse) override {}
  void begin_stream(StreamHead) override {}
  void write(std::string bytes) override {
    const std::lock_guard lock(mutex);
    stream += bytes;
  }
  void finish() override {}
  std::size_t backlog() override { return waiting; }
  void on_gone(std::function<void()>) override {}
  std::size_t count(const std::string& what) {
    const std::lock_guard lock(mutex);
    std::size_t n = 0;
    for (std::size_t at = 0; (at = stream.find(what, at)) != std::string::npos; ++at) ++n;
    return n;
  }

  std::atomic<std::size_t> waiting{0};
  std::mutex mutex;
  std::string stream;
};

TEST(EngineFeedTest, WhoIsSlowGetsANewStateLater) {
  DemoServer server(small_memory());
  EngineFeed& feed = server.service().feed();
  const auto slow = std::make_shared<SlowExchange>();
  feed.add(slow, "demo", [](std::function<void()> work) { work(); });
  EXPECT_TRUE(comes_true([&] { return slow->count("event: state") == 1; }));
  slow->waiting = 1 << 20;
  server.post("/v1/chat/completions", sum_question());
  EXPECT_EQ(slow->count("event: change"), 0u);
  slow->waiting = 0;
  server.post("/v1/chat/completions", sum_question());
  EXPECT_TRUE(comes_true([&] { return slow->count("event: state") == 2; }));
}

TEST(EngineFeedTest, EndsBeforeTheModelGoes) {
  DemoServer server(small_memory());
  Listener listener(server.port());
  ASSERT_EQ(listener.next().name, "state");
  server.service().drain(std::chrono::milliseconds(100));
  Event event = listener.next();
  while (event.name == "change") event = listener.next();
  EXPECT_EQ(event.name, "end");
  const ClientResponse late = server.get("/engine/events");
  EXPECT_EQ(late.status, 503);
}

TEST(EngineFeedTest, SaysThatTheModelIsBeingLoaded) {
  DemoServer server({.loaded = false});
  EXPECT_EQ(server.get("/engine/events").status, 503);
}

TEST(EngineFeedTest, OfSeveralModelsOneInMemory) {
  PoolServer server;
  const ClientResponse none = server.get("/engine/events");
  EXPECT_EQ(none.status, 503);
  EXPECT_EQ(none.json().at("error").at("message"), "no model is in memory");
  EXPECT_EQ(server.get("/engine/events?model=other").status, 404);
  EXPECT_EQ(server.post("/v1/chat/completions", sum_for("demo")).status, 200);
  Listener listener(server.port());
  const Event state = listener.next();
  EXPECT_EQ(state.name, "state");
  EXPECT_EQ(state.data.at("model").at("name"), "demo");
  EXPECT_EQ(server.get("/engine/events?model=mla").status, 503);
  // Who looks on does not keep the model in memory.
  EXPECT_EQ(server.post("/v1/chat/completions", sum_for("mla")).status, 200);
  EXPECT_EQ(server.loaded(), "org/mla");
  Event event = listener.next();
  while (event.name == "change") event = listener.next();
  EXPECT_EQ(event.name, "end");
  EXPECT_EQ(Listener(server.port(), "?model=mla").next().data.at("model").at("name"), "org/mla");
}

}  // namespace
}  // namespace moeflux::test
