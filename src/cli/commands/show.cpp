// moeflux show: what info says of a model, and what comes with it: sampling, template, licence.
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "base/utf8.h"
#include "cli/commands/commands.h"
#include "cli/options/general_options.h"
#include "cli/options/model_options.h"
#include "cli/reports/model_summary.h"
#include "runtime/sampling/sampling_params.h"

namespace moeflux::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxTextBytes = 4u << 20;

struct ShowArguments {
  ModelOptions model;
  GeneralOptions general;
  bool json = false, only_template = false, only_license = false;
};

struct License {
  std::string name;  // "apache-2.0", or the file it was found in
  std::string text;  // all of it; "" where only the name is known
};

std::string readable(const std::string& path) {
  return replace_invalid_utf8(read_text_file(path, kMaxTextBytes));
}

// The value of "license:" in the lines between two "---" that a model card begins with.
std::string license_of_card(const std::string& card) {
  if (!card.starts_with("---\n")) return "";
  const std::string header = card.substr(4, card.find("\n---", 3) - 4);
  constexpr std::string_view kKey = "\nlicense:";
  const std::size_t at = ("\n" + header).find(kKey);
  if (at == std::string::npos) return "";
  const std::size_t begin = header.find_first_not_of(' ', at + kKey.size() - 1);
  return begin == std::string::npos ? "" : header.substr(begin, header.find('\n', begin) - begin);
}

License find_license(const std::string& model) {
  const std::string directory =
      directory_exists(model) ? model : fs::path(model).parent_path().string();
  License license;
  if (const std::string card = directory + "/README.md"; file_exists(card))
    license.name = license_of_card(readable(card));
  for (const char* name : {"LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "COPYING"}) {
    const std::string path = fmt::format("{}/{}", directory, name);
    if (!file_exists(path)) continue;
    if (license.name.empty()) license.name = name;
    license.text = readable(path);
    break;
  }
  return license;
}

// The template, or all of them where there are several.
std::string template_text(const Json& chat_template) {
  if (chat_template.is_string()) return chat_template.get<std::string>() + "\n";
  std::string text;
  for (const Json& each : chat_template) {
    const JsonFields fields(each, "chat_template");
    text +=
        fmt::format("{{# {} #}}\n{}\n", fields.string_or("name", ""), fields.string("template"));
  }
  return text;
}

Json sampling_json(const SamplingParams& params) {
  return {{"temperature", params.temperature},
          {"top_k", params.top_k},
          {"top_p", params.top_p},
          {"min_p", params.min_p},
          {"repetition_penalty", params.repetition_penalty},
          {"presence_penalty", params.presence_penalty},
          {"frequency_penalty", params.frequency_penalty}};
}

std::string sampling_text(const SamplingParams& params) {
  const SamplingParams neutral;
  std::string text = fmt::format("temperature {}", params.temperature);
  const auto add = [&](const char* name, auto value, auto off) {
    if (value != off) text += fmt::format(", {} {}", name, value);
  };
  add("top-k", params.top_k, neutral.top_k);
  add("top-p", params.top_p, neutral.top_p);
  add("min-p", params.min_p, neutral.min_p);
  add("repeat-penalty", params.repetition_penalty, neutral.repetition_penalty);
  add("presence-penalty", params.presence_penalty, neutral.presence_penalty);
  add("frequency-penalty", params.frequency_penalty, neutral.frequency_penalty);
  return text;
}

int show_all(const ShowArguments& options, const std::string& model, const ModelSource& source) {
  const ModelSummary summary = summarize(model);
  const License license = find_license(model);
  const SamplingParams sampling =
      sampling_defaults(source.generation_config(), model + "/generation_config.json");
  if (options.json) {
    Json json = to_json(summary);
    json["sampling"] = sampling_json(sampling);
    json["license"] = license.name.empty() ? Json() : Json(license.name);
    json["template"] = source.text().chat_template;
    write_stdout(dump_json(json, 2) + "\n");
    return kSuccess;
  }
  write_stdout(to_text(summary) + fmt::format("{:<14}{}\n", "sampling", sampling_text(sampling)) +
               (license.name.empty() ? "" : fmt::format("{:<14}{}\n", "license", license.name)));
  return kSuccess;
}

int run(const ShowArguments& options, const std::vector<std::string>& arguments) {
  const std::string model = only_model(options.model, arguments);
  const auto source = open_source(model);
  if (options.only_template) {
    const Json& chat_template = source->text().chat_template;
    if (chat_template.is_null()) fail(Errc::NotFound, "{}: there is no chat template", model);
    write_stdout(template_text(chat_template));
  } else if (options.only_license) {
    const License license = find_license(model);
    if (license.name.empty()) fail(Errc::NotFound, "{}: there is no word of a license", model);
    write_stdout(license.text.empty() ? license.name + "\n" : license.text);
  } else {
    return show_all(options, model, *source);
  }
  return kSuccess;
}

}  // namespace

void add_show_command(CommandLine& line) {
  const auto options = std::make_shared<ShowArguments>();
  Command& command = line.add("show", "Describe a model: size, memory, sampling, license.");
  command.arguments("[MODEL]", 1);
  command.group("Output")
      .flag("--json", options->json, "print JSON, with the template")
      .flag("--template", options->only_template, "print the chat template only")
      .flag("--license", options->only_license, "print the license only");
  add_model_option(command, options->model);
  add_general_options(command, options->general);
  command.example("show qwen3.6")
      .example("show models/demo --template")
      .example("show --json models/demo | jq .sampling");
  command.run(options, run);
}

}  // namespace moeflux::cli
