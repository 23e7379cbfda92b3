#include "text/tokenizer/gguf_pretokenizers.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "base/error.h"
#include "text/tokenizer/tokenizer_files.h"

namespace moeflux {
namespace {

using Patterns = std::span<const std::string_view>;
using Names = std::span<const std::string_view>;

// ---- patterns, as the models' tokenizer.json have them
// -------------------------------------------------------------------------------------------------

constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4oPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array kGpt2{kGpt2Pattern};
constexpr std::array kLlama3{kLlama3Pattern};
constexpr std::array kQwen2{kQwen2Pattern};
constexpr std::array kQwen35{kQwen35Pattern};
constexpr std::array kGpt4o{kGpt4oPattern};
constexpr std::array kTekken{kTekkenPattern};
constexpr std::array kKimi{kKimiPattern};
// Digits one by one.
constexpr std::array kDigitsGpt2{std::string_view(R"(\p{N})"), kGpt2Pattern};
// Ideographs and kana by themselves.
constexpr std::array<std::string_view, 3> kDeepseekV3{
    R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::array<std::string_view, 5> kDeepseekCoder{
    R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
    R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)", R"(\p{N})"};
// What llama.cpp does with files that name nothing.
constexpr std::array<std::string_view, 4> kDefault{R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Pattern,
                                                   R"(\p{N}+)", R"([0-9][0-9][0-9])"};

// ---- names
// -------------------------------------------------------------------------------------------------

constexpr std::array<std::string_view, 2> kQwen2Names{"qwen2", "megrez"};
constexpr std::array<std::string_view, 1> kDeepseekQwenNames{"deepseek-r1-qwen"};
constexpr std::array<std::string_view, 1> kQwen35Names{"qwen35"};
constexpr std::array<std::string_view, 2> kDeepseekV3Names{"deepseek-v3", "hunyuan-dense"};
constexpr std::array<std::string_view, 1> kDeepseekCoderNames{"deepseek-coder"};
constexpr std::array<std::string_view, 1> kKimiNames{"kimi-k2"};
constexpr std::array<std::string_view, 4> kGlmNames{"glm4", "chatglm-bpe", "dbrx", "smaug-bpe"};
constexpr std::array<std::string_view, 2> kGpt4oNames{"gpt-4o", "llama4"};
constexpr std::array<std::string_view, 1> kMinimaxNames{"minimax-m2"};
constexpr std::array<std::string_view, 1> kOlmoNames{"olmo"};
constexpr std::array<std::string_view, 5> kLlama3Names{"llama-bpe", "llama3", "llama-v3", "falcon3",
                                                       "pixtral"};
constexpr std::array<std::string_view, 1> kTekkenNames{"tekken"};
constexpr std::array<std::string_view, 3> kGpt2Names{"gpt-2", "phi-2", "mpt"};
constexpr std::array<std::string_view, 5> kDigitsNames{"smollm", "starcoder", "refact", "codeshell",
                                                       "command-r"};
constexpr std::array<std::string_view, 2> kDefaultNames{"default", ""};

struct Splitting {
  Names names;
  Patterns patterns;
  bool composes = false;  // characters are put together first (NFC), which files do not say
  bool ignores_merges = false;
  bool adds_bos = false;  // where the file does not say
  bool merges_by_id = false;
};

constexpr std::array<Splitting, 15> kSplittings{{
    {kQwen2Names, kQwen2, /*composes=*/true},
    {kDeepseekQwenNames, kQwen2},
    {kQwen35Names, kQwen35, /*composes=*/true},
    {kDeepseekV3Names, kDeepseekV3},
    {kDeepseekCoderNames, kDeepseekCoder},
    {kKimiNames, kKimi, false, /*ignores_merges=*/true, false, /*merges_by_id=*/true},
    {kGlmNames, kLlama3},
    {kGpt4oNames, kGpt4o, false, /*ignores_merges=*/true},
    {kMinimaxNames, kGpt4o},
    {kOlmoNames, kGpt2, /*composes=*/true},
    {kLlama3Names, kLlama3, false, /*ignores_merges=*/true, /*adds_bos=*/true},
    {kTekkenNames, kTekken, false, /*ignores_merges=*/true, /*adds_bos=*/true},
    {kGpt2Names, kGpt2},
    {kDigitsNames, kDigitsGpt2},
    {kDefaultNames, kDefault},
}};

const Splitting& find_splitting(const std::string& name, const std::string& origin) {
  std::vector<std::string_view> known;
  for (const Splitting& each : kSplittings) {
    if (std::find(each.names.begin(), each.names.end(), name) != each.names.end()) return each;
    for (const std::string_view other : each.names)
      if (!other.empty()) known.push_back(other);
  }
  fail(Errc::Unsupported,
       "{}: \"tokenizer.ggml.pre\": \"{}\" is not a known way to split texts (known: {})", origin,
       name, fmt::join(known, ", "));
}

}  // namespace

void set_gguf_pretokenizer(const std::string& name, const std::string& origin,
                           TokenizerSpec& spec) {
  const Splitting& splitting = find_splitting(name, origin);
  if (splitting.composes) spec.normalizer.add(Normalizer::Form{NormalForm::Nfc});
  for (const std::string_view pattern : splitting.patterns) {
    spec.pretokenizer.add(Pretokenizer::Split{
        {pattern, Regex::Kind::Pattern, origin}, SplitBehavior::Isolated, false});
  }
  spec.bpe.ignore_merges = splitting.ignores_merges;
  spec.add_bos = splitting.adds_bos;
  if (splitting.merges_by_id) spec.merge_order = TokenizerSpec::MergeOrder::ById;
}

}  // namespace moeflux
