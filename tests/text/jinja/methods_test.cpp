// Methods of strings, lists and dicts. The expected texts are those of Jinja2 in the
// configuration that chat templates are written for.
#include "text/jinja/jinja_support.h"

namespace moeflux::jinja {
namespace {

constexpr RenderCase kMethodCases[] = {
    {"{{ nums is sequence }} {{ d is sequence }} {{ name is sequence }} {{ n is sequence }} {{ xx "
     "is sequence }} {{ d.items() is sequence }} {{ range(3) is sequence }}",
     "True True True False True False True"},
    {"{{ 'a-b-c'.split('-') }} {{ 'a-b-c'.split('-', 1) }} {{ 'a-b-c'.rsplit('-', 1) }} {{ '  a  b "
     "'.split() }} {{ ' a b  c '.split(none, 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ "
     "''.split(',') }} {{ ''.split() }} {{ 'a'.split('x')[-1] }} {{ 'a-b-c'.split('-', maxsplit=1) "
     "}}",
     "['a', 'b', 'c'] ['a', 'b-c'] ['a-b', 'c'] ['a', 'b'] ['a', 'b  c '] [' a b', 'c'] [''] [] a "
     "['a', 'b-c']"},
    {"{{ multi.splitlines() }} {{ 'a\\r\\nb\\rc\\n'.splitlines() }} {{ 'a\\nb'.splitlines(true) }} "
     "{{ 'k=v=w'.partition('=') }} {{ 'k=v=w'.rpartition('=') }} {{ 'kv'.partition('=') }}",
     "['line one', 'line two', '', 'line four'] ['a', 'b', 'c'] ['a\\n', 'b'] ('k', '=', 'v=w') "
     "('k=v', '=', 'w') ('kv', '', '')"},
    {"{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abc'.startswith('b', 1) }} "
     "{{ 'abcabc'.find('c') }} {{ 'abcabc'.rfind('c') }} {{ 'abc'.find('z') }} {{ 'abc'.index('b') "
     "}} {{ 'banana'.count('an') }} {{ 'abc'.find('c', 1, 2) }}",
     "True True True 2 5 -1 1 2 -1"},
    {"{{ nums.index(1) }} {{ nums.count(3) }} {{ nums.copy() }} {{ d.get('a') }} {{ d.get('zz') }} "
     "{{ d.get('zz', 'dd') }} {{ d.copy() }} {{ user.get('name', '') }}",
     "1 1 [3, 1, 2] 1 None dd {'b': 2, 'a': 1, 'C': 3} Ann"},
};

TEST(Methods, RenderAsJinja2Does) {
  for (const RenderCase& example : kMethodCases) {
    EXPECT_EQ(render_sample(example.source), example.rendered) << example.source;
  }
}

}  // namespace
}  // namespace moeflux::jinja
