// /metrics of a server with several models: what each counts, told apart by a label.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "server/service/model_pool.h"

namespace moeflux {

// Texts in the Prometheus format become one: the lines of a name together, each with the label
// model="...".
std::string join_metrics(const std::vector<std::pair<std::string, std::string>>& text_of_models);

std::string pool_metrics(ModelPool& pool, std::size_t n_connections);

}  // namespace moeflux
