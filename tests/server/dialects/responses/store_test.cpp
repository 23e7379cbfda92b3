// Responses that are kept: the store by itself, and as clients use it.
#include "server/dialects/responses/store.h"

#include <gtest/gtest.h>

#include "server/demo_server.h"

namespace moeflux::test {
namespace {

Json response(const std::string& id, const char* status = "completed", std::size_t size = 10) {
  return {{"id", id},
          {"status", status},
          {"output",
           Json::array(
               {{{"id", "out_" + id}, {"type", "message"}, {"text", std::string(size, 'x')}}})}};
}
Json input(const std::string& id) {
  return Json::array({{{"id", "in_" + id}, {"type", "message"}}});
}
std::string ids(const std::optional<Json>& items) {
  std::string text;
  if (!items) return "none";
  for (const Json& item : *items) text += (text.empty() ? "" : " ") + item["id"].get<std::string>();
  return text;
}

TEST(ResponseStoreTest, ConversationsAreChains) {
  ResponseStore store;
  EXPECT_TRUE(store.put("a", response("a"), input("a"), "", nullptr));
  EXPECT_TRUE(store.put("b", response("b"), input("b"), "a", nullptr));
  EXPECT_EQ(ids(store.conversation("b")), "in_a out_a in_b out_b");
  EXPECT_EQ(ids(store.conversation("a")), "in_a out_a");
  EXPECT_EQ(store.item("out_a")->at("type"), "message");
  EXPECT_EQ(store.item("in_b")->at("id"), "in_b");
  EXPECT_FALSE(store.item("c"));
  EXPECT_TRUE(store.erase("a"));
  EXPECT_FALSE(store.erase("a"));
  EXPECT_EQ(ids(store.conversation("b")), "none");
  EXPECT_TRUE(store.find("b"));
}

TEST(ResponseStoreTest, TheOldestGoFirstButForThoseInUse) {
  ResponseStore store({.count = 3, .bytes = 1 << 20});
  for (const std::string id : {"a", "b", "c"})
    EXPECT_TRUE(store.put(id, response(id), input(id), "", nullptr));
  EXPECT_TRUE(store.put("d", response("d"), input("d"), "a", nullptr));  // uses a
  EXPECT_FALSE(store.find("b"));
  EXPECT_EQ(ids(store.conversation("d")), "in_a out_a in_d out_d");
}

TEST(ResponseStoreTest, BytesAreBounded) {
  ResponseStore store({.count = 100, .bytes = 20000});
  for (int i = 0; i < 50; ++i)
    EXPECT_TRUE(store.put(std::to_string(i), response(std::to_string(i), "completed", 4000),
                          input("x"), "", nullptr));
  EXPECT_FALSE(store.find("0"));
  EXPECT_TRUE(store.find("49"));
  EXPECT_FALSE(store.put("large", response("large", "completed", 30000), input("x"), "", nullptr));
  const auto memory = std::make_shared<RequestMemory>(100000);
  EXPECT_TRUE(store.put("m", response("m", "completed", 4000), input("x"), "", memory));
  EXPECT_GT(memory->used(), 4000u);
  EXPECT_TRUE(store.erase("m"));
  EXPECT_EQ(memory->used(), 0u);
}

TEST(ResponseStoreTest, WhatIsBeingWrittenStays) {
  ResponseStore store({.count = 1, .bytes = 1 << 20});
  EXPECT_TRUE(store.put("a", response("a", "in_progress"), input("a"), "", nullptr));
  EXPECT_FALSE(store.put("b", response("b"), input("b"), "", nullptr));
  store.update("a", response("a", "completed"));
  EXPECT_EQ(store.find("a")->at("status"), "completed");
  EXPECT_TRUE(store.put("b", response("b"), input("b"), "", nullptr));
  EXPECT_FALSE(store.find("a"));
}

TEST(ResponseStoreTest, CancelledIsCancelled) {
  ResponseStore store;
  EXPECT_TRUE(store.put("a", response("a", "queued"), input("a"), "", nullptr));
  EXPECT_EQ(store.cancel("a")->at("status"), "cancelled");
  store.update("a", response("a", "completed"));
  EXPECT_EQ(store.find("a")->at("status"), "cancelled");
  EXPECT_FALSE(store.cancel("b"));
}

// ---- as clients use it

class KeptResponsesTest : public testing::Test {
 protected:
  static Json ask(const std::string& text) {
    return {{"input", text}, {"temperature", 0}, {"reasoning", {{"effort", "none"}}}};
  }
  Json post(const std::string& path, const Json& body, int status = 200) {
    const ClientResponse got = server_.post(path, body);
    EXPECT_EQ(got.status, status) << got.body;
    return got.json();
  }
  Json request(const std::string& method, const std::string& path, int status = 200) {
    HttpClient client(server_.port());
    client.send(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const ClientResponse got = client.read();
    EXPECT_EQ(got.status, status) << got.body;
    return got.json();
  }
  static std::string text_of(const Json& body) {
    return body["output"].back()["content"][0]["text"];
  }
  Json when_ended(const std::string& id) {
    Json body;
    for (int i = 0; i < 5000; ++i) {
      body = request("GET", "/v1/responses/" + id);
      if (has_ended(body)) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return body;
  }
  DemoServer server_;
};

TEST_F(KeptResponsesTest, AConversationGoesOn) {
  const Json first = post("/v1/responses", ask("What is 12 + 30?"));
  EXPECT_EQ(first["store"], true);
  Json body = ask("What is 1 + 3?");
  body["previous_response_id"] = first["id"];
  const Json second = post("/v1/responses", body);
  EXPECT_EQ(text_of(second), "1 + 3 = 4");
  EXPECT_EQ(second["previous_response_id"], first["id"]);
  // The same as with the whole input.
  Json whole = ask("");
  whole["input"] = Json::array({{{"role", "user"}, {"content", "What is 12 + 30?"}},
                                first["output"][0],
                                {{"role", "user"}, {"content", "What is 1 + 3?"}}});
  EXPECT_EQ(post("/v1/responses/input_tokens", whole)["input_tokens"],
            second["usage"]["input_tokens"]);
  EXPECT_EQ(post("/v1/responses/input_tokens", body),
            (Json{{"object", "response.input_tokens"},
                  {"input_tokens", second["usage"]["input_tokens"]}}));
}

TEST_F(KeptResponsesTest, RetrievedListedDeleted) {
  const Json body = post("/responses", ask("What is 12 + 30?"));
  const std::string path = "/v1/responses/" + body["id"].get<std::string>();
  EXPECT_EQ(request("GET", path), body);
  const Json items = request("GET", path + "/input_items");
  ASSERT_EQ(items["data"].size(), 1u);
  EXPECT_EQ(items["data"][0]["role"], "user");
  EXPECT_EQ(items["data"][0]["content"][0]["text"], "What is 12 + 30?");
  EXPECT_EQ(items["first_id"], items["data"][0]["id"]);
  EXPECT_EQ(request("GET", path + "?stream=true", 400)["error"]["param"], "stream");
  EXPECT_EQ(request("POST", path + "/cancel", 400)["error"]["param"], "id");
  EXPECT_EQ(request("DELETE", path)["deleted"], true);
  EXPECT_EQ(request("GET", path, 404)["error"]["param"], "id");
  EXPECT_EQ(request("DELETE", path, 404)["error"]["param"], "id");
}

TEST_F(KeptResponsesTest, PagesOfItems) {
  Json body = ask("");
  body["input"] = Json::array();
  for (const char* text : {"a", "b", "c"})
    body["input"].push_back(
        {{"role", "user"}, {"content", text}, {"id", std::string("msg_") + text}});
  body["max_output_tokens"] = 1;
  const std::string path =
      "/v1/responses/" + post("/v1/responses", body)["id"].get<std::string>() + "/input_items";
  Json page = request("GET", path + "?limit=2");
  EXPECT_EQ(page["first_id"], "msg_c");
  EXPECT_EQ(page["last_id"], "msg_b");
  EXPECT_EQ(page["has_more"], true);
  page = request("GET", path + "?limit=2&after=msg_b");
  EXPECT_EQ(page["last_id"], "msg_a");
  EXPECT_EQ(page["has_more"], false);
  EXPECT_EQ(request("GET", path + "?order=asc")["first_id"], "msg_a");
  EXPECT_EQ(request("GET", path + "?limit=0", 400)["error"]["param"], "limit");
  EXPECT_EQ(request("GET", path + "?order=up", 400)["error"]["param"], "order");
}

TEST_F(KeptResponsesTest, OrNotKept) {
  Json body = ask("What is 12 + 30?");
  body["store"] = false;
  const Json answer = post("/v1/responses", body);
  EXPECT_EQ(answer["store"], false);
  request("GET", "/v1/responses/" + answer["id"].get<std::string>(), 404);
}

TEST_F(KeptResponsesTest, ItemsByReference) {
  const Json first = post("/v1/responses", ask("What is 12 + 30?"));
  Json body = ask("");
  body["input"] = Json::array({{{"role", "user"}, {"content", "What is 12 + 30?"}},
                               {{"type", "item_reference"}, {"id", first["output"][0]["id"]}},
                               {{"role", "user"}, {"content", "What is 1 + 3?"}}});
  EXPECT_EQ(text_of(post("/v1/responses", body)), "1 + 3 = 4");
  body["input"][1]["id"] = "msg_unknown";
  EXPECT_EQ(post("/v1/responses", body, 400)["error"]["param"], "input[1].id");
}

TEST_F(KeptResponsesTest, InTheBackground) {
  Json body = ask("What is 12 + 30?");
  body["background"] = true;
  const Json queued = post("/v1/responses", body);
  EXPECT_EQ(queued["status"], "queued");
  EXPECT_EQ(queued["background"], true);
  const Json ended = when_ended(queued["id"]);
  EXPECT_EQ(ended["status"], "completed");
  EXPECT_EQ(text_of(ended), "12 + 30 = 42");
  EXPECT_EQ(ended["usage"]["output_tokens"], 10);
}

TEST_F(KeptResponsesTest, TheBackgroundIsCancelled) {
  DemoServer server({.n_parallel = 1, .context = 8192});
  Json body = ask("Tell me a short story about a frog.");
  body["background"] = true;
  HttpClient story(server.port());  // keeps the session busy
  story.post("/v1/chat/completions", dump_json(endless_question()));
  story.read_until("content");
  const std::string id = server.post("/v1/responses", body).json()["id"];
  const Json cancelled = server.post("/v1/responses/" + id + "/cancel", Json::object()).json();
  EXPECT_EQ(cancelled["status"], "cancelled");
  EXPECT_TRUE(server.wait_for_cancelled(1));
  EXPECT_EQ(server.get("/v1/responses/" + id).json()["status"], "cancelled");
}

TEST_F(KeptResponsesTest, ThoughtsThatComeBackUnread) {
  Json body = {{"input", "What is 12 + 30?"},
               {"temperature", 0},
               {"include", Json::array({"reasoning.encrypted_content"})}};
  const Json answer = post("/v1/responses", body);
  Json thought = answer["output"][0];
  ASSERT_EQ(thought["type"], "reasoning");
  ASSERT_TRUE(thought["encrypted_content"].is_string());
  const auto count = [&](const Json& given) {
    Json counted = {{"input", Json::array({{{"role", "user"}, {"content", "What is 12 + 30?"}},
                                           given,
                                           answer["output"][1]})},
                    {"continue_final_message", true}};
    return post("/v1/responses/input_tokens", counted)["input_tokens"].get<int>();
  };
  const int with_content = count(thought);
  thought.erase("content");
  EXPECT_EQ(count(thought), with_content);
  thought["encrypted_content"] = "somebody else's";
  EXPECT_LT(count(thought), with_content);
}

TEST_F(KeptResponsesTest, LogprobsOfTheText) {
  Json body = ask("What is 12 + 30?");
  body["include"] = Json::array({"message.output_text.logprobs"});
  body["top_logprobs"] = 2;
  const Json part = post("/v1/responses", body)["output"][0]["content"][0];
  std::string text;
  for (const Json& token : part["logprobs"]) {
    text += token["token"];
    EXPECT_EQ(token["top_logprobs"].size(), 2u);
  }
  EXPECT_EQ(text, "12 + 30 = 42");
}

}  // namespace
}  // namespace moeflux::test
