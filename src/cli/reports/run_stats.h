// What `run` says about an answer: as JSON for scripts, and with --stats as text for people.
#pragma once

#include <string>

#include "base/json.h"
#include "engine/generate.h"

namespace moeflux::cli {

Json result_json(const Engine& engine, const AnswerRequest& request, const GenerateResult& result,
                 bool with_layers);

std::string stats_text(const Engine& engine, const GenerateResult& result);

}  // namespace moeflux::cli
