// Clients that end what they send and go on listening get all they have asked for; clients that are
// gone are noticed.
#include <gtest/gtest.h>

#include "server/echo_server.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

using namespace std::chrono_literals;

void expect_all_answers(HttpClient& client, int n) {
  for (int i = 0; i < n; ++i) {
    const ClientResponse answer = client.read();
    ASSERT_EQ(answer.status, 200) << "answer " << i << " of " << n;
    ASSERT_TRUE(answer.body.ends_with("/" + std::to_string(i) + " " + std::to_string(i)))
        << answer.body;
  }
  ASSERT_TRUE(client.wait_for_close());
}

void ask(HttpClient& client, int n, const std::string& path) {
  for (int i = 0; i < n; ++i)
    client.post(path + std::to_string(i), std::string(static_cast<std::size_t>(i), 'x'));
}

TEST(HalfCloseTest, PipelinesGetAllAnswers) {
  EchoServer server;
  for (int round = 0; round < 200; ++round) {
    HttpClient client(server.port());
    const int n = 1 + round % 7;
    ask(client, n, round % 2 == 0 ? "/slow/" : "/quick/");
    client.end_sending();
    ASSERT_NO_FATAL_FAILURE(expect_all_answers(client, n)) << "round " << round;
  }
  EXPECT_TRUE(server->wait_until_empty(5s));
}

// What was sent is more than is read ahead of an answer.
TEST(HalfCloseTest, LongPipelinesGetAllAnswers) {
  EchoServer server;
  for (int round = 0; round < 3; ++round) {
    HttpClient client(server.port());
    std::thread sender([&] {
      ask(client, 1000, "/quick/");
      client.end_sending();
    });
    expect_all_answers(client, 1000);
    sender.join();
  }
}

TEST(HalfCloseTest, SlowAnswersComeAfterProbes) {
  EchoServer server;
  server.slow = 120ms;
  HttpClient client(server.port());
  ask(client, 3, "/slow/");
  client.end_sending();
  expect_all_answers(client, 3);

  HttpClient probed(server.port());
  ask(probed, 1, "/slow/");
  probed.end_sending();
  EXPECT_EQ(probed.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  expect_all_answers(probed, 1);

  HttpClient old(server.port());  // knows no such answers
  old.send("GET /slow HTTP/1.0\r\n\r\n");
  old.end_sending();
  EXPECT_EQ(old.read_until("\r\n"), "HTTP/1.1 200 OK\r\n");
}

TEST(HalfCloseTest, AStreamGoesOnUntilItsEnd) {
  EchoServer server;
  HttpClient client(server.port());
  client.get("/stream");
  client.get("/after");
  EXPECT_EQ(client.read_head().status, 200);
  client.end_sending();
  EXPECT_NE(client.read_until(": ping\n\n\r\n").find(": ping"), std::string::npos);
  server.last_stream()->write("data: x\n\n");
  EXPECT_NE(client.read_until("data: x\n\n\r\n").find("data: x"), std::string::npos);
  server.last_stream()->finish();
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "0\r\n\r\n");
  EXPECT_EQ(client.read().body, "GET /after 0");
  EXPECT_TRUE(client.wait_for_close());
  EXPECT_EQ(server.n_gone, 0);
}

// As HttpServerTest.AClientThatLeavesIsNoticedAtOnce, in every way to leave.
TEST(HalfCloseTest, WhoIsGoneIsNoticed) {
  EchoServer server;
  int n_left = 0;
  const auto leave = [&](const std::string& path, auto how) {
    HttpClient client(server.port());
    client.get(path);
    client.get("/next");
    std::this_thread::sleep_for(10ms);
    const auto began = std::chrono::steady_clock::now();
    how(client);
    EXPECT_TRUE(server.wait_for_gone(++n_left)) << path;
    EXPECT_LT(std::chrono::steady_clock::now() - began, 1s) << path;
  };
  for (const char* path : {"/stream", "/silent"}) {
    leave(path, [](HttpClient& client) { client.close(); });
    leave(path, [](HttpClient& client) { client.reset(); });
    leave(path, [](HttpClient& client) {
      client.end_sending();
      std::this_thread::sleep_for(10ms);
      client.close();
    });
  }
  EXPECT_TRUE(server->wait_until_empty(5s));
}

TEST(HalfCloseTest, UnixSockets) {
  const TempDir directory;
  EchoServer server({}, directory.file("test.sock"));
  HttpClient half(directory.file("test.sock"));
  ask(half, 3, "/slow/");
  half.end_sending();
  expect_all_answers(half, 3);
  HttpClient gone(directory.file("test.sock"));
  gone.get("/silent");
  std::this_thread::sleep_for(10ms);
  gone.close();
  EXPECT_TRUE(server.wait_for_gone(1));
}

}  // namespace
}  // namespace moeflux::test
