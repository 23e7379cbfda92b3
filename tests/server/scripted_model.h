// A model that writes what a test says: the demo model's weights behind another template, with more
// control tokens. Its answers are held to a grammar of one text.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "support/paths.h"
#include "text/replies/reply_gbnf.h"

namespace moeflux::test {

class ScriptedModel {
 public:
  struct Control {
    std::string text;
    bool special = true;
    bool ends = false;  // an answer
  };
  // `chat_template`: the name of one of tests/data/templates.
  ScriptedModel(const std::string& chat_template, const std::vector<Control>& controls) {
    const std::filesystem::path demo = source_path("models/demo");
    for (const auto& entry : std::filesystem::directory_iterator(demo)) {
      const std::string name = entry.path().filename().string();
      if (name != "tokenizer.json" && name != "generation_config.json" &&
          name != "chat_template.jinja")
        std::filesystem::create_symlink(entry.path(), directory_.file(name));
    }
    Json tokenizer = parse_json(read_text_file(demo / "tokenizer.json", 16 << 20), "tokenizer");
    Json ends = Json::array({2195});
    int id = 2202;  // the vocabulary has rows left
    for (const Control& control : controls) {
      tokenizer["added_tokens"].push_back({{"id", id},
                                           {"content", control.text},
                                           {"special", control.special},
                                           {"normalized", false}});
      if (control.ends) ends.push_back(id);
      ids_.push_back(id++);
    }
    directory_.write("tokenizer.json", dump_json(tokenizer));
    directory_.write("generation_config.json", dump_json(Json{{"eos_token_id", ends}}));
    directory_.write(
        "chat_template.jinja",
        read_text_file(source_path("tests/data/templates/" + chat_template + ".jinja"), 1 << 20));
  }

  const std::string& path() const { return directory_.path(); }

  // Makes the answer to `body` this text, written with the control tokens where it has any. After a
  // thought line ends may come first.
  Json saying(Json body, const std::string& text, bool after_thought = false) const {
    body["grammar"] = (after_thought ? "root ::= [\\n]{0,2} " : "root ::= ") + gbnf_literal(text);
    for (const int id : ids_) body["logit_bias"][std::to_string(id)] = 100;
    return body;
  }

 private:
  TempDir directory_;
  std::vector<int> ids_;
};

inline ScriptedModel harmony_model() {
  return ScriptedModel("channels", {{"<|start|>"},
                                    {"<|channel|>"},
                                    {"<|constrain|>"},
                                    {"<|message|>"},
                                    {"<|end|>"},
                                    {"<|call|>", true, true},
                                    {"<|return|>", true, true}});
}

}  // namespace moeflux::test
