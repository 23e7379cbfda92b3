// A conversation: every line of standard input is a turn. What the model has read stays in the
// context, so each turn evaluates only what is new; with a directory for the prefix store that
// holds beyond the end of the program, too.
//
//   chat MODEL [STORE] < questions
#include <iostream>
#include <string>
#include <vector>

#include <moeflux/moeflux.hpp>

namespace {

class Chat {
 public:
  explicit Chat(const mf::Model& model) : model_(model), context_(model) {}

  void turn(const std::string& question) {
    messages_.push_back({"user", question});
    std::vector<mf::Token> prompt =
        model_.tokenize_chat(messages_, R"({"enable_thinking": false})");
    const std::size_t known = context_.sync(prompt), n_new = prompt.size() - known;
    prompt.erase(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(known));
    // All but the last token, whose logits begin the answer: a place to come back to for another.
    const mf::Token last = prompt.back();
    prompt.pop_back();
    context_.eval(prompt);
    context_.remember();

    const mf::Answer answer =
        context_.generate({last}, mf_generate_params_default(), 0, [](std::string_view text) {
          std::cout << text << std::flush;
          return true;
        });
    std::cout << "\n";
    std::cerr << "[" << known << " tokens were known, " << n_new << " new]\n";
    messages_.push_back({"assistant", answer.text});
    context_.remember();  // and here the next turn begins
  }

 private:
  const mf::Model& model_;
  mf::Context context_;
  std::vector<mf::Message> messages_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::cerr << "usage: " << argv[0] << " MODEL [STORE] < questions\n";
    return 2;
  }
  mf_model_params params = mf_model_params_default();
  params.path = argv[1];
  params.context_length = 512;
  if (argc == 3) params.prefix_store = argv[2];
  try {
    const mf::Model model(params);
    Chat chat(model);
    for (std::string line; std::getline(std::cin, line);) chat.turn(line);
  } catch (const mf::Error& error) {
    std::cerr << argv[0] << ": " << error.what() << "\n";
    return 1;
  }
  return 0;
}
