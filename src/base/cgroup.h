// Where the control group of this process is found. Groups are nested, and a limit of any of them
// counts, so all of them are named: from our own up to the top of what is mounted here. Inside a
// container that top is usually the container's own group.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moeflux {

struct Cgroup {
  int version = 0;                       // 1 or 2; 0: there is none
  std::vector<std::string> directories;  // our own group first, then the groups around it
};

// Of the controller ("memory", "cpu"): in the unified hierarchy (version 2) unless a hierarchy of
// its own has it (version 1). `root` stands for "/"; nothing is thrown, whatever the files hold.
Cgroup find_cgroup(std::string_view controller, const std::string& root = "/");

}  // namespace moeflux
