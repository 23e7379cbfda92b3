#include "experts/trace.h"

#include <limits>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "source/checksum.h"

namespace moeflux {
namespace {

std::vector<int> expert_counts(const TraceInfo& info) {
  std::vector<int> counts;
  counts.reserve(info.layers.size());
  for (const TraceLayer& layer : info.layers) counts.push_back(layer.n_experts);
  return counts;
}

// The file of a trace, version 1 (docs/FORMAT.md).
constexpr std::string_view kMagic = "MFXTRACE";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kPrefixBytes = 16, kChecksumBytes = 8;
constexpr std::uint64_t kMaxFileBytes = 256u << 20, kMaxHeaderBytes = 1u << 20;
constexpr std::int64_t kMaxLayers = 4096, kMaxExperts = 65536, kMaxExpertsTotal = 1 << 20;
constexpr std::int64_t kMaxStepTokens = 1 << 20;
constexpr std::size_t kFlushBytes = 1u << 20;

// What a record begins with; a request begins with kRequest + its layer.
enum Tag : std::uint64_t { kEnd = 0, kStep = 1, kRequest = 2 };

void append_fixed(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
}

void append_varint(std::string& out, std::uint64_t value) {  // 7 bits a byte, lowest first
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7f) | 0x80));
  out.push_back(static_cast<char>(value));
}

std::uint64_t fixed_at(std::string_view bytes, std::size_t at, int n) {
  std::uint64_t value = 0;
  for (int i = 0; i < n; ++i) {
    const auto byte = static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)]);
    value |= static_cast<std::uint64_t>(byte) << (8 * i);
  }
  return value;
}

std::string header_text(const TraceInfo& info) {
  Json layers = Json::array();
  for (const TraceLayer& layer : info.layers) {
    layers.push_back({{"n_experts", layer.n_experts}, {"record_bytes", layer.record_bytes}});
  }
  return dump_json({{"model", info.model}, {"top_k", info.top_k}, {"layers", std::move(layers)}});
}

TraceInfo parse_header(std::string_view text, const std::string& origin) {
  const Json json = parse_json(text, origin);
  const JsonFields fields(json, origin);
  TraceInfo info;
  info.model = fields.string_or("model", "");
  info.top_k = static_cast<int>(fields.integer("top_k", 1, kMaxExperts));
  const Json* layers = fields.find("layers");
  if (layers == nullptr || !layers->is_array() || layers->empty() ||
      layers->size() > static_cast<std::size_t>(kMaxLayers)) {
    fail(Errc::BadInput, "{}: \"layers\" must list 1 to {} layers", origin, kMaxLayers);
  }
  std::int64_t n_total = 0;
  for (const Json& each : *layers) {
    const JsonFields layer(each, fmt::format("{}: layers[{}]", origin, info.layers.size()));
    info.layers.push_back(
        {static_cast<int>(layer.integer("n_experts", 1, kMaxExperts)),
         static_cast<std::uint64_t>(layer.integer("record_bytes", 1, std::int64_t{1} << 40))});
    n_total += info.layers.back().n_experts;
  }
  if (n_total > kMaxExpertsTotal) {
    fail(Errc::BadInput, "{}: {} experts, more than {}", origin, n_total, kMaxExpertsTotal);
  }
  return info;
}

// Walks over the records of a file whose checksum was right; a record can still be nonsense.
class Parser {
 public:
  Parser(std::string_view bytes, std::size_t at, const std::string& path)
      : bytes_(bytes), at_(at), path_(path) {}

  void parse(Trace& trace) {
    std::vector<std::size_t> seen(static_cast<std::size_t>(trace.expert_ids().n_total()), 0);
    while (true) {
      const std::uint64_t tag = varint(std::numeric_limits<std::int32_t>::max(), "a record's kind");
      if (tag == kEnd) break;
      if (tag == kStep) {
        const std::uint64_t n_tokens = varint(kMaxStepTokens, "the number of tokens");
        if (n_tokens == 0) refuse("a step of no tokens");
        trace.on_step(static_cast<int>(n_tokens));
      } else {
        parse_request(trace, tag - kRequest, seen);
      }
    }
    if (at_ != bytes_.size()) refuse("more after the end of the records");
  }

 private:
  void parse_request(Trace& trace, std::uint64_t layer, std::vector<std::size_t>& seen) {
    if (layer >= trace.info().layers.size()) refuse("a layer that the header does not have");
    if (trace.steps().empty()) refuse("a request before the first step");
    const auto n_experts =
        static_cast<std::uint64_t>(trace.expert_ids().n_experts(static_cast<int>(layer)));
    const std::uint64_t n = varint(n_experts, "the number of experts");
    if (n == 0) refuse("a request without experts");
    experts_.clear();
    for (std::uint64_t i = 0; i < n; ++i) {
      const auto expert = static_cast<int>(varint(n_experts - 1, "an expert"));
      auto& last =
          seen[static_cast<std::size_t>(trace.expert_ids().id(static_cast<int>(layer), expert))];
      if (last == trace.n_requests() + 1) refuse("an expert twice in one request");
      last = trace.n_requests() + 1;
      experts_.push_back(expert);
    }
    trace.on_request(static_cast<int>(layer), experts_);
  }

  std::uint64_t varint(std::uint64_t max, const char* what) {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      if (at_ == bytes_.size()) refuse("the records end early");
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) {
        if (value > max) refuse(fmt::format("{} is {}, more than {}", what, value, max));
        return value;
      }
    }
    refuse(fmt::format("{} has too many digits", what));
  }

  [[noreturn]] void refuse(const std::string& what) const {
    fail(Errc::BadInput, "{}: not a valid trace: {} (at byte {})", path_, what, at_);
  }

  std::string_view bytes_;
  std::size_t at_;
  const std::string& path_;
  std::vector<int> experts_;
};

}  // namespace

ExpertIds TraceInfo::expert_ids() const {
  return ExpertIds(expert_counts(*this));
}

Trace::Trace(TraceInfo info) : info_(std::move(info)), ids_(info_.expert_ids()), first_{0} {}

void Trace::on_step(int n_tokens) {
  MOEFLUX_ASSERT(n_tokens > 0);
  steps_.push_back({n_tokens, layers_.size(), 0});
  n_tokens_ += n_tokens;
}

void Trace::on_request(int layer, std::span<const int> experts) {
  MOEFLUX_ASSERT(!steps_.empty() && layer >= 0 && layer < ids_.n_layers());
  for (const int expert : experts) {
    MOEFLUX_ASSERT(expert >= 0 && expert < ids_.n_experts(layer));
    experts_.push_back(ids_.id(layer, expert));
  }
  layers_.push_back(layer);
  first_.push_back(experts_.size());
  ++steps_.back().n_requests;
}

struct TraceWriter::State {
  explicit State(const std::string& path) : file(path) {}

  void flush() {
    sum.add(buffer);
    file.write(buffer);
    buffer.clear();
  }

  AtomicFile file;
  ChecksumStream sum;
  std::string buffer;
};

TraceWriter::TraceWriter(const std::string& path, const TraceInfo& info)
    : state_(std::make_unique<State>(path)) {
  const std::string header = header_text(info);
  state_->buffer += kMagic;
  append_fixed(state_->buffer, kVersion, 4);
  append_fixed(state_->buffer, header.size(), 4);
  state_->buffer += header;
}

TraceWriter::~TraceWriter() = default;

void TraceWriter::on_step(int n_tokens) {
  append_varint(state_->buffer, kStep);
  append_varint(state_->buffer, static_cast<std::uint64_t>(n_tokens));
}

void TraceWriter::on_request(int layer, std::span<const int> experts) {
  append_varint(state_->buffer, kRequest + static_cast<std::uint64_t>(layer));
  append_varint(state_->buffer, experts.size());
  for (const int expert : experts)
    append_varint(state_->buffer, static_cast<std::uint64_t>(expert));
  if (state_->buffer.size() >= kFlushBytes) state_->flush();
}

void TraceWriter::finish() {
  append_varint(state_->buffer, kEnd);
  state_->flush();
  std::string sum;
  append_fixed(sum, state_->sum.value(), static_cast<int>(kChecksumBytes));
  state_->file.write(sum);
  state_->file.commit();
}

void write_trace(const std::string& path, const Trace& trace) {
  TraceWriter writer(path, trace.info());
  std::vector<int> experts;
  for (const Trace::Step& step : trace.steps()) {
    writer.on_step(step.n_tokens);
    for (std::size_t i = 0; i < step.n_requests; ++i) {
      const Trace::Request request = trace.request(step.first_request + i);
      experts.clear();
      for (const int id : request.experts) experts.push_back(trace.expert_ids().expert(id));
      writer.on_request(request.layer, experts);
    }
  }
  writer.finish();
}

Trace read_trace(const std::string& path) {
  const std::string text = read_text_file(path, kMaxFileBytes);
  const std::string_view bytes = text;
  if (bytes.size() < kPrefixBytes + kChecksumBytes || bytes.substr(0, kMagic.size()) != kMagic) {
    fail(Errc::BadInput, "{}: not a routing trace (make one with moeflux trace record)", path);
  }
  const std::uint64_t version = fixed_at(bytes, 8, 4);
  if (version != kVersion) {
    fail(Errc::Unsupported, "{}: trace of version {}, but this program reads version {}", path,
         version, kVersion);
  }
  const std::string_view body = bytes.substr(0, bytes.size() - kChecksumBytes);
  if (checksum(body) != fixed_at(bytes, body.size(), 8)) {
    fail(Errc::BadInput, "{}: damaged or cut off: its checksum is wrong", path);
  }
  const std::uint64_t header_bytes = fixed_at(bytes, 12, 4);
  if (header_bytes > kMaxHeaderBytes || header_bytes > body.size() - kPrefixBytes) {
    fail(Errc::BadInput, "{}: a header of {} bytes does not fit", path, header_bytes);
  }
  Trace trace(parse_header(body.substr(kPrefixBytes, header_bytes), path));
  Parser(body, kPrefixBytes + header_bytes, path).parse(trace);
  return trace;
}

}  // namespace moeflux
