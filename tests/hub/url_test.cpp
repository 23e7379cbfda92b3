#include "hub/url.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace moeflux::test {
namespace {

TEST(Url, IsTakenApart) {
  const Url url = parse_url("HTTPS://Example.ORG/a/b?x=1#part");
  EXPECT_EQ(url.scheme, "https");
  EXPECT_EQ(url.host, "example.org");
  EXPECT_EQ(url.port, "443");
  EXPECT_EQ(url.target, "/a/b?x=1");
  EXPECT_EQ(url.text(), "https://example.org/a/b?x=1");
  EXPECT_EQ(url.shown(), "https://example.org/a/b");
  EXPECT_EQ(parse_url("http://h:8080").text(), "http://h:8080/");
  EXPECT_EQ(parse_url("http://h?x").target, "/?x");
  EXPECT_EQ(parse_url("http://[::1]:80/x").host, "::1");
  EXPECT_EQ(parse_url("http://[::1]:81/x").authority(), "[::1]:81");
  EXPECT_TRUE(parse_url("http://h/").same_origin(parse_url("http://H:80/x")));
  EXPECT_FALSE(parse_url("http://h/").same_origin(parse_url("https://h/")));
  EXPECT_FALSE(parse_url("http://h/").same_origin(parse_url("http://h:81/")));
}

TEST(Url, WhatIsNoneIsRefused) {
  for (const char* text :
       {"", "h/x", "ftp://h/", "http://", "http:///x", "http://h:0/", "http://h:x/",
        "http://h:70000/", "http://a b/", "http://h/a b", "http://h/\n", "http://user:pass@h/",
        "http://[::1/", "http://[x]/", "http://h\\x/", "http://h_%/", "https://h/\xc3\xbc"}) {
    expect_error(Errc::BadInput, {}, [&] { parse_url(text); });
  }
  expect_error(Errc::BadInput, {"too long"},
               [] { parse_url("http://h/" + std::string(20'000, 'x')); });
}

TEST(Url, Redirects) {
  const Url base = parse_url("https://h/a/b?x");
  EXPECT_EQ(resolve_url(base, "/c").text(), "https://h/c");
  EXPECT_EQ(resolve_url(base, "c?y=http://z/").text(), "https://h/a/c?y=http://z/");
  EXPECT_EQ(resolve_url(base, "//other/c").text(), "https://other/c");
  EXPECT_EQ(resolve_url(base, "http://other/c").text(), "http://other/c");
  expect_error(Errc::BadInput, {"nowhere"}, [&] { resolve_url(base, ""); });
}

TEST(Url, PathsAreEncoded) {
  EXPECT_EQ(encode_path("a b/c%?#\xc3\xbc.x"), "a%20b/c%25%3F%23%C3%BC.x");
  EXPECT_EQ(decode_path("a%20b/c%25%3f%zz%4"), "a b/c%?%zz%4");
}

}  // namespace
}  // namespace moeflux::test
