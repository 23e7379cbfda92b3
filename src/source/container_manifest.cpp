#include "source/container_manifest.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include <simdjson.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "source/checkpoint_files.h"
#include "source/checksum.h"
#include "source/model_source.h"

namespace moeflux {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;  // of a file; keeps sums from overflowing
constexpr std::int64_t kMaxExperts = 1 << 16;              // of a bank
constexpr std::size_t kMaxRank = 8;
constexpr std::size_t kMaxNameBytes = 512;
constexpr std::size_t kMaxPathBytes = 4096;
constexpr std::size_t kMaxEntryBytes = 64u << 10;  // of a file, a tensor or a bank

// Names go into messages and may come from anywhere: nothing that a terminal would interpret.
std::string printable(std::string name, std::size_t max_bytes, const std::string& origin) {
  const bool clean =
      std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; });
  if (name.empty() || name.size() > max_bytes || !clean) {
    fail(Errc::BadInput, "{}: a name of {} bytes is empty, too long or not printable", origin,
         name.size());
  }
  return name;
}

const Json& member(const JsonFields& fields, std::string_view key, Json::value_t type) {
  const Json* value = fields.find(key);
  if (value == nullptr || value->type() != type) {
    fail(Errc::BadInput, "{}: \"{}\" must be {}", fields.origin(), key,
         type == Json::value_t::array ? "an array" : "an object");
  }
  return *value;
}

// Calls read(fields) for each object of the array `key`; its origin says which one it is.
template <class Read>
void for_each_object(const JsonFields& fields, std::string_view key, Read read) {
  std::size_t index = 0;
  for (const Json& entry : member(fields, key, Json::value_t::array)) {
    read(JsonFields(entry, fmt::format("{}: {}[{}]", fields.origin(), key, index++)));
  }
}

std::uint64_t byte_count(const JsonFields& fields, std::string_view key) {
  return static_cast<std::uint64_t>(fields.integer(key, 0, kMaxBytes));
}

std::uint64_t aligned_count(const JsonFields& fields, std::string_view key,
                            std::uint64_t alignment) {
  const std::uint64_t value = byte_count(fields, key);
  if (value % alignment != 0) {
    fail(Errc::BadInput, "{}: \"{}\" is {}, but must be a multiple of {}", fields.origin(), key,
         value, alignment);
  }
  return value;
}

template <class Entry>
void read_dtype(const JsonFields& fields, Entry& entry) {
  const std::string name = fields.string("dtype");
  if (const auto blocks = parse_block_type(name)) {
    entry.dtype = DType::U8;
    entry.blocks = *blocks;
    return;
  }
  const auto dtype = parse_dtype(name);
  if (!dtype) {
    fail(Errc::BadInput, "{}: \"{}\" is no known dtype", fields.origin(), name.substr(0, 80));
  }
  entry.dtype = *dtype;
}

std::vector<std::int64_t> read_shape(const JsonFields& fields) {
  std::vector<std::int64_t> shape;
  for (const Json& n : member(fields, "shape", Json::value_t::array)) {
    const bool good = n.is_number_unsigned() && n.get<std::uint64_t>() <= std::uint64_t{kMaxBytes};
    if (!good || shape.size() == kMaxRank) {
      fail(Errc::BadInput, "{}: \"shape\" must be at most {} sizes", fields.origin(), kMaxRank);
    }
    shape.push_back(n.get<std::int64_t>());
  }
  return shape;
}

// Of a tensor or a plane: dtype, shape, offset and bytes, which must agree.
template <class Entry>
void read_place(const JsonFields& fields, std::uint64_t alignment, Entry& entry) {
  read_dtype(fields, entry);
  entry.shape = read_shape(fields);
  entry.offset = aligned_count(fields, "offset", alignment);
  entry.bytes = byte_count(fields, "bytes");
  const std::uint64_t needed =
      tensor_bytes(entry.dtype, entry.blocks, entry.shape, fields.origin());
  if (entry.bytes != needed) {
    fail(Errc::BadInput, "{}: has {} bytes, but {} {} needs {}", fields.origin(), entry.bytes,
         element_name(entry.dtype, entry.blocks), shape_text(entry.shape), needed);
  }
}

std::string plain_name(const JsonFields& fields) {
  std::string name = printable(fields.string("name"), kMaxNameBytes, fields.origin());
  if (!is_plain_file_name(name)) {
    fail(Errc::BadInput, "{}: \"{}\" is not a plain file name", fields.origin(), name);
  }
  return name;
}

ContainerFile read_file(const JsonFields& fields) {
  ContainerFile file{
      .name = plain_name(fields), .bytes = byte_count(fields, "bytes"), .stripes = {}};
  if (!fields.has("stripes")) return file;
  for_each_object(fields, "stripes", [&](const JsonFields& stripe) {
    file.stripes.push_back({printable(stripe.string("directory"), kMaxPathBytes, stripe.origin()),
                            aligned_count(stripe, "bytes_per_record", kRecordAlignment)});
    if (file.stripes.back().bytes_per_record == 0) {
      fail(Errc::BadInput, "{}: \"bytes_per_record\" is 0", stripe.origin());
    }
  });
  if (file.stripes.empty()) fail(Errc::BadInput, "{}: \"stripes\" is empty", fields.origin());
  return file;
}

ContainerTensor read_tensor(const std::string& name, const JsonFields& fields,
                            const std::vector<ContainerFile>& files) {
  ContainerTensor tensor;
  tensor.name = name;
  read_place(fields, kRecordAlignment, tensor);
  tensor.file = static_cast<int>(fields.integer("file", 0, std::ssize(files) - 1));
  const ContainerFile& file = files[static_cast<std::size_t>(tensor.file)];
  if (!file.stripes.empty()) {
    fail(Errc::BadInput, "{}: lies in {}, which is striped", fields.origin(), file.name);
  }
  if (tensor.offset > file.bytes || tensor.bytes > file.bytes - tensor.offset) {
    fail(Errc::BadInput, "{}: takes {} bytes from byte {} of {}, which has only {}",
         fields.origin(), tensor.bytes, tensor.offset, file.name, file.bytes);
  }
  if (!parse_checksum(fields.string("checksum"), tensor.checksum)) {
    fail(Errc::BadInput, "{}: \"checksum\" must be 16 hexadecimal digits", fields.origin());
  }
  return tensor;
}

ContainerText read_container_text(const JsonFields& fields) {
  ContainerText text{
      .name = plain_name(fields), .bytes = byte_count(fields, "bytes"), .checksum = 0};
  if (!parse_checksum(fields.string("checksum"), text.checksum)) {
    fail(Errc::BadInput, "{}: \"checksum\" must be 16 hexadecimal digits", fields.origin());
  }
  return text;
}

void check_planes(const ContainerBank& bank, const JsonFields& fields) {
  std::vector<const ContainerPlane*> planes;
  for (const ContainerPlane& plane : bank.planes) planes.push_back(&plane);
  std::sort(planes.begin(), planes.end(),
            [](const auto* a, const auto* b) { return a->offset < b->offset; });
  std::uint64_t end = 0;
  for (const ContainerPlane* plane : planes) {
    if (plane->offset < end) {
      fail(Errc::BadInput, "{}: plane \"{}\" overlaps the one before it", fields.origin(),
           plane->tensor);
    }
    end = plane->offset + plane->bytes;
    if (end > bank.record_bytes) {
      fail(Errc::BadInput, "{}: plane \"{}\" ends at byte {} of a record of {}", fields.origin(),
           plane->tensor, end, bank.record_bytes);
    }
  }
}

// The file of a bank holds its records and nothing else.
void check_bank_file(const ContainerBank& bank, const ContainerFile& file,
                     const JsonFields& fields) {
  const auto n = static_cast<std::uint64_t>(bank.n_experts);
  if (file.bytes / n != bank.record_bytes || file.bytes % n != 0) {
    fail(Errc::BadInput, "{}: {} has {} bytes, but {} records of {} are expected", fields.origin(),
         file.name, file.bytes, n, bank.record_bytes);
  }
  std::uint64_t sum = 0;
  for (const ContainerStripe& stripe : file.stripes) sum += stripe.bytes_per_record;
  if (!file.stripes.empty() && sum != bank.record_bytes) {
    fail(Errc::BadInput, "{}: the stripes of {} sum to {} bytes a record, but it has {}",
         fields.origin(), file.name, sum, bank.record_bytes);
  }
}

ContainerBank read_bank(const JsonFields& fields, const std::vector<ContainerFile>& files) {
  ContainerBank bank;
  bank.file = static_cast<int>(fields.integer("file", 0, std::ssize(files) - 1));
  bank.n_experts = fields.integer("n_experts", 1, kMaxExperts);
  bank.record_bytes = aligned_count(fields, "record_bytes", kRecordAlignment);
  bank.first_checksum = byte_count(fields, "first_checksum");
  for_each_object(fields, "planes", [&](const JsonFields& entry) {
    ContainerPlane plane;
    plane.tensor = printable(entry.string("tensor"), kMaxNameBytes, entry.origin());
    read_place(entry, kPlaneAlignment, plane);
    plane.is_interleaved = entry.boolean_or("panels", false);
    bank.planes.push_back(std::move(plane));
  });
  if (bank.planes.empty()) fail(Errc::BadInput, "{}: has no planes", fields.origin());
  check_planes(bank, fields);
  check_bank_file(bank, files[static_cast<std::size_t>(bank.file)], fields);
  return bank;
}

void read_head(const JsonFields& head, ContainerManifest& manifest) {
  if (head.string("format") != "moeflux") {
    fail(Errc::BadInput, "{}: \"format\" is not \"moeflux\"", head.origin());
  }
  const std::int64_t version = head.integer("version", 0, INT64_MAX);
  if (version < 1 || version > kContainerVersion) {
    fail(Errc::Unsupported,
         "{}: container version {} is not supported, this program reads 1 to {}; convert the "
         "model again or use a newer program",
         head.origin(), version, kContainerVersion);
  }
  manifest.fingerprint = head.string("fingerprint");
  const JsonFields source(member(head, "source", Json::value_t::object),
                          head.origin() + ": source");
  manifest.source_layout = source.string("layout");
  manifest.converted_by = source.string_or("converted_by", "");
}

// The top-level object. Objects of our JSON type are searched linearly, so a manifest with a
// hundred thousand names must not become one: it is taken apart by the linear parser, and only its
// entries, each of bounded size, become documents.
class TopLevel {
 public:
  TopLevel(const simdjson::dom::element& parsed, const std::string& origin) : origin_(origin) {
    simdjson::dom::object members;
    if (parsed.get(members) != simdjson::SUCCESS) {
      fail(Errc::BadInput, "{}: must be a JSON object", origin);
    }
    for (const auto field : members) {
      if (field.key == "files" || field.key == "tensors" || field.key == "banks" ||
          field.key == "texts") {
        lists_.emplace(field.key, field.value);
      } else if (is_head_key(field.key)) {
        head_[std::string(field.key)] =
            document(field.value, origin + ": " + std::string(field.key));
      }
    }
  }

  JsonFields head() const { return {head_, origin_}; }
  bool has(const std::string& key) const { return lists_.contains(key); }

  // Calls read(name, fields) for every entry of an array, or of an object, which has names.
  template <class Read>
  void for_each(const std::string& key, Read read) const {
    const auto list = lists_.find(key);
    simdjson::dom::array entries;
    simdjson::dom::object members;
    if (list != lists_.end() && list->second.get(entries) == simdjson::SUCCESS &&
        key != "tensors") {
      std::size_t index = 0;
      for (const auto entry : entries) {
        read_entry("", fmt::format("{}: {}[{}]", origin_, key, index++), entry, read);
      }
    } else if (list != lists_.end() && list->second.get(members) == simdjson::SUCCESS &&
               key == "tensors") {
      for (const auto field : members) {
        const std::string name = printable(std::string(field.key), kMaxNameBytes, origin_);
        read_entry(name, fmt::format("{}: tensor \"{}\"", origin_, name), field.value, read);
      }
    } else {
      fail(Errc::BadInput, "{}: \"{}\" must be {}", origin_, key,
           key == "tensors" ? "an object" : "an array");
    }
  }

 private:
  static bool is_head_key(std::string_view key) {
    return key == "format" || key == "version" || key == "fingerprint" || key == "source";
  }

  static Json document(const simdjson::dom::element& value, const std::string& origin) {
    const std::string text = simdjson::minify(value);
    if (text.size() > kMaxEntryBytes) {
      fail(Errc::LimitExceeded, "{}: has {} bytes, more than the {} allowed", origin, text.size(),
           kMaxEntryBytes);
    }
    return parse_json(text, origin);
  }

  template <class Read>
  static void read_entry(const std::string& name, const std::string& origin,
                         const simdjson::dom::element& value, Read& read) {
    const Json entry = document(value, origin);
    read(name, JsonFields(entry, origin));
  }

  const std::string& origin_;
  Json head_ = Json::object();
  std::map<std::string, simdjson::dom::element, std::less<>> lists_;
};

// Each file belongs to one bank or to dense tensors; each bank's checksums follow the last one's.
void check_whole(const ContainerManifest& manifest, const std::string& origin) {
  std::set<std::string> names;
  for (const ContainerFile& file : manifest.files) {
    if (!names.insert(file.name).second || file.name == kChecksumsFile ||
        file.name == kManifestFile) {
      fail(Errc::BadInput, "{}: two files are named \"{}\"", origin, file.name);
    }
  }
  std::set<int> taken;
  for (const ContainerTensor& tensor : manifest.tensors) taken.insert(tensor.file);
  std::uint64_t n_records = 0;
  for (const ContainerBank& bank : manifest.banks) {
    if (!taken.insert(bank.file).second) {
      fail(Errc::BadInput, "{}: file {} is used by a bank and something else", origin,
           manifest.files[static_cast<std::size_t>(bank.file)].name);
    }
    if (bank.first_checksum != n_records) {
      fail(Errc::BadInput, "{}: \"first_checksum\" is {}, but the banks before it have {} records",
           origin, bank.first_checksum, n_records);
    }
    n_records += static_cast<std::uint64_t>(bank.n_experts);
  }
  if (n_records > kMaxContainerRecords) {
    fail(Errc::LimitExceeded, "{}: {} records are more than the {} allowed", origin, n_records,
         kMaxContainerRecords);
  }
}

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
    Json& entry =
        json["planes"].emplace_back(Json{{"tensor", plane.tensor},
                                         {"dtype", element_name(plane.dtype, plane.blocks)},
                                         {"shape", shape_json(plane.shape)},
                                         {"offset", plane.offset},
                                         {"bytes", plane.bytes}});
    if (plane.is_interleaved) entry["panels"] = true;
  }
  return json;
}

}  // namespace

std::uint64_t ContainerManifest::n_records() const {
  std::uint64_t n = 0;
  for (const ContainerBank& bank : banks) n += static_cast<std::uint64_t>(bank.n_experts);
  return n;
}

int ContainerManifest::version() const {
  const auto is_new = [](const ContainerPlane& plane) {
    constexpr std::string_view kSuffixes[] = {".weight_packed", ".weight_scale", ".scale"};
    const bool is_named =
        std::any_of(std::begin(kSuffixes), std::end(kSuffixes),
                    [&](std::string_view suffix) { return plane.tensor.ends_with(suffix); });
    return is_named || (plane.tensor.ends_with(".scales") && plane.dtype == DType::U8);
  };
  const auto any_plane = [&](const auto& is_one) {
    return std::any_of(banks.begin(), banks.end(), [&](const ContainerBank& bank) {
      return std::any_of(bank.planes.begin(), bank.planes.end(), is_one);
    });
  };
  const auto has_blocks = [](const auto& entry) { return entry.blocks != BlockType::None; };
  if (any_plane(has_blocks) || std::any_of(tensors.begin(), tensors.end(), has_blocks))
    return kContainerVersion;
  return any_plane(is_new) ? 3 : 2;
}

std::string_view element_name(DType dtype, BlockType blocks) {
  return blocks == BlockType::None ? dtype_name(dtype) : block_type_name(blocks);
}

std::uint64_t tensor_bytes(DType dtype, BlockType blocks, std::span<const std::int64_t> shape,
                           const std::string& what) {
  const bool has_blocks = blocks != BlockType::None;
  const BlockShape block = block_shape(blocks);
  std::uint64_t bytes = has_blocks ? static_cast<std::uint64_t>(block.bytes) : dtype_size(dtype);
  std::uint64_t widest = bytes;  // zero counts as one, so that no order of sizes hides an overflow
  for (const std::int64_t n : shape) {
    const auto size = static_cast<std::uint64_t>(n);
    if (n < 0 || __builtin_mul_overflow(widest, std::max<std::uint64_t>(size, 1), &widest) ||
        widest > std::uint64_t{kMaxBytes}) {
      fail(Errc::BadInput, "{}: the shape {} is impossible", what, shape_text(shape));
    }
    bytes *= size;
  }
  if (!has_blocks) return bytes;
  if (shape.empty() || shape.back() % block.values != 0) {
    fail(Errc::BadInput, "{}: rows of {} are no whole blocks of {}", what, shape_text(shape),
         block.values);
  }
  return bytes / static_cast<std::uint64_t>(block.values);
}

ContainerManifest parse_manifest(std::string_view json, const std::string& origin) {
  simdjson::dom::parser parser;
  simdjson::dom::element parsed;
  if (const auto error = parser.parse(json.data(), json.size()).get(parsed)) {
    fail(Errc::BadInput, "{}: not valid JSON: {}", origin, simdjson::error_message(error));
  }
  const TopLevel top(parsed, origin);
  ContainerManifest manifest;
  read_head(top.head(), manifest);
  top.for_each("files", [&](const std::string& /*name*/, const JsonFields& fields) {
    manifest.files.push_back(read_file(fields));
  });
  top.for_each("tensors", [&](const std::string& name, const JsonFields& fields) {
    manifest.tensors.push_back(read_tensor(name, fields, manifest.files));
  });
  top.for_each("banks", [&](const std::string& /*name*/, const JsonFields& fields) {
    manifest.banks.push_back(read_bank(fields, manifest.files));
  });
  if (top.has("texts")) {
    top.for_each("texts", [&](const std::string& /*name*/, const JsonFields& fields) {
      manifest.texts.push_back(read_container_text(fields));
    });
  }
  check_whole(manifest, origin);
  return manifest;
}

std::string manifest_text(const ContainerManifest& manifest) {
  Json json = {
      {"format", "moeflux"},
      {"version", manifest.version()},
      {"fingerprint", manifest.fingerprint},
      {"source", {{"layout", manifest.source_layout}, {"converted_by", manifest.converted_by}}},
      {"files", Json::array()},
      {"tensors", Json::object()},
      {"banks", Json::array()}};
  for (const ContainerFile& file : manifest.files) json["files"].push_back(file_json(file));
  for (const ContainerTensor& tensor : manifest.tensors) {
    json["tensors"][tensor.name] = {{"dtype", element_name(tensor.dtype, tensor.blocks)},
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
    stream.add(fmt::format("{} {} {} {}\n", tensor->name,
                           element_name(tensor->dtype, tensor->blocks), shape_text(tensor->shape),
                           checksum_text(tensor->checksum)));
  }
  for (const ContainerBank& bank : manifest.banks) {
    for (const ContainerPlane& plane : bank.planes) {
      stream.add(fmt::format("{} {} {} {}{}\n", plane.tensor,
                             element_name(plane.dtype, plane.blocks), shape_text(plane.shape),
                             plane.offset, plane.is_interleaved ? " panels" : ""));
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
