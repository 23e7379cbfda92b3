#include "families/rope_fields.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/expect_error.h"

namespace moeflux {
namespace {

using test::expect_error;

constexpr const char* kDeepseek = R"({
  "max_position_embeddings": 163840, "rope_theta": 10000,
  "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
    "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}
})";

RopeSpec rope_of(const Json& config) {
  const JsonFields fields(config, "config.json");
  return RopeFields(fields).make(64, false);
}

double softmax_factor_of(const Json& config) {
  const JsonFields fields(config, "config.json");
  return RopeFields(fields).softmax_factor();
}

void expect_refused(const Json& config, Errc code, std::initializer_list<std::string> says) {
  for (const std::string& part : says)
    expect_error(code, {"config.json", part}, [&] { rope_of(config); });
}

Json deepseek() {
  return parse_json(kDeepseek, "test");
}

TEST(RopeFields, TruncateOfYarn) {
  Json config = deepseek();
  EXPECT_FLOAT_EQ(rope_of(config).inv_freq[11], 0.0390069266f);
  config["rope_scaling"]["truncate"] = true;
  EXPECT_FLOAT_EQ(rope_of(config).inv_freq[11], 0.0390069266f);
  config["rope_scaling"]["truncate"] = false;
  EXPECT_FLOAT_EQ(rope_of(config).inv_freq[11], 0.0403675845f);
  config["rope_scaling"]["truncate"] = 0;
  expect_refused(config, Errc::BadInput, {"truncate", "0"});
}

TEST(RopeFields, AFactorForEachFrequency) {
  Json config{{"rope_theta", 10000}, {"rope_scaling", {{"rope_type", "factors"}}}};
  std::vector<double> factors(32, 1.0);
  factors[31] = 8;
  config["rope_scaling"]["factors"] = factors;
  const RopeSpec plain = rope_of(Json{{"rope_theta", 10000}}), divided = rope_of(config);
  EXPECT_EQ(divided.inv_freq[0], plain.inv_freq[0]);
  EXPECT_EQ(divided.inv_freq[31], plain.inv_freq[31] / 8);
  EXPECT_EQ(divided.magnitude, 1);
  for (const Json& bad : {Json(), Json(3), Json(std::vector<double>(31, 1.0)),
                          Json(std::vector<double>(32, 0.0)), Json(std::vector<Json>(32, "x"))}) {
    config["rope_scaling"]["factors"] = bad;
    expect_refused(config, Errc::BadInput, {"factor"});
  }
}

// As the attention of DeepSeek-V3 does: for every type but "default", whatever else is given.
TEST(RopeFields, SoftmaxFactorOfScaledRopeOnly) {
  const double squared = 1.3688879454 * 1.3688879454;
  Json config = deepseek();
  Json& rope = config["rope_scaling"];
  EXPECT_NEAR(softmax_factor_of(config), squared, 1e-9);
  rope["attention_factor"] = 0.5;
  rope.erase("mscale");
  EXPECT_NEAR(softmax_factor_of(config), squared, 1e-9);
  rope.erase("mscale_all_dim");
  EXPECT_EQ(softmax_factor_of(config), 1);
  rope = {{"rope_type", "linear"}, {"factor", 40}, {"mscale_all_dim", 1.0}};
  EXPECT_NEAR(softmax_factor_of(config), squared, 1e-9);
  rope["factor"] = 1;
  EXPECT_EQ(softmax_factor_of(config), 1);
  rope = {{"rope_type", "default"}};
  EXPECT_EQ(softmax_factor_of(config), 1);
  config.erase("rope_scaling");
  EXPECT_EQ(softmax_factor_of(config), 1);
}

// Pairs reach over the whole head; the first share of them turns, as in a head that turns wholly.
TEST(RopeFields, Proportional) {
  Json config = parse_json(R"({"rope_parameters": {"rope_type": "proportional",
    "rope_theta": 10000, "partial_rotary_factor": 0.25}})",
                           "test");
  const auto rope = [&] {
    const JsonFields fields(config, "config.json");
    return RopeFields(fields).make_partial(40, 1);
  };
  const RopeSpec whole = make_rope(1e4, 40, false);
  RopeSpec part = rope();
  EXPECT_EQ(part.n_rot, 40);
  ASSERT_EQ(part.inv_freq.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i)
    EXPECT_EQ(part.inv_freq[i], i < 5 ? whole.inv_freq[i] : 0) << i;
  config["rope_parameters"]["factor"] = 4;
  part = rope();
  EXPECT_EQ(part.inv_freq[4], whole.inv_freq[4] / 4);
  expect_refused(config, Errc::Unsupported, {"proportional"});  // where a part of heads turns
}

TEST(RopeFields, YarnWithoutItsOriginalContext) {
  Json config = deepseek();
  config["max_position_embeddings"] = 4096;
  const RopeSpec rope = rope_of(config);
  config["rope_scaling"].erase("original_max_position_embeddings");
  EXPECT_EQ(rope_of(config).inv_freq, rope.inv_freq);
}

TEST(RopeFields, Llama3) {
  Json config = deepseek();
  config["rope_theta"] = 5e5;
  Json& rope = config["rope_scaling"];
  rope = {{"rope_type", "llama3"},
          {"factor", 8.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 8192}};
  const RopeSpec plain = make_rope(5e5, 64, false);
  const RopeSpec llama3 = rope_of(config);
  EXPECT_EQ(llama3.inv_freq[14], plain.inv_freq[14]);
  EXPECT_FLOAT_EQ(llama3.inv_freq[17], 0.000178507813f);
  EXPECT_FLOAT_EQ(llama3.inv_freq[18], plain.inv_freq[18] / 8);
  rope["high_freq_factor"] = 1.0;
  expect_refused(config, Errc::BadInput, {"high_freq_factor"});
  rope.erase("high_freq_factor");
  expect_refused(config, Errc::BadInput, {"high_freq_factor", "missing"});
}

TEST(RopeFields, TypesThatAreNotImplemented) {
  for (const char* type : {"dynamic", "longrope", "su", "ntk"}) {
    Json config = deepseek();
    config["rope_scaling"]["type"] = type;
    expect_refused(config, Errc::Unsupported,
                   {type, "default, linear, llama3, yarn, proportional"});
  }
}

// The reference rotates a pair of which one dimension is over; its YaRN cannot.
TEST(RopeFields, AShareThatIsAnOddNumberOfDimensions) {
  Json config = parse_json(R"({"max_position_embeddings": 4096, "rope_theta": 1e4,
    "partial_rotary_factor": 0.25})",
                           "test");
  const JsonFields plain(config, "config.json");
  EXPECT_EQ(RopeFields(plain).make_partial(12, 0.5).n_rot, 4);
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}};
  const JsonFields yarn(config, "config.json");
  expect_error(Errc::BadInput, {"config.json", "YaRN", "3"},
               [&] { RopeFields(yarn).make_partial(12, 0.5); });
}

TEST(RopeFields, KeysThatTheTypeDoesNotHave) {
  const auto refuse = [](const char* type, const char* key, Json value) {
    const Json config{{"rope_theta", 1e4},
                      {"rope_parameters", {{"rope_type", type}, {key, value}}}};
    expect_refused(config, Errc::Unsupported, {"rope_parameters", key, dump_json(value), type});
  };
  refuse("yarn", "extrapolation_factor", 1.5);
  refuse("yarn", "max_position_embeddings", 4096);
  refuse("yarn", "low_freq_factor", 1.5);
  refuse("linear", "attention_factor", 0.5);
  refuse("linear", "truncate", false);
  refuse("llama3", "beta_fast", 32);
  refuse("default", "factor", 4);
  refuse("default", "full_attention", Json::object());  // one object for each type of layer
}

TEST(RopeFields, PlacesMustAgree) {
  Json config = deepseek();
  config["rope_parameters"] = config["rope_scaling"];
  config["rope_parameters"]["rope_theta"] = 10000.0;
  EXPECT_EQ(rope_of(config).inv_freq, rope_of(deepseek()).inv_freq);

  config["rope_parameters"]["rope_theta"] = 20000;
  expect_refused(config, Errc::BadInput, {"rope_theta", "20000", "10000"});
  config["rope_parameters"]["rope_theta"] = 10000;
  config["rope_parameters"]["factor"] = 4;
  expect_refused(config, Errc::BadInput, {"factor", "40", "4"});
  config["rope_parameters"]["factor"] = 40;
  config["rope_parameters"]["truncate"] = false;
  expect_refused(config, Errc::BadInput, {"truncate", "rope_parameters", "rope_scaling"});
  config["rope_parameters"] = {{"rope_type", "default"}};
  expect_refused(config, Errc::BadInput, {"type", "yarn", "default"});

  config = deepseek();
  config["original_max_position_embeddings"] = 8192;
  expect_refused(config, Errc::BadInput, {"original_max_position_embeddings", "8192", "4096"});
}

}  // namespace
}  // namespace moeflux
