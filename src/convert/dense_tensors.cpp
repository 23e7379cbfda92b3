#include "convert/dense_tensors.h"

#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "model/map_tensors.h"

namespace moeflux {
namespace {

// From bytes back to the tensor that holds them.
class Reverse {
 public:
  explicit Reverse(const ModelSource& source) {
    for (const auto& [name, info] : source.tensors()) {
      if (info.bytes > 0 && info.contiguous()) {
        by_place_[{info.file, info.offset}] = {&name, info.offset + info.bytes};
      }
    }
  }

  const std::string& name_of(const Extent& extent, const std::string& what) const {
    auto it = by_place_.upper_bound({extent.file, extent.offset});
    if (it != by_place_.begin()) {
      const auto& [place, held] = *--it;
      if (place.first == extent.file && extent.offset + extent.bytes <= held.end) return *held.name;
    }
    fail(Errc::Unsupported, "{}: does not lie in one tensor of the source", what);
  }

 private:
  struct Held {
    const std::string* name = nullptr;
    std::uint64_t end = 0;
  };
  std::map<std::pair<int, std::uint64_t>, Held> by_place_;
};

std::vector<Extent> planes(const StoredMatrix& m) {
  return {m.data, m.scales, m.biases};
}
std::vector<Extent> planes(const StoredVector& v) {
  return {v.data};
}

struct Collector {
  DenseWeights* out;
  void operator()(const StoredMatrix& m) const { out->matrices.push_back(m); }
  void operator()(const StoredVector& v) const { out->vectors.push_back(v); }
};

}  // namespace

DenseWeights dense_weights(const ModelTensors<Stored>& tensors) {
  DenseWeights weights;
  for_each_tensor(tensors, Collector{&weights});
  return weights;
}

std::vector<std::string> dense_tensor_names(const ModelSource& source,
                                            const ModelTensors<Stored>& tensors) {
  const Reverse reverse(source);
  std::vector<std::string> names;
  std::set<std::string> seen;
  for_each_tensor(tensors, [&](const auto& tensor) {
    for (const Extent& plane : planes(tensor)) {
      if (plane.bytes == 0) continue;
      const std::string& name = reverse.name_of(plane, tensor.name);
      if (seen.insert(name).second) names.push_back(name);
    }
  });
  return names;
}

}  // namespace moeflux
