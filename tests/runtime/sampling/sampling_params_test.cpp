#include "runtime/sampling/sampling_params.h"

#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class Action>
std::string bad_input_message(Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::BadInput);
    return error.what();
  }
  return "(no error)";
}

std::string refusal(const SamplingParams& params) {
  return bad_input_message([&] { params.validate(); });
}

SamplingParams defaults_from(const std::string& text) {
  return sampling_defaults(parse_json(text, "generation_config.json"), "m/generation_config.json");
}

std::string refusal_of_config(const std::string& text) {
  return bad_input_message([&] { defaults_from(text); });
}

TEST(SamplingParams, NeutralDefaultsAreValid) {
  const SamplingParams params;
  EXPECT_NO_THROW(params.validate());
  EXPECT_EQ(params.temperature, 1.0);
  EXPECT_EQ(params.top_k, 0);
  EXPECT_EQ(params.penalty_window, -1);
}

TEST(SamplingParams, EveryLimitItselfIsValid) {
  SamplingParams low{.temperature = 0, .top_k = -1, .top_p = 0, .min_p = 0, .typical_p = 1e-9};
  low.repetition_penalty = 0.01;
  low.presence_penalty = low.frequency_penalty = -2;
  low.logit_bias = {{0, -std::numeric_limits<float>::infinity()}};
  EXPECT_NO_THROW(low.validate());
  SamplingParams high{
      .temperature = 1000, .top_k = 1 << 30, .top_p = 1, .min_p = 1, .typical_p = 1};
  high.repetition_penalty = 100;
  high.presence_penalty = high.frequency_penalty = 2;
  high.logit_bias = {{kMaxTokenId, 100.0f}};
  EXPECT_NO_THROW(high.validate());
}

TEST(SamplingParams, RefusalsNameTheParameterItsRangeAndTheValue) {
  EXPECT_EQ(refusal({.temperature = -0.5}),
            "temperature must be a number from 0 to 1000 (0: greedy), but is -0.5");
  EXPECT_EQ(refusal({.top_k = -2}), "top_k must be -1 or more (0 or -1: off), but is -2");
  EXPECT_EQ(refusal({.top_p = 1.5}), "top_p must be a number from 0 to 1 (1: off), but is 1.5");
  EXPECT_EQ(refusal({.min_p = -0.1}), "min_p must be a number from 0 to 1 (0: off), but is -0.1");
  EXPECT_EQ(refusal({.typical_p = 0.0}), "typical_p must be above 0 (1: off), but is 0");
  EXPECT_EQ(refusal({.typical_p = 2.0}),
            "typical_p must be a number from 0 to 1 (1: off), but is 2");
  EXPECT_EQ(refusal({.repetition_penalty = 0.0}),
            "repetition_penalty must be a number from 0.01 to 100 (1: off), but is 0");
  EXPECT_EQ(refusal({.presence_penalty = 2.5}),
            "presence_penalty must be a number from -2 to 2 (0: off), but is 2.5");
  EXPECT_EQ(refusal({.frequency_penalty = -3}),
            "frequency_penalty must be a number from -2 to 2 (0: off), but is -3");
  EXPECT_EQ(refusal({.penalty_window = -2}),
            "penalty_window must be -1 or more (-1: all tokens), but is -2");
}

TEST(SamplingParams, NanAndInfinityAreRefusedEverywhere) {
  for (const double bad : {kNan, kInfinity, -kInfinity}) {
    EXPECT_NE(refusal({.temperature = bad}).find("temperature"), std::string::npos) << bad;
    EXPECT_NE(refusal({.top_p = bad}).find("top_p"), std::string::npos) << bad;
    EXPECT_NE(refusal({.min_p = bad}).find("min_p"), std::string::npos) << bad;
    EXPECT_NE(refusal({.typical_p = bad}).find("typical_p"), std::string::npos) << bad;
    EXPECT_NE(refusal({.repetition_penalty = bad}).find("repetition_penalty"), std::string::npos)
        << bad;
    EXPECT_NE(refusal({.presence_penalty = bad}).find("presence_penalty"), std::string::npos)
        << bad;
    EXPECT_NE(refusal({.frequency_penalty = bad}).find("frequency_penalty"), std::string::npos)
        << bad;
  }
}

TEST(SamplingParams, LogitBiasIdsAndValuesAreChecked) {
  constexpr float kBadNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(refusal({.logit_bias = {{-1, 1.0f}}}),
            "logit_bias: -1 is not a token id (0 to 16777215)");
  EXPECT_EQ(refusal({.logit_bias = {{5, kBadNan}}}),
            "logit_bias of token 5 must be a finite number or -infinity, but is nan");
  EXPECT_NE(refusal({.logit_bias = {{5, std::numeric_limits<float>::infinity()}}}).find("token 5"),
            std::string::npos);
}

TEST(SamplingDefaults, ReadsWhatACheckpointShips) {
  const SamplingParams params =
      defaults_from(R"({"do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20,
      "min_p": 0.01, "typical_p": 0.9, "repetition_penalty": 1.05, "presence_penalty": 1.5,
      "frequency_penalty": 0.5, "eos_token_id": [1, 2], "transformers_version": "5.0"})");
  EXPECT_EQ(params.temperature, 0.6);
  EXPECT_EQ(params.top_p, 0.95);
  EXPECT_EQ(params.top_k, 20);
  EXPECT_EQ(params.min_p, 0.01);
  EXPECT_EQ(params.typical_p, 0.9);
  EXPECT_EQ(params.repetition_penalty, 1.05);
  EXPECT_EQ(params.presence_penalty, 1.5);
  EXPECT_EQ(params.frequency_penalty, 0.5);
  EXPECT_EQ(params.penalty_window, -1);
}

TEST(SamplingDefaults, AbsentMeansNeutral) {
  for (const char* text :
       {"{}", R"({"do_sample": true})", R"({"top_k": null, "temperature": null})"}) {
    const SamplingParams params = defaults_from(text);
    EXPECT_EQ(params.temperature, 1.0) << text;
    EXPECT_EQ(params.top_k, 0) << text;
    EXPECT_EQ(params.top_p, 1.0) << text;
    EXPECT_EQ(params.repetition_penalty, 1.0) << text;
  }
  EXPECT_EQ(defaults_from(R"({"temperature": 0.7})").temperature, 0.7);
}

TEST(SamplingDefaults, NoSamplingIsGreedyAndKeepsTheFilters) {
  const SamplingParams params =
      defaults_from(R"({"do_sample": false, "temperature": 0.7, "top_k": 20, "top_p": 0.9})");
  EXPECT_EQ(params.temperature, 0.0);
  EXPECT_EQ(params.top_k, 20);
  EXPECT_EQ(params.top_p, 0.9);
}

TEST(SamplingDefaults, WrongTypesAndRangesNameFileAndField) {
  EXPECT_EQ(refusal_of_config(R"({"temperature": "hot"})"),
            "m/generation_config.json: \"temperature\" must be a finite number, but is \"hot\"");
  EXPECT_EQ(refusal_of_config(R"({"top_k": 2.5})"),
            "m/generation_config.json: \"top_k\" must be an integer, but is 2.5");
  EXPECT_EQ(refusal_of_config(R"({"do_sample": 1})"),
            "m/generation_config.json: \"do_sample\" must be true or false");
  EXPECT_EQ(refusal_of_config(R"({"top_p": 7})"),
            "m/generation_config.json: top_p must be a number from 0 to 1 (1: off), but is 7");
  EXPECT_EQ(refusal_of_config("[]"), "m/generation_config.json: must be a JSON object");
}

TEST(SamplingDefaults, ReadsTheDemoModel) {
  const std::string path = test::source_path("models/demo/generation_config.json");
  const SamplingParams params = sampling_defaults(read_json_file(path), path);
  EXPECT_EQ(params.temperature, 0.0);
  EXPECT_EQ(params.top_k, 20);
}

}  // namespace
}  // namespace moeflux
