#include "cli/client/http_client.h"

#include <gtest/gtest.h>

#include "cli/scripted_server.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

using cli::HttpCall;
using cli::HttpReply;
using cli::parse_server_address;
using namespace std::chrono_literals;

cli::HttpClient client_of(const ScriptedServer& server, const std::string& key = "") {
  return {parse_server_address(server.url()), key};
}

HttpReply answer(const ScriptedAnswer& scripted, HttpCall call = {}) {
  const ScriptedServer server(scripted);
  return client_of(server).send(call);
}

void expect_io_error(const ScriptedAnswer& scripted, std::string_view part) {
  expect_error(Errc::Io, {part}, [&] { answer(scripted); });
}

TEST(ServerAddress, ReadsEveryForm) {
  const auto text = [](const char* given) { return parse_server_address(given).text(); };
  EXPECT_EQ(text("http://127.0.0.1:9099"), "http://127.0.0.1:9099");
  EXPECT_EQ(text("HTTP://example.org/"), "http://example.org:80");
  EXPECT_EQ(text("http://example.org:8080/llm/v1/"), "http://example.org:8080/llm");
  EXPECT_EQ(text("http://localhost:1/v1"), "http://localhost:1");
  EXPECT_EQ(text("http://[::1]:8080/x"), "http://[::1]:8080/x");
  EXPECT_EQ(text("https://example.org/v1"), "https://example.org:443");
  EXPECT_TRUE(parse_server_address("HTTPS://x:8443").tls);
  EXPECT_FALSE(parse_server_address("http://x").tls);
  EXPECT_EQ(text("localhost:8080"), "http://localhost:8080");
  EXPECT_EQ(text("localhost"), "http://localhost:9099");
  EXPECT_EQ(text("unix:/run/x"), "unix:/run/x");
  EXPECT_EQ(text("/run/moeflux.sock"), "unix:/run/moeflux.sock");
  EXPECT_EQ(parse_server_address("http://[::1]:8080").host, "::1");
}

TEST(ServerAddress, RefusesTheRest) {
  for (const char* bad : {"", "http://", "ftp://x", "http://x:0", "http://x:99999", "http://x:80a",
                          "http://[::1", "http://[::1]x", "http://me@x", "http://x/?q",
                          "http://a b", "http://x/\r\nEvil: 1", "unix:"})
    expect_error(Errc::BadInput, {"is no address of a server"}, [&] { parse_server_address(bad); });
  expect_error(Errc::BadInput, {"at most 107 bytes"},
               [] { parse_server_address("/" + std::string(120, 'x') + ".sock"); });
}

TEST(HttpClient, SendsWhatItIsTold) {
  ScriptedServer server(ScriptedAnswer{{json_response("{}")}});
  const cli::HttpClient client(parse_server_address(server.url() + "/base/v1"), "secret");
  client.send({.method = "POST", .path = "/v1/x", .body = {{"a", "\xC3\xA9"}}});
  client.send({.path = "/y?model=" + cli::percent_encoded("a b/c")});
  client.send({.method = "DELETE", .path = "/z"});
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0],
            "POST /base/v1/x HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(server.port()) +
                "\r\nUser-Agent: moeflux\r\nAccept: */*\r\nConnection: close\r\n"
                "Authorization: Bearer secret\r\nContent-Type: application/json\r\n"
                "Content-Length: 10\r\n\r\n{\"a\":\"\xC3\xA9\"}");
  EXPECT_EQ(requests[1].substr(0, 31), "GET /base/y?model=a%20b%2Fc HTT");
  EXPECT_EQ(requests[1].find("Content-"), std::string::npos);
  EXPECT_EQ(requests[2].substr(0, 14), "DELETE /base/z");
  EXPECT_NE(requests[2].find("Content-Length: 0\r\n"), std::string::npos);
  expect_error(Errc::BadInput, {"API key"},
               [&] { cli::HttpClient(client.address(), "two\r\nlines"); });
}

TEST(HttpClient, ReadsBodiesOfEveryFraming) {
  EXPECT_EQ(answer({{json_response("{\"a\":1}")}}).body, "{\"a\":1}");
  EXPECT_EQ(answer({{json_response("{\"a\":1}")}}).content_type, "application/json");
  EXPECT_EQ(answer(chunked({"ab", "c", "defg"})).body, "abcdefg");
  EXPECT_EQ(answer({{"HTTP/1.1 200 OK\r\n\r\n", "until", " the end"}}).body, "until the end");
  EXPECT_EQ(answer({{"HTTP/1.1 204 No Content\r\n\r\n"}, true}).status, 204);
  EXPECT_EQ(answer({{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" +
                     json_response("7", 418)}})
                .status,
            418);
  // Byte by byte, framing included.
  ScriptedAnswer bytes;
  for (const std::string& piece : chunked({"ab", "c"}).pieces)
    for (const char c : piece) bytes.pieces.emplace_back(1, c);
  EXPECT_EQ(answer(bytes).body, "abc");
}

TEST(HttpClient, StreamsPiecesAndStopsWhenItIsEnough) {
  std::string taken;
  HttpCall call;
  call.on_piece = [&](std::string_view piece) {
    taken += piece;
    return taken.find("stop") == std::string::npos;
  };
  EXPECT_EQ(answer(chunked({"one ", "two"}), call).body, "");
  EXPECT_EQ(taken, "one two");
  taken.clear();
  ScriptedAnswer open = chunked({"one ", "stop"}, false);
  open.stays_open = true;  // would be waited for
  EXPECT_EQ(answer(open, call).status, 200);
  EXPECT_EQ(taken, "one stop");
  taken.clear();
  EXPECT_EQ(answer({{json_response("{}")}}, call).body, "{}") << "JSON is no stream";
  EXPECT_EQ(answer({{http_response(500, "text/plain", "oh")}}, call).body, "oh");
  EXPECT_EQ(taken, "");
  call.on_piece = [](std::string_view) -> bool { fail(Errc::NotFound, "from the sink"); };
  expect_error(Errc::NotFound, {"from the sink"}, [&] { answer(chunked({"x"}), call); });
}

TEST(HttpClient, SpeaksOverUnixSockets) {
  const TempDir directory;
  const std::string path = directory.file("moeflux.sock");
  expect_error(Errc::Io, {"cannot reach unix:" + path, "no such file", "moeflux serve"},
               [&] { cli::HttpClient(parse_server_address(path), "").send({}); });
  const ScriptedServer server([](const auto&) { return ScriptedAnswer{{json_response("[1]")}}; },
                              path);
  EXPECT_EQ(cli::HttpClient(parse_server_address(path), "").json({})[0], 1);
  EXPECT_NE(server.requests().at(0).find("Host: localhost\r\n"), std::string::npos);
}

TEST(HttpClient, SaysThatNobodyListens) {
  int port = 0;
  {
    const ScriptedServer server(ScriptedAnswer{});
    port = server.port();
  }
  const std::string url = "http://127.0.0.1:" + std::to_string(port);
  expect_error(Errc::Io,
               {"cannot reach " + url + ": connection refused; is `moeflux serve` running?"},
               [&] { cli::HttpClient(parse_server_address(url), "").send({}); });
}

TEST(HttpClient, RefusesBrokenAnswers) {
  expect_io_error({}, "closed the connection without an answer");
  expect_io_error({{"HTTP/1.1 200 OK\r\nContent-"}}, "in the middle of its answer");
  expect_io_error({{"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"}}, "in the middle");
  expect_io_error(chunked({"abc"}, false), "in the middle");
  expect_io_error({{"SSH-2.0-OpenSSH_9.2\r\n\r\n"}}, "no HTTP response");
  expect_io_error({{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}},
                  "no HTTP response");
  expect_io_error({{"HTTP/1.1 200 OK\r\nX: " + std::string(70'000, 'x')}}, "no HTTP response");
  expect_io_error({{"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"}}, "too large");
}

TEST(HttpClient, RefusesBodiesWithoutEnd) {
  const std::string piece(1 << 20, 'x');
  ScriptedAnswer large{{"HTTP/1.1 200 OK\r\n\r\n"}};
  for (int i = 0; i < 66; ++i) large.pieces.push_back(piece);
  expect_error(Errc::LimitExceeded, {"more than 64 MiB"}, [&] { answer(large); });
}

TEST(HttpClient, SilenceEndsIt) {
  expect_error(Errc::Io, {"not a byte came for 0.06 s"}, [] {
    answer({{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"}, true}, {.silence = 60ms});
  });
}

TEST(HttpClient, CancellingClosesTheConnection) {
  ScriptedAnswer open = chunked({"data"}, false);
  open.stays_open = true;
  const ScriptedServer server(open);
  bool has_come = false;
  HttpCall call;
  call.on_piece = [&](std::string_view) { return has_come = true; };
  call.cancelled = [&] { return has_come; };
  const auto begin = std::chrono::steady_clock::now();
  expect_error(Errc::Cancelled, {}, [&] { client_of(server).send(call); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  EXPECT_TRUE(server.wait_for_left(1));
}

TEST(HttpClient, ErrorsSayWhatTheServerSays) {
  const auto said = [](int status, const std::string& body, const char* type = "application/json") {
    const ScriptedServer server(ScriptedAnswer{{http_response(status, type, body)}});
    try {
      client_of(server).json({.path = "/x"});
    } catch (const Error& error) {
      const std::string message = error.what();
      return message.substr(0, server.url().size()) == server.url()
                 ? message.substr(server.url().size())
                 : message;
    }
    return std::string("no error");
  };
  EXPECT_EQ(said(400, R"({"error": {"message": "temperature must be a number", "code": 400}})"),
            " answers 400: temperature must be a number");
  EXPECT_EQ(said(529, R"({"type": "error", "error": {"type": "overloaded", "message": "busy"}})"),
            " answers 529: busy");
  EXPECT_EQ(said(404, R"({"error": "model 'x' not found"})"), " answers 404: model 'x' not found");
  EXPECT_EQ(said(422, R"({"detail": [{"msg": "no"}]})"), R"( answers 422: [{"msg":"no"}])");
  EXPECT_EQ(said(500, R"({"object": "error", "message": "out of memory"})"),
            " answers 500: out of memory");
  EXPECT_EQ(said(502, "Bad Gateway\nmore", "text/plain"), " answers 502: Bad Gateway");
  EXPECT_EQ(said(502, "<html>", "text/html"), " answers 502");
  EXPECT_EQ(said(401, R"({"error": {"message": "wrong key"}})"),
            " asks for a key (wrong key): set --api-key or MOEFLUX_API_KEY");
  EXPECT_NE(said(400, "{\"error\": \"\\u001b[31mred\"}").find("red"), std::string::npos);
  EXPECT_EQ(said(400, "{\"error\": \"\\u001b[31mred\"}").find('\x1b'), std::string::npos);
  EXPECT_LT(said(400, std::string(100'000, 'x'), "text/plain").size(), 1100u);
  EXPECT_NE(said(200, "<html>", "text/html").find("/x"), std::string::npos) << "no JSON";
  const ScriptedServer moved(
      ScriptedAnswer{{"HTTP/1.1 301 Moved\r\nLocation: http://b/\r\nContent-Length: 0\r\n\r\n"}});
  expect_error(Errc::Unsupported, {"redirects to http://b/"}, [&] { client_of(moved).json({}); });
}

}  // namespace
}  // namespace moeflux::test
