// What is enqueued on a GPU between two moments at which the host looks: launches, copies, clears.
//
// A pass over one row of one session is the same list every time (backends/op.h). The second time a
// list is seen it becomes a graph of the driver, and from then on one launch runs all of it.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string_view>
#include <type_traits>
#include <vector>

#include "backends/cuda/device.h"

namespace moeflux::cuda {

class Program {
 public:
  explicit Program(Device& device) : device_(device) {}
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Bytes between members of params must be zero.
  template <class Params>
  void launch(std::string_view kernel, const Params& params, const Grid& grid) {
    static_assert(std::is_trivially_copyable_v<Params>);
    add(Kind::Launch, device_.kernel(kernel), grid, &params, sizeof params);
    if (times_kernels_) steps_.back().name = device_.name_of(kernel);
  }
  void copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes);
  void clear(CUdeviceptr at, std::size_t bytes);

  bool empty() const { return steps_.empty(); }
  // Hands all of it to the device. as_graph: it may come again.
  void run(bool as_graph);

  std::uint64_t n_graph_launches() const { return n_graph_launches_; }

  // From now on each kernel is awaited and timed.
  void time_kernels(std::function<void()> poll) {
    times_kernels_ = true;
    poll_ = std::move(poll);
  }
  struct Time {
    std::uint64_t calls = 0;
    double seconds = 0;
  };
  const std::map<std::string_view, Time>& kernel_times() const { return times_; }

 private:
  enum class Kind : std::uint32_t { Launch, Copy, Clear };
  struct Step {
    Kind kind;
    Grid grid;
    CUfunction function;
    std::size_t offset, size;  // of its parameters
    std::string_view name;     // where kernels are timed
  };
  struct Move {
    CUdeviceptr to, from;
    std::size_t bytes;
  };
  struct Hash {
    std::uint64_t low, high;
    friend bool operator==(const Hash&, const Hash&) = default;
  };
  struct Known {
    Hash hash;
    CUgraphExec graph;  // null: seen once
  };

  void add(Kind kind, CUfunction function, const Grid& grid, const void* params, std::size_t size);
  void issue(bool overlapping);
  void issue_timed();
  // early: while the launch before it runs.
  void issue(const Step& step, bool early);
  Hash hash() const;
  CUgraphExec instantiate();
  void forget(const Known& known);

  Device& device_;
  std::vector<Step> steps_, running_;
  std::vector<std::byte> params_, running_params_;
  std::list<Known> known_;  // used last first
  std::uint64_t n_graph_launches_ = 0;
  bool times_kernels_ = false;
  std::function<void()> poll_;  // while a kernel is awaited
  std::map<std::string_view, Time> times_;
};

}  // namespace moeflux::cuda
