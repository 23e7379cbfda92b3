// moeflux template: what a chat looks like to the model.
#include <map>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands/commands.h"
#include "cli/conversation.h"
#include "cli/options/general_options.h"
#include "cli/options/model_options.h"
#include "cli/terminal/text_input.h"

namespace moeflux::cli {
namespace {

struct TemplateArguments {
  ModelOptions model;
  GeneralOptions general;
  ConversationOptions conversation;
  std::optional<std::string> template_file;
  bool no_generation_prompt = false, json = false;
};

std::unique_ptr<ChatTemplate> find_template(const TemplateArguments& options,
                                            const ModelSource& source, const Tokenizer* tokenizer,
                                            bool with_tools) {
  if (options.template_file) {
    const std::string text = read_text_file(*options.template_file);
    check_utf8(text, *options.template_file);
    std::map<std::string, std::string> special_tokens;
    if (tokenizer != nullptr) special_tokens = tokenizer->special_tokens();
    return std::make_unique<ChatTemplate>(text, *options.template_file, std::move(special_tokens));
  }
  std::unique_ptr<ChatTemplate> found = load_chat_template(source, tokenizer, with_tools);
  if (found == nullptr) {
    fail(Errc::NotFound, "{}: has no chat template (chat_template.jinja); give one with --template",
         source.path());
  }
  return found;
}

Json rendered_json(const MarkedText& rendered, const Tokenizer* tokenizer) {
  Json data = Json::array();
  for (const MarkedText::Range& range : rendered.data) data.push_back({range.begin, range.end});
  Json json = {{"text", rendered.text}, {"data", std::move(data)}};
  if (tokenizer != nullptr) json["ids"] = tokenizer->encode(rendered);
  return json;
}

int run(const TemplateArguments& given, const std::vector<std::string>& arguments) {
  TemplateArguments options = given;
  const std::string model = only_model(options.model, arguments);
  if (!options.conversation.messages) options.conversation.messages = "-";
  if (options.conversation.messages == "-" && stdin_is_terminal()) {
    throw UsageError("no messages: give --messages FILE, or a JSON list on standard input");
  }
  const auto source = open_source(model);
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(*source);
  ChatRequest chat = make_conversation(options.conversation, std::nullopt);
  const std::unique_ptr<ChatTemplate> chat_template =
      find_template(options, *source, tokenizer.get(), has_tools(chat));
  chat.add_generation_prompt = !options.no_generation_prompt;
  const MarkedText rendered = chat_template->render(chat);
  write_stdout(options.json ? dump_json(rendered_json(rendered, tokenizer.get())) + "\n"
                            : rendered.text);
  return kSuccess;
}

}  // namespace

void add_template_command(CommandLine& line) {
  const auto options = std::make_shared<TemplateArguments>();
  Command& command = line.add("template", "Render a chat with a model's template.");
  command.arguments("[MODEL]", 1);
  command.group("Chat");
  add_conversation_options(command, options->conversation);
  command
      .flag("--no-generation-prompt", options->no_generation_prompt,
            "do not open the assistant's turn")
      .option("--template", options->template_file, "FILE",
              "a Jinja template in place of the model's");
  command.group("Output").flag("--json", options->json,
                               "text, ranges of bytes that are data, and token ids");
  add_model_option(command, options->model);
  add_general_options(command, options->general);
  command.example("template models/demo --messages chat.json")
      .example("template --json --tools tools.json < chat.json")
      .example(
          "template --template my.jinja --kwargs '{\"date\": \"today\"}' --messages chat.json");
  command.note("A chat is a JSON list: [{\"role\": \"user\", \"content\": \"Hello\"}].");
  command.run(options, run);
}

}  // namespace moeflux::cli
