// Small tokenizers for tests: all 256 bytes as ids 0 to 255, and whatever merges and added tokens a
// test needs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "support/paths.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux::test {

// A tokenizer.json. Each merge ("t", "h") adds the token "th" with the next id from 256.
inline Json tiny_json(const std::vector<std::pair<std::string, std::string>>& merges = {}) {
  Json json = {
      {"version", "1.0"},
      {"added_tokens", Json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", Json::array()}}}};
  Json& vocab = json["model"]["vocab"];
  int next = 0;
  for (; next < 256; ++next)
    vocab[bytes_to_visible(std::string(1, static_cast<char>(next)))] = next;
  for (const auto& [left, right] : merges) {
    const std::string a = bytes_to_visible(left), b = bytes_to_visible(right);
    json["model"]["merges"].push_back({a, b});
    vocab[a + b] = next++;
  }
  return json;
}

inline Json tiny_added(const std::string& content, int id, const Json& flags = Json::object()) {
  Json token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  token.update(flags);
  return token;
}

inline Tokenizer load_json(const Json& json, const Json& config = nullptr) {
  const TempDir dir;
  const std::string path = dir.write("tokenizer.json", json.dump());
  const std::string config_path =
      config.is_null() ? "" : dir.write("tokenizer_config.json", config.dump());
  return Tokenizer::from_json_file(path, config_path);
}

}  // namespace moeflux::test
