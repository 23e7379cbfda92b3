// The files of a container that describe it, as bytes: manifest, fingerprint and checksums.
#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "source/checksum.h"
#include "source/container_manifest.h"
#include "source/model_source.h"

namespace moeflux {
namespace {

constexpr std::string_view kChecksumsMagic = "MFXSUMS1";
constexpr std::size_t kChecksumsHeader = 16;

Json shape_json(const std::vector<std::int64_t>& shape) {
  return shape.empty() ? Json::array() : Json(shape);
}

Json file_json(const ContainerFile& file) {
  Json json = {{"name", file.name}, {"bytes", file.bytes}};
  for (const ContainerStripe& stripe : file.stripes) {
    json["stripes"].push_back(
        {{"directory", stripe.directory}, {"bytes_per_record", stripe.bytes_per_record}});
  }
  return json;
}

Json bank_json(const ContainerBank& bank) {
  Json json = {{"file", bank.file},
               {"n_experts", bank.n_experts},
               {"record_bytes", bank.record_bytes},
               {"first_checksum", bank.first_checksum},
               {"planes", Json::array()}};
  for (const ContainerPlane& plane : bank.planes) {
    Json& entry = json["planes"].emplace_back(Json{{"tensor", plane.tensor},
                                                   {"dtype", dtype_name(plane.dtype)},
                                                   {"shape", shape_json(plane.shape)},
                                                   {"offset", plane.offset},
                                                   {"bytes", plane.bytes}});
    if (plane.in_panels) entry["panels"] = true;
  }
  return json;
}

}  // namespace

std::string manifest_text(const ContainerManifest& manifest) {
  Json json = {
      {"format", "moeflux"},
      {"version", kContainerVersion},
      {"fingerprint", manifest.fingerprint},
      {"source", {{"layout", manifest.source_layout}, {"converted_by", manifest.converted_by}}},
      {"files", Json::array()},
      {"tensors", Json::object()},
      {"banks", Json::array()}};
  for (const ContainerFile& file : manifest.files) json["files"].push_back(file_json(file));
  for (const ContainerTensor& tensor : manifest.tensors) {
    json["tensors"][tensor.name] = {{"dtype", dtype_name(tensor.dtype)},
                                    {"shape", shape_json(tensor.shape)},
                                    {"file", tensor.file},
                                    {"offset", tensor.offset},
                                    {"bytes", tensor.bytes},
                                    {"checksum", checksum_text(tensor.checksum)}};
  }
  for (const ContainerBank& bank : manifest.banks) json["banks"].push_back(bank_json(bank));
  for (const ContainerText& text : manifest.texts) {
    json["texts"].push_back(
        {{"name", text.name}, {"bytes", text.bytes}, {"checksum", checksum_text(text.checksum)}});
  }
  return dump_json(json, 1) + "\n";
}

std::string container_fingerprint(const ContainerManifest& manifest,
                                  std::span<const std::uint64_t> checksums) {
  std::vector<const ContainerTensor*> tensors;
  for (const ContainerTensor& tensor : manifest.tensors) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(),
            [](const auto* a, const auto* b) { return a->name < b->name; });
  ChecksumStream stream;
  for (const ContainerTensor* tensor : tensors) {
    stream.add(fmt::format("{} {} {} {}\n", tensor->name, dtype_name(tensor->dtype),
                           shape_text(tensor->shape), checksum_text(tensor->checksum)));
  }
  for (const ContainerBank& bank : manifest.banks) {
    for (const ContainerPlane& plane : bank.planes) {
      stream.add(fmt::format("{} {} {} {}{}\n", plane.tensor, dtype_name(plane.dtype),
                             shape_text(plane.shape), plane.offset,
                             plane.in_panels ? " panels" : ""));
    }
  }
  stream.add(checksums_file(checksums));
  return checksum_text(stream.value());
}

std::string checksums_file(std::span<const std::uint64_t> checksums) {
  std::string bytes(kChecksumsMagic);
  const auto append = [&](std::uint64_t value) {
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  };
  append(checksums.size());
  for (const std::uint64_t value : checksums) append(value);
  return bytes;
}

std::vector<std::uint64_t> read_checksums(const std::string& path, std::uint64_t n) {
  const std::string bytes = read_text_file(path, kChecksumsHeader + 8 * kMaxContainerRecords);
  const auto number = [&](std::size_t at) {
    std::uint64_t value = 0;
    for (int i = 7; i >= 0; --i) {
      value = value << 8 | static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)]);
    }
    return value;
  };
  if (bytes.size() < kChecksumsHeader || !bytes.starts_with(kChecksumsMagic)) {
    fail(Errc::BadInput, "{}: is not a file of checksums", path);
  }
  if (number(8) != n || bytes.size() != kChecksumsHeader + 8 * n) {
    fail(Errc::BadInput, "{}: has {} bytes for {} checksums, but the manifest has {} records", path,
         bytes.size(), number(8), n);
  }
  std::vector<std::uint64_t> checksums(n);
  for (std::size_t i = 0; i < n; ++i) checksums[i] = number(kChecksumsHeader + 8 * i);
  return checksums;
}

}  // namespace moeflux
