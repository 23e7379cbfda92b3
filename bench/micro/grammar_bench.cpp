// What a grammar costs per token with a real vocabulary: the first time a state is seen, and after
// that.
//
//   grammar_bench --tokenizer qwen3_5.tokenizer.json [--schema schema.json | --gbnf grammar.gbnf]
//
// Walks a document that the grammar allows token by token, drawn at random (the same every time),
// and prints microseconds: median, 99th percentile, worst.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/json_schema.h"
#include "text/grammar/token_masks.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kSchema = R"({
  "type": "object",
  "properties": {
    "title": {"type": "string"},
    "id": {"type": "string", "format": "uuid"},
    "count": {"type": "integer", "minimum": 0, "maximum": 100000},
    "score": {"type": "number"},
    "status": {"enum": ["open", "closed", "in progress", "unknown"]},
    "note": {"type": "string", "maxLength": 400},
    "tags": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 20}},
    "people": {"type": "array", "items": {"$ref": "#/$defs/person"}},
    "extra": {"type": "object"}
  },
  "required": ["title", "id", "count", "score", "status", "note", "tags", "people", "extra"],
  "additionalProperties": false,
  "$defs": {"person": {"type": "object", "properties": {
      "name": {"type": "string"}, "email": {"type": "string", "format": "email"},
      "manager": {"anyOf": [{"$ref": "#/$defs/person"}, {"type": "null"}]}},
    "required": ["name", "email", "manager"], "additionalProperties": false}}
})";

double micros(Clock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

void print(const char* what, std::vector<double> times) {
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  const auto at = [&](double q) {
    return times[static_cast<std::size_t>(q * static_cast<double>(times.size() - 1))];
  };
  fmt::print("{:24} n {:6}  median {:9.1f}  p99 {:9.1f}  worst {:9.1f} us\n", what, times.size(),
             at(0.5), at(0.99), times.back());
}

TokenTrie make_trie(const Tokenizer& tokenizer) {
  return TokenTrie(
      tokenizer.n_ids(),
      [&](TokenId id) {
        return tokenizer.is_added(id) ? TokenTrie::Kind::Control : TokenTrie::Kind::Text;
      },
      [&](TokenId id) { return tokenizer.token_bytes(id); });
}

// A random document; short strings, because quotes are drawn as often as everything else.
std::vector<TokenId> draw(TokenMasks& masks, const TokenTrie& trie, std::size_t max_tokens) {
  std::mt19937 random(1);
  TokenMasks::Cursor cursor = masks.start();
  std::vector<std::uint8_t> allowed(masks.n_ids());
  std::vector<TokenId> tokens, choices, closing;
  while (tokens.size() < max_tokens && !cursor.must_end()) {
    masks.fill(cursor, allowed);
    choices.clear();
    closing.clear();
    for (std::size_t i = 0; i < allowed.size(); ++i) {
      if (allowed[i] == 0) continue;
      choices.push_back(static_cast<TokenId>(i));
      const std::string_view text = trie.bytes(static_cast<TokenId>(i));
      if (text == "\"" || text == "}" || text == "]") closing.push_back(static_cast<TokenId>(i));
    }
    const bool close = !closing.empty() && random() % 8 == 0;
    const std::vector<TokenId>& from = close ? closing : choices;
    tokens.push_back(from[random() % from.size()]);
    masks.advance(cursor, tokens.back());
  }
  return tokens;
}

struct Times {
  std::vector<double> mask, advance;
};

Times run(TokenMasks& masks, const std::vector<TokenId>& tokens) {
  Times times;
  TokenMasks::Cursor cursor = masks.start();
  std::vector<std::uint8_t> allowed(masks.n_ids());
  for (const TokenId token : tokens) {
    const auto begin = Clock::now();
    masks.fill(cursor, allowed);
    const auto filled = Clock::now();
    masks.advance(cursor, token);
    times.mask.push_back(micros(filled - begin));
    times.advance.push_back(micros(Clock::now() - filled));
  }
  return times;
}

int bench(const std::string& tokenizer_path, const std::string& schema, const std::string& gbnf,
          std::size_t max_tokens) {
  const Tokenizer tokenizer = Tokenizer::from_json_file(tokenizer_path, "");
  auto begin = Clock::now();
  const auto trie = std::make_shared<const TokenTrie>(make_trie(tokenizer));
  fmt::print("vocabulary: {} ids, {} + {} nodes, built in {:.1f} ms\n", trie->n_ids(),
             trie->plain().nodes().size(), trie->other().nodes().size(),
             micros(Clock::now() - begin) / 1000);
  const std::string text = gbnf.empty() ? "" : read_text_file(gbnf);
  const Json json = schema.empty() ? parse_json(kSchema, "schema") : read_json_file(schema);
  begin = Clock::now();
  const auto automaton = std::make_shared<const ByteAutomaton>(compile_grammar(
      gbnf.empty() ? json_schema_grammar(json) : parse_gbnf(text), trie->markers()));
  fmt::print("grammar: {} states, {} byte classes, compiled in {:.1f} ms\n", automaton->n_states(),
             automaton->class_byte.size(), micros(Clock::now() - begin) / 1000);
  TokenMasks planning(automaton, trie);
  const std::vector<TokenId> tokens = draw(planning, *trie, max_tokens);
  TokenMasks masks(automaton, trie);
  const Times first = run(masks, tokens), second = run(masks, tokens);
  print("mask, first document", first.mask);
  print("mask, second document", second.mask);
  print("advance, first", first.advance);
  print("advance, second", second.advance);
  const TokenMasks::Counts counts = masks.counts();
  fmt::print("{} masks computed, {} reused; {} states in {:.1f} MB\n", counts.masks_computed,
             counts.masks_reused, counts.n_states,
             static_cast<double>(counts.automaton_bytes) / 1e6);
  return 0;
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) {
  CLI::App app("Cost of grammars per token");
  std::string tokenizer, schema, gbnf;
  std::size_t max_tokens = 2000;
  app.add_option("--tokenizer", tokenizer, "tokenizer.json")->required();
  app.add_option("--schema", schema, "a JSON schema instead of the built-in one");
  app.add_option("--gbnf", gbnf, "a GBNF grammar instead of a schema");
  app.add_option("--tokens", max_tokens, "length of the document at most");
  CLI11_PARSE(app, argc, argv);
  try {
    return moeflux::bench(tokenizer, schema, gbnf, max_tokens);
  } catch (const std::exception& error) {
    fmt::print(stderr, "grammar_bench: {}\n", error.what());
    return 1;
  }
}
