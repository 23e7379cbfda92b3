#include "engine/parameter_count.h"

#include "model/map_tensors.h"

namespace moeflux {
namespace {

struct MatrixCounter {
  std::int64_t* n;
  void operator()(const StoredMatrix& matrix) const { *n += matrix.rows * matrix.cols; }
  void operator()(const StoredVector&) const {}
};

}  // namespace

ParameterCount count_parameters(const ModelIndex& index) {
  ParameterCount count;
  std::int64_t n_expert = 0;
  for_each_tensor(index.tensors, MatrixCounter{&count.n_parameters});
  for (const ExpertBank& bank : index.experts) {
    for (const StoredExpertBank* matrices : {&bank.gate, &bank.up, &bank.down}) {
      for (int i = 0; i < matrices->count(); ++i) {
        const StoredMatrix matrix = matrices->at(i);
        n_expert += matrix.rows * matrix.cols;
        count.expert_bytes += matrix.bytes();
      }
    }
  }
  count.n_parameters += n_expert;
  if (n_expert > 0)
    count.expert_bits =
        8.0 * static_cast<double>(count.expert_bytes) / static_cast<double>(n_expert);
  return count;
}

}  // namespace moeflux
