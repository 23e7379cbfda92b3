// Every way of storing a matrix, from files to values, bit for bit.
#include "support/stored_formats.h"

#include <bit>
#include <filesystem>

#include <gtest/gtest.h>

#include "quant/codec.h"
#include "source/read_matrix.h"
#include "source/safetensors.h"
#include "source/tensor_lookup.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

using test::expect_error;
using test::Random;
using test::SafetensorsWriter;
using test::TempDir;

std::vector<float> decoded(const ModelSource& source, const StoredMatrix& matrix) {
  const LoadedMatrix loaded(source, matrix);
  std::vector<float> values(static_cast<std::size_t>(matrix.rows * matrix.cols));
  for (std::int64_t r = 0; r < matrix.rows; ++r)
    decode_row(loaded.view(), r, values.data() + r * matrix.cols);
  return values;
}

void expect_bits(const std::vector<float>& got, const std::vector<float>& want,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(want[i]))
        << what << ": " << i << ": " << got[i] << " instead of " << want[i];
  }
}

// ---- one matrix in every format, made by other programs

class StorageVectors : public testing::Test {
 protected:
  std::shared_ptr<const ModelSource> open(const Json& quantization) {
    std::error_code ignored;
    std::filesystem::create_symlink(test::data_path("storage/packed.safetensors"),
                                    dir_.file("model.safetensors"), ignored);
    dir_.write("config.json", dump_json(Json{{"quantization_config", quantization}}));
    return open_safetensors_directory(dir_.path());
  }
  std::vector<float> expected(const std::string& name) {
    const TensorInfo& info = *expected_->find(name + ".expected");
    std::vector<float> values(info.bytes / sizeof(float));
    expected_->read(info.extent(), std::as_writable_bytes(std::span(values)));
    return values;
  }

  Json cases_ = read_json_file(test::data_path("storage/meta.json"));
  std::shared_ptr<const ModelSource> expected_ =
      open_tensor_file(test::data_path("storage/expected.safetensors"));
  TempDir dir_;
};

TEST_F(StorageVectors, HaveTheExpectedValues) {
  int n = 0;
  for (const auto& [name, quantization] : cases_.items()) {
    if (quantization.value("desc_act", false) || name == "mxfp4-gptoss") continue;
    const auto source = open(quantization);
    expect_bits(decoded(*source, find_matrix(*source, name + ".x", 24, 64)), expected(name), name);
    ++n;
  }
  EXPECT_EQ(n, 13);
}

TEST_F(StorageVectors, BlocksOfStackedExperts) {
  const auto source = open(cases_["mxfp4-gptoss"]);
  const StoredExpertBank bank = find_stacked_matrices(*source, "mxfp4-gptoss.x", 2, 24, 64);
  EXPECT_EQ(describe(bank.at(0)), "mxfp4");
  const std::vector<float> want = expected("mxfp4-gptoss");
  for (int e = 0; e < 2; ++e) {
    expect_bits(decoded(*source, bank.at(e)),
                {want.begin() + e * 24 * 64, want.begin() + (e + 1) * 24 * 64}, "mxfp4-gptoss");
  }
}

TEST_F(StorageVectors, ActivationOrderIsRefused) {
  for (const std::string name : {"gptq4-v2", "gptq8-v2"}) {
    Json quantization = cases_[name];
    expect_error(Errc::Unsupported, {"desc_act", "activation order"}, [&] { open(quantization); });
    quantization["desc_act"] = false;
    const auto source = open(quantization);
    expect_error(Errc::Unsupported, {name + ".x.g_idx", "activation order"},
                 [&] { find_matrix(*source, name + ".x", 24, 64); });
  }
}

// ---- random matrices of odd shapes, against decoders of our own

struct Stored {
  std::unique_ptr<TempDir> dir = std::make_unique<TempDir>();
  std::shared_ptr<const ModelSource> source;
  std::vector<float> values;
  std::int64_t rows, cols;
};

// `module` with a matrix of random shape that the format can hold.
Stored make(Random& random, std::string_view format, const std::string& module) {
  Stored made;
  do {
    made.rows = random.chance(0.5) ? random.integer(1, 70) : 8 * random.integer(1, 9);
    made.cols = random.chance(0.3) ? random.integer(1, 90) : 8 * random.integer(1, 33);
  } while (!test::can_store(format, made.rows, made.cols));
  constexpr int kGroups[] = {8, 16, 24, 32, 32, 64, 128, 256};
  const int group = kGroups[random.integer(0, 7)];
  SafetensorsWriter writer;
  writer.add_counting("before", DType::U8, {random.integer(1, 9)});  // nothing is aligned
  made.values = test::add_stored(writer, random, format, module, made.rows, made.cols, group);
  writer.write(made.dir->file("model.safetensors"));
  made.dir->write("config.json", dump_json(test::format_config(format, group)));
  made.source = open_safetensors_directory(made.dir->path());
  return made;
}

class StoredFormat : public testing::TestWithParam<std::string_view> {};

TEST_P(StoredFormat, RandomMatrices) {
  Random random(11);
  for (int i = 0; i < 40; ++i) {
    const Stored made = make(random, GetParam(), "m.x");
    const StoredMatrix matrix = find_matrix(*made.source, "m.x", made.rows, made.cols);
    expect_bits(decoded(*made.source, matrix), made.values,
                fmt::format("{} {} [{}, {}]", GetParam(), describe(matrix), made.rows, made.cols));
    if (HasFatalFailure()) return;
  }
}

TEST_P(StoredFormat, RowsPickedInAnyOrder) {
  Random random(12);
  for (int i = 0; i < 30; ++i) {
    const Stored made = make(random, GetParam(), "m");
    const StoredMatrix matrix = find_matrix(*made.source, "m", made.rows, made.cols);
    RowRuns runs;
    std::vector<std::int64_t> rows;
    for (int n = 0; n < 3; ++n) {
      RowRun run{.first = random.integer(0, made.rows - 1), .take = random.integer(1, 5)};
      run.stride = run.take + random.integer(0, 4);
      run.take = std::min(run.take, made.rows - run.first);
      run.count = 1 + (made.rows - run.first - run.take) / run.stride;
      for (std::int64_t j = 0; j < run.count; ++j) {
        for (std::int64_t k = 0; k < run.take; ++k) rows.push_back(run.first + j * run.stride + k);
      }
      runs.push_back(run);
    }
    // Picked at once, and a part of what was picked.
    const StoredMatrix picked = matrix.pick(runs);
    const std::int64_t first = random.integer(0, picked.rows - 1);
    const std::int64_t count = random.integer(1, picked.rows - first);
    const auto rows_of = [&](std::int64_t begin, std::int64_t n) {
      std::vector<float> values;
      for (std::int64_t r = begin; r < begin + n; ++r) {
        const auto at = made.values.begin() + rows[static_cast<std::size_t>(r)] * made.cols;
        values.insert(values.end(), at, at + made.cols);
      }
      return values;
    };
    ASSERT_EQ(picked.rows, std::ssize(rows));
    const std::string what = fmt::format("{} {}", GetParam(), describe(matrix));
    expect_bits(decoded(*made.source, picked), rows_of(0, picked.rows), what);
    expect_bits(decoded(*made.source, picked.slice(first, count)), rows_of(first, count), what);
    if (HasFatalFailure()) return;
  }
}

TEST_P(StoredFormat, Slices) {
  Random random(13);
  for (int i = 0; i < 10; ++i) {
    const Stored made = make(random, GetParam(), "m");
    const StoredMatrix matrix = find_matrix(*made.source, "m", made.rows, made.cols);
    const std::int64_t first = random.integer(0, made.rows - 1);
    const std::int64_t count = random.integer(1, made.rows - first);
    expect_bits(decoded(*made.source, matrix.slice(first, count)),
                {made.values.begin() + first * made.cols,
                 made.values.begin() + (first + count) * made.cols},
                std::string(GetParam()));
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, StoredFormat, testing::ValuesIn(test::stored_formats()),
                         [](const auto& test) {
                           std::string name(test.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(StoredFormats, TransposedStacks) {
  constexpr std::int64_t kExperts = 3, kRows = 10, kCols = 7;
  Random random(14);
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const TempDir dir;
    SafetensorsWriter writer;
    writer.add_counting("experts.gate_up_proj", dtype, {kExperts, kCols, kRows});
    writer.write(dir.file("model.safetensors"));
    dir.write("config.json", "{}");
    const auto source = open_safetensors_directory(dir.path());
    const StoredExpertBank bank = find_stacked_matrices(*source, "experts.gate_up_proj", kExperts,
                                                        kRows, kCols, FloatStack::Transposed);
    const StoredExpertBank odd = bank.pick({{.first = 1, .take = 1, .stride = 2, .count = 5}});
    EXPECT_EQ(describe(odd.at(0)), dtype == DType::F32 ? "f32 (transposed)" : "bf16 (transposed)");
    EXPECT_EQ(odd.at(0).bytes(), bank.at(0).bytes() / 2);
    const TensorInfo& info = *source->find("experts.gate_up_proj");
    std::vector<std::byte> bytes(info.bytes);
    source->read(info.extent(), bytes);
    std::vector<float> all(static_cast<std::size_t>(kExperts * kRows * kCols));
    decode_floats(dtype, bytes.data(), std::ssize(all), all.data());
    for (int e = 0; e < kExperts; ++e) {
      const std::vector<float> got = decoded(*source, odd.at(e));
      for (std::int64_t r = 0; r < 5; ++r) {
        for (std::int64_t c = 0; c < kCols; ++c)
          ASSERT_EQ(std::bit_cast<std::uint32_t>(got[static_cast<std::size_t>(r * kCols + c)]),
                    std::bit_cast<std::uint32_t>(
                        all[static_cast<std::size_t>((e * kCols + c) * kRows + 2 * r + 1)]));
      }
    }
  }
}

// ---- what is refused

class Refused : public testing::Test {
 protected:
  void open(const Json& config) {
    dir_.write("config.json", dump_json(config));
    writer_.write(dir_.file("model.safetensors"));
    source_ = open_safetensors_directory(dir_.path());
  }
  void expect_refused(Errc code, std::initializer_list<std::string_view> parts, std::int64_t rows,
                      std::int64_t cols) {
    expect_error(code, parts, [&] { find_matrix(*source_, "m", rows, cols); });
  }
  std::vector<float> add(std::string_view format, std::int64_t rows, std::int64_t cols, int group) {
    return test::add_stored(writer_, random_, format, "m", rows, cols, group);
  }

  TempDir dir_;
  SafetensorsWriter writer_;
  Random random_{15};
  std::shared_ptr<const ModelSource> source_;
};

TEST_F(Refused, BitsOtherThanTheConfigSays) {
  add("gptq4", 8, 64, 32);
  open(test::format_config("gptq8", 32));
  expect_refused(Errc::BadInput, {"m.qweight", "contradicts 8 bits", "config.json"}, 8, 64);
}

TEST_F(Refused, GroupsOtherThanTheConfigSays) {
  add("ct-int4", 8, 128, 32);
  open(test::format_config("ct-int4", 64));
  expect_refused(Errc::BadInput, {"m.weight_scale", "contradicts groups of 64"}, 8, 128);
}

TEST_F(Refused, OneGroupWhereTheConfigSaysMore) {
  add("ct-int4-row", 8, 128, 0);
  open(test::format_config("ct-int4", 32));
  expect_refused(Errc::BadInput, {"m.weight_scale", "contradicts groups of 32"}, 8, 128);
}

TEST_F(Refused, ShapesOtherThanTheModelHas) {
  add("ct-int4", 8, 64, 32);
  open(test::format_config("ct-int4", 32));
  expect_refused(Errc::BadInput, {"m.weight_shape", "[8, 64]", "[9, 64]"}, 9, 64);
  expect_refused(Errc::BadInput, {"m.weight_shape"}, 8, 60);
}

TEST_F(Refused, AwqOfAnotherLayout) {
  add("gptq4", 64, 64, 32);
  open(test::format_config("awq", 32));
  expect_refused(Errc::BadInput, {"m.qweight", "[64, 8]"}, 64, 64);
}

TEST_F(Refused, MissingPlanes) {
  add("nvfp4-ct", 8, 64, 16);
  writer_.header().erase("m.weight_global_scale");
  open(test::format_config("nvfp4-ct", 16));
  expect_refused(Errc::NotFound, {"m.weight_global_scale", "missing"}, 8, 64);
}

TEST_F(Refused, ColumnsInActivationOrder) {
  add("ct-int4", 8, 64, 32);
  writer_.add_counting("m.weight_g_idx", DType::I32, {64});
  open(test::format_config("ct-int4", 32));
  expect_refused(Errc::Unsupported, {"m.weight_g_idx", "activation order"}, 8, 64);
}

TEST_F(Refused, ZeroPointsBeyondAByte) {
  add("gptq8", 8, 64, 32);
  const auto begin = writer_.header()["m.qzeros"]["data_offsets"][0].get<std::size_t>();
  writer_.data()[begin + 3] = static_cast<char>(0xFF);
  writer_.add_f32("m.scales", {2, 8}, random_.floats(16));
  open(test::format_config("gptq8", 32));
  const StoredMatrix matrix = find_matrix(*source_, "m", 8, 64);
  expect_error(Errc::Unsupported, {"m.qweight", "256"}, [&] { LoadedMatrix(*source_, matrix); });
}

TEST_F(Refused, RowsThatAreNotThere) {
  add("bf16", 8, 64, 32);
  open(Json::object());
  const StoredMatrix matrix = find_matrix(*source_, "m", 8, 64);
  expect_error(Errc::BadInput, {"m.weight", "8 rows"},
               [&] { matrix.pick({{.first = 1, .take = 1, .stride = 2, .count = 5}}); });
}

}  // namespace
}  // namespace moeflux
