#include "families/unread_tensors.h"

#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "model/map_tensors.h"
#include "source/tensor_lookup.h"

namespace moeflux {
namespace {

using Names = std::set<std::string, std::less<>>;

// "model.layers.0.self_attn." of "model.layers.0.self_attn.q_proj.weight"; empty elsewhere.
std::string_view attention_of(std::string_view name) {
  for (const std::string_view part : {".self_attn.", ".linear_attn."}) {
    const std::size_t at = name.find(part);
    if (at != std::string_view::npos) return name.substr(0, at + part.size());
  }
  return {};
}

// "model.layers.0." of "model.layers.0.input_layernorm.weight"; empty for what is no norm of a
// layer.
std::string_view layer_of_norm(std::string_view name) {
  constexpr std::string_view kLayers = ".layers.";
  if (!name.ends_with("norm.weight")) return {};
  const std::size_t layers = name.find(kLayers);
  if (layers == std::string_view::npos) return {};
  const std::size_t end = name.find('.', layers + kLayers.size());
  const bool is_of_layer =
      end != std::string_view::npos && name.find('.', end + 1) == name.rfind('.');
  return is_of_layer ? name.substr(0, end + 1) : std::string_view();
}

// The module a tensor belongs to, or the tensor itself where it is not part of one.
std::string_view module_of(std::string_view name) {
  // Scales of activations and of caches, which weights alone do not need, go with their module.
  for (const std::string_view end : {".weight",
                                     ".scales",
                                     ".biases",
                                     ".weight_scale_inv",
                                     ".qweight",
                                     ".qzeros",
                                     ".g_idx",
                                     ".weight_packed",
                                     ".weight_scale",
                                     ".weight_scale_2",
                                     ".weight_zero_point",
                                     ".weight_global_scale",
                                     ".weight_shape",
                                     ".weight_zeros",
                                     ".scale",
                                     ".input_scale",
                                     ".input_global_scale",
                                     ".input_zero_point",
                                     ".k_scale",
                                     ".v_scale",
                                     ".q_scale",
                                     ".output_scale",
                                     "_blocks",
                                     "_scales"}) {
    if (name.ends_with(end)) return name.substr(0, name.size() - end.size());
  }
  return name;
}

}  // namespace

void refuse_unread_tensors(const ModelSource& source, const ModelIndex& index) {
  Names modules, attentions, layers;
  for_each_tensor(index.tensors, [&](const auto& tensor) {
    modules.emplace(module_of(tensor.name));
    attentions.emplace(attention_of(tensor.name));
    layers.emplace(layer_of_norm(tensor.name));
  });
  for (const ExpertBank& bank : index.experts) {
    for (const StoredExpertBank* experts : {&bank.gate, &bank.up, &bank.down}) {
      for (int e = 0; e < experts->count(); ++e) modules.emplace(module_of(experts->at(e).name));
    }
  }
  attentions.erase("");
  layers.erase("");

  for (const std::string& module : modules) {
    if (has_tensor(source, module + ".bias") && !modules.contains(module + ".bias")) {
      fail(Errc::Unsupported, "{}: tensor \"{}.bias\": projections with a bias are not supported",
           source.path(), module);
    }
  }
  for (const auto& [name, info] : source.tensors()) {
    if (layers.contains(layer_of_norm(name)) && !modules.contains(module_of(name))) {
      fail(Errc::Unsupported, "{}: tensor \"{}\": this norm is not known for this kind of model",
           source.path(), name);
    }
    // Old exporters stored the frequencies of RoPE, which follow from the config.
    if (!attentions.contains(attention_of(name)) || name.ends_with("rotary_emb.inv_freq")) continue;
    if (!modules.contains(module_of(name))) {
      fail(Errc::Unsupported, "{}: tensor \"{}\" is not known for this kind of attention",
           source.path(), name);
    }
  }
}

}  // namespace moeflux
