// Clients that send too much, too slowly or nonsense, leave early or stay too long: each gets what
// it deserves, and the server goes on.
#include "server/http/http_server.h"

#include <filesystem>
#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "server/echo_server.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

using namespace std::chrono_literals;

TEST(HttpServerTest, ManyRequestsOnOneConnection) {
  EchoServer server;
  HttpClient client(server.port());
  for (int i = 0; i < 3; ++i) {
    client.post("/a", std::string(static_cast<std::size_t>(i) * 1000, 'x'));
    EXPECT_EQ(client.read().body, "POST /a " + std::to_string(i * 1000));
  }
  client.get("/1");
  client.get("/2");
  client.get("/3", "Connection: close\r\n");
  EXPECT_EQ(client.read().body, "GET /1 0");
  EXPECT_EQ(client.read().body, "GET /2 0");
  const ClientResponse last = client.read();
  EXPECT_EQ(last.body, "GET /3 0");
  EXPECT_EQ(last.headers.at("connection"), "close");
  EXPECT_TRUE(client.wait_for_close());
}

TEST(HttpServerTest, BodiesInChunksAndWithExpectation) {
  EchoServer server;
  HttpClient client(server.port());
  client.send(
      "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3\r\nabc\r\n"
      "0\r\n\r\n");
  EXPECT_EQ(client.read().body, "POST /c 8");
  client.send("POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("data");
  EXPECT_EQ(client.read().body, "POST /e 4");
}

TEST(HttpServerTest, OldClientsAreServedOnce) {
  EchoServer server;
  HttpClient client(server.port());
  client.send("GET /old HTTP/1.0\r\n\r\n");
  EXPECT_EQ(client.read().body, "GET /old 0");
  EXPECT_TRUE(client.wait_for_close());
}

TEST(HttpServerTest, LargeBodiesAreRefusedBeforeTheyCome) {
  EchoServer server({.body_bytes = 1 << 20});
  HttpClient announced(server.port());
  announced.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 104857600\r\n\r\n");
  EXPECT_EQ(announced.read().status, 413);

  HttpClient sent(server.port());
  std::thread sender([&] {
    sent.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 104857600\r\n\r\n");
    const std::string piece(1 << 20, 'x');
    for (int i = 0; i < 100; ++i) sent.send(piece);
  });
  const ClientResponse response = sent.read();
  sender.join();
  EXPECT_EQ(response.status, 413);
  EXPECT_NE(response.body.find("1048576"), std::string::npos) << response.body;

  HttpClient chunked(server.port());
  chunked.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 3; ++i) chunked.send("80000\r\n" + std::string(0x80000, 'x') + "\r\n");
  EXPECT_EQ(chunked.read().status, 413);
  EXPECT_TRUE(server.is_alive());
}

TEST(HttpServerTest, AllBodiesTogetherHaveALimit) {
  EchoServer server({}, "127.0.0.1", 1 << 20);
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ";
  HttpClient first(server.port()), second(server.port());
  first.send(head + "600000\r\n\r\nx");
  std::this_thread::sleep_for(50ms);
  second.send(head + "600000\r\n\r\nx");
  const ClientResponse refused = second.read();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "5");
  first.send(std::string(599'999, 'x'));
  EXPECT_EQ(first.read().body, "POST / 600000");
  HttpClient third(server.port());  // may never have so much
  third.send(head + "900000\r\n\r\nx");
  const ClientResponse never = third.read();
  EXPECT_EQ(never.status, 413);
  EXPECT_EQ(never.json().at("error").at("allowed_bytes"), 786432);
  EXPECT_TRUE(server.is_alive());
}

TEST(HttpServerTest, HeaderFloodsAndGarbage) {
  EchoServer server;
  HttpClient many(server.port());
  many.send("GET / HTTP/1.1\r\n");
  for (int i = 0; i < 3000; ++i)
    many.send("X-" + std::to_string(i) + ": " + std::string(50, 'x') + "\r\n");
  EXPECT_EQ(many.read().status, 431);
  HttpClient endless(server.port());
  endless.send("GET /" + std::string(200'000, 'a'));
  EXPECT_EQ(endless.read().status, 431);
  for (const std::string& garbage :
       {std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
        std::string("hello\r\n\r\n"), std::string("GET\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nbad header\r\n\r\n"),
        std::string("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n"),
        std::string("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")}) {
    HttpClient client(server.port());
    client.send(garbage);
    EXPECT_EQ(client.read().status, 400) << garbage;
    EXPECT_TRUE(client.wait_for_close());
  }
  HttpClient pipelined(server.port());
  pipelined.send("GET /ok HTTP/1.1\r\nHost: a\r\n\r\n\x01\x02garbage\r\n\r\n");
  EXPECT_EQ(pipelined.read().status, 200);
  EXPECT_EQ(pipelined.read().status, 400);
  EXPECT_TRUE(server.is_alive());
}

TEST(HttpServerTest, SlowClientsLoseTheirConnection) {
  EchoServer server({.idle = 300ms, .header = 200ms, .body = 200ms});
  HttpClient idle(server.port()), loris(server.port()), half(server.port());
  loris.send("GET / HTTP/1.1\r\nX: ");
  half.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  std::thread drip([&] {
    for (int i = 0; i < 10; ++i) {
      loris.send("x");
      std::this_thread::sleep_for(50ms);
    }
  });
  EXPECT_EQ(half.read().status, 408);
  drip.join();
  EXPECT_EQ(loris.read().status, 408);
  EXPECT_TRUE(idle.wait_for_close(2s));
  EXPECT_TRUE(server.is_alive());
}

TEST(HttpServerTest, AClientThatLeavesIsNoticedAtOnce) {
  EchoServer server;
  for (const char* path : {"/stream", "/silent"}) {
    const int before = server.n_gone;
    HttpClient client(server.port());
    client.get(path);
    const bool streams = std::string(path) == "/stream";
    EXPECT_EQ(streams ? client.read_head().status : 200, 200);
    std::this_thread::sleep_for(20ms);
    client.close();
    EXPECT_TRUE(server.wait_for_gone(before + 1)) << path;
  }
  for (int i = 0; i < 100 && server->n_connections() > 0; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(server->n_connections(), 0u);
}

TEST(HttpServerTest, SilentStreamsArePinged) {
  EchoServer server({.ping = 50ms});
  HttpClient client(server.port());
  client.get("/stream");
  EXPECT_EQ(client.read_head().status, 200);
  EXPECT_EQ(client.read_until(": ping\n\n\r\n"), "8\r\n: ping\n\n\r\n");
  EXPECT_EQ(client.read_until(": ping\n\n\r\n"), "8\r\n: ping\n\n\r\n");
  server.last_stream()->write("data: x\n\n");
  EXPECT_NE(client.read_until("data: x\n\n").find("data: x"), std::string::npos);
  server.last_stream()->finish();
  EXPECT_NE(client.read_until("0\r\n\r\n").find("0\r\n\r\n"), std::string::npos);
  client.get("/again");  // the connection goes on
  EXPECT_EQ(client.read().body, "GET /again 0");
}

TEST(HttpServerTest, AClientThatDoesNotReadIsGone) {
  EchoServer server({.queue_bytes = 1 << 20});
  HttpClient client(server.port());
  client.get("/stream");
  client.read_head();
  const std::string piece(1 << 16, 'x');
  for (int i = 0; i < 400 && server.n_gone == 0; ++i) {
    server.last_stream()->write(piece);
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_TRUE(server.wait_for_gone(1));
  EXPECT_TRUE(server.is_alive());
}

TEST(HttpServerTest, TooManyConnectionsAreToldSo) {
  EchoServer server({.connections = 3});
  HttpClient a(server.port()), b(server.port()), c(server.port());
  for (HttpClient* client : {&a, &b, &c}) {
    client->get("/x");
    EXPECT_EQ(client->read().status, 200);
  }
  HttpClient d(server.port());
  const ClientResponse refused = d.read();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "5");
  a.close();
  for (int i = 0; i < 200 && server->n_connections() > 2; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(server.is_alive());
}

TEST(HttpServerTest, ManyIdleConnections) {
  EchoServer server;
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 400; ++i) clients.push_back(std::make_unique<HttpClient>(server.port()));
  for (int i = 0; i < 1000 && server->n_connections() < clients.size(); ++i)
    std::this_thread::sleep_for(5ms);
  EXPECT_EQ(server->n_connections(), clients.size());
  EXPECT_TRUE(server.is_alive());
  clients.clear();
  EXPECT_TRUE(server->wait_until_empty(10s));
}

TEST(HttpServerTest, DrainingLetsAnswersEnd) {
  EchoServer server;
  HttpClient idle(server.port()), busy(server.port());
  idle.get("/x");
  idle.read();
  busy.get("/stream");
  busy.read_head();
  server->drain();
  EXPECT_TRUE(idle.wait_for_close());
  EXPECT_THROW(HttpClient(server.port()).get("/x"), std::runtime_error);
  EXPECT_FALSE(server->wait_until_empty(50ms));
  server.last_stream()->write("data: last\n\n");
  server.last_stream()->finish();
  EXPECT_NE(busy.read_until("0\r\n\r\n").find("data: last"), std::string::npos);
  EXPECT_TRUE(server->wait_until_empty(5s));
}

TEST(HttpServerTest, MakesRoomForItsConnections) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  if (before.rlim_max < 4096) GTEST_SKIP() << "the hard limit on open files is too low";
  rlimit low = before;
  low.rlim_cur = 256;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  rlimit during{};
  {
    EchoServer server({.connections = 2000});
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &during), 0);
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_GT(during.rlim_cur, 2000u);
}

TEST(HttpServerTest, AUnixSocket) {
  const TempDir directory;
  const std::string path = directory.file("test.sock");
  {
    EchoServer server({}, path);
    EXPECT_EQ(server->url(), "unix:" + path);
    HttpClient client(path);
    client.get("/u");
    EXPECT_EQ(client.read().body, "GET /u 0");
    expect_error(Errc::Io, {"is taken"}, [&] { EchoServer second({}, path); });
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(HttpServerTest, ATakenPortSaysWhatToDo) {
  EchoServer server;
  expect_error(Errc::Io, {"is taken", "--port"}, [&] {
    HttpServer second(
        {.port = server.port()}, [](HttpRequest, ExchangePtr) {}, openai_error);
  });
}

}  // namespace
}  // namespace moeflux::test
