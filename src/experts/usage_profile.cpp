#include "experts/usage_profile.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file.h"
#include "source/checksum.h"

namespace moeflux {
namespace {

constexpr std::string_view kProfileMagic = "MFXUSAGE";
constexpr std::uint32_t kProfileVersion = 1;
constexpr std::uint64_t kMaxProfileBytes = 64u << 20;
constexpr double kLargestWeight = 1e100;

void append_u32(std::string& out, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
}
void append_f32(std::string& out, double value) {
  append_u32(out, std::bit_cast<std::uint32_t>(static_cast<float>(value)));
}

// Takes little-endian values off the front; whatever is missing is an Error.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  std::string_view take(std::size_t n) {
    if (n > bytes_.size()) fail(Errc::BadInput, "it ends early");
    const std::string_view taken = bytes_.substr(0, n);
    bytes_.remove_prefix(n);
    return taken;
  }
  std::uint32_t u32() {
    std::uint32_t value = 0;
    const std::string_view bytes = take(4);
    for (std::size_t i = 0; i < 4; ++i) {
      value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    }
    return value;
  }
  double count() {
    const auto value = std::bit_cast<float>(u32());
    if (!(value >= 0) || !std::isfinite(value)) fail(Errc::BadInput, "a count is no number");
    return value;
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

}  // namespace

UsageProfile::UsageProfile(std::string fingerprint, const std::vector<int>& n_experts,
                           double half_life)
    : fingerprint_(std::move(fingerprint)),
      ids_(n_experts),
      growth_(std::exp2(1 / half_life)),
      layers_(n_experts.size()),
      counts_(static_cast<std::size_t>(ids_.n_total()), 0) {}

void UsageProfile::record(int layer, std::span<const int> experts) {
  Layer& l = layers_[static_cast<std::size_t>(layer)];
  l.weight *= growth_;
  l.requests += l.weight;
  for (const int expert : experts) {
    MOEFLUX_ASSERT(expert >= 0 && expert < ids_.n_experts(layer));
    counts_[static_cast<std::size_t>(ids_.id(layer, expert))] += l.weight;
  }
  if (l.weight < kLargestWeight) return;
  for (int e = 0; e < ids_.n_experts(layer); ++e) {
    counts_[static_cast<std::size_t>(ids_.id(layer, e))] /= l.weight;
  }
  l.requests /= l.weight;
  l.weight = 1;
}

bool UsageProfile::empty() const {
  return std::all_of(layers_.begin(), layers_.end(),
                     [](const Layer& l) { return l.requests <= 0; });
}

double UsageProfile::rate(int layer, int expert) const {
  const double requests = layers_[static_cast<std::size_t>(layer)].requests;
  const double count = counts_[static_cast<std::size_t>(ids_.id(layer, expert))];
  return requests > 0 ? std::min(count / requests, 1.0) : 0;
}

std::vector<ExpertKey> UsageProfile::hottest(std::size_t n) const {
  struct Entry {
    double rate;
    int id;
  };
  std::vector<Entry> used;
  for (int id = 0; id < ids_.n_total(); ++id) {
    const double r = rate(ids_.layer(id), ids_.expert(id));
    if (r > 0) used.push_back({r, id});
  }
  std::sort(used.begin(), used.end(), [](const Entry& a, const Entry& b) {
    return a.rate != b.rate ? a.rate > b.rate : a.id < b.id;
  });
  used.resize(std::min(n, used.size()));
  std::vector<ExpertKey> keys;
  keys.reserve(used.size());
  for (const Entry& entry : used) keys.push_back(ids_.key(entry.id));
  return keys;
}

std::string UsageProfile::encode() const {
  std::string out(kProfileMagic);
  append_u32(out, kProfileVersion);
  append_u32(out, static_cast<std::uint32_t>(fingerprint_.size()));
  out += fingerprint_;
  append_u32(out, static_cast<std::uint32_t>(layers_.size()));
  for (int layer = 0; layer < ids_.n_layers(); ++layer) {
    const Layer& l = layers_[static_cast<std::size_t>(layer)];
    append_u32(out, static_cast<std::uint32_t>(ids_.n_experts(layer)));
    append_f32(out, l.requests / l.weight);
    for (int e = 0; e < ids_.n_experts(layer); ++e) {
      append_f32(out, counts_[static_cast<std::size_t>(ids_.id(layer, e))] / l.weight);
    }
  }
  const std::uint64_t sum = checksum(out);
  append_u32(out, static_cast<std::uint32_t>(sum));
  append_u32(out, static_cast<std::uint32_t>(sum >> 32));
  return out;
}

void UsageProfile::decode(std::string_view bytes) {
  if (bytes.size() < kProfileMagic.size() + 12 ||
      bytes.substr(0, kProfileMagic.size()) != kProfileMagic) {
    fail(Errc::BadInput, "it is no usage profile");
  }
  Reader tail(bytes.substr(bytes.size() - 8));
  const std::uint64_t low = tail.u32(), high = tail.u32();
  bytes.remove_suffix(8);
  Reader reader(bytes.substr(kProfileMagic.size()));
  const std::uint32_t version = reader.u32();
  if (version != kProfileVersion)
    fail(Errc::Unsupported, "it has version {}, not {}", version, kProfileVersion);
  if (checksum(bytes) != (low | high << 32)) fail(Errc::BadInput, "its checksum is wrong");
  if (reader.take(reader.u32()) != fingerprint_) fail(Errc::BadInput, "it is of another model");
  if (reader.u32() != layers_.size()) fail(Errc::BadInput, "it has other layers");
  for (int layer = 0; layer < ids_.n_layers(); ++layer) {
    if (reader.u32() != static_cast<std::uint32_t>(ids_.n_experts(layer))) {
      fail(Errc::BadInput, "layer {} has other experts", layer);
    }
    layers_[static_cast<std::size_t>(layer)].requests = reader.count();
    for (int e = 0; e < ids_.n_experts(layer); ++e) {
      counts_[static_cast<std::size_t>(ids_.id(layer, e))] = reader.count();
    }
  }
  if (!reader.at_end()) fail(Errc::BadInput, "it has more than belongs there");
}

UsageProfile::Loaded UsageProfile::load(const std::string& path, std::string fingerprint,
                                        const std::vector<int>& n_experts) {
  UsageProfile profile(fingerprint, n_experts);
  if (!file_exists(path)) return {std::move(profile), ""};
  try {
    profile.decode(read_text_file(path, kMaxProfileBytes));
    return {std::move(profile), ""};
  } catch (const Error& error) {
    return {UsageProfile(std::move(fingerprint), n_experts),
            fmt::format("{}: usage profile ignored: {}", path, error.what())};
  }
}

void UsageProfile::save(const std::string& path) const {
  make_private_parent(path);
  AtomicFile file(path, FileAccess::Private);
  file.write(encode());
  file.commit();
}

std::string usage_profile_path(const std::string& cache_directory, const std::string& fingerprint) {
  return cache_directory + "/moeflux/" + fingerprint + ".profile";
}

}  // namespace moeflux
