// Damaged templates: every one of some thousands must render or be refused, never crash or hang.
#include <array>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "support/paths.h"
#include "text/jinja/jinja_support.h"

namespace moeflux::jinja {
namespace {

constexpr int kMutations = 3000;

// Pieces that make syntax meet syntax where it usually does not.
constexpr std::array<std::string_view, 30> kPieces = {
    "{%",   "%}",      "{{",  "}}",   "{#",    "#}",       "-%}",  "{%-",         "(",
    ")",    "[",       "]",   "|",    ".",     "if ",      "else", "{% endif %}", "{% endfor %}",
    "for ", " in ",    "is ", "not ", "loop.", "messages", "'",    "\\",          "\n",
    "~",    "9999999", "*"};

class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : random_(seed) {}

  std::string mutate(std::string text) {
    const int changes = 1 + below(4);
    for (int i = 0; i < changes; ++i) change(text);
    return text;
  }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<std::uint32_t>(limit)); }
  std::size_t place(const std::string& text) { return random_() % (text.size() + 1); }

  void change(std::string& text) {
    const std::size_t at = place(text);
    const std::size_t length = static_cast<std::size_t>(below(20));
    switch (below(6)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, kPieces[random_() % kPieces.size()]);
        break;
      case 2:
        text.insert(at, text.substr(place(text), length * 4));
        break;
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(random_() & 0xFF);
        break;
      case 4:
        text.resize(at);
        break;
      default:
        text.replace(at, length, text.substr(place(text), length));
        break;
    }
  }

  std::mt19937 random_;
};

const Json& conversation() {
  static const Json kConversation = Json::parse(R"({"add_generation_prompt": true,
      "bos_token": "<s>", "eos_token": "</s>", "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "<think>hm</think>", "tool_calls": [
          {"type": "function", "function": {"name": "f", "arguments": {"city": "Oslo"}}}]},
        {"role": "tool", "content": "rain"}],
      "tools": [{"type": "function", "function": {"name": "f",
                                                       "parameters": {"type": "object"}}}]})");
  return kConversation;
}

// How many of the mutations still render.
int run_mutations(const std::string& source, std::uint32_t seed) {
  Mutator mutator(seed);
  RenderOptions options;
  options.limits.max_steps = 200'000;
  int rendered = 0;
  for (int i = 0; i < kMutations; ++i) {
    const std::string damaged = mutator.mutate(source);
    try {
      const MarkedText result = Template::parse(damaged, "damaged").render(conversation(), options);
      EXPECT_TRUE(result.data.empty() || result.data.back().end <= result.text.size());
      ++rendered;
    } catch (const Error&) {
      // Refused, which is as good.
    }
  }
  return rendered;
}

TEST(Mutations, OfASmallTemplate) {
  const std::string source =
      "{%- macro body(c, d=1) -%}{% if c is string %}{{ c | trim }}{% else %}{% for p in c %}"
      "{{ p.text ~ d }}{% endfor %}{% endif %}{%- endmacro -%}\n"
      "{% set ns = namespace(n=0, l=[]) %}{# note #}\n"
      "{% for m in messages if m.role != 'system' %}\n"
      "  {%- set ns.n = ns.n + loop.index0 * 2 ** 3 // 5 %}{% set a, b = [m.role, ns.n] %}\n"
      "  {{- '<|' + a + '|>' ~ body(m.content, d=b)[::-1] }}{{ loop.previtem.role if not "
      "loop.first }}\n"
      "  {% if loop.last %}{% break %}{% else %}{% continue %}{% endif %}\n"
      "{% endfor %}{% set x | upper %}{{ tools | tojson(indent=2) }}{% endset %}{{ x[1:-1] }}\n"
      "{% call(q) body(bos_token) %}{{ q }}{% endcall %}{% filter indent(2) %}{{ messages | "
      "map(attribute='role') | select('in', ['user']) | list | join(', ') }}{% endfilter %}\n"
      "{{ '%s-%5.2f' % ('a', 1.5) }}{{ '{:>4}'.format(3) }}{% raw %}{{ }}{% endraw %}";
  const int rendered = run_mutations(source, 1);
  EXPECT_GT(rendered, 0);
  EXPECT_LT(rendered, kMutations);
}

void expect_survived(const std::string& path, std::uint32_t seed) {
  const int rendered = run_mutations(read_text_file(path, 1 << 20), seed);
  EXPECT_GT(rendered, 0) << path;
  EXPECT_LT(rendered, kMutations) << path;
}

TEST(Mutations, OfTemplateStyles) {
  std::uint32_t seed = 20;
  for (const std::string name :
       {"chatml-json", "chatml-xml", "bars", "bars-xml", "sections", "headers", "inst",
        "observations", "channels", "invokes", "constructs"})
    expect_survived(test::source_path("tests/data/templates/" + name + ".jinja"), seed++);
  expect_survived(test::source_path("models/demo/chat_template.jinja"), seed);
}

TEST(Mutations, OfReleasedTemplates) {
  MOEFLUX_NEED_SHARED("chat-templates/cases.jsonl");
  std::uint32_t seed = 2;
  for (const std::string file :
       {"Qwen-Qwen3-0.6B.jinja", "Qwen3.5-4B.jinja", "deepseek-ai-DeepSeek-V3.1.jinja"})
    expect_survived(test::shared_path("chat-templates/" + file), seed++);
}

}  // namespace
}  // namespace moeflux::jinja
