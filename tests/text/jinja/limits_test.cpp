// Hostile templates end in LimitExceeded, soon and without filling memory or the stack.
#include <chrono>
#include <string_view>

#include "base/error.h"
#include "text/jinja/jinja_support.h"

namespace moeflux::jinja {
namespace {

// Generous, because tests also run with sanitizers on busy machines.
constexpr std::chrono::seconds kSoon{30};

// `because`: a part of the message, which says which of the limits it was.
void expect_refused(const std::string& source, const RenderOptions& options = {},
                    std::string_view because = "") {
  const auto start = std::chrono::steady_clock::now();
  const std::string shown = source.substr(0, 120);
  try {
    Template::parse(source, "hostile").render(Json{{"x", "data"}}, options);
    ADD_FAILURE() << "rendered: " << shown;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::LimitExceeded) << shown << "\n" << error.what();
    EXPECT_NE(std::string_view(error.what()).find(because), std::string_view::npos) << shown << "\n"
                                                                                    << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, kSoon) << shown;
}

std::string repeated(std::string_view text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

TEST(Limits, Time) {
  expect_refused(
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}");
  expect_refused("{% set l = range(100000) | list %}{% for i in l %}{{ -1 in l }}{% endfor %}");
  expect_refused(
      "{% set a = 'a' * 1000000 %}{% for i in range(1000) %}"
      "{{ a.find('a' * 500000 ~ 'b') }}{% endfor %}");
  expect_refused(
      "{% set a = 'a' * 1000000 %}{% for i in range(100000) %}{{ a.rfind(a ~ 'b') }}"
      "{% set b = a | upper %}{% endfor %}");
  expect_refused("{% for i in range(10000) %}{{ range(100000) | sort | first }}{% endfor %}");
  expect_refused(
      "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
      "{% endmacro %}{{ f(60) }}");
}

TEST(Limits, SharedListsThatPrintAsGiants) {
  const std::string doubling =
      "{% for i in range(60) %}{% set a.l = [a.l, a.l] %}"
      "{% set b.l = [b.l, b.l] %}{% endfor %}";
  const std::string setup =
      "{% set a = namespace(l=[1]) %}{% set b = namespace(l=[1]) %}" + doubling;
  expect_refused(setup + "{{ a.l }}");
  expect_refused(setup + "{{ a.l == b.l }}");
  expect_refused(setup + "{{ a.l | tojson }}");
}

TEST(Limits, OutputAndStrings) {
  expect_refused("{{ 'a' * 10 ** 9 }}");
  expect_refused("{{ 10 ** 9 * 'a' }}");
  expect_refused(
      "{% set ns = namespace(s='a') %}{% for i in range(100) %}"
      "{% set ns.s = ns.s + ns.s %}{% endfor %}");
  expect_refused("{% for i in range(100000) %}{% for j in range(1000) %}" + repeated("text ", 40) +
                 "{% endfor %}{% endfor %}");
  expect_refused("{{ '%1000000000000d' % 1 }}");
  expect_refused("{{ '{:1000000000000}'.format(1) }}");
  expect_refused("{{ ('a\n' * 100000) | indent(100000) }}");
  expect_refused("{{ (['a' * 1000000] * 1000) | join }}");
  expect_refused("{{ ('a' * 1000000) | replace('a', 'b' * 1000) }}");
  expect_refused("{{ [1, 2] | tojson(indent='x' * 60000000) }}");
}

// Refused before it is made, however much is allowed.
TEST(Limits, MemoryAskedForAtOnce) {
  for (const char* source : {"{{ [1] * 10 ** 9 }}", "{{ range(10 ** 12) | list }}"}) {
    expect_refused(source);
  }
}

// Refused while it grows. Little is allowed, so that this is soon the case; no other limit is near.
TEST(Limits, MemoryTakenBitByBit) {
  RenderOptions options;
  options.limits.max_memory_bytes = 4u << 20;
  const auto expect_out_of_memory = [&](const std::string& source) {
    expect_refused(source, options, "bytes of memory");
  };
  // Doubled; a chain of lists; many texts in a list; texts from one text; marks of who wrote what.
  expect_out_of_memory(
      "{% set ns = namespace(s=[1]) %}{% for i in range(100) %}"
      "{% set ns.s = ns.s + ns.s %}{% endfor %}");
  expect_out_of_memory(
      "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}"
      "{% set ns.l = [ns.l, range(1000) | list] %}{% endfor %}");
  expect_out_of_memory(
      "{% set l = [] %}{% for i in range(100000) %}{% set _ = l.append('a' * 100000) %}"
      "{% endfor %}");
  expect_out_of_memory("{{ ('a,' * 100000).split(',') | length }}");
  expect_out_of_memory("{{ ((x ~ 'm') * 200000) | length }}");
}

// What is no longer used does not count.
TEST(Limits, MemoryIsGivenBack) {
  RenderOptions options;
  options.limits.max_memory_bytes = 4u << 20;
  const Template reuse = Template::parse(
      "{% for i in range(200) %}{% set l = range(1000) | list + ['a' * 50000] %}"
      "{{ l | length }},{% endfor %}",
      "reuse");
  EXPECT_EQ(reuse.render(Json::object(), options).text, repeated("1001,", 200));
}

TEST(Limits, Depth) {
  expect_refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
  expect_refused(
      "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}"
      "{{ f() }}");
  expect_refused(
      "{% macro f() %}{% call f() %}x{% endcall %}{{ caller() }}{% endmacro %}{{ f() }}");
  expect_refused("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}");
  expect_refused("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}");
  expect_refused("{% set d = {} %}{% set _ = d.update(d=d) %}{{ d | tojson }}");
  expect_refused(
      "{% set ns = namespace(l=[]) %}{% for i in range(50000) %}"
      "{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}");
}

TEST(Limits, NestingOfTheSource) {
  expect_refused("{{ " + repeated("(", 500'000) + repeated(")", 500'000) + " }}");
  expect_refused("{{ " + repeated("(", 100'000) + "1" + repeated(")", 100'000) + " }}");
  expect_refused("{{ " + repeated("[", 100'000) + repeated("]", 100'000) + " }}");
  expect_refused("{{ " + repeated("not ", 100'000) + "1 }}");
  expect_refused("{{ " + repeated("-", 100'000) + "1 }}");
  expect_refused("{{ 1" + repeated(" + 1", 100'000) + " }}");
  expect_refused("{{ x" + repeated(".a", 100'000) + " }}");
  expect_refused("{{ x" + repeated(" | trim", 100'000) + " }}");
  expect_refused("{{ " + repeated("1 if 0 else ", 50'000) + "1 }}");
  expect_refused(repeated("{% if 1 %}", 10'000) + repeated("{% endif %}", 10'000));
  expect_refused("{% for " + repeated("(", 10'000) + "a" + repeated(")", 10'000) +
                 " in x %}{% endfor %}");
}

TEST(Limits, ChainsAndCyclesThatAreNotPrintedAreFine) {
  EXPECT_EQ(render_sample("{% set ns = namespace(l=[]) %}{% for i in range(50000) %}"
                          "{% set ns.l = [ns.l] %}{% endfor %}done"),
            "done");
  EXPECT_EQ(render_sample("{% set ns = namespace(at=[]) %}{% set top = ns.at %}"
                          "{% for i in range(50000) %}{% set n = [] %}"
                          "{% set _ = ns.at.append(n) %}{% set ns.at = n %}{% endfor %}done"),
            "done");
  EXPECT_EQ(render_sample("{% set l = [] %}{% set _ = l.append(l) %}{% set ns = namespace() %}"
                          "{% set ns.self = ns %}{{ l | length }}"),
            "1");
}

TEST(Limits, AreWhatTheCallerSays) {
  const Template loop = Template::parse("{% for i in range(1000) %}x{% endfor %}", "loop");
  RenderOptions options;
  EXPECT_EQ(loop.render(Json::object(), options).text.size(), 1000u);
  options.limits.max_steps = 1000;
  EXPECT_THROW(loop.render(Json::object(), options), Error);
  options.limits.max_steps = 1'000'000;
  options.limits.max_output_bytes = 999;
  EXPECT_THROW(loop.render(Json::object(), options), Error);
}

TEST(Limits, LeaveRoomForLongConversations) {
  // 2,000 messages and 8 MB of text, with the quadratic habits of real templates.
  Json messages = Json::array();
  for (int i = 0; i < 2000; ++i) {
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"},
                        {"content", std::string(4000, 'x') + "</think>answer"}});
  }
  const Template chat = Template::parse(
      "{% set ns = namespace(seen=[], last=0) %}"
      "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}"
      "{% endfor %}"
      "{% for m in messages %}{% set c = m.content.split('</think>')[0] | trim %}"
      "{% set ns.seen = ns.seen + [loop.index] %}"
      "<{{ m.role | upper }}>{{ c.strip('\n') ~ (m | tojson | length) }}{% endfor %}",
      "long");
  EXPECT_GT(chat.render(Json{{"messages", messages}}).text.size(), 8'000'000u);
}

}  // namespace
}  // namespace moeflux::jinja
