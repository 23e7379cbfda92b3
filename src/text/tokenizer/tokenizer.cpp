#include "text/tokenizer/tokenizer.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer/byte_alphabet.h"

namespace moeflux {
namespace {

// Checks ids before anything is sized by them.
TokenId checked_id(TokenId id, const std::string& text, const std::string& origin) {
  if (id < 0 || id > kMaxTokenId) {
    fail(Errc::BadInput, "{}: token \"{}\" has the id {}, outside of 0 to {}", origin, text, id,
         kMaxTokenId);
  }
  return id;
}

BpeModel build_model(const TokenizerSpec& spec) {
  BpeModel model(spec.vocab, spec.bpe, spec.origin);
  if (spec.merge_order == TokenizerSpec::MergeOrder::ById) {
    model.add_merges_by_id();
  } else if (spec.merge_order == TokenizerSpec::MergeOrder::ByScore) {
    model.add_merges_by_score(spec.vocab, spec.scores);
  } else {
    model.add_merges(spec.merges, spec.origin);
  }
  return model;
}

// The gaps between ascending, disjoint ranges.
std::vector<ByteRange> complement(const std::vector<ByteRange>& ranges, std::size_t size) {
  std::vector<ByteRange> gaps;
  std::size_t done = 0;
  for (const ByteRange& range : ranges) {
    MOEFLUX_ASSERT(done <= range.begin && range.begin <= range.end && range.end <= size);
    if (done < range.begin) gaps.push_back({done, range.begin});
    done = range.end;
  }
  if (done < size) gaps.push_back({done, size});
  return gaps;
}

// One mark for each byte of `part`: 0 where it is markup.
std::string data_marks(ByteRange part, const std::vector<ByteRange>& markup) {
  std::string marks(part.end - part.begin, '\1');
  auto range = std::lower_bound(markup.begin(), markup.end(), part.begin,
                                [](const ByteRange& r, std::size_t at) { return r.end <= at; });
  for (; range != markup.end() && range->begin < part.end; ++range) {
    const std::size_t begin = std::max(range->begin, part.begin);
    const std::size_t end = std::min(range->end, part.end);
    std::fill(marks.begin() + static_cast<std::ptrdiff_t>(begin - part.begin),
              marks.begin() + static_cast<std::ptrdiff_t>(end - part.begin), '\0');
  }
  return marks;
}

std::vector<ByteRange> unmarked_ranges(const std::string& marks) {
  std::vector<ByteRange> ranges;
  for (std::size_t at = marks.find('\0'); at != std::string::npos;) {
    const std::size_t end = std::min(marks.find('\1', at), marks.size());
    ranges.push_back({at, end});
    at = marks.find('\0', end);
  }
  return ranges;
}

}  // namespace

Tokenizer::Tokenizer(TokenizerSpec spec)
    : origin_(spec.origin),
      decode_only_(std::move(spec.decode_only)),
      model_(build_model(spec)),
      normalizer_(std::move(spec.normalizer)),
      pretokenizer_(std::move(spec.pretokenizer)),
      leading_spaces_(spec.decoder.leading_spaces),
      prefix_(std::move(spec.prefix)),
      suffix_(std::move(spec.suffix)),
      special_tokens_(std::move(spec.special_tokens)),
      add_bos_(spec.add_bos) {
  store_tokens(spec, store_added_tokens(spec));
  if (prefix_.empty() && add_bos_ && bos()) prefix_ = {*bos()};
  if (suffix_.empty() && spec.add_eos && eos()) suffix_ = {*eos()};
  add_bos_ = add_bos_ || (bos() && !prefix_.empty() && prefix_.front() == *bos());
  for (const auto* ids : {&prefix_, &suffix_}) {
    for (const TokenId id : *ids) checked_id(id, "(post-processor)", origin_);
  }
}

// Returns the texts that stand for the added tokens in output: one that is matched in normalized
// text is also shown as normalized.
std::map<TokenId, std::string> Tokenizer::store_added_tokens(const TokenizerSpec& spec) {
  std::map<TokenId, AddedToken> by_id;
  std::map<TokenId, std::string> shown;
  for (AddedToken token : spec.added_tokens) {
    if (token.content.empty()) {
      fail(Errc::BadInput, "{}: the added token {} has no content", origin_, token.id);
    }
    if (token.content.size() > AddedTokenMatcher::kMaxContentBytes) {
      fail(Errc::LimitExceeded, "{}: the added token {} has {} bytes, more than {}", origin_,
           token.id, token.content.size(), AddedTokenMatcher::kMaxContentBytes);
    }
    // The id a text has already is its id; of two entries for one text, the later one's flags
    // count.
    if (const auto known = added_ids_.find(token.content); known != added_ids_.end()) {
      token.id = known->second;
    } else if (const auto in_vocab = model_.find_as_written(token.content)) {
      token.id = *in_vocab;
    }
    checked_id(token.id, token.content, origin_);
    const auto [it, is_new] = by_id.try_emplace(token.id, token);
    if (!is_new && it->second.content != token.content) {
      fail(Errc::BadInput, "{}: the added tokens \"{}\" and \"{}\" have the same id {}", origin_,
           it->second.content, token.content, token.id);
    }
    it->second = token;
    added_ids_[token.content] = token.id;
  }

  std::vector<AddedToken> raw, normalized;
  for (const auto& [id, token] : by_id) {
    added_tokens_.push_back(token);
    shown[id] = token.content;
    if (!token.normalized) {
      raw.push_back(token);
      continue;
    }
    RegexScratch scratch(token.content.size());
    TrackedText content{token.content, {}};
    normalizer_.apply(content, scratch);
    shown[id] = content.text;
    if (content.text.empty()) continue;
    normalized.push_back(token);
    normalized.back().content = content.text;
  }
  raw_matcher_ = AddedTokenMatcher(std::move(raw));
  normalized_matcher_ = AddedTokenMatcher(std::move(normalized));
  return shown;
}

void Tokenizer::store_tokens(const TokenizerSpec& spec,
                             const std::map<TokenId, std::string>& added_texts) {
  TokenId max_id = -1;
  for (const VocabEntry& entry : spec.vocab) {
    max_id = std::max(max_id, checked_id(entry.id, entry.text, origin_));
  }
  if (!added_tokens_.empty()) max_id = std::max(max_id, added_tokens_.back().id);
  if (max_id < 0) fail(Errc::BadInput, "{}: the vocabulary is empty", origin_);
  kinds_.resize(static_cast<std::size_t>(max_id) + 1, Kind::Absent);

  std::vector<const std::string*> texts(kinds_.size(), nullptr);
  for (const VocabEntry& entry : spec.vocab) {
    const auto id = static_cast<std::size_t>(entry.id);
    if (texts[id] != nullptr) {
      fail(Errc::BadInput, "{}: the tokens \"{}\" and \"{}\" have the same id {}", origin_,
           *texts[id], entry.text, id);
    }
    texts[id] = &entry.text;
    kinds_[id] = Kind::Plain;
  }
  for (const AddedToken& token : added_tokens_) {
    const auto id = static_cast<std::size_t>(token.id);
    if (texts[id] != nullptr && *texts[id] != token.content) {
      fail(Errc::BadInput, "{}: the tokens \"{}\" and \"{}\" have the same id {}", origin_,
           *texts[id], token.content, id);
    }
    texts[id] = &added_texts.at(token.id);
    kinds_[id] = token.special ? Kind::Special : Kind::Added;
  }

  bytes_begin_.reserve(texts.size() + 1);
  for (const std::string* text : texts) {
    bytes_begin_.push_back(bytes_.size());
    if (text != nullptr) bytes_ += spec.decoder.to_bytes(*text);
  }
  bytes_begin_.push_back(bytes_.size());
}

struct Tokenizer::Work {
  explicit Work(std::size_t text_bytes) : regex(text_bytes) {}
  RegexScratch regex;
  BpeModel::Scratch bpe;
  std::vector<TokenId> ids;
};

std::vector<TokenId> Tokenizer::encode(const MarkedText& text) const {
  return encode_ranges(text.text, complement(text.data, text.text.size()));
}

std::vector<TokenId> Tokenizer::encode_markup(std::string_view text) const {
  return encode_ranges(text, complement({}, text.size()));
}

std::vector<TokenId> Tokenizer::encode_data(std::string_view text) const {
  return encode_ranges(text, {});
}

std::vector<TokenId> Tokenizer::encode_ranges(std::string_view text,
                                              const std::vector<ByteRange>& markup) const {
  if (!can_encode()) fail(Errc::Unsupported, "{}: {}", origin_, decode_only_);
  if (const std::size_t bad = find_invalid_utf8(text); bad != std::string_view::npos) {
    fail(Errc::BadInput, "the text to tokenize is not valid UTF-8 at byte {}", bad);
  }
  Work work(text.size());
  for (const TokenOrText& part : raw_matcher_.split(text, markup)) {
    if (part.id >= 0) {
      work.ids.push_back(part.id);
    } else {
      encode_part(text, part.range, markup, work);
    }
  }
  return std::move(work.ids);
}

void Tokenizer::encode_part(std::string_view text, ByteRange part,
                            const std::vector<ByteRange>& markup, Work& work) const {
  TrackedText normal{std::string(text.substr(part.begin, part.end - part.begin)), {}};
  const bool search = !normalized_matcher_.empty() && !markup.empty();
  const bool all_markup = search && markup.front() == ByteRange{0, text.size()};
  if (search && !all_markup) normal.is_data = data_marks(part, markup);
  normalizer_.apply(normal, work.regex);

  std::vector<ByteRange> searched;
  if (search) {
    searched = all_markup ? complement({}, normal.text.size()) : unmarked_ranges(normal.is_data);
  }
  for (const TokenOrText& piece_range : normalized_matcher_.split(normal.text, searched)) {
    if (piece_range.id >= 0) {
      work.ids.push_back(piece_range.id);
      continue;
    }
    const auto [begin, end] = piece_range.range;
    const Pieces pieces = pretokenizer_.split(normal.text.substr(begin, end - begin),
                                              part.begin == 0 && begin == 0, work.regex);
    for (std::size_t i = 0; i < pieces.ranges.size(); ++i) {
      model_.encode(pieces[i], work.bpe, work.ids);
    }
  }
}

std::vector<TokenId> Tokenizer::with_special_tokens(std::vector<TokenId> ids) const {
  ids.insert(ids.begin(), prefix_.begin(), prefix_.end());
  ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  StreamDecoder decoder(*this, skip_special);
  std::string text;
  for (const TokenId id : ids) text += decoder.feed(id);
  return text + decoder.finish();
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= n_ids()) return {};
  const auto i = static_cast<std::size_t>(id);
  return std::string_view(bytes_).substr(bytes_begin_[i], bytes_begin_[i + 1] - bytes_begin_[i]);
}

std::optional<TokenId> Tokenizer::find_token(std::string_view content) const {
  const auto added = added_ids_.find(content);
  return added != added_ids_.end() ? std::optional(added->second) : model_.find(content);
}

Tokenizer::Kind Tokenizer::kind(TokenId id) const {
  const bool inside = id >= 0 && static_cast<std::size_t>(id) < n_ids();
  return inside ? kinds_[static_cast<std::size_t>(id)] : Kind::Absent;
}

bool Tokenizer::is_added(TokenId id) const {
  return kind(id) == Kind::Added || kind(id) == Kind::Special;
}

bool Tokenizer::is_special(TokenId id) const {
  return kind(id) == Kind::Special;
}

std::optional<TokenId> Tokenizer::special_id(const std::string& name) const {
  const auto it = special_tokens_.find(name);
  return it == special_tokens_.end() ? std::nullopt : find_token(it->second);
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer),
      skip_special_(skip_special),
      spaces_to_drop_(tokenizer.leading_spaces()) {}

std::string StreamDecoder::feed(TokenId id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  std::string_view bytes = tokenizer_->token_bytes(id);
  while (spaces_to_drop_ > 0 && !bytes.empty()) {
    if (!bytes.starts_with(' ')) {
      spaces_to_drop_ = 0;
      break;
    }
    bytes.remove_prefix(1);
    --spaces_to_drop_;
  }
  waiting_ += bytes;

  std::string text;
  std::size_t at = 0;
  while (at < waiting_.size()) {
    const Utf8Step step = decode_utf8(waiting_, at);
    if (step.truncated) break;
    if (step.valid) {
      text.append(waiting_, at, step.length);
    } else {
      text += kReplacementCharacter;
    }
    at += step.length;
  }
  waiting_.erase(0, at);
  return text;
}

std::string StreamDecoder::finish() {
  spaces_to_drop_ = tokenizer_->leading_spaces();
  return replace_invalid_utf8(std::exchange(waiting_, {}));
}

std::string TokenDecoder::to_bytes(std::string_view token) const {
  std::string text(token);
  for (const auto& [what, by] : replacements) {
    for (std::size_t at = text.find(what); at != std::string::npos;
         at = text.find(what, at + by.size())) {
      text.replace(at, what.size(), by);
    }
  }
  if (byte_fallback && text.size() == 6 && text.starts_with("<0x") && text.ends_with('>')) {
    unsigned char byte = 0;
    const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, byte, 16);
    if (error == std::errc() && end == text.data() + 5) return {static_cast<char>(byte)};
  }
  if (byte_level) {
    if (auto bytes = visible_to_bytes(text)) return *std::move(bytes);
  }
  return text;
}

}  // namespace moeflux
