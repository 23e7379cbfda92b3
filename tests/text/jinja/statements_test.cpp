// Loops, assignments, macros and the scopes they make. The expected texts are those of Jinja2 in
// the configuration that chat templates are written for.
#include "text/jinja/jinja_support.h"

namespace moeflux::jinja {
namespace {

constexpr RenderCase kStatementCases[] = {
    {"{% for x in nums %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 "
     "}}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% "
     "endfor %}",
     "1032TrueFalse310;2121FalseFalse310;3210FalseTrue310;"},
    {"{% for x in nums %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
     "<3>1 3<1>2 1<2> "},
    {"{% for x in nums %}{{ loop.previtem is defined }}{{ loop.nextitem is undefined }} {% endfor "
     "%}",
     "FalseFalse TrueFalse TrueTrue "},
    {"{% for x in nums %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }} {% endfor %}",
     "aTrue bTrue aTrue "},
    {"{% for x in nums if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not "
     "loop.last }}{% endfor %}",
     "1/2:3,2/2:2"},
    {"{% for x in none_list %}x{% else %}empty{% endfor %}|{% for x in nums if x > 9 %}x{% else "
     "%}none{% endfor %}|{% for x in xx %}x{% else %}undef{% endfor %}",
     "empty|none|undef"},
    {"{% for k, v in d.items() %}{{ k }}={{ v }} {% endfor %}{% for k in d %}{{ k }}{% endfor %}{% "
     "for c in 'a\303\261b' %}[{{ c }}]{% endfor %}",
     "b=2 a=1 C=3 baC[a][\303\261][b]"},
    {"{% for a, (b, c) in [(1, (2, 3)), (4, [5, 6])] %}{{ a }}{{ b }}{{ c }} {% endfor %}{% for a, "
     "b in ['xy', 'zw'] %}{{ b }}{{ a }}{% endfor %}",
     "123 456 yxwz"},
    {"{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% "
     "endif %}{{ x }}{% endfor %}",
     "0134"},
    {"{% for x in nums %}{% break %}{% else %}never{% endfor %}done", "neverdone"},
    // Out of a captured block, what it wrote is lost and the variable stays.
    {"{% for x in range(3) %}{% set y %}a{% if x == 1 %}{% continue %}{% endif %}b{% endset %}"
     "{{ x ~ y }}{% endfor %}",
     "0ab2ab"},
    {"{% for x in range(3) %}<{% filter upper %}a{% if x == 1 %}{% break %}{% endif %}b"
     "{% endfilter %}>{% endfor %}",
     "<AB><"},
    {"{% for n in tree recursive %}{{ n.v }}{% if n.c %}({{ loop(n.c) }}){% endif %}d{{ loop.depth "
     "}} {% endfor %}",
     "1(2d2 3(4d3 )d2 )d1 "},
    {"{% set ns = namespace(found=false, n=0) %}{% for x in nums %}{% set ns.n = ns.n + x %}{% if "
     "x == 1 %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.found }} {{ ns.n }} {{ ns.zzz "
     "is defined }} {{ ns['n'] }}",
     "True 6 False 6"},
    {"{% set x = 1 %}{% for i in nums %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}", "4 2 3 1"},
    {"{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "2"},
    {"{% for i in [1,2] %}{% if i == 1 %}{% set q = 'set' %}{% endif %}{{ q }};{% endfor %}{{ q is "
     "defined }}",
     "set;;False"},
    {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}{% set t = 1, 2 %}{{ t "
     "}}{% set (p, q) = [3, 4] %}{{ p }}{{ q }}",
     "1221(1, 2)34"},
    {"{% set x %}  body {{ name }}  {% endset %}[{{ x }}]{% set y | upper | trim %} abc {% endset "
     "%}[{{ y }}]",
     "[  body World  ][ABC]"},
    {"{% set x %}{% set inner = 5 %}{{ inner }}{% endset %}{{ x }}{{ inner is defined }}",
     "5False"},
    {"{% set ns = namespace() %}{% set ns.text %}captured{% endset %}{{ ns.text }} {{ ns }}",
     "captured <Namespace {'text': 'captured'}>"},
    {"{% macro m(a, b=2, c=a) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ "
     "m(b=5, a=4) }} {{ m() }} {{ m(1, c=9) }} {{ m(*[1, 2, 3]) }} {{ m(**{'a': 7}) }}",
     "1-2-1 1-3-1 4-5-4 -2- 1-2-9 1-2-3 7-2-7"},
    {"{% macro v(a) %}{{ a }}|{{ varargs }}|{{ kwargs }}{% endmacro %}{{ v(1, 2, 3, k=4) }} {{ "
     "v(1) }}",
     "1|(2, 3)|{'k': 4} 1|()|{}"},
    {"{% macro w(x) %}<{{ caller() }}:{{ x }}>{% endmacro %}{% call w(1) %}body{% endcall %} {% "
     "macro z() %}{{ caller(5) }}{% endmacro %}{% call(q) z() %}got {{ q }}{% endcall %}",
     "<body:1> got 5"},
    {"{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}",
     "4321"},
    {"{% macro g() %}{{ later }}{% endmacro %}{% set later = 'now' %}{{ g() }}{% set later = "
     "'then' %}{{ g() }}",
     "nowthen"},
    {"{% macro g() %}{% set inner = 1 %}{{ inner }}{% endmacro %}{{ g() }}{{ inner is defined }} "
     "{{ g.name }} {{ g }}",
     "1False g <Macro 'g'>"},
    {"{% for i in [1,2] %}{% macro h() %}{{ i }}{% endmacro %}{{ h() }}{% endfor %}{{ h is defined "
     "}}",
     "12False"},
    {"{% macro lp() %}{{ loop is defined }}{% endmacro %}{% for i in [1] %}{{ lp() }}{{ loop is "
     "defined }}{% endfor %}",
     "FalseTrue"},
    {"{% filter upper %}abc {{ name }}{% endfilter %} {% filter replace('a', 'b') | upper %}aa{% "
     "endfilter %}",
     "ABC WORLD BB"},
    {"{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }} {% set a = 5 %}{% with "
     "a = 1, b = a %}{{ b }}{% endwith %}",
     "17False 5"},
    {"{% generation %}gen {{ name }}{% set q = 1 %}{% endgeneration %}{{ q is defined }}",
     "gen WorldFalse"},
    {"{% raw %}{{ not }} {% evaluated %} {# x #}{% endraw %}", "{{ not }} {% evaluated %} {# x #}"},
    {"{% if no %}a{% elif n == 7 %}b{% elif yes %}c{% else %}d{% endif %}", "b"},
    {"{% if nums and d and not none_list and not empty %}ok{% endif %}{% if 1, 2 %}t{% endif %}",
     "okt"},
    {"{{ dict(a=1, b=2) }} {{ dict([('x', 1)]) }} {{ dict({'k': 1}, z=2) }}",
     "{'a': 1, 'b': 2} {'x': 1} {'k': 1, 'z': 2}"},
    {"{% if messages | selectattr('role', 'equalto', 'nobody') %}generators are true{% endif %} {% "
     "if messages | selectattr('role', 'equalto', 'nobody') | list %}no{% endif %}",
     "generators are true "},
    {"{% set g = nums | map('string') %}{{ g | list }}{{ g | list }} {{ (nums | map('string'))[0] "
     "is defined }}",
     "['3', '1', '2'][] False"},
    {"{% for message in messages %}{{ loop.index0 }}:{{ message.role }}{% if not loop.last %}, {% "
     "endif %}{% endfor %}",
     "0:system, 1:user, 2:assistant"},
    {"a   {%- if yes -%}   b   {%- endif -%}   c", "abc"},
    {"{{ user.keys() | list }} {% for k, v in user.items() %}{% if k == 'items' %}{{ v }}{% endif "
     "%}{% endfor %} {{ 'keys' in user }} {{ d.update is defined }} {{ d.pop }}|",
     "['name', 'age', 'tags', 'items', 'nested'] shadow False False |"},
    {"{% set l = [] %}{% for x in nums %}{% set l = l + [x] %}{% endfor %}{{ l }} {% set ns = "
     "namespace(l=[]) %}{% for x in nums %}{% set ns.l = ns.l + [x * 2] %}{% endfor %}{{ ns.l }}",
     "[] [6, 2, 4]"},
    {"{% for i in [1,2,3] %}{% for j in [1,2] %}{{ loop.index }}{{ i * j }} {% endfor %}{{ "
     "loop.index }}|{% endfor %}",
     "11 22 1|12 24 2|13 26 3|"},
    {"{% for item in [1,2,3] %}{%- if loop.first %}first {% endif -%}{{ item }}{%- if not "
     "loop.last %}, {% endif -%}{% endfor %}",
     "first 1, 2, 3"},
    {"{% for role in ['a'] %}{{ role }}{% endfor %}{{ role is defined }} {% for name in ['shadow'] "
     "%}{{ name }}{% endfor %}{{ name }}",
     "aFalse shadowWorld"},
    {"{% set name = 'changed' %}{{ name }}{% macro show() %}{{ name }}{% endmacro %}{{ show() }}",
     "changedchanged"},
    {"{% macro outer() %}{% macro inner() %}in{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() "
     "}} {{ inner is defined }}",
     "in False"},
    {"{% for x in nums %}{% continue %}{% else %}else{% endfor %}", "else"},
    {"{% for x in nums %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}else{% endfor %}",
     "3"},
    {"{% set done = namespace(v=false) %}{% for x in [1,2,3,4] if not done.v %}{{ x }}{% if x == 2 "
     "%}{% set done.v = true %}{% endif %}{% endfor %}",
     "12"},
    {"{% for x in [1,2,3] %}{{ loop.length }}{{ loop.nextitem }}{% endfor %}{% for x in [] %}{% "
     "endfor %}",
     "32333"},
    {"{% macro a(x, y='d') %}{{ x }}{{ y }}{% endmacro %}{% macro b(x) %}[{{ a(x) }}|{{ a(x, "
     "y='e') }}]{% endmacro %}{{ b('q') }}",
     "[qd|qe]"},
    {"{% macro ty(s) %}{% if s.type == 'object' %}{ {% for k, v in s.properties.items() %}{{ k }}: "
     "{{ ty(v) }}{{ ', ' if not loop.last }}{% endfor %} }{% elif s.type == 'array' %}{{ "
     "ty(s['items']) }}[]{% else %}{{ s.type }}{% endif %}{% endmacro %}{{ ty({'type': 'object', "
     "'properties': {'a': {'type': 'string'}, 'b': {'type': 'array', 'items': {'type': "
     "'number'}}}}) }}",
     "{ a: string, b: number[] }"},
};

TEST(Statements, RenderAsJinja2Does) {
  for (const RenderCase& example : kStatementCases) {
    EXPECT_EQ(render_sample(example.source), example.rendered) << example.source;
  }
}

}  // namespace
}  // namespace moeflux::jinja
