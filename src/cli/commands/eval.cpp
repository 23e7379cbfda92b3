// moeflux eval: perplexity over texts, or greedy answers against recorded ones.
#include <memory>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/options/general_options.h"
#include "cli/options/model_options.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/progress.h"
#include "engine/verify/evaluate.h"

namespace moeflux::cli {
namespace {

struct EvalArguments {
  ModelOptions model;
  GeneralOptions general;
  std::optional<std::string> texts, answers;
  std::int64_t limit_tokens = 512;
  std::int64_t limit = 0;
  std::optional<std::int64_t> min_identical;
  bool json = false;
};

double percent(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

void print_perplexity(const EvalArguments& options, const std::string& model,
                      const Perplexity& result) {
  if (options.json) {
    Json json = {
        {"model", model},
        {"texts", result.n_texts},
        {"predictions", result.n_predictions},
        {"nll_per_token", result.negative_log_likelihood /
                              static_cast<double>(std::max<std::int64_t>(1, result.n_predictions))},
        {"perplexity", result.value()}};
    if (result.n_drafts > 0) {
      json["mtp_agreement"] =
          static_cast<double>(result.n_drafts_agreed) / static_cast<double>(result.n_drafts);
    }
    write_stdout(dump_json(json, 2) + "\n");
    return;
  }
  std::string text = fmt::format("perplexity     {:.4f}\n", result.value());
  text +=
      fmt::format("predictions    {} tokens of {} texts\n", result.n_predictions, result.n_texts);
  if (result.n_drafts > 0) {
    text += fmt::format("MTP agreement  {:.2f} % ({} of {} drafts)\n",
                        percent(result.n_drafts_agreed, result.n_drafts), result.n_drafts_agreed,
                        result.n_drafts);
  }
  write_stdout(text);
}

int run_texts(const EvalArguments& options, const std::string& model) {
  std::vector<std::string> texts = read_texts(*options.texts);
  if (options.limit > 0 && texts.size() > static_cast<std::size_t>(options.limit)) {
    texts.resize(static_cast<std::size_t>(options.limit));
  }
  ModelOptions model_options = options.model;
  // A session is held for each text alone: a longer context would only cost memory.
  if (!model_options.context) model_options.context = options.limit_tokens;
  const auto engine = open_engine(model, model_options, options.general);
  Perplexity result;
  {
    ProgressBar bar("evaluating", options.general.show_progress());
    result = measure_perplexity(
        *engine, texts, {.limit_tokens = options.limit_tokens}, [&](const Perplexity& so_far) {
          throw_if_interrupted();
          bar.update(static_cast<std::uint64_t>(so_far.n_texts), texts.size(),
                     fmt::format("{} of {} texts, perplexity {:.4f}", so_far.n_texts, texts.size(),
                                 so_far.value()));
          return true;
        });
  }
  if (result.n_predictions == 0) {
    fail(Errc::BadInput, "{}: no text has the two tokens a prediction needs", *options.texts);
  }
  print_perplexity(options, model, result);
  return kSuccess;
}

struct AnswerCounts {
  std::int64_t n = 0, same_prompts = 0, identical = 0, right = 0, reference_right = 0;
  std::size_t n_tokens = 0;
  double seconds = 0;
  DraftStats drafts;
};

void print_answers(const EvalArguments& options, const std::string& model,
                   const AnswerCounts& counts) {
  const double tokens_per_second =
      counts.seconds > 0 ? static_cast<double>(counts.n_tokens) / counts.seconds : 0;
  if (options.json) {
    const Json json = {{"model", model},
                       {"answers", counts.n},
                       {"identical", counts.identical},
                       {"prompt_mismatches", counts.n - counts.same_prompts},
                       {"right", counts.right},
                       {"reference_right", counts.reference_right},
                       {"answer_per_second", tokens_per_second},
                       {"passes", counts.drafts.passes},
                       {"drafted", counts.drafts.drafted},
                       {"accepted", counts.drafts.accepted}};
    write_stdout(dump_json(json, 2) + "\n");
    return;
  }
  write_stdout(
      fmt::format("identical  {} of {} answers, token for token\n"
                  "prompts    {} of {} as the reference wrote them\n"
                  "right      {} of {} (reference: {})\n"
                  "speed      {:.1f} tokens per second\n",
                  counts.identical, counts.n, counts.same_prompts, counts.n, counts.right, counts.n,
                  counts.reference_right, tokens_per_second));
  if (counts.drafts.drafted > 0) {
    write_stdout(fmt::format(
        "drafts     {} of {} accepted, {:.2f} tokens per pass\n", counts.drafts.accepted,
        counts.drafts.drafted,
        static_cast<double>(counts.n_tokens) / static_cast<double>(counts.drafts.passes)));
  }
}

int run_answers(const EvalArguments& options, const std::string& model) {
  const std::vector<AnswerCase> cases = read_answers(*options.answers, options.limit);
  const auto engine = open_engine(model, options.model, options.general);
  Session session = engine->new_session();
  const DraftOptions drafts = parse_drafts(options.model);
  AnswerCounts counts;
  {
    ProgressBar bar("answering", options.general.show_progress() && !options.general.verbose);
    for (const AnswerCase& answer : cases) {
      const AnswerOutcome outcome = check_answer(
          *engine, session, answer, {.drafts = drafts, .cancelled = [] { return interrupted(); }});
      ++counts.n;
      counts.same_prompts += outcome.same_prompt ? 1 : 0;
      counts.identical += outcome.same_answer ? 1 : 0;
      counts.right += outcome.right ? 1 : 0;
      counts.reference_right += answer.reference_right ? 1 : 0;
      counts.n_tokens += outcome.n_tokens;
      counts.seconds += outcome.decode_seconds;
      counts.drafts.passes += outcome.drafts.passes;
      counts.drafts.drafted += outcome.drafts.drafted;
      counts.drafts.accepted += outcome.drafts.accepted;
      if (!outcome.same_prompt)
        options.general.detail(fmt::format("answer {}: the prompt differs", counts.n));
      if (!outcome.same_answer) {
        options.general.detail(fmt::format(
            "answer {} differs:\n  ours:      {}\n  reference: {}", counts.n,
            dump_json(outcome.text), dump_json(engine->tokenizer().decode(answer.greedy_ids))));
      }
      bar.update(static_cast<std::uint64_t>(counts.n), cases.size(),
                 fmt::format("{} of {}, {} identical", counts.n, cases.size(), counts.identical));
    }
  }
  print_answers(options, model, counts);
  if (options.min_identical && counts.identical < *options.min_identical) {
    options.general.note(fmt::format("{} identical answers are fewer than --min-identical {}",
                                     counts.identical, *options.min_identical));
    return kFailure;
  }
  return kSuccess;
}

int run(const EvalArguments& options, const std::vector<std::string>& arguments) {
  if (options.texts.has_value() == options.answers.has_value()) {
    throw UsageError("give either --texts FILE or --answers FILE");
  }
  if (options.limit < 0) throw UsageError("--limit must be 0 (all) or more");
  if (options.limit_tokens < 2) throw UsageError("--limit-tokens must be at least 2");
  const std::string model = only_model(options.model, arguments);
  const InterruptGuard guard;
  return options.texts ? run_texts(options, model) : run_answers(options, model);
}

}  // namespace

void add_eval_command(CommandLine& line) {
  const auto options = std::make_shared<EvalArguments>();
  Command& command =
      line.add("eval", "Measure a model: perplexity of texts, or answers against recorded ones.");
  command.arguments("[MODEL] --texts FILE | --answers FILE", 1);
  command.group("Evaluation")
      .option("--texts", options->texts, "FILE",
              "JSON list of strings: perplexity, and MTP agreement")
      .option("--limit-tokens", options->limit_tokens, "N", "tokens of each text (default: 512)")
      .option("--answers", options->answers, "FILE",
              "JSON lines of chats with prompt_ids and greedy_ids")
      .option("--min-identical", options->min_identical, "N",
              "exit code 1 with fewer identical answers")
      .option("--limit", options->limit, "N", "only the first N texts or answers (default: 0, all)")
      .flag("--json", options->json, "print the result as JSON");
  add_model_option(command, options->model);
  options->model.precision = "exact";
  options->model.draft = "off";
  add_machine_options(command, options->model);
  add_draft_option(command, options->model);
  add_general_options(command, options->general);
  command.example("eval models/demo --texts heldout.json")
      .example("eval models/demo --answers answers.jsonl --min-identical 163 -v");
  command.run(options, run);
}

}  // namespace moeflux::cli
