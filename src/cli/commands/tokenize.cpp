// moeflux tokenize: text to token ids and back, with a model's own tokenizer.
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/commands/commands.h"
#include "cli/options/general_options.h"
#include "cli/options/model_options.h"
#include "cli/terminal/text_input.h"

namespace moeflux::cli {
namespace {

struct TokenizeArguments {
  ModelOptions model;
  GeneralOptions general;
  std::optional<std::string> file;
  bool special = false, ids = false, decode = false, json = false;
};

// Ids in any notation of a list: "1 2 3", "1,2,3", "[1, 2, 3]".
std::vector<TokenId> parse_ids(const std::string& text) {
  constexpr std::string_view kBetween = " \t\r\n,[]";
  std::vector<TokenId> ids;
  for (std::size_t at = text.find_first_not_of(kBetween); at != std::string::npos;
       at = text.find_first_not_of(kBetween, at)) {
    const std::size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    const auto id = to_number<TokenId>(text.substr(at, end - at));
    if (id.value_or(-1) < 0)
      fail(Errc::BadInput, "\"{}\" is not a token id", text.substr(at, end - at));
    ids.push_back(*id);
    at = end;
  }
  return ids;
}

// A token's bytes for reading: quoted, with bytes that are no text as \xNN.
std::string quoted(std::string_view bytes) {
  std::string out = "\"";
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Step step = decode_utf8(bytes, at);
    const char c = bytes[at];
    if (step.valid && step.length == 1 && c == '\n') {
      out += "\\n";
    } else if (step.valid && step.length == 1 && c == '\t') {
      out += "\\t";
    } else if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (step.valid && static_cast<unsigned char>(c) >= 0x20 && c != 0x7F) {
      out += bytes.substr(at, step.length);
    } else {
      for (std::size_t i = 0; i < step.length; ++i) {
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(bytes[at + i]));
      }
    }
    at += step.length;
  }
  return out + "\"";
}

Json tokens_json(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Json tokens = Json::array();
  for (const TokenId id : ids) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    Json token = {{"id", id}};
    if (find_invalid_utf8(bytes) == std::string_view::npos) {
      token["piece"] = bytes;
    } else {  // part of a character: the bytes themselves
      Json& list = token["piece"] = Json::array();
      for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
    }
    if (tokenizer.is_special(id)) token["special"] = true;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void print_tokens(const TokenizeArguments& options, const Tokenizer& tokenizer,
                  const std::vector<TokenId>& ids) {
  if (options.json) {
    Json json = {{"count", ids.size()}};
    if (options.ids) {
      json["ids"] = ids;
    } else {
      json["tokens"] = tokens_json(tokenizer, ids);
    }
    write_stdout(dump_json(json) + "\n");
    return;
  }
  std::string out;
  for (const TokenId id : ids) {
    out += options.ids ? fmt::format("{}{}", out.empty() ? "" : " ", id)
                       : fmt::format("{:>7}  {}{}\n", id, quoted(tokenizer.token_bytes(id)),
                                     tokenizer.is_special(id) ? "  special" : "");
  }
  if (options.ids) out += "\n";
  write_stdout(out);
  if (!options.ids) options.general.detail(fmt::format("{} tokens", ids.size()));
}

int run(const TokenizeArguments& options, const std::vector<std::string>& arguments) {
  if (options.decode && (options.special || options.ids)) {
    throw UsageError("--decode goes from ids to text; it takes no --ids or --special");
  }
  const auto [model, words] = take_model(options.model, arguments);
  const std::optional<std::string> text = find_text(words, options.file);
  if (!text)
    throw UsageError("no text: give it as an argument, with -f FILE, or on standard input");
  const auto source = open_source(model);
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(*source);
  if (tokenizer == nullptr) fail(Errc::NotFound, "{}: has no tokenizer (tokenizer.json)", model);

  if (options.decode) {
    const std::vector<TokenId> ids = parse_ids(*text);
    const std::string decoded = tokenizer->decode(ids);
    write_stdout(options.json ? dump_json({{"text", decoded}}) + "\n" : decoded + "\n");
  } else {
    print_tokens(options, *tokenizer,
                 options.special ? tokenizer->encode_markup(*text) : tokenizer->encode_data(*text));
  }
  return kSuccess;
}

}  // namespace

void add_tokenize_command(CommandLine& line) {
  const auto options = std::make_shared<TokenizeArguments>();
  Command& command = line.add("tokenize", "Show the tokens of a text, or the text of tokens.");
  command.arguments("[MODEL] [TEXT...]", SIZE_MAX);
  command.group("Text")
      .option("-f,--file", options->file, "FILE", "the text is all of a file (-: standard input)")
      .flag("--special", options->special, "control tokens in the text count as such")
      .flag("--ids", options->ids, "only the ids, on one line")
      .flag("--decode", options->decode, "the other way: ids to text")
      .flag("--json", options->json, "print JSON");
  add_model_option(command, options->model);
  add_general_options(command, options->general);
  command.example("tokenize models/demo \"Hello there\"")
      .example("tokenize models/demo --ids --special \"<|im_start|>user\"")
      .example("tokenize models/demo --decode \"46 103 115\"");
  add_model_argument_notes(command);
  command.run(options, run);
}

}  // namespace moeflux::cli
