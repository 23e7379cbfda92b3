// Templates of released models, byte for byte against the renderings recorded with Jinja2.
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "support/paths.h"
#include "text/jinja/jinja_support.h"

namespace moeflux::jinja {
namespace {

// Errors that a template raised itself are compared by their text; Python's own are not.
bool raised_by_template(const std::string& error) {
  return error.find("object") == std::string::npos && error.find("Error") == std::string::npos;
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
    const std::string label = file + " " + example["case"].get<std::string>();
    const Template chat =
        Template::parse(read_text_file(test::shared_path("chat-templates/" + file), 1 << 20), file);
    if (example.contains("rendered")) {
      EXPECT_EQ(chat.render(example["input"]).text, example["rendered"].get<std::string>())
          << label;
      ++rendered;
      continue;
    }
    ++refused;
    try {
      chat.render(example["input"]);
      ADD_FAILURE() << label << " must fail";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::BadInput) << label;
      const std::string expected = example["error"].get<std::string>();
      if (raised_by_template(expected)) {
        EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
      }
    }
  }
  EXPECT_EQ(rendered, 65);
  EXPECT_EQ(refused, 7);
}

}  // namespace
}  // namespace moeflux::jinja
