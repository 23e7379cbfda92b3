// What requests may take of memory is counted before it is taken, and given back.
#include "server/http/request_memory.h"

#include <thread>

#include <gtest/gtest.h>
#include <malloc.h>

#include "server/demo_server.h"

namespace moeflux::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMiB = 1 << 20;

int status_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const HttpError& error) {
    return error.status();
  }
  return 200;
}

TEST(RequestMemoryTest, SharesAreHeldUntilTheyGo) {
  const auto memory = std::make_shared<RequestMemory>(1000);
  {
    MemoryShare one(memory), other(memory);
    one.grow(600);
    EXPECT_EQ(memory->used(), 600u);
    EXPECT_EQ(status_of([&] { other.grow(500); }), 503);  // somebody has it
    EXPECT_EQ(status_of([&] { other.grow(751); }), 413);  // nobody may have so much
    EXPECT_EQ(status_of([&] { one.grow(151); }), 413);    // in sum
    EXPECT_TRUE(other.grow_to(400));
    EXPECT_FALSE(other.grow_to(401));
    other.shrink_to(100);
    EXPECT_EQ(memory->used(), 700u);
  }
  EXPECT_EQ(memory->used(), 0u);
  MemoryShare uncounted;
  uncounted.grow(1 << 30);
  EXPECT_EQ(uncounted.bytes(), 0u);
}

TEST(RequestMemoryTest, RoomIsWaitedForAWhile) {
  const auto memory = std::make_shared<RequestMemory>(1000);
  auto first = std::make_unique<MemoryShare>(memory);
  first->grow(700);
  MemoryShare second(memory);
  EXPECT_EQ(status_of([&] { second.grow(500, 10ms); }), 503);
  std::thread leaves([&] {
    std::this_thread::sleep_for(20ms);
    first.reset();
  });
  EXPECT_EQ(status_of([&] { second.grow(500, 10s); }), 200);
  leaves.join();
  EXPECT_EQ(memory->used(), 500u);
}

TEST(RequestMemoryTest, ErrorsHaveTheNumberAllowed) {
  MemoryShare share(std::make_shared<RequestMemory>(64 * kMiB));
  try {
    share.grow(100 * kMiB);
    FAIL();
  } catch (const HttpError& error) {
    EXPECT_STREQ(error.what(),
                 "the request would take 100.0 MiB of memory, and one may take 48.0 MiB; shorten "
                 "it, or start the server with a larger --ram");
    EXPECT_EQ(error.numbers().at(1),
              (std::pair<std::string, std::int64_t>("allowed_bytes", 48 * kMiB)));
  }
}

TEST(RequestMemoryTest, APartOfAnyCeiling) {
  EXPECT_EQ(server_memory(500 * kMiB, 16384).request_bytes, 500 * kMiB / 8);
  EXPECT_EQ(server_memory(500 * kMiB, 16384).grammar_bytes, 500 * kMiB / 16);
  EXPECT_EQ(server_memory(8192 * kMiB, 16384).request_bytes, 256 * kMiB);
  EXPECT_EQ(server_memory(262144 * kMiB, 16384).total(), (512 + 128) * kMiB);
  // A prompt that fills a long context always has room, also as a list of tokens.
  EXPECT_GE(RequestMemory(server_memory(1024 * kMiB, 131072).request_bytes).most_for_one(),
            131072 * kPriceOfValue);
}

DemoOptions with_memory(std::uint64_t bytes) {
  DemoOptions options;
  options.memory = std::make_shared<RequestMemory>(bytes);
  return options;
}

std::string list_of(const std::string& item, int n) {
  std::string text = "[" + item;
  for (int i = 1; i < n; ++i) text += "," + item;
  return text + "]";
}

TEST(RequestMemoryTest, BodiesThatWouldTakeTooMuchAreRefused) {
  const DemoOptions options = with_memory(16 * kMiB);
  DemoServer server(options);
  const std::string text = '"' + std::string(400'000, 'x') + '"';
  const std::vector<std::pair<std::string, std::string>> cases{
      {"/v1/chat/completions", R"({"messages":)" + list_of("[]", 50'000) + "}"},
      {"/v1/chat/completions", R"({"anything":)" + list_of("{}", 50'000) + "}"},
      {"/v1/completions", R"({"prompt":)" + list_of("1", 50'000) + "}"},
      {"/v1/completions", R"({"prompt":)" + text + "}"},
      {"/v1/responses", R"({"input":)" + text + "}"},
      {"/v1/messages", R"({"messages":)" + list_of("\"\"", 50'000) + "}"},
      {"/v1/messages/count_tokens", R"({"messages":[{"role":"user","content":)" + text + "}]}"},
      {"/api/chat", R"({"messages":)" + list_of("[1]", 50'000) + "}"},
      {"/tokenize", R"({"content":)" + text + "}"},
      {"/detokenize", R"({"tokens":)" + list_of("1", 50'000) + "}"},
      {"/apply-template", R"({"messages":[{"role":"user","content":)" + text + "}]}"},
  };
  for (const auto& [path, body] : cases) {
    HttpClient client(server.port());
    client.post(path, body);
    EXPECT_EQ(client.read().status, 413) << path;
  }
  EXPECT_EQ(server.post("/v1/chat/completions", sum_question()).status, 200);
  for (int i = 0; i < 1000 && options.memory->used() > 0; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(options.memory->used(), 0u);
}

TEST(RequestMemoryTest, WhatFitsIsAnsweredAndGivenBack) {
  const DemoOptions options = with_memory(16 * kMiB);
  DemoServer server(options);
  std::vector<std::thread> clients;
  std::atomic<int> n_answered{0};
  // Each takes more than a quarter: the last wait for the first.
  const Json body = {{"content", std::string(90'000, 'x')}};
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      if (server.post("/tokenize", body).status == 200) ++n_answered;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(n_answered, 8);
  for (int i = 0; i < 1000 && options.memory->used() > 0; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(options.memory->used(), 0u);
}

// What is left of its request is counted while an answer waits and is given.
TEST(RequestMemoryTest, AnswersKeepLittle) {
  const DemoOptions options = with_memory(16 * kMiB);
  DemoServer server(options);
  HttpClient client(server.port());
  client.post("/v1/chat/completions", endless_question().dump());
  client.read_until("\"delta\":");
  const std::uint64_t during = options.memory->used();
  EXPECT_GT(during, 16u << 10);
  EXPECT_LT(during, 64u << 10);
  client.close();
  EXPECT_TRUE(server.wait_for_cancelled(1));
}

TEST(BodyPriceTest, CountsValuesAndText) {
  EXPECT_EQ(body_price("42"), kPriceOfValue);
  EXPECT_EQ(body_price(R"([[],[],[]])"), 7 * kPriceOfValue);
  EXPECT_EQ(body_price(R"({"ab":"c"})"), 2 * kPriceOfValue + 3 * kPriceOfTextByte);
  EXPECT_EQ(body_price(R"({"[,{":"\",["})"), 2 * kPriceOfValue + 7 * kPriceOfTextByte);
  EXPECT_EQ(body_price(R"("no end)"), kPriceOfValue + 6 * kPriceOfTextByte);
  EXPECT_EQ(body_price(R"("no end\)"), kPriceOfValue + 7 * kPriceOfTextByte);
  EXPECT_EQ(body_price(""), kPriceOfValue);
}

std::string repeated(const std::string& text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

// Bytes that the allocator has given out.
std::size_t allocated() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST(BodyPriceTest, IsMoreThanWhatIsParsed) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have an allocator of their own";
#endif
  for (const std::string& item :
       {std::string("[]"), std::string("{}"), std::string("1"), std::string("\"\""),
        std::string("\"a text longer than a short one\""), std::string("[1]"),
        std::string("[1,2,3,4,5]"), std::string(R"({"a":1})"), std::string(R"({"a":[],"b":{}})"),
        repeated("[", 200) + repeated("]", 200),
        repeated(R"({"a":)", 200) + "1" + repeated("}", 200)}) {
    const std::string text =
        "[" + repeated(item + ",", 20'000 / static_cast<int>(item.size())) + item + "]";
    const std::size_t before = allocated();
    const Json parsed = parse_json(text, "test");
    const std::size_t after = allocated();
    EXPECT_LT(after - before, body_price(text) / 4) << item.substr(0, 40);
    EXPECT_LT(after - before, 2 * json_bytes(parsed)) << item.substr(0, 40);
  }
}

}  // namespace
}  // namespace moeflux::test
