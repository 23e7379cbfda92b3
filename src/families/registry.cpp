#include <algorithm>
#include <array>

#include "base/error.h"
#include "families/deepseek_v3/deepseek_v3.h"
#include "families/family.h"
#include "families/gemma4/gemma4.h"
#include "families/glm4/glm4.h"
#include "families/glm4_moe/glm4_moe.h"
#include "families/gpt_oss/gpt_oss.h"
#include "families/llama/llama.h"
#include "families/minimax_m2/minimax_m2.h"
#include "families/mixtral/mixtral.h"
#include "families/olmoe/olmoe.h"
#include "families/qwen3/qwen3.h"
#include "families/qwen3_5_moe/qwen3_5_moe.h"
#include "families/qwen3_moe/qwen3_moe.h"
#include "families/qwen3_next/qwen3_next.h"
#include "families/unread_tensors.h"

namespace moeflux {
namespace {

// The only list of families.
constexpr std::array kFamilies{
    &kQwen35Moe,   //
    &kQwen3Next,   //
    &kQwen3Moe,    //
    &kQwen3,       //
    &kDeepseekV3,  //
    &kGlm4Moe,     //
    &kGlm4,        //
    &kGptOss,      //
    &kMinimaxM2,   //
    &kMixtral,     //
    &kOlmoe,       //
    &kGemma4,      //
    &kLlama,       //
};

std::string known_model_types() {
  std::string list;
  for (const Family* family : kFamilies) {
    for (const std::string_view type : family->model_types) {
      list += list.empty() ? "" : ", ";
      list += type;
    }
  }
  return list;
}

const Family& find_family(const ModelSource& source) {
  const JsonFields fields(source.config(), source.config_origin());
  const std::string model_type = fields.string("model_type");
  for (const Family* family : kFamilies) {
    const auto& types = family->model_types;
    if (std::find(types.begin(), types.end(), model_type) != types.end()) return *family;
  }
  fail(Errc::Unsupported, "{}: model_type \"{}\" is not supported (supported: {})",
       source.config_origin(), model_type, known_model_types());
}

}  // namespace

std::span<const Family* const> families() {
  return kFamilies;
}

ModelDescription describe_model(const ModelSource& source) {
  const Family& family = find_family(source);
  ModelDescription model{.family = &family, .config = family.read_config(source), .index = {}};
  validate(model.config, source.config_origin());
  model.index = family.read_index(source, model.config);
  refuse_unread_tensors(source, model.index);
  return model;
}

}  // namespace moeflux
