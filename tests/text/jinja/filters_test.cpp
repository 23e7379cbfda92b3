// Filters and tests. The expected texts are those of Jinja2 in the
// configuration that chat templates are written for.
#include "text/jinja/jinja_support.h"

namespace moeflux::jinja {
namespace {

constexpr RenderCase kFilterCases[] = {
    {"{{ undefined_thing }}|{{ undefined_thing is defined }}|{{ undefined_thing | default('dflt') "
     "}}|{{ undefined_thing or 'alt' }}",
     "|False|dflt|alt"},
    {"{{ nums[1:] }} {{ nums[::-1] }} {{ nums[:-1] }} {{ (1,2,3)[1:] }} {{ nums[10:] }}",
     "[1, 2] [2, 1, 3] [3, 1] (2, 3) []"},
    {"{{ uni[6:8] }} {{ uni | length }} {{ uni[::-1] }} {{ uni[9] }} {{ uni[-1] }} {{ uni | upper "
     "}} {{ uni | lower }}",
     "\344\275\240\345\245\275 12 \303\237 \360\237\230\200 \345\245\275\344\275\240 "
     "e\303\237\303\274rG \360\237\230\200 \303\237 GR\303\234SSE \344\275\240\345\245\275 "
     "\360\237\230\200 SS gr\303\274\303\237e \344\275\240\345\245\275 \360\237\230\200 \303\237"},
    {"{{ nums | length }} {{ text | length }} {{ d | length }} {{ user.name | upper | lower }} {{ "
     "'a,b'.split(',') | join('-') }}",
     "3 17 3 ann a-b"},
    {"{{ 'a' + 'b' | upper }} {{ ('a' + 'b') | upper }} {{ -3 | abs }} {{ (-3) | abs }} {{ neg | "
     "abs }}",
     "aB AB 3 3 3"},
    {"{{ range is callable }} {{ name is callable }}", "True False"},
    {"{{ nums | sort }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ nums | "
     "sort(reverse=true) }} {{ people | sort(attribute='age') | map(attribute='name') | list }}",
     "[1, 2, 3] ['Apple', 'apple', 'banana', 'cherry'] ['Apple', 'apple', 'banana', 'cherry'] [3, "
     "2, 1] ['Bob', 'Carl', 'alice']"},
    {"{{ people | sort(attribute='age,name') | map(attribute='name') | join(' ') }}",
     "Bob Carl alice"},
    {"{{ words | unique | list }} {{ words | unique(case_sensitive=true) | list }} {{ nums | min "
     "}} {{ nums | max }} {{ words | max }} {{ none_list | max is defined }}",
     "['banana', 'Apple', 'cherry'] ['banana', 'Apple', 'cherry', 'apple'] 1 3 cherry False"},
    {"{{ people | map(attribute='city', default='?') | join(',') }} {{ people | "
     "map(attribute='city') | list | length }} {{ words | map('upper') | join(' ') }} {{ nums | "
     "map('string') | list }}",
     "Oslo,Rome,? 3 BANANA APPLE CHERRY APPLE ['3', '1', '2']"},
    {"{{ people | selectattr('age', 'equalto', 25) | map(attribute='name') | list }} {{ people | "
     "rejectattr('age', '==', 25) | list | length }} {{ people | selectattr('city') | list | "
     "length }} {{ people | selectattr('city', 'defined') | list | length }} {{ people | "
     "rejectattr('city', 'undefined') | list | length }}",
     "['Bob', 'Carl'] 1 2 2 2"},
    {"{{ nums | select('odd') | list }} {{ nums | reject('odd') | list }} {{ [0,1,'',2] | select | "
     "list }} {{ nums | select('gt', 1) | list }} {{ nums | select('in', [1,2]) | list }}",
     "[3, 1] [2] [1, 2] [3, 2] [1, 2]"},
    {"{{ nums | sum }} {{ people | sum(attribute='age') }} {{ nums | sum(start=10) }} {{ nums | "
     "first }} {{ nums | last }} {{ none_list | first is defined }} {{ name | first }} {{ name | "
     "last }}",
     "6 80 16 3 2 False W d"},
    {"{{ [3, 1, 2] | select('odd') | reverse }} {{ ([3, 1, 2] | select('odd') | reverse)[0] }}",
     "[1, 3] 1"},
    {"{{ nums | reverse | list }} {{ name | reverse }} {{ nums | join }} {{ nums | join(', ') }} "
     "{{ people | join('|', attribute='name') }} {{ name | list }}",
     "[2, 1, 3] dlroW 312 3, 1, 2 Bob|alice|Carl ['W', 'o', 'r', 'l', 'd']"},
    {"{{ d | dictsort }} {{ d | dictsort(true) }} {{ d | dictsort(by='value', reverse=true) }} {{ "
     "d | items | list }} {{ d.items() | list }} {{ d.keys() | list }} {{ d.values() | list }} {{ "
     "d | list }}",
     "[('a', 1), ('b', 2), ('C', 3)] [('C', 3), ('a', 1), ('b', 2)] [('C', 3), ('b', 2), ('a', 1)] "
     "[('b', 2), ('a', 1), ('C', 3)] [('b', 2), ('a', 1), ('C', 3)] ['b', 'a', 'C'] [2, 1, 3] "
     "['b', 'a', 'C']"},
    {"{{ d.items() }} {{ d.keys() }} {{ d.values() }} {{ range(3) }} {{ range(1, 10, 3) }} {{ "
     "range(5, 0, -2) | list }} {{ range(3) | list }} {{ range(0) | list }}",
     "dict_items([('b', 2), ('a', 1), ('C', 3)]) dict_keys(['b', 'a', 'C']) dict_values([2, 1, 3]) "
     "range(0, 3) range(1, 10, 3) [5, 3, 1] [0, 1, 2] []"},
    {"{{ '%s is %d and %.2f %5s|%-5s|%05d %%' | format('a', 3, 2.0, 'r', 'l', -42) }} {{ '%s' % "
     "'x' "
     "}} {{ '%s-%s' % ('a', 'b') }} {{ '%(k)s' % {'k': 1} }} {{ '%(k)s' | format(k=2) }} {{ '%r' % "
     "'q' }} {{ '%d' % 3.9 }} {{ '%.2s' % 'abc' }}",
     "a is 3 and 2.00     r|l    |-0042 % x a-b 1 2 'q' 3 ab"},
    {"{{ '{0} {1} {a} {{}}'.format('x', 'y', a=3) }} {{ '{} {}'.format(1.5, none) }} "
     "{{ '{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:3}|{:3}|'.format('r', 'l', 'c', -42, 3.14159, 7, 's') "
     "}}",
     "x y 3 {} 1.5 None     r|l    |  c  |-0042|3.14|  7|s  |"},
    {"{{ text | trim }}| {{ text.strip() }}| {{ text.lstrip() }}| {{ text.rstrip() }}| {{ "
     "'xxaxx'.strip('x') }} {{ 'abcba'.lstrip('ab') }} {{ 'xaYx' | trim('x') }} {{ '\\n\\n "
     "a\\n'.lstrip('\\n') }}|",
     "Hello, World!| Hello, World!| Hello, World!  |   Hello, World!| a cba aY  a\n|"},
    {"{{ 'hello world'.title() }} {{ 'hello world' | title }} {{ \"it's a-b (cd)\" | title }} {{ "
     "\"it's a-b\".title() }} {{ 'hELLO' | capitalize }} {{ 'hELLO'.capitalize() }} {{ "
     " 'ABC'.lower() }} {{ 'stra\303\237e'.upper() }} {{ "
     "'\316\221\316\243'.lower() }}",
     "Hello World Hello World It's A-B (Cd) It'S A-B Hello Hello abc STRASSE \316\261\317\202"},
    {"{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ "
     "'aXbX'.replace('X', '-') }} {{ 'aXbX'.replace('X', '-', 1) }} {{ 'abc'.replace('', '.') }} "
     "{{ 'aXbX' | replace('X', '') }} {{ 5 | replace(5, 6) }} {{ 'aaa' | replace('a', 'b', 2) }}",
     "x x a-b- a-bX .a.b.c. ab 6 bba"},
    {"{{ ','.join(['a', 'b']) }} {{ ''.join(name | list) }} {{ '-'.join('abc') }}",
     "a,b World a-b-c"},
    {"{{ multi | indent }} | {{ multi | indent(2, true) }} | {{ multi | indent(2, blank=true) }} | "
     "{{ multi | indent('> ') }} | {{ 'a\\n' | indent(2) }}|",
     "line one\n    line two\n\n    line four |   line one\n  line two\n\n  line four | line one\n "
     " line two\n  \n  line four | line one\n> line two\n\n> line four | a\n|"},
    {"{{ 3.7 | int }} {{ '42' | int }} {{ '3.9' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ "
     "'0x1A' | int(0, 16) }} {{ ' 12 ' | int }} {{ '1_000' | int }} {{ nil | int }} {{ '1.5' | "
     "float }} {{ 'x' | float }} {{ 3 | float }} {{ 'inf' | float }} {{ true | int }}",
     "3 42 3 0 5 26 12 1000 0 1.5 0.0 3.0 inf 1"},
    {"{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.567 | round(2) }} {{ 2.567 | round(1, 'floor') }} "
     "{{ 2.1 | round(method='ceil') }} {{ 42 | round }} {{ 1234.5 | round(-2) }} {{ 2.675 | "
     "round(2) }}",
     "2.0 4.0 2.57 2.5 3.0 42 1200.0 2.67"},
    {"{{ html | e }} {{ html | escape | length }} {{ html | safe }} {{ (html | e) + '<b>' }} {{ "
     "'<b>' + ('x' | safe) }} {{ ('<' | e) ~ '<' }} {{ ('<i>%s</i>' | safe) % '<' }} {{ '<' | e | "
     "e }} {{ html | e | string }}",
     "&lt;a href=&#34;x&#34;&gt;T &amp; &#39;q&#39;&lt;/a&gt; 55 <a href=\"x\">T & 'q'</a> &lt;a "
     "href=&#34;x&#34;&gt;T &amp; &#39;q&#39;&lt;/a&gt;&lt;b&gt; &lt;b&gt;x &lt;< <i>&lt;</i> &lt; "
     "&lt;a "
     "href=&#34;x&#34;&gt;T &amp; &#39;q&#39;&lt;/a&gt;"},
    {"{{ user | tojson }}",
     "{\"name\": \"Ann\", \"age\": 30, \"tags\": [\"x\", \"y\"], \"items\": \"shadow\", "
     "\"nested\": {\"deep\": {\"deeper\": 42}}}"},
    {"{{ messages | tojson }}",
     "[{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", \"content\": "
     "\"<think>a</think>\\n\\nb\"}, {\"role\": \"assistant\", \"content\": null, \"tool_calls\": "
     "[{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1, \"y\": [true, null, 1.5]}}}]}]"},
    {"{{ uni | tojson }} {{ uni | tojson(ensure_ascii=true) }} {{ html | tojson }} {{ "
     "'\\x01\\x7f\\\\\"/\\b\\f\\n\\r\\t' | tojson }} {{ '\\x01\\x7f' | tojson(ensure_ascii=true) "
     "}}",
     "\"Gr\303\274\303\237e \344\275\240\345\245\275 \360\237\230\200 \303\237\" "
     "\"Gr\\u00fc\\u00dfe \\u4f60\\u597d \\ud83d\\ude00 \\u00df\" \"<a href=\\\"x\\\">T & "
     "'q'</a>\" \"\\u0001\177\\\\\\\"/\\b\\f\\n\\r\\t\" \"\\u0001\\u007f\""},
    {"{{ d | tojson(indent=2) }} {{ nested | tojson(indent=4) }} {{ {} | tojson(indent=2) }} {{ [] "
     "| tojson(indent=2) }} {{ [{}] | tojson(indent=1) }}",
     "{\n  \"b\": 2,\n  \"a\": 1,\n  \"C\": 3\n} [\n    [\n        1,\n        2\n    ],\n    [\n  "
     "      3,\n        [\n            4,\n            5\n        ]\n    ]\n] {} [] [\n {}\n]"},
    {"{{ d | tojson(separators=(',', ':')) }} {{ d | tojson(sort_keys=true) }} {{ d | "
     "tojson(indent=2, separators=(',', ': ')) }} {{ {1: 2, none: 3, true: 4, 1.5: 6} | tojson }} "
     "{{ (1, 2) | tojson }} {{ 1.0 | tojson }} {{ 1e100 | tojson }} {{ ('inf' | float) | tojson }} "
     "{{ d | tojson(indent='\\t') }} {{ d | tojson(true) }}",
     "{\"b\":2,\"a\":1,\"C\":3} {\"C\": 3, \"a\": 1, \"b\": 2} {\n  \"b\": 2,\n  \"a\": 1,\n  "
     "\"C\": 3\n} {\"1\": 4, \"null\": 3, \"1.5\": 6} [1, 2] 1.0 1e+100 Infinity {\n\t\"b\": "
     "2,\n\t\"a\": 1,\n\t\"C\": 3\n} {\"b\": 2, \"a\": 1, \"C\": 3}"},
    {"{{ none | tojson }} {{ true | tojson }} {{ 'x' | tojson }} {{ 1 | tojson }} {{ big | tojson "
     "}}",
     "null true \"x\" 1 123456789012"},
    {"{{ d | string }} {{ nums | string | length }} {{ none | string }} {{ xx | string }}| {{ xx | "
     "upper }}| {{ xx | trim }}| {{ xx | length }} {{ xx | list }} {{ xx | join }}| {{ xx | first "
     "is defined }}",
     "{'b': 2, 'a': 1, 'C': 3} 9 None | | | 0 [] | False"},
    {"{{ nil | default('d') }} {{ nil | default('d', true) }} {{ '' | d('e', boolean=true) }} {{ "
     "user.zip | default('none') }} {{ zero | default(5) }}",
     "None d e none 0"},
    {"{{ messages[-1].tool_calls[0].function.arguments.y }} {{ "
     "messages[1].content.split('</think>')[-1].lstrip('\\n') }} {{ messages[0]['content'] ~ '!' "
     "}} {{ messages[2].content is none }} {{ messages | map(attribute='role') | join(',') }} {{ "
     "(messages | selectattr('role', 'equalto', 'user') | list)[0].content }} {{ messages | "
     "selectattr('role', 'in', ['user', 'system']) | list | length }}",
     "[True, None, 1.5] b Be brief.! True system,user,assistant <think>a</think>\n\nb 2"},
    {"{{ [1, 2,] }} {{ {'a': 1,} }} {{ range(3,) | list }}", "[1, 2] {'a': 1} [0, 1, 2]"},
    {"{{ (nums | sort)[0] }} {{ nums | sort | first }} {{ (d | dictsort | first)[0] }}", "1 1 a"},
    {"{{ n | string + 'x' }} {{ n ~ 'x' | upper }} {{ [n, f] | join('/') }} {{ n|string|length }}",
     "7x 7X 7/2.5 1"},
    {"{{ 'abc' | replace('b', 1) }} {{ [1, [2, 3]] | string }} {{ {'a': none} | string }} {{ 1.0 | "
     "string }} {{ none | upper }} {{ true | lower }}",
     "a1c [1, [2, 3]] {'a': None} 1.0 NONE true"},
    {"{{ ['a', 'b'] | join(none) }} {{ 'x' | join('-') }} {{ [none, true, 1.5] | join(' ') }}",
     "aNoneb x None True 1.5"},
    {"{{ range(100000) | length }} {{ range(2, 8, 2) | sum }} {{ 3 in range(5) }} {{ range(5)[-1] "
     "}} {{ range(3) | reverse | list }} {{ range(3) | map('string') | join }}",
     "100000 12 True 4 [2, 1, 0] 012"},
};

TEST(Filters, RenderAsJinja2Does) {
  for (const RenderCase& example : kFilterCases) {
    EXPECT_EQ(render_sample(example.source), example.rendered) << example.source;
  }
}

}  // namespace
}  // namespace moeflux::jinja
