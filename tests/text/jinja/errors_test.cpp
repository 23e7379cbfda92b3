// What Jinja2 refuses is refused, with a message that names the template, the line and the cause.
#include "base/error.h"
#include "text/jinja/jinja_support.h"

namespace moeflux::jinja {
namespace {

struct ErrorCase {
  const char* source;
  const char* message;
};

constexpr ErrorCase kErrorCases[] = {
    {"{{ raise_exception('custom error') }}", "custom error"},
    {"{{ xx.y }}", "'xx' is undefined"},
    {"{{ xx + 1 }}", "'xx' is undefined"},
    {"{{ 1 + 'a' }}", "unsupported operand type(s) for +: 'int' and 'str'"},
    {"{{ 'a' + 1 }}", "can only concatenate str (not \"int\") to str"},
    {"{{ xx() }}", "'xx' is undefined"},
    {"{{ n() }}", "'int' object is not callable"},
    {"{{ nil.x.y }}", "'None' has no attribute 'x'"},
    {"{{ nums.append(1) }}", "access to attribute 'append' of 'list' object is unsafe."},
    {"{{ 5 | length }}", "object of type 'int' has no len()"},
    {"{{ 1 / 0 }}", "division by zero"},
    {"{{ xx | tojson }}", "Object of type Undefined is not JSON serializable: 'xx' is undefined"},
    {"{{ 'a' < 1 }}", "'<' not supported between instances of 'str' and 'int'"},
    {"{{ 1 in 5 }}", "argument of type 'int' is not iterable"},
    {"{{ xx[0] }}", "'xx' is undefined"},
    {"{% for x in 5 %}{% endfor %}", "'int' object is not iterable"},
    {"{% for a, b in [1] %}{% endfor %}", "'int' object is not iterable"},
    {"{% for a, b in [(1, 2, 3)] %}{% endfor %}", "too many values to unpack (expected 2, got 3)"},
    {"{{ 'x' | nosuchfilter }}", "there is no filter named 'nosuchfilter'"},
    {"{{ 'x' is nosuchtest }}", "there is no test named 'nosuchtest'"},
    {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "macro 'm' takes not more than 1 argument(s)"},
    {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "macro 'm' takes no keyword argument 'b'"},
    {"{% set user.x = 1 %}", "cannot assign attribute on non-namespace object 'user'"},
    {"{{ range(100001) }}", "range() of more than 100000 numbers"},
    {"{% if %}{% endif %}", "expected an expression, got '%}'"},
    {"{% for x in %}{% endfor %}", "expected an expression, got '%}'"},
    {"{{ 'unclosed }}", "unexpected character '''"},
    {"{{ (1 }}", "unexpected '}', expected ')'"},
    {"{% endif %}", "unknown tag 'endif'"},
    {"{% unknown %}", "unknown tag 'unknown'"},
    {"{% break %}", "'break' outside of a loop"},
    {"{{ }}", "expected an expression, got '}}'"},
    {"{% set 1 = 2 %}", "expected a name, got a number"},
    {"{{ 1 is odd is even }}", "tests cannot be chained with 'is'"},
    {"{{ nums[1:2:0] }}", "slice step cannot be zero"},
    {"{{ nil[1:] }}", "'NoneType' object cannot be sliced"},
    {"{{ 'a'.join([1]) }}", "join(): expected str instances, int found"},
    {"{{ 'abc'.index('z') }}", "substring not found"},
    {"{{ '%d' % 'x' }}", "%d format: a real number is required, not str"},
    {"{{ '%s %s' % 'x' }}", "not enough arguments for format string"},
    {"{{ [].pop() }}", "pop from empty list"},
    {"{{ 0.0 ** -1 }}", "0.0 cannot be raised to a negative power"},
    {"{{ 3 ** 1e3 }}", "the result of a power is too large for a float"},
    {"{{ nums | map('nosuch') | list }}", "there is no filter named 'nosuch'"},
    {"{{ [1, 'a'] | sort }}", "'<' not supported between instances of 'str' and 'int'"},
    {"{{ {[1]: 2} }}", "unhashable type: 'list'"},
    {"{% filter nosuch %}{% endfilter %}", "there is no filter named 'nosuch'"},
    {"{{ user.name.first.second }}", "'str object' has no attribute 'first'"},
    {"{{ 'x' * 'y' }}", "unsupported operand type(s) for *: 'str' and 'str'"},
    {"{{ nums - nums }}", "unsupported operand type(s) for -: 'list' and 'list'"},
};

TEST(Errors, NameTheCause) {
  for (const ErrorCase& example : kErrorCases) {
    try {
      const std::string text = render_sample(example.source);
      ADD_FAILURE() << example.source << " rendered as: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()), std::string("sample:1: ") + example.message)
          << example.source;
    }
  }
}

TEST(Errors, NameTheLine) {
  try {
    render_sample("one\n{{ name }}\n{% if yes %}\n{{ n\n + name }}\n{% endif %}\n");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "sample:5: unsupported operand type(s) for +: 'int' and 'str'");
    EXPECT_EQ(error.code(), Errc::BadInput);
  }
}

TEST(Errors, RaiseExceptionIsBadInput) {
  try {
    render_sample("\n\n{{ raise_exception('Roles must alternate: ' ~ name) }}");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "sample:3: Roles must alternate: World");
    EXPECT_EQ(error.code(), Errc::BadInput);
  }
}

TEST(Errors, TagsThatNeedOtherTemplatesAreUnsupported) {
  for (const char* source : {"{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}",
                             "{% from 'x' import y %}", "{% block b %}{% endblock %}"}) {
    try {
      render_sample(source);
      ADD_FAILURE() << source;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::Unsupported) << source;
    }
  }
}

// Of Jinja and Python, what no chat template was seen to use.
TEST(Errors, WhatIsNotSupportedIsNamed) {
  constexpr ErrorCase kCases[] = {
      {"{{ 'a b' | wordwrap(2) }}", "there is no filter named 'wordwrap'"},
      {"{{ nums | batch(2) }}", "there is no filter named 'batch'"},
      {"{{ people | groupby('age') }}", "there is no filter named 'groupby'"},
      {"{{ nums | random }}", "there is no filter named 'random'"},
      {"{{ 'a' is lower }}", "there is no test named 'lower'"},
      {"{{ 'a'.zfill(3) }}", "'str object' has no attribute 'zfill'"},
      {"{{ cycler('a') }}", "'cycler' is undefined"},
      {"{{ lipsum() }}", "'lipsum' is undefined"},
      {"{% autoescape true %}{% endautoescape %}", "unknown tag 'autoescape'"},
      {"{% do 1 %}", "unknown tag 'do'"},
      {"{{ range(4)[:2] }}", "'range' object cannot be sliced"},
      {"{{ '%x' % 255 }}", "the field '%x' of a format is not supported"},
      {"{{ '%+d' % 1 }}", "the field '%+' of a format is not supported"},
      {"{{ '{:,}'.format(1) }}", "the field ':,' of a format is not supported"},
      {"{{ '{0.name}'.format(user) }}", "the field '0.name' of a format is not supported"},
      {"{{ 0x1F }}", "a number is not decimal or does not fit in 64 bits"},
      {"{{ 1_000 }}", "a number is not decimal or does not fit in 64 bits"},
  };
  for (const ErrorCase& example : kCases) {
    try {
      render_sample(example.source);
      ADD_FAILURE() << example.source;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()), std::string("sample:1: ") + example.message);
    }
  }
}

TEST(Errors, VariablesMustBeAnObject) {
  EXPECT_THROW(Template::parse("x", "t").render(Json::array()), Error);
}

}  // namespace
}  // namespace moeflux::jinja
