// Where whitespace and newlines of the template survive. The expected texts are those of Jinja2 in
// the configuration that chat templates are written for.
#include "text/jinja/jinja_support.h"

namespace moeflux::jinja {
namespace {

constexpr RenderCase kWhitespaceCases[] = {
    {"  {% if yes %}\n    indented {{ name }}\n  {% endif %}\n  after",
     "    indented World\n  after"},
    {"a\n  {%+ if yes %}plus{% endif +%}\nx\n", "a\n  plus\nx"},
    {"<p>{% for i in [1,2] %}\n  <li>{{ i }}</li>\n{% endfor %}</p>\n",
     "<p>  <li>1</li>\n  <li>2</li>\n</p>"},
    {"line {# c #}\nnext {{ name }}\nafter var\n\n", "line next World\nafter var\n"},
    {"{% set x = 1 -%}\n\n   stripped\ntext {%- set y = 2 %} after", "stripped\ntext after"},
    {"{{ 'line1\nline2' }}", "line1\nline2"},
    {"{# multi\nline #}\na{#- c -#}  \n b\n  {# own line #}\nc", "ab\nc"},
    {"a\r\nb{% if yes %}\r\nc{% endif %}\rd\n", "a\nbcd"},
    {"  {{ name }}\n  {{- name }}\n{{ name -}}\n  x", "  WorldWorld\nWorldx"},
    {"{% raw -%}\n  {{ x }}\n{%- endraw %}\n y", "{{ x }} y"},
    {"\n\n{% if yes %}\n\n x\n{% endif %}\n\n", "\n\n\n x\n"},
    {"x {% if yes %} y {% endif %} z\n", "x  y  z"},
    {"\t{% set a = 1 %}\n{{ a }}\n\t{# c #}\t\nend", "1\n\t\nend"},
    {"{% for m in messages %}\n{{ m.role }}\n{% endfor %}\n", "system\nuser\nassistant\n"},
    {"{%- for m in messages -%}\n{{ m.role }}\n{%- endfor -%}\n", "systemuserassistant"},
    {"{% if yes -%}\n  a\n{%- else -%}\n b\n{%- endif %}\n\nc", "a\nc"},
    {"{% raw %}\n a {% endraw %}\nb", "\n a b"},
    {"   {% raw %} a {% endraw %}\nb", " a b"},
    {"{{ [\n1,\n2\n] }}\n{{ {\n'a':\n1} }}", "[1, 2]\n{'a': 1}"},
    {"a{%\n  if\n  yes\n%}b{%\nendif\n%}c", "abc"},
    {"{{ '''a''' }}", "a"},
    {"{% set x %}\n  text\n{% endset %}[{{ x }}]", "[  text\n]"},
    {"{% macro m(x) %}\n  <{{ x }}>\n{% endmacro %}\n{{ m(1) }}\n{{ m(2) }}\n", "  <1>\n\n  <2>\n"},
    {"{%- macro m(x) -%}\n  <{{ x }}>\n{%- endmacro -%}\n{{ m(1) }}\n{{- m(2) }}\n", "<1><2>"},
    {"{{ name }}{% raw %}{% endraw %}\n{# #}\n#}", "World#}"},
    {"{{'{{'}} {{ '%}' }} {{ '#}' }} } }} %} {", "{{ %} #} } }} %} {"},
    {"{%if yes%}tight{%endif%}{%-if yes-%} x {%-endif-%}", "tightx"},
    {"{{-1}} {{- 1}} {{ -1 -}} {{(1)}}", "11 -11"},
    {"\302\240{%- if yes %}nbsp{% endif -%}\343\200\200x", "nbspx"},
    {"{% for i in range(3) -%}\n {{ i }}\n{%- if not loop.last %},\n{% endif %}{% endfor %}",
     "0,\n1,\n2"},
};

TEST(Whitespace, RenderAsJinja2Does) {
  for (const RenderCase& example : kWhitespaceCases) {
    EXPECT_EQ(render_sample(example.source), example.rendered) << example.source;
  }
}

}  // namespace
}  // namespace moeflux::jinja
