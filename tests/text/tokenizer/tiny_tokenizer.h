// Small tokenizers for tests: all 256 bytes as ids 0 to 255, and whatever merges and added tokens a
// test needs.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
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

// ---- the files of flash-moe (tokenizer_files.h says how they are laid out)

inline std::string le(std::uint32_t value, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}
inline std::string le_text(std::string_view text) {
  return le(static_cast<std::uint32_t>(text.size()), 2).append(text);
}

// The tokenizer.bin of a tokenizer.json whose merges are pairs. Our Json keeps the order of keys,
// which takes too long for a real vocabulary: there AnyJson is nlohmann::json.
template <class AnyJson>
std::string bpet_of(const AnyJson& json) {
  std::string vocab, merges, added;
  std::uint32_t n_vocab = 0;
  std::set<std::string> contents;
  for (const AnyJson& token : json["added_tokens"]) {
    contents.insert(token["content"].template get<std::string>());
    added += le(token["id"].template get<std::uint32_t>(), 4) +
             le_text(token["content"].template get<std::string>());
  }
  for (const auto& [text, id] : json["model"]["vocab"].items()) {
    if (contents.contains(text)) continue;
    vocab += le(id.template get<std::uint32_t>(), 4) + le_text(text);
    ++n_vocab;
  }
  for (const AnyJson& merge : json["model"]["merges"]) {
    merges += le_text(merge[0].template get<std::string>()) +
              le_text(merge[1].template get<std::string>());
  }
  const auto count = [](const AnyJson& list) {
    return le(static_cast<std::uint32_t>(list.size()), 4);
  };
  return "BPET" + le(1, 4) + le(n_vocab, 4) + count(json["model"]["merges"]) +
         count(json["added_tokens"]) + vocab + merges + added;
}

inline std::string vocab_bin_of(const Tokenizer& tokenizer) {
  const auto n_ids = static_cast<std::uint32_t>(tokenizer.n_ids());
  std::string out = le(n_ids, 4) + le(n_ids - 1, 4);
  for (std::uint32_t id = 0; id < n_ids; ++id) {
    out += le_text(tokenizer.token_bytes(static_cast<TokenId>(id)));
  }
  return out;
}

}  // namespace moeflux::test
