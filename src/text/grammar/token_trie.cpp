#include "text/grammar/token_trie.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace moeflux {
namespace {

bool could_be_text(std::string_view bytes) {
  if (bytes.empty() || bytes.size() > TokenTrie::kMaxTokenBytes) return false;
  return std::all_of(bytes.begin(), bytes.end(),
                     [](char c) { return static_cast<std::uint8_t>(c) < 0xF8; });
}

// 0 for a token that is not plain.
std::size_t n_plain_characters(std::string_view bytes) {
  std::size_t n = 0;
  for (std::size_t at = 0; at < bytes.size(); ++n) {
    const Utf8Step step = decode_utf8(bytes, at);
    if (!step.valid || !is_plain(step.code_point) || n == TokenTrie::kMaxPlain) return 0;
    at += step.length;
  }
  return n;
}

}  // namespace

TokenTrie::TokenTrie(std::size_t n_ids, const std::function<Kind(TokenId)>& kind,
                     const std::function<std::string_view(TokenId)>& bytes) {
  for (auto& bits : plain_up_to_) bits.assign((n_ids + 7) / 8, 0);
  std::vector<TokenId> plain, other;
  for (std::size_t i = 0; i < n_ids; ++i) {
    const auto id = static_cast<TokenId>(i);
    bytes_begin_.push_back(bytes_.size());
    const Kind what = kind(id);
    const std::string_view text = what == Kind::Unused ? std::string_view() : bytes(id);
    if (!could_be_text(text)) continue;
    if (what == Kind::Control) {
      markers_.push_back({std::string(text), id});
      continue;
    }
    bytes_ += text;
    max_depth_ = std::max(max_depth_, text.size());
    if (text.size() == 1) single_bytes_.set(static_cast<std::uint8_t>(text[0]));
    const std::size_t n_characters = n_plain_characters(text);
    note_plain(id, n_characters);
    (n_characters > 0 ? plain : other).push_back(id);
  }
  bytes_begin_.push_back(bytes_.size());
  plain_ = make_tree(std::move(plain));
  other_ = make_tree(std::move(other));
}

void TokenTrie::note_plain(TokenId id, std::size_t n_characters) {
  if (n_characters == 0) return;
  const auto i = static_cast<std::size_t>(id);
  for (std::size_t n = n_characters; n <= kMaxPlain; ++n) {
    plain_up_to_[n][i / 8] = static_cast<std::uint8_t>(plain_up_to_[n][i / 8] | (1u << (i % 8)));
  }
}

std::string_view TokenTrie::bytes(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= n_ids()) return {};
  const std::size_t i = static_cast<std::size_t>(id);
  return std::string_view(bytes_).substr(bytes_begin_[i], bytes_begin_[i + 1] - bytes_begin_[i]);
}

// Sorted by bytes, tokens come in the order of the walk, and a node's own before those below it.
TokenTrie::Tree TokenTrie::make_tree(std::vector<TokenId> ids) {
  std::sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) {
    const int order = bytes(a).compare(bytes(b));
    return order != 0 ? order < 0 : a < b;
  });
  Tree tree;
  std::vector<Node>& nodes = tree.nodes_;
  std::vector<std::uint32_t> open;  // nodes from the root to the last one made
  std::string_view last;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string_view text = bytes(ids[i]);
    const auto common = static_cast<std::size_t>(
        std::mismatch(text.begin(), text.end(), last.begin(), last.end()).first - text.begin());
    for (; open.size() > common; open.pop_back()) {
      nodes[open.back()].end = static_cast<std::uint32_t>(nodes.size());
    }
    for (std::size_t at = common; at < text.size(); ++at) {
      open.push_back(static_cast<std::uint32_t>(nodes.size()));
      nodes.push_back({static_cast<std::uint8_t>(text[at]), static_cast<std::uint16_t>(at + 1), 0,
                       static_cast<std::uint32_t>(i)});
    }
    last = text;
  }
  for (const std::uint32_t node : open) nodes[node].end = static_cast<std::uint32_t>(nodes.size());
  nodes.push_back({0, 0, 0, static_cast<std::uint32_t>(ids.size())});
  tree.ids_ = std::move(ids);
  return tree;
}

}  // namespace moeflux
