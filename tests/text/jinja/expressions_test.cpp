// Operators, literals, attributes and printing. The expected texts are those of Jinja2 in the
// configuration that chat templates are written for.
#include "text/jinja/jinja_support.h"

namespace moeflux::jinja {
namespace {

constexpr RenderCase kExpressionCases[] = {
    {"{{ name }}", "World"},
    {"{{ \"a\" 'b' \"c\" }}", "abc"},
    {"{{ 'tab\\there\\nnl \\\\ \\' \\x41 \\u00e9 \\101 \\q' }}",
     "tab\there\nnl \\ ' A \303\251 A \\q"},
    {"{{ 1 + 2 * 3 ** 2 - 4 / 2 }}", "17.0"},
    {"{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 "
     "}}",
     "3 -4 1 2 -2 3.0 0.5"},
    {"{{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2.0 ** 3 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }}",
     "1024 0.5 8.0 4 64"},
    {"{{ 1 / 3 }} {{ 10 / 2 }} {{ 1e16 }} {{ 1e15 }} {{ 1.0 }} {{ 0.1 + 0.2 }} {{ 1e-5 }} {{ "
     "0.0001 }} {{ 1.5e300 * 10 }} {{ 123456789.123 }}",
     "0.3333333333333333 5.0 1e+16 1000000000000000.0 1.0 0.30000000000000004 1e-05 0.0001 "
     "1.5e+301 123456789.123"},
    {"{{ true + 1 }} {{ True and 1 }} {{ 0 or 'x' }} {{ not 0 }} {{ none }} {{ None is none }}",
     "2 1 x True None True"},
    {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 == True }} {{ 'a' < 'b' }} {{ [1,2] < [1,3] }} "
     "{{ 1 != 2 }}",
     "True False True True True True"},
    {"{{ 3 in nums }} {{ 9 not in nums }} {{ 'b' in d }} {{ 'ell' in text }} {{ 'z' in none_list "
     "}}",
     "True True True True False"},
    {"{{ 'a' ~ 1 ~ none ~ 1.0 ~ true ~ [1] }}", "a1None1.0True[1]"},
    {"{{ 'x' * 3 }} {{ 3 * 'ab' }} {{ [1] * 2 }} {{ (1,) * 2 }} {{ 'x' * -1 }}|",
     "xxx ababab [1, 1] (1, 1) |"},
    {"{{ [1,2] + [3] }} {{ (1,2) + (3,) }} {{ [] }} {{ () }} {{ {} }} {{ (1,) }}",
     "[1, 2, 3] (1, 2, 3) [] () {} (1,)"},
    {"{{ {'a': 1, 'b': [1, 'x'], 3: none} }}", "{'a': 1, 'b': [1, 'x'], 3: None}"},
    {"{{ [1, 2.5, 'a', \"it's\", 'q\"q', \"b'\\\"\", true, none, '\303\251', '\\n\\t\\x01'] }}",
     "[1, 2.5, 'a', \"it's\", 'q\"q', 'b\\'\"', True, None, '\303\251', '\\n\\t\\x01']"},
    {"{{ quote }} {{ [quote] }}", "it's \"q\" ['it\\'s \"q\"']"},
    {"{{ user.missing }}|{{ user['missing'] }}|{{ user.name }}|{{ user['name'] }}|{{ user.tags[0] "
     "}}|{{ user.tags.1 }}|{{ user.tags[-1] }}",
     "||Ann|Ann|x|y|y"},
    {"{{ user.items is string }} {{ user['items'] }} {{ user.nested.deep.deeper }}",
     "False shadow 42"},
    {"{{ nums[5] is undefined }} {{ nums[-3] }} {{ 'abc'[1] }} {{ 'abc'[9] is defined }} {{ "
     "nums['0'] is defined }}",
     "True 3 b False False"},
    {"{{ name[1:3] }} {{ name[::-1] }} {{ name[-3:] }} {{ name[:-1] }} {{ name[::2] }} {{ "
     "name[3:1] }}| {{ name[1::-1] }} {{ name[-100:100] }}",
     "or dlroW rld Worl Wrd | oW World"},
    {"{{ 1 if yes else 2 }} {{ 1 if no else 2 }} {{ 1 if no }}| {{ 'a' if no else 'b' if no else "
     "'c' }}",
     "1 2 | c"},
    {"{{ (1 if no) is defined }}", "False"},
    {"{{ 4 is divisibleby 2 }} {{ 4 is divisibleby(3) }} {{ 3 is odd }} {{ 3 is even }} {{ not 3 "
     "is odd }}",
     "True False True False False"},
    {"{{ n is number }} {{ f is number }} {{ f is float }} {{ n is integer }} {{ yes is integer }} "
     "{{ yes is number }} {{ yes is boolean }} {{ name is string }} {{ nil is none }}",
     "True True True True False True True True True"},
    {"{{ nums is iterable }} {{ d is iterable }} {{ name is iterable }} {{ n is iterable }} {{ xx "
     "is iterable }} {{ nil is iterable }}",
     "True True True False True False"},
    {"{{ d is mapping }} {{ nums is mapping }} {{ xx is mapping }} {{ user is not mapping }}",
     "True False False False"},
    {"{{ yes is true }} {{ 1 is true }} {{ no is false }} {{ 0 is false }}",
     "True False True False"},
    {"{{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 2 is ge 2 }} {{ 1 "
     "is in [1,2] }} {{ 1 is sameas 1 }} {{ 1 is sameas true }}",
     "True False True True True True True False"},
    {"{{ 'x' is string and 'y' is string or 1 is none }}", "True"},
    {"{{ 'a1'.isalnum() }} {{ 'a'.isalpha() }} {{ '12'.isdigit() }} {{ ' \\t'.isspace() }} {{ "
     "'ab'.islower() }} {{ 'AB'.isupper() }} {{ ''.isdigit() }}",
     "True True True True True True False"},
    {"{{ xx ~ 'a' }} {{ xx == yy }} {{ xx == none }} {{ xx != none }} {{ [xx] }} {{ 'a' in xx }} "
     "{{ xx in [1] }}",
     "a True False True [Undefined] False False"},
    {"{{ strftime_now('%Y-%m-%d %H:%M %d %B %A %j') }} {{ strftime_now('%d %b %Y') }} {{ "
     "strftime_now('') }}|",
     "2024-07-26 13:05 26 July Friday 208 26 Jul 2024 |"},
    {"{{ {'a': 1}.a }} {{ {'a': {'b': 2}}['a'].b }} {{ [1, 2, 3][1] }} {{ 'abc'.upper()[0] }} {{ "
     "(1, 2)[0] }} {{ [[1, 2]][0][1] }}",
     "1 2 2 A 1 2"},
    {"{{- name -}}   x   {{- name }}", "WorldxWorld"},
    {"{{ 1, 2 }} {{ 'a' , }}", "(1, 2) ('a',)"},
    {"{{ -1 }} {{ - 1 }} {{ +1 }} {{ 1 - -1 }} {{ not not true }} {{ -n + 1 }} {{ -(2) }} {{ -f }}",
     "-1 -1 1 2 True -6 -2 -2.5"},
    {"{{ not no and yes }} {{ not (no and yes) }} {{ no or not no }} {{ 1 and 0 or 2 }} {{ n == 7 "
     "and 'seven' or 'other' }}",
     "True True True 2 seven"},
    {"{{ 'a' not in 'b' and 1 in [1] }} {{ not 1 in [2] }} {{ 1 in [1] == true }}",
     "True True False"},
    {"{{ 5 > 3 > 1 }} {{ 1 <= 1 }} {{ 2 >= 3 }} {{ 'b' > 'a' }} {{ (1, 2) == (1, 2) }} {{ [1] == "
     "(1,) }} {{ {'a': 1} == {'a': 1.0} }} {{ none == false }} {{ '1' == 1 }}",
     "True True False True True False True False False"},
    {"{{ loop is defined }} {{ namespace is defined }} {{ true is defined }}", "False True True"},
    {"{{ bos_token }}{{ bos_token ~ name }}", "<s><s>World"},
    {"{{ 9007199254740991.0 // 1 }} {{ false // -0.125 }} {{ -1.0 // 3 }} {{ 0.0 // 3 }}",
     "9007199254740991.0 -0.0 -1.0 0.0"},
    {"{{ 2.0 ** -1 }} {{ 0.0 ** 2 }} {{ 9.0 ** 0.5 }}", "0.5 0.0 3.0"},
    {"{{ 1.0 // 0.3 }} {{ 5 % 2.5 }} {{ 1e308 * 10 }} {{ -0.0 }} {{ 100000000000000000.0 }} {{ "
     "12345678901234567.0 }} {{ 1/7 }} {{ 3.0e-7 }}",
     "3.0 0.0 inf -0.0 1e+17 1.2345678901234568e+16 0.14285714285714285 3e-07"},
    {"{{ nil['x'] is defined }} {{ nil.x is defined }}", "False False"},
    {"{{ 'a' % range(2) }} {{ 'b' % [1] }}", "a b"},
};

TEST(Expressions, RenderAsJinja2Does) {
  for (const RenderCase& example : kExpressionCases) {
    EXPECT_EQ(render_sample(example.source), example.rendered) << example.source;
  }
}

}  // namespace
}  // namespace moeflux::jinja
