// Chat templates byte for byte against the renderings recorded with Jinja2: our own of every style,
// and those of released models where ../shared has them.
#include <ctime>
#include <map>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "support/paths.h"
#include "support/released.h"
#include "text/jinja/jinja_support.h"

namespace moeflux::jinja {
namespace {

// The clock of the recordings: Tuesday, 3 February 2026, 04:05:06.
RenderOptions recorded_clock() {
  RenderOptions options;
  options.local_time = std::tm{};
  options.local_time->tm_year = 126;
  options.local_time->tm_mon = 1;
  options.local_time->tm_mday = 3;
  options.local_time->tm_hour = 4;
  options.local_time->tm_min = 5;
  options.local_time->tm_sec = 6;
  options.local_time->tm_wday = 2;
  options.local_time->tm_yday = 33;
  return options;
}

// The text of an error is compared where the template raised it itself; Python's own is not.
void expect_recorded(const Template& chat, const Json& example, const std::string& label,
                     bool raised_by_template) {
  if (example.contains("rendered")) {
    try {
      EXPECT_EQ(chat.render(example["input"], recorded_clock()).text,
                example["rendered"].get<std::string>())
          << label;
    } catch (const Error& error) {
      ADD_FAILURE() << label << " fails: " << error.what();
    }
    return;
  }
  try {
    chat.render(example["input"], recorded_clock());
    ADD_FAILURE() << label << " must fail";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::BadInput) << label;
    if (raised_by_template) {
      EXPECT_NE(std::string(error.what()).find(example["error"].get<std::string>()),
                std::string::npos)
          << label << ": " << error.what();
    }
  }
}

TEST(TemplateStyles, RenderAllRecordedCases) {
  std::istringstream lines(read_text_file(test::data_path("templates/cases.jsonl"), 16 << 20));
  std::map<std::string, int> n_cases;
  for (std::string line; std::getline(lines, line);) {
    const Json example = parse_json(line, "cases.jsonl");
    const std::string name = example["template"].get<std::string>();
    const std::string path =
        test::source_path(name == "demo" ? "models/demo/chat_template.jinja"
                                         : "tests/data/templates/" + name + ".jinja");
    const Template chat = Template::parse(read_text_file(path, 1 << 20), path);
    expect_recorded(chat, example, name + " " + example["case"].get<std::string>(),
                    example.value("raised", false));
    ++n_cases[name];
  }
  EXPECT_EQ(n_cases.size(), 15u);
  for (const auto& [name, n] : n_cases) EXPECT_EQ(n, 38) << name;
}

TEST(ReleasedTemplates, RenderAllRecordedCases) {
  MOEFLUX_NEED_SHARED("chat-templates/cases.jsonl");
  std::istringstream lines(
      read_text_file(test::shared_path("chat-templates/cases.jsonl"), 16 << 20));
  int rendered = 0;
  int refused = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json example = parse_json(line, "cases.jsonl");
    const std::string file = example["template"].get<std::string>();
    const Template chat =
        Template::parse(read_text_file(test::shared_path("chat-templates/" + file), 1 << 20), file);
    const std::string error = example.value("error", "");
    const bool raised_by_template =
        error.find("object") == std::string::npos && error.find("Error") == std::string::npos;
    expect_recorded(chat, example, file + " " + example["case"].get<std::string>(),
                    raised_by_template);
    ++(example.contains("rendered") ? rendered : refused);
  }
  EXPECT_EQ(rendered, 65);
  EXPECT_EQ(refused, 7);
}

TEST(ReleasedTemplates, OfAFolder) {
  const std::string folder = test::released_folder();
  if (folder.empty()) GTEST_SKIP() << "SKIP: MOEFLUX_RELEASED names no folder";
  std::istringstream lines(read_text_file(folder + "/templates/cases.jsonl", 256 << 20));
  int n = 0;
  for (std::string line; std::getline(lines, line); ++n) {
    const Json example = parse_json(line, "cases.jsonl");
    const bool raised = example.value("raised", false);
    // What only Jinja2's own sandbox refuses (a list that grows, a filter it lacks) may be
    // rendered.
    if (!example.contains("rendered") && !raised) continue;
    const std::string name = example["template"].get<std::string>();
    const Template chat =
        Template::parse(read_text_file(folder + "/templates/" + name + ".jinja", 1 << 20), name);
    expect_recorded(chat, example, name + " " + example["case"].get<std::string>(), raised);
  }
  EXPECT_GT(n, 0);
}

}  // namespace
}  // namespace moeflux::jinja
