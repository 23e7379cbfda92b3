#include "cli/foreign_words.h"

#include <algorithm>

namespace moeflux::cli {
namespace {

constexpr std::string_view kGpuLayers =
    "; layers are not placed by hand: --device chooses, and --vram limits what a GPU takes";
constexpr std::string_view kExperts =
    "; experts are not placed by hand: --ram and --vram are the ceilings";
constexpr std::string_view kHub = "; moeflux pull ORG/NAME gets a model, then -m ORG/NAME names it";
constexpr std::string_view kMapping =
    "; weights are read into memory under --ram, never mapped, so it is not needed";
constexpr std::string_view kKeys = "; --kv f32, f16, bf16 or q8 says how keys and values are kept";
constexpr std::string_view kAlways = "; this is always on";

}  // namespace

const std::vector<ForeignWord>& foreign_options() {
  static const std::vector<ForeignWord> words{
      {"--temperature", "--temp"},
      {"--n-predict", "--predict"},
      {"--num-predict", "--predict"},
      {"--max-tokens", "--predict"},
      {"--max-new-tokens", "--predict"},
      {"--ctx", "--ctx-size"},
      {"--n-ctx", "--ctx-size"},
      {"--num-ctx", "--ctx-size"},
      {"--context-length", "--ctx-size"},
      {"--max-model-len", "--ctx-size"},
      {"--num-threads", "--threads"},
      {"--n-threads", "--threads"},
      {"--num-thread", "--threads"},
      {"--repetition-penalty", "--repeat-penalty"},
      {"--typical-p", "--typical"},
      {"--system-prompt", "--system"},
      {"-sys", "--system"},
      {"-np", "--parallel"},
      {"--n-parallel", "--parallel"},
      {"--num-parallel", "--parallel"},
      {"--keepalive", "--keep-alive"},
      {"--models-dir", "--models"},
      {"--ssl-cert-file", "--tls-cert"},
      {"--ssl-key-file", "--tls-key"},
      {"-ngl", "", kGpuLayers},
      {"--gpu-layers", "", kGpuLayers},
      {"--n-gpu-layers", "", kGpuLayers},
      {"--num-gpu", "", kGpuLayers},
      {"-ncmoe", "", kExperts},
      {"--n-cpu-moe", "", kExperts},
      {"--cpu-moe", "", kExperts},
      {"--override-tensor", "", kExperts},
      {"-hf", "", kHub},
      {"-hfr", "", kHub},
      {"--hf-repo", "", kHub},
      {"--hf-file", "", kHub},
      {"-mu", "", kHub},
      {"--model-url", "", kHub},
      {"--mmap", "", kMapping},
      {"--no-mmap", "", kMapping},
      {"--mlock", "", kMapping},
      {"-ctk", "", kKeys},
      {"-ctv", "", kKeys},
      {"--cache-type-k", "", kKeys},
      {"--cache-type-v", "", kKeys},
      {"--flash-attn", "", kAlways},
      {"--jinja", "", kAlways},
      {"--cont-batching", "", kAlways},
      {"--chat-template", "", "; the model's own template is used; run --raw goes without one"},
      {"-cnv", "", "; moeflux chat is for conversations"},
      {"--conversation", "", "; moeflux chat is for conversations"},
      {"--interactive", "", "; moeflux chat is for conversations"},
      {"--reasoning-budget", "", "; --no-think answers without reasoning first"},
      {"--format", "", "; a server takes schemas in response_format"},
      {"--grammar", "", "; a server takes grammars in requests"},
  };
  return words;
}

const std::vector<ForeignWord>& foreign_commands() {
  static const std::vector<ForeignWord> words{
      {"list", "ls"},
      {"remove", "", "; did you mean rm?"},
      {"delete", "", "; did you mean rm?"},
      {"inspect", "", "; did you mean show or info?"},
      {"cli", "", "; did you mean run or chat?"},
      {"generate", "", "; did you mean run?"},
      {"complete", "", "; did you mean run?"},
      {"server", "", "; did you mean serve?"},
      {"start", "", "; did you mean serve?"},
      {"download", "", "; did you mean pull?"},
      {"fetch", "", "; did you mean pull?"},
      {"quantize", "", "; did you mean convert?"},
      {"perplexity", "", "; did you mean eval?"},
      {"stop", "", "; a server unloads what is not used: serve --keep-alive"},
      {"create", "",
       "; options and moeflux config say how a model is run, there are no Modelfiles"},
      {"push", "", "; models are taken from the Hub, not sent there"},
  };
  return words;
}

const ForeignWord* find_foreign(const std::vector<ForeignWord>& words, std::string_view word) {
  const auto found = std::find_if(words.begin(), words.end(),
                                  [&](const ForeignWord& each) { return each.word == word; });
  return found == words.end() ? nullptr : &*found;
}

}  // namespace moeflux::cli
