// One record for each request, whatever became of it.
#include "server/http/access_log.h"

#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "server/echo_server.h"

namespace moeflux::test {
namespace {

using namespace std::chrono_literals;

class AccessLogTest : public testing::Test {
 protected:
  HttpServerOptions options() {
    return {.port = 0, .n_workers = 2, .log = [this](const AccessRecord& record) {
              const std::lock_guard lock(mutex_);
              records_.push_back(record);
            }};
  }
  AccessRecord record(std::size_t i) {  // waits for it
    for (int n = 0; n < 2000; ++n) {
      {
        const std::lock_guard lock(mutex_);
        if (records_.size() > i) return records_[i];
      }
      std::this_thread::sleep_for(1ms);
    }
    ADD_FAILURE() << "there is no record " << i;
    return {};
  }

  std::mutex mutex_;
  std::vector<AccessRecord> records_;
};

TEST_F(AccessLogTest, SaysWhatWasAskedAndAnswered) {
  EchoServer server(options());
  server.slow = 30ms;
  EXPECT_EQ(post(server.port(), "/slow/a?key=secret", {{"a", 1}}).status, 200);
  const AccessRecord first = record(0);
  EXPECT_EQ(first.client, "127.0.0.1");
  EXPECT_EQ(first.method, "POST");
  EXPECT_EQ(first.path, "/slow/a") << "a query may hold what is nobody's business";
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.bytes_in, 7u);
  EXPECT_GT(first.bytes_out, 14u);
  EXPECT_GE(first.seconds, 0.03);
  EXPECT_LT(std::chrono::system_clock::now() - first.time, 10s);
  EXPECT_FALSE(first.was_left);

  HttpClient malformed(server.port());
  malformed.send("what\r\n\r\n");
  EXPECT_EQ(malformed.read().status, 400);
  EXPECT_EQ(record(1).status, 400);
  EXPECT_NE(record(1).notes.error.find("no HTTP request"), std::string::npos);

  HttpClient large(server.port());
  large.send("POST /big HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999999\r\n\r\n");
  EXPECT_EQ(large.read().status, 413);
  EXPECT_EQ(record(2).path, "/big");
  EXPECT_EQ(record(2).method, "POST");
}

TEST_F(AccessLogTest, StreamsAreOneRecordAtTheirEnd) {
  EchoServer server(options());
  HttpClient client(server.port());
  client.get("/stream");
  client.read_until("\r\n\r\n");
  const ExchangePtr stream = server.last_stream();
  stream->set_notes({.model = "m", .prompt_tokens = 5});
  stream->set_notes({.completion_tokens = 7});
  stream->write("data");
  client.read_until("data");
  EXPECT_TRUE(records_.empty());
  stream->finish();
  EXPECT_EQ(record(0).status, 200);
  EXPECT_EQ(record(0).notes.model, "m");
  EXPECT_EQ(record(0).notes.prompt_tokens, 5);
  EXPECT_EQ(record(0).notes.completion_tokens, 7);
  EXPECT_EQ(record(0).notes.cached_tokens, std::nullopt);
}

TEST_F(AccessLogTest, WhoLeavesIsSaid) {
  EchoServer server(options());
  {
    HttpClient client(server.port());
    client.get("/silent");
    server.last_stream();
  }
  EXPECT_TRUE(server.wait_for_gone(1));
  EXPECT_TRUE(record(0).was_left);
  EXPECT_EQ(record(0).status, 0);
}

}  // namespace
}  // namespace moeflux::test
