#include "families/config_keys.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "families/common.h"

namespace moeflux {
namespace {

constexpr std::array<std::string_view, 21> kTellingParts{
    "rope", "rotary",    "theta",           "yarn", "position", "alibi",
    "attn", "attention", "window",          "sink", "softcap",  "head",
    "qk",   "kv",        "query",           "norm", "scal",     "multiplier",
    "clip", "bias",      "per_layer_config"};  // sizes that only some layers have

// Switches that must be off where a family does not read them.
constexpr std::array<std::string_view, 4> kSwitches{"attention_bias", "mlp_bias",
                                                    "use_sliding_window", "add_cross_attention"};

constexpr std::array<std::string_view, 10> kReadByAll{"rope_parameters",
                                                      "rope_scaling",
                                                      "rope_theta",
                                                      "rope_type",
                                                      "partial_rotary_factor",
                                                      "mrope_section",
                                                      "mrope_interleaved",
                                                      "max_position_embeddings",
                                                      "original_max_position_embeddings",
                                                      "rms_norm_eps"};

// Of no meaning outside of training and of the program that wrote them. norm_topk_prob: a family
// that does not read it has only one way.
constexpr std::array<std::string_view, 8> kHarmless{"attention_dropout",
                                                    "output_attentions",
                                                    "pruned_heads",
                                                    "norm_topk_prob",
                                                    "attn_implementation",
                                                    "_attn_implementation",
                                                    "_attn_implementation_autoset",
                                                    "_attn_implementation_internal"};

// Without its switch a window says nothing.
constexpr std::array<std::string_view, 2> kWindowKeys{"sliding_window", "max_window_layers"};

bool is_window_switched_off(const JsonFields& fields, std::string_view key) {
  const Json* use = fields.find("use_sliding_window");
  return contains(kWindowKeys, key) && use != nullptr && *use == false;
}

bool tells_of_the_model(std::string_view key) {
  return std::any_of(kTellingParts.begin(), kTellingParts.end(), [&](std::string_view part) {
    return key.find(part) != std::string_view::npos;
  });
}

[[noreturn]] void refuse(const JsonFields& fields, const std::string& key, const Json& value,
                         std::string_view why) {
  fail(Errc::Unsupported, "{}: \"{}\": {} {}; if it changes nothing, remove it", fields.origin(),
       key, dump_json(value).substr(0, 80), why);
}

// Calls `check` for every key that needs somebody who reads it; switches that the family does not
// read must be off.
template <class Check>
void for_each_telling_key(const JsonFields& fields, Keys read_by_family, Check check) {
  for (const auto& [key, value] : fields.object().items()) {
    const bool says_nothing = value.is_null() || (value.is_object() && value.empty());
    if (says_nothing || !tells_of_the_model(key) || contains(kHarmless, key) ||
        is_window_switched_off(fields, key))
      continue;
    if (contains(kSwitches, key) && !contains(read_by_family, key)) {
      require_boolean(fields, key, false);
    } else {
      check(key, value);
    }
  }
}

}  // namespace

void refuse_unread_keys(const ModelSource& source, Keys read_by_family) {
  const JsonFields text = text_config(source);
  for_each_telling_key(text, read_by_family, [&](const std::string& key, const Json& value) {
    if (!contains(kReadByAll, key) && !contains(read_by_family, key))
      refuse(text, key, value, "is not known for this kind of model");
  });
  const JsonFields wrapper(source.config(), source.config_origin());
  for_each_telling_key(wrapper, read_by_family, [&](const std::string& key, const Json& value) {
    const Json* inner = text.find(key);
    if (inner == nullptr || *inner != value)
      refuse(wrapper, key, value, "is not what \"text_config\" says");
  });
}

}  // namespace moeflux
