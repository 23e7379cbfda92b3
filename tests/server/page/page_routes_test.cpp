// The web page as it is served: to whom, with which headers, and that it is whole.
#include <regex>
#include <set>

#include <gtest/gtest.h>

#include "server/demo_server.h"
#include "server/page/page_files.h"

namespace moeflux::test {
namespace {

const std::string kBrowser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";

const PageFile& file_named(std::string_view path) {
  for (const PageFile& each : page_files()) {
    if (each.path == path) return each;
  }
  throw std::runtime_error("there is no such file");
}

TEST(PageTest, BrowsersGetThePageAndOllamaItsGreeting) {
  DemoServer server({.loaded = false});  // it can be read before the model is there
  const ClientResponse page = server.get("/", kBrowser);
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(page.headers.at("vary"), "Accept");
  EXPECT_EQ(page.body, file_named("index.html").text);
  const ClientResponse greeting = server.get("/");
  EXPECT_EQ(greeting.body, "moeflux is running");
  EXPECT_EQ(greeting.headers.at("vary"), "Accept");
  EXPECT_EQ(server.get("/", "Accept: */*\r\n").body, "moeflux is running");
}

TEST(PageTest, NothingOfItNeedsAKey) {
  DemoServer server({.app = {.api_keys = {"one"}}, .loaded = false});
  EXPECT_EQ(server.get("/", kBrowser).status, 200);
  for (const PageFile& each : page_files())
    EXPECT_EQ(server.get("/page/" + std::string(each.path)).status, 200) << each.path;
  EXPECT_EQ(server.get("/favicon.ico").headers.at("content-type"), "image/svg+xml");
  EXPECT_EQ(server.get("/v1/models").status, 401);
  EXPECT_EQ(server.get("/engine/events").status, 401);
}

TEST(PageTest, OnlyItsOwnCodeRuns) {
  DemoServer server({.loaded = false});
  for (const char* path : {"/", "/page/main.js"}) {
    const ClientResponse page = server.get(path, kBrowser);
    const std::string policy = page.headers.at("content-security-policy");
    for (const char* rule : {"default-src 'none'", "script-src 'self'", "style-src 'self'",
                             "connect-src 'self'", "base-uri 'none'", "form-action 'none'",
                             "frame-ancestors 'none'", "require-trusted-types-for 'script'"})
      EXPECT_NE(policy.find(rule), std::string::npos) << rule;
    EXPECT_EQ(policy.find("unsafe"), std::string::npos);
    EXPECT_EQ(policy.find("http"), std::string::npos);
    EXPECT_EQ(page.headers.at("x-content-type-options"), "nosniff");
    EXPECT_EQ(page.headers.at("referrer-policy"), "no-referrer");
  }
}

TEST(PageTest, WhatABrowserKeepsIsNotSentAgain) {
  DemoServer server({.loaded = false});
  const ClientResponse first = server.get("/page/main.js");
  EXPECT_EQ(first.headers.at("content-type"), "text/javascript; charset=utf-8");
  EXPECT_EQ(first.headers.at("cache-control"), "no-cache");
  const std::string tag = first.headers.at("etag");
  for (const std::string& known : {tag, "\"other\", W/" + tag, std::string("*")}) {
    HttpClient client(server.port());
    client.get("/page/main.js", "If-None-Match: " + known + "\r\n");
    const ClientResponse head = client.read_head();
    EXPECT_EQ(head.status, 304) << known;
    EXPECT_EQ(head.headers.at("etag"), tag);
    EXPECT_EQ(head.headers.at("content-length"), std::to_string(first.body.size()));
    client.get("/page/main.js", "If-None-Match: \"old\"\r\n");  // the connection goes on
    EXPECT_EQ(client.read().body, first.body);
  }
  std::set<std::string_view> hashes;
  for (const PageFile& each : page_files()) EXPECT_TRUE(hashes.insert(each.hash).second);
}

TEST(PageTest, WhatIsNotPartOfItIsNotThere) {
  DemoServer server({.loaded = false});
  for (const char* path : {"/page/", "/page/other.js", "/page/../page/main.js",
                           "/page/%2e%2e/main.js", "/page//etc/passwd", "/page/base"}) {
    const ClientResponse response = server.get(path);
    EXPECT_EQ(response.status, 404) << path;
    EXPECT_EQ(response.json().at("error").at("type"), "not_found_error");
  }
  EXPECT_EQ(server.post("/page/main.js", "{}").status, 405);
}

// Every file that another one names, from the page to the last module.
std::set<std::string> reachable_files() {
  std::set<std::string> found{"index.html"};
  std::vector<std::string> to_read{"index.html"};
  const std::regex named(R"re((?:from '|href="|src=")([./][^'"]+)['"])re");
  while (!to_read.empty()) {
    const std::string path = to_read.back();
    to_read.pop_back();
    const std::string text(file_named(path).text);
    for (auto it = std::sregex_iterator(text.begin(), text.end(), named);
         it != std::sregex_iterator(); ++it) {
      std::string name = (*it)[1];
      if (name.starts_with("/page/"))
        name.erase(0, 6);
      else
        name = (std::filesystem::path(path).parent_path() / name).lexically_normal().string();
      if (found.insert(name).second) to_read.push_back(name);
    }
  }
  return found;
}

TEST(PageTest, IsWholeAndHasNothingThatNobodyUses) {
  std::set<std::string> files;
  for (const PageFile& each : page_files()) files.insert(std::string(each.path));
  EXPECT_EQ(reachable_files(), files);
}

TEST(PageTest, KeepsItsOwnPolicy) {
  for (const PageFile& each : page_files()) {
    const std::string text(each.text);
    EXPECT_FALSE(std::regex_search(text, std::regex("innerHTML|outerHTML|insertAdjacentHTML|"
                                                    "document\\.write|\\beval\\(|new Function")))
        << each.path;
    EXPECT_FALSE(std::regex_search(text, std::regex(R"((src|href)\s*=\s*["']https?:)")))
        << each.path;
    EXPECT_FALSE(std::regex_search(text, std::regex(R"(fetch\(\s*['"`]https?:)"))) << each.path;
    EXPECT_FALSE(std::regex_search(text, std::regex(R"(@import|url\()"))) << each.path;
  }
  const std::string page(file_named("index.html").text);
  EXPECT_FALSE(std::regex_search(page, std::regex(R"(<style|\sstyle=|\son\w+=|<script>)")));
}

}  // namespace
}  // namespace moeflux::test
