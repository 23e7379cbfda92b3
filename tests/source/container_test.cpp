#include "source/container.h"

#include <cctype>
#include <filesystem>
#include <random>

#include <gtest/gtest.h>

#include "source/checksum.h"
#include "source/tensor_lookup.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/safetensors_writer.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::write_file;

std::vector<std::byte> read_bytes(const ModelSource& source, const Extent& extent) {
  std::vector<std::byte> bytes(extent.bytes);
  source.read(extent, bytes);
  return bytes;
}

std::string hex(const ModelSource& source, Extent extent, std::uint64_t n) {
  extent.bytes = n;
  std::string text;
  for (const std::byte b : read_bytes(source, extent)) {
    text += fmt::format("{:02x}", std::to_integer<int>(b));
  }
  return text;
}

// Whether every byte that has a checksum is as it should be.
bool intact(const ModelSource& source) {
  for (const Record& record : source.records()) {
    if (checksum(read_bytes(source, record.extent)) != record.checksum) return false;
  }
  return true;
}

const std::string kFixture = "tests/fixtures/container-v1";
const std::string kMlp = "model.layers.1.mlp.switch_mlp.";

// Version 1 reads for ever: these values must never change.
TEST(ContainerV1, Reads) {
  const auto source = open_source(test::source_path(kFixture));
  EXPECT_EQ(source->layout(), ModelSource::Layout::Container);
  EXPECT_EQ(source->conventions(), ModelSource::Layout::Safetensors);
  EXPECT_EQ(source->fingerprint(), "511025a3e10158e1");
  EXPECT_EQ(source->tensors().size(), 29u + 9);
  EXPECT_EQ(source->records().size(), 29u + 12);
  EXPECT_EQ(source->n_files(), 2);
  EXPECT_EQ(source->n_disk_files(), 3);
  EXPECT_EQ(source->config()["model_type"], "kimi_k2");

  const StoredVector norm = find_vector(*source, "model.norm.weight", 64);
  EXPECT_EQ(norm.dtype, DType::BF16);
  EXPECT_EQ(hex(*source, norm.data, 8), "1a3f373fa13f3d3f");

  const StoredExpertBank gate = find_stacked_matrices(*source, kMlp + "gate_proj", 12, 32, 64);
  const StoredExpertBank down = find_stacked_matrices(*source, kMlp + "down_proj", 12, 64, 32);
  EXPECT_EQ(describe(gate.at(0).format), "affine 8-bit g32");
  EXPECT_EQ(hex(*source, gate.at(0).data, 8), "43c22546006346b7");
  EXPECT_EQ(hex(*source, gate.at(11).data, 8), "8d46e264bf5f1749");
  EXPECT_EQ(hex(*source, gate.at(11).scales, 4), "413b483b");
  EXPECT_EQ(hex(*source, gate.at(11).biases, 4), "a3bee4be");
  EXPECT_EQ(hex(*source, down.at(11).data, 4), "7178b387");
  EXPECT_EQ(hex(*source, down.at(0).biases, 4), "e4bdf9bd");

  const Record* record = source->find_record(gate.at(1).data);
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->checksum, 0x939D12EDEC0C008Cu);
  EXPECT_EQ(record->extent.offset, 8192u);
  EXPECT_EQ(record->extent.bytes, 8192u);
  EXPECT_EQ(record->name, "model.layers.1.mlp.switch_mlp expert 1");
  const std::vector<DiskPiece> pieces = source->locate(record->extent);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_TRUE(source->disk_file(pieces[0].file).path().ends_with("stripe/experts-000.bin"));
  EXPECT_EQ(pieces[1].offset, 4096u);
  EXPECT_TRUE(intact(*source));
}

class ContainerTest : public testing::Test {
 protected:
  ContainerTest() {
    fs::copy(test::source_path(kFixture), dir_.file("c"), fs::copy_options::recursive);
    fs::remove(path("logits.safetensors"));
    manifest_ = read_json_file(path("moeflux.json"));
  }
  std::string path(const std::string& name) const { return dir_.file("c/" + name); }
  std::shared_ptr<const ModelSource> open() const { return open_source(dir_.file("c")); }

  // The manifest after `edit` must be refused with these words.
  template <class Edit>
  void refused(std::initializer_list<std::string_view> parts, Edit edit,
               Errc code = Errc::BadInput) {
    Json changed = manifest_;
    edit(changed);
    write_file(path("moeflux.json"), dump_json(changed));
    expect_error(code, parts, [&] { open(); });
  }
  Json& bank(Json& manifest) { return manifest["banks"][0]; }

  test::TempDir dir_;
  Json manifest_;
};

TEST_F(ContainerTest, FindRecordWantsTheWholeExtentInside) {
  const auto source = open();
  const Record& first = source->records().front();
  const int file = first.extent.file;
  EXPECT_EQ(source->find_record(first.extent), &first);
  EXPECT_EQ(source->find_record({file, first.extent.offset + 5, 1}), &first);
  EXPECT_EQ(source->find_record({file, first.extent.offset, first.extent.bytes + 1}), nullptr);
  EXPECT_EQ(source->find_record({file + 7, 0, 1}), nullptr);
  const Record& last = source->records().back();
  EXPECT_EQ(source->find_record({last.extent.file, last.extent.offset + last.extent.bytes, 1}),
            nullptr);
}

TEST_F(ContainerTest, ADirectoryWithoutAManifestDoesNotOpen) {
  fs::remove(path("moeflux.json"));
  expect_error(Errc::NotFound, {"moeflux.json"}, [&] { open(); });
  dir_.write("c/convert.progress", "");
  expect_error(Errc::NotFound, {"has not ended", "resume"}, [&] { open(); });
}

TEST_F(ContainerTest, HeadOfTheManifest) {
  refused({"\"format\""}, [](Json& m) { m["format"] = "other"; });
  refused(
      {"version 5", "reads 1 to 4"}, [](Json& m) { m["version"] = 5; }, Errc::Unsupported);
  refused({"version"}, [](Json& m) { m["version"] = "1"; });
  refused({"fingerprint"}, [](Json& m) { m["fingerprint"] = "0123456789abcdef"; });
  refused({"fingerprint"}, [](Json& m) { m.erase("fingerprint"); });
  refused({"source"}, [](Json& m) { m["source"] = 1; });
  refused({"\"container\""}, [](Json& m) { m["source"]["layout"] = "container"; });
  refused({"\"martian\""}, [](Json& m) { m["source"]["layout"] = "martian"; });
  refused({"\"tensors\" must be an object"}, [](Json& m) { m["tensors"] = Json::array(); });
  refused({"\"banks\" must be an array"}, [](Json& m) { m.erase("banks"); });
  refused({"\"files\" must be an array"}, [](Json& m) { m["files"] = Json::object(); });
  write_file(path("moeflux.json"), "[]");
  expect_error(Errc::BadInput, {"must be a JSON object"}, [&] { open(); });
}

TEST_F(ContainerTest, UnknownKeysAreIgnored) {
  Json changed = manifest_;
  changed["colour"] = "red";
  changed["files"][0]["colour"] = {1, 2};
  changed["banks"][0]["planes"][0]["colour"] = nullptr;
  changed["tensors"]["model.norm.weight"]["colour"] = 1;
  write_file(path("moeflux.json"), dump_json(changed));
  EXPECT_TRUE(intact(*open()));
}

TEST_F(ContainerTest, Files) {
  refused({"plain file name"}, [](Json& m) { m["files"][0]["name"] = "../dense.bin"; });
  refused({"not printable"}, [](Json& m) { m["files"][0]["name"] = "\033[2J"; });
  refused({"two files"}, [](Json& m) { m["files"][1]["name"] = "dense.bin"; });
  refused({"two files"}, [](Json& m) { m["files"][0]["name"] = "checksums.bin"; });
  refused(
      {"absent.bin"}, [](Json& m) { m["files"][0]["name"] = "absent.bin"; }, Errc::NotFound);
  refused({"dense.bin", "270336 bytes", "says 274432"},
          [](Json& m) { m["files"][0]["bytes"] = 274432; });
  refused({"bytes"}, [](Json& m) { m["files"][0]["bytes"] = -1; });
  refused({"bytes"}, [](Json& m) { m["files"][0]["bytes"] = 1e300; });
  refused({"records of 8192"}, [](Json& m) { m["files"][1]["bytes"] = 8192 * 13; });
}

TEST_F(ContainerTest, Texts) {
  const auto texts = [](Json text) {
    return [text](Json& m) { m["texts"] = Json::array({text}); };
  };
  const Json good = {{"name", "config.json"}, {"bytes", 3}, {"checksum", "0123456789abcdef"}};
  const auto with = [&](const char* key, const Json& value) {
    Json changed = good;
    changed[key] = value;
    return texts(changed);
  };
  refused({"texts[0]", "plain file name"}, with("name", "../config.json"));
  refused({"not printable"}, with("name", "\033[2J"));
  refused({"texts[0]", "bytes"}, with("bytes", -1));
  refused({"texts[0]", "16 hexadecimal digits"}, with("checksum", "123"));
  refused({"\"texts\" must be an array"}, [](Json& m) { m["texts"] = Json::object(); });
  Json changed = manifest_;
  texts(good)(changed);  // compared by who checks, not at open
  write_file(path("moeflux.json"), dump_json(changed));
  ASSERT_EQ(open()->text_records().size(), 1u);
  EXPECT_EQ(open()->text_records()[0].path, path("config.json"));
}

TEST_F(ContainerTest, Stripes) {
  const auto stripe = [](Json& m, int i) -> Json& {
    return m["files"][1]["stripes"][static_cast<std::size_t>(i)];
  };
  refused({"sum to 12288"}, [&](Json& m) { stripe(m, 0)["bytes_per_record"] = 8192; });
  refused({"multiple of 4096"}, [&](Json& m) { stripe(m, 0)["bytes_per_record"] = 100; });
  refused({"is 0"}, [&](Json& m) { stripe(m, 0)["bytes_per_record"] = 0; });
  refused({"is empty"}, [&](Json& m) { m["files"][1]["stripes"] = Json::array(); });
  refused(
      {"elsewhere/experts-000.bin"}, [&](Json& m) { stripe(m, 0)["directory"] = "elsewhere"; },
      Errc::NotFound);
  refused({"striped"}, [&](Json& m) { m["tensors"]["model.norm.weight"]["file"] = 1; });
}

TEST_F(ContainerTest, Tensors) {
  const auto norm = [](Json& m) -> Json& { return m["tensors"]["model.norm.weight"]; };
  refused({"model.norm.weight", "multiple of 4096"}, [&](Json& m) { norm(m)["offset"] = 64; });
  refused({"model.norm.weight", "only 270336"}, [&](Json& m) { norm(m)["offset"] = 270336; });
  refused({"needs 128"}, [&](Json& m) { norm(m)["bytes"] = 130; });
  refused({"needs 256"}, [&](Json& m) { norm(m)["shape"] = {128}; });
  refused({"no known dtype"}, [&](Json& m) { norm(m)["dtype"] = "F12"; });
  refused({"impossible"}, [&](Json& m) { norm(m)["shape"] = {0, 1LL << 40, 1LL << 40}; });
  refused({"shape"}, [&](Json& m) { norm(m)["shape"] = {1, 1, 1, 1, 1, 1, 1, 1, 64}; });
  refused({"shape"}, [&](Json& m) { norm(m)["shape"] = {-64}; });
  refused({"hexadecimal"}, [&](Json& m) { norm(m)["checksum"] = "xyz"; });
  refused({"fingerprint"}, [&](Json& m) { norm(m)["checksum"] = "0000000000000000"; });
  refused({"fingerprint"}, [&](Json& m) { norm(m)["shape"] = {8, 8}; });
  refused({"fingerprint"}, [&](Json& m) { norm(m)["dtype"] = "F16"; });
  refused({"\"file\""}, [&](Json& m) { norm(m)["file"] = 2; });
  refused({"overlap"}, [&](Json& m) { norm(m)["offset"] = 0; });
}

TEST_F(ContainerTest, Banks) {
  const auto plane = [&](Json& m, std::size_t i) -> Json& { return bank(m)["planes"][i]; };
  refused({"multiple of 4096"}, [&](Json& m) { bank(m)["record_bytes"] = 8000; });
  refused({"of a record of 4096"}, [&](Json& m) { bank(m)["record_bytes"] = 4096; });
  refused({"records of 12288"}, [&](Json& m) { bank(m)["record_bytes"] = 12288; });
  refused({"n_experts"}, [&](Json& m) { bank(m)["n_experts"] = 0; });
  refused({"13 records"}, [&](Json& m) { bank(m)["n_experts"] = 13; });
  refused({"first_checksum"}, [&](Json& m) { bank(m)["first_checksum"] = 1; });
  refused({"no planes"}, [&](Json& m) { bank(m)["planes"] = Json::array(); });
  refused({"overlaps"}, [&](Json& m) { plane(m, 1)["offset"] = 1984; });
  refused({"multiple of 64"}, [&](Json& m) { plane(m, 1)["offset"] = 2050; });
  refused({"ends at byte 8256"}, [&](Json& m) { plane(m, 8)["offset"] = 8128; });
  refused({"fingerprint"}, [&](Json& m) { plane(m, 8)["offset"] = 6912; });
  refused({"fingerprint"},
          [&](Json& m) { std::swap(plane(m, 1)["tensor"], plane(m, 2)["tensor"]); });
  refused({"used by a bank and something else"}, [&](Json& m) {
    m["banks"].push_back(bank(m));
    m["banks"][1]["first_checksum"] = 12;
  });
  refused(
      {"more than the 65536"}, [&](Json& m) { bank(m)["junk"] = std::string(70000, 'x'); },
      Errc::LimitExceeded);
}

TEST_F(ContainerTest, Checksums) {
  const std::string good = read_text_file(path("checksums.bin"));
  const auto refuse = [&](const std::string& bytes, std::initializer_list<std::string_view> parts) {
    write_file(path("checksums.bin"), bytes);
    expect_error(Errc::BadInput, parts, [&] { open(); });
  };
  for (std::size_t size = 0; size < good.size(); ++size)
    refuse(good.substr(0, size), {"checksums.bin"});
  refuse(good + "x", {"113 bytes"});
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      refuse(bad, {"checksums.bin"});
    }
  }
  write_file(path("checksums.bin"), good);
  EXPECT_TRUE(intact(*open()));
}

TEST_F(ContainerTest, TruncationAtEveryByteOfTheManifestIsAnError) {
  const std::string good = read_text_file(path("moeflux.json"));
  for (std::size_t size = 0; size < good.size() - 2; ++size) {  // the end is "}\n"
    write_file(path("moeflux.json"), std::string_view(good).substr(0, size));
    EXPECT_THROW(open(), Error) << size;
  }
}

TEST_F(ContainerTest, TruncatedDataIsNamed) {
  for (const char* name : {"dense.bin", "experts-000.bin", "stripe/experts-000.bin"}) {
    const std::string good = read_text_file(path(name));
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, good.size() / 2, good.size() - 1}) {
      write_file(path(name), std::string_view(good).substr(0, size));
      expect_error(Errc::BadInput, {name, "truncated"}, [&] { open(); });
    }
    write_file(path(name), good + "x");
    expect_error(Errc::BadInput, {name}, [&] { open(); });
    write_file(path(name), good);
  }
}

// Whatever happens to the manifest: an Error at open, or a checksum that tells, or the same model.
TEST_F(ContainerTest, EveryChangeOfTheManifestIsNoticed) {
  const auto original = open();
  const std::string good = read_text_file(path("moeflux.json"));
  std::vector<std::size_t> digits;
  for (std::size_t i = 0; i < good.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(good[i])) != 0) digits.push_back(i);
  }
  const auto same = [&](const ModelSource& other) {
    if (other.tensors().size() != original->tensors().size()) return false;
    for (const auto& [name, info] : original->tensors()) {
      const TensorInfo* found = other.find(name);
      if (found == nullptr || found->dtype != info.dtype || found->shape != info.shape)
        return false;
      for (std::int64_t i = 0; i < info.shape[0]; ++i) {
        const auto step = static_cast<std::uint64_t>(i) * info.slice_stride;
        const Extent a{info.file, info.offset + step, info.slice_bytes()};
        const Extent b{found->file,
                       found->offset + static_cast<std::uint64_t>(i) * found->slice_stride,
                       found->slice_bytes()};
        if (read_bytes(*original, a) != read_bytes(other, b)) return false;
      }
    }
    return true;
  };
  std::mt19937 random(1);
  int n_refused = 0, n_told = 0, n_same = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string mutant = good;
    for (auto n = 1 + random() % 2; n > 0; --n) {
      if (i % 2 == 0) {
        mutant[digits[random() % digits.size()]] = static_cast<char>('0' + random() % 10);
      } else {
        mutant[random() % mutant.size()] ^= static_cast<char>(1 << random() % 8);
      }
    }
    write_file(path("moeflux.json"), mutant);
    try {
      const auto source = open();
      if (!intact(*source)) {
        ++n_told;
      } else {
        EXPECT_TRUE(same(*source)) << "mutant " << i;
        ++n_same;
      }
    } catch (const Error&) {
      ++n_refused;
    }
  }
  EXPECT_GT(n_refused, 1500);
  EXPECT_GT(n_same, 0);
}

TEST_F(ContainerTest, AManifestWithManyNamesIsReadInLinearTime) {
  std::string many = "{\"x0\": 0";
  for (int i = 1; i < 400000; ++i) many += fmt::format(", \"x{}\": 0", i);
  const std::string good = read_text_file(path("moeflux.json"));
  write_file(path("moeflux.json"), many + ", " + good.substr(1));
  EXPECT_EQ(open()->records().size(), 41u);
}

}  // namespace
}  // namespace moeflux
