#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer/byte_alphabet.h"

namespace moeflux {
namespace {

// Up to here, scanning for the best pair beats keeping a queue.
constexpr std::size_t kShortPiece = 48;

}  // namespace

BpeModel::BpeModel(const std::vector<VocabEntry>& vocab, BpeOptions options,
                   const std::string& origin)
    : options_(std::move(options)) {
  byte_token_.fill(-1);
  index_ = TextIndex(vocab.size());
  std::vector<const VocabEntry*> literals;
  const auto add = [&](TextIndex& index, std::string_view text, const VocabEntry& entry) {
    if (!index.add(text, entry.id)) {
      fail(Errc::BadInput, "{}: the vocabulary has the token \"{}\" twice", origin, entry.text);
    }
  };
  for (const VocabEntry& entry : vocab) {
    if (!options_.byte_level) {
      add(index_, entry.text, entry);
    } else if (const auto bytes = visible_to_bytes(entry.text)) {
      add(index_, *bytes, entry);
      if (bytes->size() == 1) byte_token_[static_cast<unsigned char>((*bytes)[0])] = entry.id;
    } else {
      literals.push_back(&entry);
    }
  }
  literals_ = TextIndex(literals.size());
  for (const VocabEntry* entry : literals) add(literals_, entry->text, *entry);
  if (options_.byte_fallback && !options_.byte_level) {
    for (unsigned b = 0; b < 256; ++b) {
      if (const auto id = find(fmt::format("<0x{:02X}>", b))) byte_token_[b] = *id;
    }
  }
  if (!options_.unknown.empty()) unknown_ = find_as_written(options_.unknown);
}

std::optional<TokenId> BpeModel::find(std::string_view token) const {
  const auto id = index_.find(token);
  return id ? id : literals_.find(token);
}

std::optional<TokenId> BpeModel::find_as_written(const std::string& text) const {
  if (!options_.byte_level) return index_.find(text);
  const auto bytes = visible_to_bytes(text);
  return bytes ? index_.find(*bytes) : literals_.find(text);
}

void BpeModel::add_merges(const std::vector<MergeRule>& merges, const std::string& origin) {
  merges_ = MergeTable(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const MergeRule& merge = merges[rank];
    const auto id_of = [&](const std::string& text) {
      const auto id = text.empty() ? std::nullopt : find_as_written(text);
      if (!id) {
        fail(Errc::BadInput,
             "{}: merge {} (\"{}\" + \"{}\") needs the token \"{}\", which the "
             "vocabulary does not have",
             origin, rank, merge.left, merge.right, text);
      }
      return *id;
    };
    const TokenId left = id_of(merge.left);
    const TokenId right = id_of(merge.right);
    merges_.put({left, right, static_cast<std::uint32_t>(rank), id_of(merge.left + merge.right)});
  }
}

// Every way to put a token together of two others, at the token's rank; kNoMerge: not this one.
template <class RankOf>
void BpeModel::add_all_merges(RankOf rank_of) {
  std::vector<MergeTable::Entry> rules;
  index_.for_each([&](std::string_view text, TokenId id) {
    const std::uint32_t rank = rank_of(id);
    if (rank == MergeTable::kNoMerge) return;
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = index_.find(text.substr(0, cut));
      if (!left || rank_of(*left) == MergeTable::kNoMerge) continue;
      const auto right = index_.find(text.substr(cut));
      if (right && rank_of(*right) != MergeTable::kNoMerge)
        rules.push_back({*left, *right, rank, id});
    }
  });
  merges_ = MergeTable(rules.size());
  for (const MergeTable::Entry& rule : rules) {
    merges_.put(rule);
  }
}

void BpeModel::add_merges_by_id() {
  add_all_merges([](TokenId id) { return static_cast<std::uint32_t>(id); });
}

void BpeModel::add_merges_by_score(const std::vector<VocabEntry>& vocab,
                                   const std::vector<float>& scores) {
  MOEFLUX_ASSERT(vocab.size() == scores.size());
  std::vector<std::size_t> order(vocab.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  TokenId max_id = 0;
  for (const VocabEntry& entry : vocab) max_id = std::max(max_id, entry.id);
  // Of equal scores neither comes first: then the leftmost pair does.
  std::vector<std::uint32_t> ranks(static_cast<std::size_t>(max_id) + 1, MergeTable::kNoMerge);
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && scores[order[i]] != scores[order[i - 1]]) ++rank;
    ranks[static_cast<std::size_t>(vocab[order[i]].id)] = rank;
  }
  if (options_.byte_fallback) {
    for (const TokenId byte : byte_token_)
      if (byte >= 0) ranks[static_cast<std::size_t>(byte)] = MergeTable::kNoMerge;
  }
  if (unknown_) ranks[static_cast<std::size_t>(*unknown_)] = MergeTable::kNoMerge;
  add_all_merges([&](TokenId id) { return ranks[static_cast<std::size_t>(id)]; });
}

// Characters the vocabulary does not have. Without a token for them they vanish, as they do in the
// reference implementation: a byte-level vocabulary lacks only bytes its training text did not
// have.
class BpeModel::UnknownRun {
 public:
  UnknownRun(const BpeModel& model, std::vector<TokenId>& ids) : model_(model), ids_(ids) {}

  void meet() {
    if (model_.options_.unknown.empty()) return;
    if (!model_.unknown_) {
      fail(Errc::BadInput,
           "the text has a character outside of the vocabulary, and the unknown token "
           "\"{}\" of the model is not in it either",
           model_.options_.unknown);
    }
    if (pending_ && !model_.options_.fuse_unknown) ids_.push_back(*model_.unknown_);
    pending_ = true;
  }
  // Before a known character, and at the end.
  void finish() {
    if (std::exchange(pending_, false)) ids_.push_back(*model_.unknown_);
  }

 private:
  const BpeModel& model_;
  std::vector<TokenId>& ids_;
  bool pending_ = false;
};

void BpeModel::start_bytes(std::string_view piece, std::vector<TokenId>& ids) const {
  UnknownRun unknown(*this, ids);
  for (const char c : piece) {
    const TokenId id = byte_token_[static_cast<unsigned char>(c)];
    if (id < 0) {
      unknown.meet();
      continue;
    }
    unknown.finish();
    ids.push_back(id);
  }
  unknown.finish();
}

bool BpeModel::start_fallback(std::string_view character, std::vector<TokenId>& ids) const {
  const auto token = [&](char c) { return byte_token_[static_cast<unsigned char>(c)]; };
  if (!options_.byte_fallback ||
      std::any_of(character.begin(), character.end(), [&](char c) { return token(c) < 0; })) {
    return false;
  }
  for (const char c : character) ids.push_back(token(c));
  return true;
}

void BpeModel::start_characters(std::string_view piece, std::vector<TokenId>& ids) const {
  UnknownRun unknown(*this, ids);
  for (std::size_t at = 0; at < piece.size();) {
    const std::string_view character = piece.substr(at, decode_utf8(piece, at).length);
    at += character.size();
    if (const auto id = index_.find(character)) {
      unknown.finish();
      ids.push_back(*id);
    } else if (!start_fallback(character, ids)) {
      unknown.meet();
    }
  }
  unknown.finish();
}

void BpeModel::merge_short(std::vector<TokenId>& ids) const {
  std::array<std::uint32_t, kShortPiece> rank{};  // of the pair that begins at i
  std::array<TokenId, kShortPiece> result{};
  const auto look_up = [&](std::size_t i) {
    const MergeTable::Entry& entry = merges_.find(ids[i], ids[i + 1]);
    rank[i] = entry.rank;
    result[i] = entry.result;
  };
  std::size_t n_pairs = ids.size() - 1;
  for (std::size_t i = 0; i < n_pairs; ++i) look_up(i);
  while (n_pairs > 0) {
    const auto best = std::min_element(rank.begin(), rank.begin() + n_pairs);
    if (*best == MergeTable::kNoMerge) break;
    const auto at = static_cast<std::size_t>(best - rank.begin());
    ids[at] = result[at];
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    --n_pairs;
    std::copy(rank.begin() + at + 1, rank.begin() + n_pairs + 1, rank.begin() + at);
    std::copy(result.begin() + at + 1, result.begin() + n_pairs + 1, result.begin() + at);
    if (at > 0) look_up(at - 1);
    if (at < n_pairs) look_up(at);
  }
}

void BpeModel::merge_long(std::vector<TokenId>& ids, Scratch& scratch) const {
  using Candidate = Scratch::Candidate;
  constexpr TokenId kGone = -1;
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;
  const auto n = static_cast<std::int32_t>(ids.size());
  symbols.clear();
  queue.clear();
  for (std::int32_t i = 0; i < n; ++i) {
    symbols.push_back({ids[static_cast<std::size_t>(i)], i - 1, i + 1 < n ? i + 1 : -1});
  }
  const auto symbol = [&](std::int32_t at) -> Scratch::Symbol& {
    return symbols[static_cast<std::size_t>(at)];
  };
  const auto worse = [](const Candidate& a, const Candidate& b) {
    return std::pair(a.rank, a.at) > std::pair(b.rank, b.at);
  };
  const auto consider = [&](std::int32_t at) {
    if (at < 0 || symbol(at).next < 0) return false;
    const MergeTable::Entry& entry = merges_.find(symbol(at).id, symbol(symbol(at).next).id);
    if (!entry.is_merge()) return false;
    queue.push_back({entry.rank, at, entry.result});
    return true;
  };
  for (std::int32_t i = 0; i < n; ++i) consider(i);
  std::make_heap(queue.begin(), queue.end(), worse);

  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), worse);
    const Candidate best = queue.back();
    queue.pop_back();
    Scratch::Symbol& left = symbol(best.at);
    if (left.id == kGone || left.next < 0) continue;
    Scratch::Symbol& right = symbol(left.next);
    const MergeTable::Entry& now = merges_.find(left.id, right.id);
    if (now.rank != best.rank || now.result != best.result) continue;  // another came first
    left.id = best.result;
    right.id = kGone;
    left.next = right.next;
    if (left.next >= 0) symbol(left.next).previous = best.at;
    if (consider(left.previous)) std::push_heap(queue.begin(), queue.end(), worse);
    if (consider(best.at)) std::push_heap(queue.begin(), queue.end(), worse);
  }

  ids.clear();
  for (std::int32_t at = 0; at >= 0; at = symbol(at).next) ids.push_back(symbol(at).id);
}

void BpeModel::encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
  if (piece.size() >= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    fail(Errc::LimitExceeded, "a stretch of {} bytes without a border is too long to tokenize",
         piece.size());
  }
  if (options_.ignore_merges) {
    if (const auto id = index_.find(piece)) {
      out.push_back(*id);
      return;
    }
  }
  std::vector<TokenId>& ids = scratch.ids;
  ids.clear();
  if (options_.byte_level) {
    start_bytes(piece, ids);
  } else {
    start_characters(piece, ids);
  }
  if (ids.size() > kShortPiece) {
    merge_long(ids, scratch);
  } else if (ids.size() > 1) {
    merge_short(ids);
  }
  out.insert(out.end(), ids.begin(), ids.end());
}

}  // namespace moeflux
