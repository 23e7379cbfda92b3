#include "families/rope_fields.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/error.h"
#include "families/common.h"

namespace moeflux {
namespace {

// The mrope keys divide the dimensions among three position streams; for text these are one.
constexpr std::array<std::string_view, 6> kKeysOfAll{"rope_type",     "type",
                                                     "rope_theta",    "partial_rotary_factor",
                                                     "mrope_section", "mrope_interleaved"};
constexpr std::array<std::string_view, 1> kProportionalKeys{"factor"};
constexpr std::array<std::string_view, 1> kFactorKeys{"factors"};
constexpr std::array<std::string_view, 2> kLinearKeys{"factor", "mscale_all_dim"};
constexpr std::array<std::string_view, 8> kYarnKeys{
    "factor",         "original_max_position_embeddings",
    "beta_fast",      "beta_slow",
    "truncate",       "mscale",
    "mscale_all_dim", "attention_factor"};
constexpr std::array<std::string_view, 5> kLlama3Keys{"factor", "original_max_position_embeddings",
                                                      "low_freq_factor", "high_freq_factor",
                                                      "mscale_all_dim"};

struct RopeType {
  std::string_view name;
  Keys keys;  // besides kKeysOfAll
};
constexpr std::array<RopeType, 6> kTypes{{
    {"default", {}},
    {"linear", kLinearKeys},
    {"llama3", kLlama3Keys},
    {"yarn", kYarnKeys},
    {"proportional", kProportionalKeys},
    {"factors", kFactorKeys},
}};

Keys keys_of(std::string_view type, const std::string& origin) {
  std::string known;
  for (const RopeType& t : kTypes) {
    if (t.name == type) return t.keys;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", t.name);
  }
  fail(Errc::Unsupported, "{}: rope_type \"{}\" is not supported (supported: {})", origin, type,
       known);
}

}  // namespace

RopeFields::RopeFields(const JsonFields& config, std::optional<double> default_theta)
    : config_(config), default_theta_(default_theta) {
  for (const char* place : {"rope_parameters", "rope_scaling"}) {
    if (const Json* object = config.find(place))
      objects_.emplace_back(*object, config.origin() + ": " + place);
  }
  type_ = read_type();
  check_keys();
}

std::string RopeFields::read_type() const {
  std::optional<std::string> type;
  const auto take = [&](const JsonFields& fields, const char* key) {
    if (!fields.has(key)) return;
    std::string found = fields.string(key);
    if (found == "mrope") found = "default";  // they differ for images only
    if (type && *type != found) {
      fail(Errc::BadInput, "{}: \"{}\" is \"{}\", but another place of this config says \"{}\"",
           fields.origin(), key, found, *type);
    }
    type = std::move(found);
  };
  for (const JsonFields& object : objects_)
    take(object, object.has("rope_type") ? "rope_type" : "type");
  take(config_, "rope_type");
  return type.value_or("default");
}

void RopeFields::check_keys() const {
  const Keys scaling = keys_of(type_, config_.origin());
  for (const JsonFields& object : objects_) {
    for (const auto& [key, value] : object.object().items()) {
      if (value.is_null() || contains(kKeysOfAll, key) || contains(scaling, key)) continue;
      fail(Errc::Unsupported, "{}: \"{}\": {} is not supported for rope_type \"{}\"",
           object.origin(), key, dump_json(value).substr(0, 80), type_);
    }
  }
  // Readers disagree about which of two objects counts.
  for (const std::string_view key : scaling) {
    if (objects_.size() == 2 && objects_[0].has(key) != objects_[1].has(key)) {
      fail(Errc::BadInput, "{}: \"{}\" is in only one of rope_parameters and rope_scaling",
           config_.origin(), key);
    }
  }
}

const Json* RopeFields::find(std::string_view key) const {
  return find(key, config_.find(key));
}

const Json* RopeFields::find(std::string_view key, const Json* flat) const {
  const Json* found = flat;
  for (const JsonFields& object : objects_) {
    const Json* value = object.find(key);
    if (found != nullptr && value != nullptr && *found != *value) {
      fail(Errc::BadInput, "{}: \"{}\" is {}, but another place of this config says {}",
           object.origin(), key, dump_json(*value).substr(0, 80), dump_json(*found).substr(0, 80));
    }
    if (value != nullptr) found = value;
  }
  return found;
}

std::optional<double> RopeFields::number(std::string_view key) const {
  return number_of(key, find(key));
}

std::optional<double> RopeFields::number_of(std::string_view key, const Json* value) const {
  if (value == nullptr) return std::nullopt;
  const Json wrapped = Json::object({{std::string(key), *value}});
  return JsonFields(wrapped, config_.origin()).number(key);
}

double RopeFields::required(std::string_view key) const {
  const std::optional<double> value = number(key);
  if (!value) fail(Errc::BadInput, "{}: \"{}\" is missing", config_.origin(), key);
  return *value;
}

double RopeFields::theta() const {
  // Without a default of the family's own: readers have different ones.
  const double theta = number("rope_theta").has_value() || !default_theta_ ? required("rope_theta")
                                                                           : *default_theta_;
  if (!(theta > 1))
    fail(Errc::BadInput, "{}: rope_theta is {}, but must exceed 1", config_.origin(), theta);
  return theta;
}

double RopeFields::factor() const {
  const double factor = required("factor");
  if (!(factor >= 1))
    fail(Errc::BadInput, "{}: the RoPE factor is {}, but must be at least 1", config_.origin(),
         factor);
  return factor;
}

double RopeFields::original_context() const {
  const auto original = number("original_max_position_embeddings");
  return original ? *original : config_.number("max_position_embeddings");
}

YarnScaling RopeFields::yarn() const {
  const Json* truncate = find("truncate");
  if (truncate != nullptr && !truncate->is_boolean()) {
    fail(Errc::BadInput, "{}: \"truncate\" must be true or false, but is {}", config_.origin(),
         dump_json(*truncate).substr(0, 80));
  }
  const YarnScaling yarn{
      .factor = factor(),
      .beta_fast = number("beta_fast").value_or(32),
      .beta_slow = number("beta_slow").value_or(1),
      .original_context = original_context(),
      .truncate = truncate == nullptr || truncate->get<bool>(),
      .mscale = number("mscale"),
      .mscale_all_dim = number("mscale_all_dim"),
      .attention_factor = number("attention_factor"),
  };
  if (!(yarn.beta_fast > 0 && yarn.beta_slow > 0 && yarn.original_context >= 1))
    fail(Errc::BadInput, "{}: the YaRN parameters of RoPE are out of range", config_.origin());
  return yarn;
}

Llama3Scaling RopeFields::llama3() const {
  const Llama3Scaling llama3{
      .factor = factor(),
      .low_freq_factor = required("low_freq_factor"),
      .high_freq_factor = required("high_freq_factor"),
      .original_context = original_context(),
  };
  if (!(llama3.low_freq_factor > 0 && llama3.high_freq_factor > llama3.low_freq_factor &&
        llama3.original_context >= 1)) {
    fail(Errc::BadInput,
         "{}: low_freq_factor is {} and high_freq_factor {}, but the second must exceed the first "
         "and both 0",
         config_.origin(), llama3.low_freq_factor, llama3.high_freq_factor);
  }
  return llama3;
}

// Each frequency is divided by its own factor: how GGUF writes the scaling of Llama 3.
RopeSpec RopeFields::make_divided(int n_rot, bool interleaved) const {
  RopeSpec rope = make_rope(theta(), n_rot, interleaved);
  const Json* factors = find("factors");
  const bool is_list =
      factors != nullptr && factors->is_array() && factors->size() == rope.inv_freq.size();
  if (!is_list) {
    fail(Errc::BadInput, "{}: \"factors\" must list {} numbers, one for each frequency of RoPE",
         config_.origin(), rope.inv_freq.size());
  }
  for (std::size_t i = 0; i < rope.inv_freq.size(); ++i) {
    const Json& factor = (*factors)[i];
    if (!factor.is_number() || !(factor.get<double>() > 0)) {
      fail(Errc::BadInput, "{}: \"factors\" has {}, which is no factor of a frequency",
           config_.origin(), dump_json(factor).substr(0, 80));
    }
    rope.inv_freq[i] = static_cast<float>(rope.inv_freq[i] / factor.get<double>());
  }
  return rope;
}

RopeSpec RopeFields::make(int n_rot, bool interleaved) const {
  if (is_proportional()) {
    fail(Errc::Unsupported, "{}: rope_type \"proportional\" is not supported for this model",
         config_.origin());
  }
  if (type_ == "yarn" && n_rot % 2 != 0) {
    fail(Errc::BadInput, "{}: YaRN over {} rotary dimensions, an odd number, is not supported",
         config_.origin(), n_rot);
  }
  if (type_ == "yarn") return make_yarn_rope(theta(), n_rot, interleaved, yarn());
  if (type_ == "llama3") return make_llama3_rope(theta(), n_rot, interleaved, llama3());
  if (type_ == "factors") return make_divided(n_rot, interleaved);
  if (type_ == "linear") return make_linear_rope(theta(), n_rot, interleaved, factor());
  return make_rope(theta(), n_rot, interleaved);
}

double RopeFields::rotary_share(double default_share) const {
  constexpr std::string_view kKey = "partial_rotary_factor";
  const Json* flat = config_.find(kKey);
  // transformers writes its default beside rope_parameters that say otherwise, and reads the
  // latter.
  if (flat != nullptr && *flat == Json(default_share)) flat = nullptr;
  return number_of(kKey, find(kKey, flat)).value_or(default_share);
}

RopeSpec RopeFields::make_partial(int d_head, double default_share, bool interleaved) const {
  const double share = rotary_share(default_share);
  if (!(share > 0 && share <= 1)) {
    fail(Errc::BadInput, "{}: partial_rotary_factor is {}, outside of 0 to 1", config_.origin(),
         share);
  }
  if (is_proportional() && !interleaved) {
    const double factor = number("factor") ? this->factor() : 1;
    return make_proportional_rope(theta(), d_head, share, factor);
  }
  const int n_rot = static_cast<int>(d_head * share);
  if (n_rot == 0) {
    fail(Errc::BadInput, "{}: 0 rotary dimensions do not fit a head of {}", config_.origin(),
         d_head);
  }
  return make(n_rot, interleaved);
}

RopeSpec RopeFields::make_whole(int d_head, bool interleaved) const {
  refuse_partial();
  return make(d_head, interleaved);
}

void RopeFields::refuse_partial() const {
  if (number("partial_rotary_factor").value_or(1) != 1) {
    fail(Errc::Unsupported, "{}: \"partial_rotary_factor\" other than 1 is not supported",
         config_.origin());
  }
}

double RopeFields::softmax_factor() const {
  if (type_ == "default") return 1;
  const double m = yarn_mscale(factor(), number("mscale_all_dim").value_or(0));
  return m * m;
}

}  // namespace moeflux
