// The processors and memory nodes this process may compute with, from the kernel's files. What the
// kernel does not say counts as one; nothing throws. `root` stands for "/".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace moeflux {

// The numbers in a list such as "0-3,8"; empty when it is not one.
std::vector<int> parse_processor_list(std::string_view list);

// Those that this process may run on.
std::vector<int> usable_processors();

// Processors that the tightest control group allows at a time; 0: no limit.
double processor_quota(const std::string& root = "/");

// Threads that pay when everything waits for memory: one for each physical core among the
// processors in `usable` (by number), since two on a core share its units, and no more than control
// groups allow at a time.
int default_thread_count(const std::vector<int>& usable, const std::string& root = "/");
int default_thread_count();               // with the processors this process may run on
int thread_count_or_default(int wanted);  // 0: the default

// Spreads memory that was not touched yet over all memory nodes, so that threads everywhere read it
// with the channels of all. Does nothing where there is one node or the system refuses.
void spread_over_memory_nodes(void* memory, std::size_t bytes);

}  // namespace moeflux
