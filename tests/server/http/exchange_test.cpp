#include "server/http/exchange.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

namespace moeflux::test {
namespace {

LiveExchange::Form form() {
  return {.keep_alive = true, .chunked = true, .head_only = false, .queue_bytes = 1000};
}

TEST(LiveExchangeTest, AResponseIsHeadAndBody) {
  int n_woken = 0;
  LiveExchange exchange(form(), [&] { ++n_woken; });
  exchange.add_header("Vary", "Origin");
  exchange.respond({.status = 404, .body = "{}", .headers = {{"Allow", "GET\r\nX: y"}}});
  const LiveExchange::Taken taken = exchange.take();
  EXPECT_EQ(taken.bytes,
            "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nVary: Origin\r\n"
            "Allow: GET  X: y\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\n{}");
  EXPECT_TRUE(taken.done);
  EXPECT_TRUE(taken.keep_alive);
  EXPECT_EQ(n_woken, 1);
  exchange.respond({.body = "again"});
  EXPECT_EQ(exchange.take().bytes, "");
}

TEST(LiveExchangeTest, AStreamIsChunksAndPings) {
  LiveExchange exchange(form(), [] {});
  exchange.begin_stream({});
  EXPECT_EQ(
      exchange.take().bytes,
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
      "X-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n");
  exchange.write("data: 1\n\n");
  exchange.ping();
  EXPECT_EQ(exchange.take().bytes, "9\r\ndata: 1\n\n\r\n8\r\n: ping\n\n\r\n");
  EXPECT_FALSE(exchange.take().done);
  exchange.finish();
  const LiveExchange::Taken taken = exchange.take();
  EXPECT_EQ(taken.bytes, "0\r\n\r\n");
  EXPECT_TRUE(taken.done);
  exchange.write("late");
  exchange.ping();
  EXPECT_EQ(exchange.take().bytes, "");
}

TEST(LiveExchangeTest, WhatIsKnownIsNotSentAgain) {
  LiveExchange exchange(form(), [] {});
  exchange.respond({.status = 304, .body = "known", .headers = {{"ETag", "\"x\""}}});
  const std::string bytes = exchange.take().bytes;
  EXPECT_NE(bytes.find("304 Not Modified\r\n"), std::string::npos) << bytes;
  EXPECT_TRUE(bytes.ends_with("Content-Length: 5\r\nConnection: keep-alive\r\n\r\n")) << bytes;
}

TEST(LiveExchangeTest, SaysWhatWaitsForTheClient) {
  LiveExchange exchange(form(), [] {});
  exchange.begin_stream({});
  exchange.take();
  EXPECT_EQ(exchange.backlog(), 0u);
  exchange.write("data: 1\n\n");
  EXPECT_GE(exchange.backlog(), 9u);
  exchange.take();
  EXPECT_EQ(exchange.backlog(), 0u);
}

TEST(LiveExchangeTest, OldClientsGetAStreamThatEndsWithTheConnection) {
  LiveExchange::Form old = form();
  old.chunked = old.keep_alive = false;
  LiveExchange exchange(old, [] {});
  exchange.begin_stream({.content_type = "application/x-ndjson", .ping = ""});
  exchange.write("{}\n");
  exchange.finish();
  const std::string bytes = exchange.take().bytes;
  EXPECT_EQ(bytes.find("Transfer-Encoding"), std::string::npos);
  EXPECT_NE(bytes.find("Connection: close\r\n\r\n{}\n"), std::string::npos) << bytes;
}

TEST(LiveExchangeTest, AClientThatLeavesIsToldOnce) {
  LiveExchange exchange(form(), [] {});
  int n_gone = 0;
  exchange.begin_stream({});
  exchange.on_gone([&] { ++n_gone; });
  exchange.abandon();
  exchange.abandon();
  EXPECT_EQ(n_gone, 1);
  exchange.on_gone([&] { ++n_gone; });  // too late: at once
  EXPECT_EQ(n_gone, 2);
}

TEST(LiveExchangeTest, AFullQueueCountsAsGone) {
  LiveExchange exchange(form(), [] {});
  int n_gone = 0;
  exchange.begin_stream({});
  exchange.on_gone([&] { ++n_gone; });
  exchange.write(std::string(2000, 'x'));
  EXPECT_EQ(n_gone, 1);
  EXPECT_TRUE(exchange.take().gone);
  exchange.write("more");
  EXPECT_EQ(exchange.take().bytes, "");
}

TEST(LiveExchangeTest, WhatIsNotTakenIsCounted) {
  const auto memory = std::make_shared<RequestMemory>(100'000);
  LiveExchange::Form with_memory = form();
  with_memory.queue_bytes = 1 << 20;
  with_memory.memory = memory;
  LiveExchange exchange(with_memory, [] {});
  exchange.begin_stream({});
  exchange.write(std::string(50'000, 'x'));
  EXPECT_GT(memory->used(), 50'000u);
  EXPECT_GT(exchange.take().bytes.size(), 50'000u);
  EXPECT_GT(memory->used(), 50'000u);  // until the next is taken it is being written
  exchange.write("little");
  exchange.take();
  EXPECT_LT(memory->used(), 100u);
  exchange.write(std::string(200'000, 'x'));  // more than there is
  EXPECT_TRUE(exchange.take().gone);
}

TEST(LiveExchangeTest, AProbeChangesNothing) {
  LiveExchange exchange(form(), [] {});
  exchange.probe();
  EXPECT_EQ(exchange.take().bytes, "HTTP/1.1 100 Continue\r\n\r\n");
  exchange.begin_stream({});
  exchange.take();
  exchange.probe();
  EXPECT_EQ(exchange.take().bytes, "8\r\n: ping\n\n\r\n");
  exchange.finish();
  exchange.take();
  exchange.probe();
  EXPECT_EQ(exchange.take().bytes, "");
  LiveExchange::Form old = form();
  old.chunked = old.keep_alive = false;
  LiveExchange for_old(old, [] {});
  for_old.probe();
  EXPECT_EQ(for_old.take().bytes, "");
}

TEST(LiveExchangeTest, NobodyIsToldAfterTheEnd) {
  LiveExchange exchange(form(), [] {});
  int n_gone = 0;
  exchange.on_gone([&] { ++n_gone; });
  exchange.respond({});
  exchange.abandon();
  EXPECT_EQ(n_gone, 0);
}

// The connection, and with it what wakes it, may be gone before the answer is.
TEST(LiveExchangeTest, NobodyIsWokenAfterTheEnd) {
  for (int round = 0; round < 200; ++round) {
    std::atomic<bool> over = false, woken_late = false;
    LiveExchange exchange({.queue_bytes = 1 << 20}, [&] {
      if (over) woken_late = true;
    });
    std::thread answers([&] {
      exchange.begin_stream({.content_type = "text/plain"});
      for (int i = 0; i < 50; ++i) exchange.write("x");
      exchange.finish();
    });
    if (round % 2 == 1) {
      while (!exchange.take().done) std::this_thread::yield();
    }
    exchange.abandon();
    over = true;
    answers.join();
    EXPECT_FALSE(woken_late);
  }
}

}  // namespace
}  // namespace moeflux::test
