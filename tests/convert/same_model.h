// Comparisons of a checkpoint with the container made from it.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "convert/convert_plan.h"
#include "families/family.h"
#include "quant/interleave.h"
#include "source/model_source.h"
#include "source/read_matrix.h"
#include "support/loaded_model.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace moeflux::test {

inline std::vector<std::byte> read_extent(const ModelSource& source, const Extent& extent) {
  std::vector<std::byte> bytes(extent.bytes);
  if (extent.bytes > 0) source.read(extent, bytes);
  return bytes;
}

// A plane of a matrix that has been read; one in interleaved tiles as it would be in rows.
inline std::vector<std::byte> in_rows(const WeightView& matrix, std::span<const std::byte> plane,
                                      std::size_t element_bytes) {
  std::vector<std::byte> bytes(plane.begin(), plane.end());
  // What all rows share is in no tiles.
  const bool is_tiled = matrix.format.is_interleaved &&
                        std::ssize(bytes) >= matrix.rows * static_cast<std::int64_t>(element_bytes);
  if (!is_tiled) return bytes;
  const auto row_elements = static_cast<std::int64_t>(bytes.size() / element_bytes) / matrix.rows;
  arrange_plane(bytes.data(), matrix.rows, row_elements, element_bytes, /*to_tiles=*/false);
  return bytes;
}

// The same codes, scales and biases, whatever their order and however they are stored.
inline void expect_same_matrix(const ModelSource& a, const StoredMatrix& x, const ModelSource& b,
                               const StoredMatrix& y) {
  ASSERT_EQ(arranged(x.format, false), arranged(y.format, false)) << x.name;
  ASSERT_EQ(x.rows, y.rows) << x.name;
  ASSERT_EQ(x.cols, y.cols) << x.name;
  ASSERT_EQ(x.block_row0, y.block_row0) << x.name;
  const std::size_t scale_bytes = dtype_size(x.format.scale_dtype);
  const bool has_bytes = x.format.zero == AffineZero::ZeroPoint;
  const LoadedMatrix p(a, x), q(b, y);
  EXPECT_EQ(in_rows(p.view(), p.data(), 4), in_rows(q.view(), q.data(), 4)) << x.name;
  EXPECT_EQ(in_rows(p.view(), p.scales(), scale_bytes), in_rows(q.view(), q.scales(), scale_bytes))
      << x.name;
  const std::size_t bias_bytes = has_bytes ? 1 : scale_bytes;
  EXPECT_EQ(in_rows(p.view(), p.biases(), bias_bytes), in_rows(q.view(), q.biases(), bias_bytes))
      << x.name;
}

inline void expect_same_dense(const ModelSource& a, const ModelSource& b) {
  const DenseWeights x = dense_weights(describe_model(a).index.tensors);
  const DenseWeights y = dense_weights(describe_model(b).index.tensors);
  ASSERT_EQ(x.matrices.size(), y.matrices.size());
  ASSERT_EQ(x.vectors.size(), y.vectors.size());
  for (std::size_t i = 0; i < x.matrices.size(); ++i) {
    EXPECT_EQ(x.matrices[i].name, y.matrices[i].name);
    expect_same_matrix(a, x.matrices[i], b, y.matrices[i]);
  }
  for (std::size_t i = 0; i < x.vectors.size(); ++i) {
    EXPECT_EQ(x.vectors[i].name, y.vectors[i].name);
    EXPECT_EQ(x.vectors[i].shift, y.vectors[i].shift);
    EXPECT_EQ(read_extent(a, x.vectors[i].data), read_extent(b, y.vectors[i].data));
  }
}

inline void expect_same_experts(const ModelSource& a, const ModelSource& b) {
  const ModelIndex x = describe_model(a).index, y = describe_model(b).index;
  ASSERT_EQ(x.experts.size(), y.experts.size());
  for (std::size_t bank = 0; bank < x.experts.size(); ++bank) {
    const ExpertBank &p = x.experts[bank], &q = y.experts[bank];
    ASSERT_EQ(p.gate.count(), q.gate.count());
    for (int e = 0; e < p.gate.count(); ++e) {
      expect_same_matrix(a, p.gate.at(e), b, q.gate.at(e));
      expect_same_matrix(a, p.up.at(e), b, q.up.at(e));
      expect_same_matrix(a, p.down.at(e), b, q.down.at(e));
    }
  }
}

inline void expect_same_model(const ModelSource& a, const ModelSource& b) {
  expect_same_dense(a, b);
  expect_same_experts(a, b);
}

// The logits of a few random tokens.
inline std::vector<float> some_logits(const std::string& path) {
  LoadedModel model(path);
  Random random(17);
  const auto tokens = random.tokens(12, model.config().n_vocab);
  Session session = model.new_session();
  return model.feed(session, tokens);
}

}  // namespace moeflux::test
