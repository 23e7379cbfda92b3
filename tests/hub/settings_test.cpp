#include "hub/settings.h"

#include <map>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

HubSettings read(const std::map<std::string, std::string>& variables) {
  return read_hub_settings([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(HubSettings, PlacesAreThoseOfTheHubsTools) {
  EXPECT_EQ(read({{"HOME", "/h"}}).cache, "/h/.cache/huggingface/hub");
  EXPECT_EQ(read({{"HOME", "/h"}}).endpoint, kDefaultEndpoint);
  EXPECT_EQ(read({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/c"}}).cache, "/c/huggingface/hub");
  EXPECT_EQ(read({{"HOME", "/h"}, {"HF_HOME", "~/x"}}).cache, "/h/x/hub");
  EXPECT_EQ(read({{"HOME", "/h"}, {"HF_HOME", "/x"}, {"HF_HUB_CACHE", "/y"}}).cache, "/y");
  EXPECT_EQ(read({{"HF_HUB_CACHE", "/y"}, {"HF_ENDPOINT", "http://mirror/"}}).endpoint,
            "http://mirror");
  EXPECT_TRUE(read({{"HF_HUB_OFFLINE", "1"}}).offline);
  EXPECT_FALSE(read({{"HF_HUB_OFFLINE", "0"}}).offline);
}

TEST(HubSettings, TokenOfTheEnvironmentOrOfAFile) {
  const TempDir dir;
  dir.write("token", "hf_file\n");
  dir.write("other", " hf_other ");
  EXPECT_EQ(read({{"HF_HOME", dir.path()}}).token, "hf_file");
  EXPECT_EQ(read({{"HF_HOME", dir.path()}}).token_place, dir.file("token"));
  EXPECT_EQ(read({{"HF_HOME", dir.path()}, {"HF_TOKEN_PATH", dir.file("other")}}).token,
            "hf_other");
  EXPECT_EQ(read({{"HF_HOME", dir.path()}, {"HF_TOKEN", "hf_env"}}).token, "hf_env");
  EXPECT_EQ(read({{"HF_HOME", dir.file("none")}}).token, "");
  expect_error(Errc::BadInput, {"HF_TOKEN"}, [] { read({{"HF_TOKEN", "a\nb"}}); });
}

TEST(HubSettings, Proxies) {
  const auto proxy = [](const std::map<std::string, std::string>& variables, const char* url) {
    const auto found = read(variables).proxies.proxy_for(parse_url(url));
    return found ? found->address.origin() + " " + found->authorization : "";
  };
  EXPECT_EQ(proxy({}, "https://h/"), "");
  EXPECT_EQ(proxy({{"https_proxy", "p:3128"}}, "https://h/"), "http://p:3128 ");
  EXPECT_EQ(proxy({{"HTTPS_PROXY", "http://user:pa%20ss@p:3128/"}}, "https://h/"),
            "http://p:3128 Basic dXNlcjpwYSBzcw==");
  EXPECT_EQ(proxy({{"https_proxy", "p:3128"}}, "http://h/"), "");
  EXPECT_EQ(proxy({{"HTTP_PROXY", "p:3128"}}, "http://h/"), "");  // a header in CGI
  EXPECT_EQ(proxy({{"all_proxy", "p:1"}}, "http://h/"), "http://p:1 ");
  const std::map<std::string, std::string> some = {{"https_proxy", "p:1"},
                                                   {"no_proxy", "a.b, .c.d,e:443"}};
  EXPECT_EQ(proxy(some, "https://a.b/"), "");
  EXPECT_EQ(proxy(some, "https://x.a.b/"), "");
  EXPECT_EQ(proxy(some, "https://xa.b/"), "http://p:1 ");
  EXPECT_EQ(proxy(some, "https://x.c.d/"), "");
  EXPECT_EQ(proxy(some, "https://e/"), "");
  EXPECT_EQ(proxy({{"https_proxy", "p:1"}, {"no_proxy", "*"}}, "https://e/"), "");
  expect_error(Errc::Unsupported, {"reached by http"}, [&] {
    proxy({{"https_proxy", "https://p:1"}}, "https://h/");
  });
  try {
    proxy({{"https_proxy", "http://user:secret@p:x"}}, "https://h/");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("secret"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace moeflux::test
