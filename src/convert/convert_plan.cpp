#include "convert/convert_plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "model/map_tensors.h"
#include "quant/interleave.h"

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

// "model.layers.3.mlp.experts.0.gate_proj.weight" -> "model.layers.3.mlp."
std::string bank_name(const ExpertBank& bank) {
  const std::string name = bank.gate.at(0).name;
  for (const std::string_view form : {"switch_mlp.", "experts."}) {
    const std::size_t at = name.rfind(form);
    if (at != std::string::npos) return name.substr(0, at);
  }
  fail(Errc::Unsupported, "tensor \"{}\": routed experts of that name cannot be converted", name);
}

// A stacked tensor has one format for all experts.
void check_uniform(const PlannedMatrix& planned, int n_experts, const std::string& path) {
  const StoredMatrix first = planned.source(0);
  for (int e = 1; e < n_experts; ++e) {
    const StoredMatrix matrix = planned.source(e);
    if (!(matrix.format == first.format)) {
      fail(
          Errc::Unsupported,
          "{}: tensor \"{}\" is stored as {}, but \"{}\" as {}; a container needs the same for all "
          "experts of a layer (--experts-bits makes it so)",
          path, first.name, describe(first.format), matrix.name, describe(matrix.format));
    }
  }
}

// A fused FP8 matrix whose halves share a row of blocks: only together are they exact.
bool shares_blocks(const ExpertBank& bank) {
  return bank.gate.at(0).block_row0 != 0 || bank.up.at(0).block_row0 != 0;
}

// Of a weight, without its scales; of what is no integer more than any.
int code_bits(const WeightFormat& format) {
  constexpr int kMany = 64;
  if (format.kind == WeightKind::Affine) return format.bits;
  if (format.kind != WeightKind::Block) return kMany;
  const BlockShape block = block_shape(format.blocks);
  return static_cast<int>(8 * block.bytes / block.values);
}

void check_group(const PlannedMatrix& planned, int group) {
  if (planned.cols % group == 0) return;
  std::vector<int> fitting;
  for (const int each : kExpertGroups)
    if (planned.cols % each == 0) fitting.push_back(each);
  fail(Errc::BadInput, "{}: has {} columns, which groups of {} do not divide; {}", planned.module,
       planned.cols, group,
       fitting.empty() ? "nor does any other --group: convert without --experts-bits"
                       : fmt::format("try --group {}", fmt::join(fitting, " or ")));
}

class BankPlanner {
 public:
  BankPlanner(const ModelSource& source, const ExpertBank& bank,
              const std::optional<Requantize>& requantize)
      : path_(source.path()), bank_(bank), requantize_(requantize) {
    planned_.name = bank_name(bank);
    planned_.n_experts = bank.gate.count();
  }

  PlannedBank plan() {
    add("gate_proj", bank_.gate);
    add("up_proj", bank_.up);
    add("down_proj", bank_.down);
    if (shares_blocks(bank_) && !planned_.matrices[0].requantized) fuse();
    const bool affine =
        std::any_of(planned_.matrices.begin(), planned_.matrices.end(),
                    [](const PlannedMatrix& m) { return m.format.kind == WeightKind::Affine; });
    for (PlannedMatrix& matrix : planned_.matrices) {
      matrix.module = planned_.name + (affine ? "switch_mlp." : "experts.") + matrix.projection;
      if (matrix.requantized) {
        check_group(matrix, matrix.format.group);
      } else {
        check_uniform(matrix, planned_.n_experts, path_);
      }
    }
    return std::move(planned_);
  }

 private:
  void add(const std::string& projection, const StoredExpertBank& from) {
    const StoredMatrix first = from.at(0);
    PlannedMatrix matrix{.projection = projection,
                         .module = {},
                         .from = from,
                         .and_from = {},
                         .format = first.format,
                         .rows = first.rows,
                         .cols = first.cols};
    // More bits than there are would add bytes and no information.
    const bool few_already = requantize_ && code_bits(first.format) <= requantize_->bits;
    if (requantize_ && !few_already) {
      matrix.requantized = true;
      matrix.format = {.kind = WeightKind::Affine,
                       .bits = requantize_->bits,
                       .group = requantize_->group,
                       .scale_dtype = DType::BF16};
    }
    matrix.format =
        arranged(matrix.format, /*is_interleaved=*/matrix.format.kind != WeightKind::Block);
    planned_.matrices.push_back(std::move(matrix));
  }

  void fuse() {
    PlannedMatrix& gate = planned_.matrices[0];
    gate.projection = "gate_up_proj";
    gate.and_from = planned_.matrices[1].from;
    gate.rows += planned_.matrices[1].rows;
    planned_.matrices.erase(planned_.matrices.begin() + 1);
    for (int e = 0; e < planned_.n_experts; ++e) {
      const StoredMatrix top = bank_.gate.at(e), bottom = bank_.up.at(e);
      const std::uint64_t block_rows =
          static_cast<std::uint64_t>((gate.rows + gate.format.block - 1) / gate.format.block);
      const std::uint64_t scale_bytes =
          block_rows * static_cast<std::uint64_t>(scales_per_row(gate.format, gate.cols)) *
          dtype_size(gate.format.scale_dtype);
      const bool adjoin =
          top.block_row0 == 0 && top.data.file == bottom.data.file &&
          top.scales.file == bottom.scales.file &&
          top.data.offset + top.data.bytes == bottom.data.offset &&
          bottom.scales.offset + bottom.scales.bytes == top.scales.offset + scale_bytes;
      if (!adjoin) {
        fail(Errc::Unsupported, "{}: tensor \"{}\": gate and up share FP8 blocks but do not adjoin",
             path_, top.name);
      }
    }
  }

  const std::string& path_;
  const ExpertBank& bank_;
  const std::optional<Requantize>& requantize_;
  PlannedBank planned_;
};

void check_requantize(const std::optional<Requantize>& requantize) {
  if (!requantize) return;
  const auto has = [](const auto& list, int value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  if (!has(kExpertBits, requantize->bits)) {
    fail(Errc::BadInput, "experts can have {} bits, not {}", fmt::join(kExpertBits, ", "),
         requantize->bits);
  }
  if (!has(kExpertGroups, requantize->group)) {
    fail(Errc::BadInput, "a group can have {} columns, not {}", fmt::join(kExpertGroups, ", "),
         requantize->group);
  }
}

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

StoredMatrix PlannedMatrix::source(int expert) const {
  StoredMatrix matrix = from.at(expert);
  if (and_from.count() == 0) return matrix;
  const StoredMatrix rest = and_from.at(expert);
  matrix.rows += rest.rows;
  matrix.data.bytes += rest.data.bytes;
  matrix.scales.bytes = rest.scales.offset + rest.scales.bytes - matrix.scales.offset;
  return matrix;
}

namespace {

// The names that the lookups of source/tensor_lookup.h read back as the same format.
std::vector<ContainerSpec::Tensor> affine_planes(const PlannedMatrix& m) {
  const WeightFormat& f = m.format;
  const std::int64_t groups = scales_per_row(f, m.cols);
  const std::int64_t dwords = data_row_bytes(f, m.cols) / 4;
  const bool tiled = f.is_interleaved;
  if (f.zero == AffineZero::Bias) {
    return {{m.module + ".weight", DType::U32, {m.rows, dwords}, tiled},
            {m.module + ".scales", f.scale_dtype, {m.rows, groups}, tiled},
            {m.module + ".biases", f.scale_dtype, {m.rows, groups}, tiled}};
  }
  std::vector<ContainerSpec::Tensor> planes{
      {m.module + ".weight_packed", DType::I32, {m.rows, dwords}, tiled},
      {m.module + ".weight_scale", f.scale_dtype, {m.rows, groups}, tiled}};
  if (f.zero == AffineZero::ZeroPoint)
    planes.push_back({m.module + ".weight_zeros", DType::U8, {m.rows, groups}, tiled});
  return planes;
}

std::vector<ContainerSpec::Tensor> fp4_planes(const PlannedMatrix& m) {
  const WeightFormat& f = m.format;
  const std::int64_t groups = scales_per_row(f, m.cols);
  const bool tiled = f.is_interleaved;
  if (!f.has_tensor_scale && f.scale_dtype == DType::F8E4M3) {  // as MLX has it
    return {{m.module + ".weight", DType::U32, {m.rows, m.cols / 8}, tiled},
            {m.module + ".scales", DType::U8, {m.rows, groups}, tiled}};
  }
  const bool divides = f.tensor_scale_divides || !f.has_tensor_scale;  // as compressed-tensors
  std::vector<ContainerSpec::Tensor> planes{
      {m.module + (divides ? ".weight_packed" : ".weight"), DType::U8, {m.rows, m.cols / 2}, tiled},
      {m.module + ".weight_scale", f.scale_dtype, {m.rows, groups}, tiled}};
  if (f.has_tensor_scale)
    planes.push_back(
        {m.module + (divides ? ".weight_global_scale" : ".weight_scale_2"), DType::F32, {1}});
  return planes;
}

std::vector<ContainerSpec::Tensor> fp8_planes(const PlannedMatrix& m) {
  const WeightFormat& f = m.format;
  const std::int64_t per_row = scales_per_row(f, m.cols);
  const std::int64_t rows_of_scales = (m.rows + rows_per_scale(f) - 1) / rows_per_scale(f);
  if (f.block_rows == 1 && f.block == 32 && f.scale_dtype == DType::U8) {  // mxfp8, as MLX has it
    return {{m.module + ".weight", DType::U32, {m.rows, m.cols / 4}},
            {m.module + ".scales", DType::U8, {m.rows, per_row}}};
  }
  const bool is_square = f.block_rows == 0 && f.block != kWholeBlock;
  const char* suffix = !is_square || f.scale_dtype == DType::F16 ? ".weight_scale"
                       : f.scale_dtype == DType::U8              ? ".scale"
                                                                 : ".weight_scale_inv";
  return {{m.module + ".weight", DType::F8E4M3, {m.rows, m.cols}},
          {m.module + suffix, f.scale_dtype, {rows_of_scales, per_row}}};
}

}  // namespace

std::vector<ContainerSpec::Tensor> PlannedMatrix::planes() const {
  const std::string weight = module + ".weight";
  switch (format.kind) {
    case WeightKind::F32:
      return {{weight, DType::F32, {rows, cols}}};
    case WeightKind::F16:
      return {{weight, DType::F16, {rows, cols}}};
    case WeightKind::BF16:
      return {{weight, DType::BF16, {rows, cols}}};
    case WeightKind::Affine:
      return affine_planes(*this);
    case WeightKind::Fp8Block:
      return fp8_planes(*this);
    case WeightKind::Fp4:
      return fp4_planes(*this);
    case WeightKind::Block:  // in rows, as a GGUF file has them
      return {{weight, DType::U8, {rows, cols}, false, format.blocks}};
  }
  return {};
}

ContainerSpec ConvertPlan::spec(const ModelSource& source) const {
  ContainerSpec spec;
  spec.source_layout = layout_name(source.conventions());
  for (const std::string& name : dense) {
    const TensorInfo& info = *source.find(name);
    spec.tensors.push_back({name, info.dtype, info.shape, false, info.blocks});
  }
  for (const PlannedBank& bank : banks) {
    ContainerSpec::Bank& to = spec.banks.emplace_back();
    to.n_experts = bank.n_experts;
    for (const PlannedMatrix& matrix : bank.matrices) {
      for (ContainerSpec::Tensor& plane : matrix.planes()) to.planes.push_back(std::move(plane));
    }
  }
  return spec;
}

ConvertPlan plan_conversion(const ModelSource& source, const ModelIndex& index,
                            const std::optional<Requantize>& requantize) {
  check_requantize(requantize);
  ConvertPlan plan;
  plan.dense = dense_tensor_names(source, index.tensors);
  for (const ExpertBank& bank : index.experts) {
    plan.banks.push_back(BankPlanner(source, bank, requantize).plan());
  }
  const auto is_fp8 = [](const auto& matrix) { return matrix.format.kind == WeightKind::Fp8Block; };
  const DenseWeights dense = dense_weights(index.tensors);
  plan.has_fp8 = std::any_of(dense.matrices.begin(), dense.matrices.end(), is_fp8);
  for (const PlannedBank& bank : plan.banks) {
    plan.has_fp8 |= std::any_of(bank.matrices.begin(), bank.matrices.end(), is_fp8);
  }
  return plan;
}

}  // namespace moeflux
