#include "text/grammar/gbnf.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "text/grammar/gbnf_reader.h"
#include "text/grammar/json_schema.h"

namespace moeflux {
namespace {

constexpr int kMaxNesting = 100;
constexpr std::uint32_t kMaxRepeats = 100'000;

class GbnfParser {
 public:
  GbnfParser(std::string_view text, const GbnfSchemas& schemas) : in_(text), schemas_(schemas) {}

  Grammar run() {
    in_.skip_blanks(Newlines::Skip);
    while (!in_.at_end()) {
      parse_rule();
      in_.skip_blanks(Newlines::Skip);
    }
    add_schemas();
    const auto root = rules_.find("root");
    if (root == rules_.end() || !root->second.defined) in_.bad("there is no rule named \"root\"");
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined) {
        in_.bad_at(rule.first_use, fmt::format("rule \"{}\" is used but not defined", name));
      }
    }
    grammar_.set_root(root->second.id);
    return std::move(grammar_);
  }

 private:
  struct Rule {
    RuleId id;
    std::size_t first_use;
    bool defined = false;
  };

  Rule& rule_named(std::string_view name, std::size_t at) {
    const auto found = rules_.find(name);
    if (found != rules_.end()) return found->second;
    const RuleId id = grammar_.declare(std::string(name));
    return rules_.emplace(name, Rule{id, at}).first->second;
  }

  void parse_rule() {
    const std::size_t begin = in_.position();
    const std::string_view name = in_.take_name();
    if (name.empty()) in_.bad("expected the name of a rule (letters, digits, - and _)");
    in_.skip_blanks(Newlines::Stop);
    if (!in_.take("::=")) in_.bad(fmt::format("expected ::= after the rule name \"{}\"", name));
    in_.skip_blanks(Newlines::Skip);
    Rule& rule = rule_named(name, begin);
    if (rule.defined) in_.bad_at(begin, fmt::format("rule \"{}\" is defined twice", name));
    if (schemas_.contains(std::string(name))) {
      in_.bad_at(begin, fmt::format("rule \"{}\" is the name of a schema as well", name));
    }
    rule.defined = true;
    const RuleId id = rule.id;
    grammar_.define(id, parse_choice(0));
    if (!in_.at_end() && !in_.next_is("\n") && !in_.next_is("\r")) {
      in_.bad(in_.next_is(")") ? "this parenthesis closes nothing"
                               : "expected the end of the rule");
    }
  }

  ExprId parse_choice(int nesting) {
    if (nesting > kMaxNesting) in_.bad(fmt::format("nested deeper than {}", kMaxNesting));
    std::vector<ExprId> parts = {parse_sequence(nesting)};
    while (in_.take("|")) {
      in_.skip_blanks(Newlines::Skip);
      parts.push_back(parse_sequence(nesting));
    }
    return grammar_.choice(std::move(parts));
  }

  ExprId parse_sequence(int nesting) {
    const Newlines newlines = nesting > 0 ? Newlines::Skip : Newlines::Stop;
    std::vector<ExprId> parts;
    while (true) {
      in_.skip_blanks(newlines);
      ExprId part = 0;
      if (in_.next_is("\"")) {
        part = grammar_.literal(in_.take_literal());
      } else if (in_.next_is("[")) {
        part = grammar_.set(in_.take_class());
      } else if (in_.take(".")) {
        part = grammar_.set(CodePoints::all());
      } else if (in_.next_is("(")) {
        part = parse_group(nesting);
      } else {
        const std::size_t begin = in_.position();
        const std::string_view name = in_.take_name();
        if (name.empty()) break;
        part = grammar_.rule(rule_named(name, begin).id);
      }
      parts.push_back(parse_counts(part, newlines));
    }
    if (parts.empty()) return grammar_.literal("");
    return grammar_.sequence(std::move(parts));
  }

  ExprId parse_group(int nesting) {
    const std::size_t begin = in_.position();
    in_.take("(");
    const ExprId inside = parse_choice(nesting + 1);
    if (in_.at_end()) in_.bad_at(begin, "this parenthesis is not closed");
    if (!in_.take(")")) in_.bad("expected ) or more of the group");
    return inside;
  }

  ExprId parse_counts(ExprId part, Newlines newlines) {
    while (true) {
      in_.skip_blanks(newlines);
      if (in_.take("*")) {
        part = grammar_.repeat(part, 0, Grammar::kUnbounded);
      } else if (in_.take("+")) {
        part = grammar_.repeat(part, 1, Grammar::kUnbounded);
      } else if (in_.take("?")) {
        part = grammar_.optional(part);
      } else if (in_.next_is("{")) {
        part = parse_braces(part);
      } else {
        return part;
      }
    }
  }

  ExprId parse_braces(ExprId part) {
    const std::size_t begin = in_.position();
    in_.take("{");
    in_.skip_blanks(Newlines::Stop);
    const std::uint32_t min =
        in_.next_is(",") ? 0 : in_.take_number(kMaxRepeats, "a count of repetitions");
    std::uint32_t max = min;
    in_.skip_blanks(Newlines::Stop);
    if (in_.take(",")) {
      in_.skip_blanks(Newlines::Stop);
      max = in_.next_is("}") ? Grammar::kUnbounded
                             : in_.take_number(kMaxRepeats, "a count of repetitions");
      in_.skip_blanks(Newlines::Stop);
    }
    if (!in_.take("}")) in_.bad("expected } after the counts");
    if (max < min) in_.bad_at(begin, "these counts are in the wrong order");
    return grammar_.repeat(part, min, max);
  }

  void add_schemas() {
    for (const auto& [name, schema] : schemas_) {
      const auto used = rules_.find(name);
      if (used == rules_.end()) continue;
      used->second.defined = true;
      grammar_.define(used->second.id, add_json_schema(grammar_, schema, {.origin = name}));
    }
  }

  GbnfReader in_;
  const GbnfSchemas& schemas_;
  Grammar grammar_;
  std::map<std::string, Rule, std::less<>> rules_;
};

}  // namespace

Grammar parse_gbnf(std::string_view text, const GbnfSchemas& schemas) {
  if (text.size() > kMaxGbnfBytes) {
    fail(Errc::LimitExceeded, "grammar: {} bytes, more than the limit of {}", text.size(),
         kMaxGbnfBytes);
  }
  return GbnfParser(text, schemas).run();
}

}  // namespace moeflux
