#include "engine/verify/verify.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "source/model_source.h"
#include "source/safetensors.h"

namespace moeflux {
namespace {

// A file of golden values: tensors by name, with checked types and shapes. It knows which of them
// were read, so that none is left out of a comparison unnoticed.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path);

  // "" for a file with one prompt, "p0.", "p1.", ... for several.
  const std::vector<std::string>& prompts() const { return prompts_; }
  // Whether the prompt must come with such tensors ("greedy", "route."): a file of one prompt holds
  // everything; of several prompts all hold what one of them does.
  bool must_have(const std::string& prompt, std::string_view kind) const;
  bool has(const std::string& name) const { return file_->find(name) != nullptr; }

  std::vector<float> floats(const std::string& name, std::initializer_list<std::int64_t> shape);
  std::vector<std::int32_t> ints(const std::string& name,
                                 std::initializer_list<std::int64_t> shape);
  // A vector of any length but 0.
  std::vector<std::int32_t> tokens(const std::string& name);

  std::string unread() const;  // the names of tensors that nothing asked for

 private:
  const TensorInfo& tensor(const std::string& name) const;
  template <class T>
  std::vector<T> read(const std::string& name, DType dtype,
                      std::initializer_list<std::int64_t> shape);

  std::shared_ptr<const ModelSource> file_;
  std::vector<std::string> prompts_;
  std::set<std::string> read_;
};

GoldenFile::GoldenFile(const std::string& path) : file_(open_tensor_file(path)) {
  for (const auto& [name, info] : file_->tensors()) {
    if (!name.ends_with("ids") || name.find("route.") != std::string::npos) continue;
    const std::string prefix = name.substr(0, name.size() - 3);
    if (prefix.empty() || prefix.back() == '.') prompts_.push_back(prefix);
  }
  if (prompts_.empty())
    fail(Errc::BadInput, "{}: not a golden file: it has no \"ids\" tensor", path);
}

bool GoldenFile::must_have(const std::string& prompt, std::string_view kind) const {
  if (prompt.empty()) return true;
  for (const auto& [name, info] : file_->tensors()) {
    for (const std::string& prefix : prompts_) {
      if (name.starts_with(prefix) &&
          std::string_view(name).substr(prefix.size()).starts_with(kind))
        return true;
    }
  }
  return false;
}

const TensorInfo& GoldenFile::tensor(const std::string& name) const {
  const TensorInfo* info = file_->find(name);
  if (info == nullptr) {
    fail(
        Errc::NotFound,
        "{}: tensor \"{}\" is missing, so that part of the model cannot be compared; write it with "
        "the reference implementation",
        file_->path(), name);
  }
  return *info;
}

template <class T>
std::vector<T> GoldenFile::read(const std::string& name, DType dtype,
                                std::initializer_list<std::int64_t> shape) {
  const TensorInfo& info = tensor(name);
  if (!std::equal(info.shape.begin(), info.shape.end(), shape.begin(), shape.end())) {
    fail(Errc::BadInput, "{}: tensor \"{}\" is {}, but this model and prompt give {}",
         file_->path(), name, shape_text(info.shape), shape_text(std::vector(shape)));
  }
  if (info.dtype != dtype) {
    fail(Errc::BadInput, "{}: tensor \"{}\" is {}, expected {}", file_->path(), name,
         dtype_name(info.dtype), dtype_name(dtype));
  }
  std::vector<T> values(info.bytes / sizeof(T));
  file_->read(info.extent(), std::as_writable_bytes(std::span(values)));
  read_.insert(name);
  return values;
}

std::vector<float> GoldenFile::floats(const std::string& name,
                                      std::initializer_list<std::int64_t> shape) {
  return read<float>(name, DType::F32, shape);
}

std::vector<std::int32_t> GoldenFile::ints(const std::string& name,
                                           std::initializer_list<std::int64_t> shape) {
  return read<std::int32_t>(name, DType::I32, shape);
}

std::vector<std::int32_t> GoldenFile::tokens(const std::string& name) {
  const TensorInfo& info = tensor(name);
  const std::int64_t n = info.shape.empty() ? 0 : info.shape.front();
  if (n == 0) fail(Errc::BadInput, "{}: tensor \"{}\" has no tokens", file_->path(), name);
  return ints(name, {n});
}

std::string GoldenFile::unread() const {
  std::string names;
  for (const auto& [name, info] : file_->tensors()) {
    if (!read_.contains(name)) names += (names.empty() ? "" : " ") + name;
  }
  return names;
}

// Lets the caller stop a pass at any of its layers.
class Watch : public ForwardObserver {
 public:
  explicit Watch(const std::function<void()>& on_layer) : on_layer_(on_layer) {}

  void on_hidden(int /*index*/, const float* /*x*/, std::int64_t /*n*/) override {
    if (on_layer_) on_layer_();
  }

 private:
  const std::function<void()>& on_layer_;
};

// Gathers what a pass computes on the inside, over the chunks of a prompt.
class Recorder final : public Watch {
 public:
  struct Routes {
    int top_k = 0;
    std::vector<std::int32_t> ids;
    std::vector<float> weights;
  };
  std::map<int, std::vector<float>> hidden;
  std::map<int, Routes> routes;

  Recorder(int d_model, const std::function<void()>& on_layer)
      : Watch(on_layer), d_model_(d_model) {}

  void on_hidden(int index, const float* x, std::int64_t n) override {
    Watch::on_hidden(index, x, n);
    hidden[index].insert(hidden[index].end(), x, x + n * d_model_);
  }
  void on_route(int layer, const std::int32_t* ids, const float* weights, std::int64_t n,
                int top_k) override {
    Routes& r = routes[layer];
    r.top_k = top_k;
    r.ids.insert(r.ids.end(), ids, ids + n * top_k);
    r.weights.insert(r.weights.end(), weights, weights + n * top_k);
  }

 private:
  std::int64_t d_model_;
};

std::int32_t argmax(const float* logits, std::int64_t n) {
  return static_cast<std::int32_t>(std::max_element(logits, logits + n) - logits);
}

class Verifier {
 public:
  Verifier(Engine& engine, GoldenFile& golden, std::string prefix, const VerifyOptions& options,
           const std::function<void(const VerifyCheck&)>& on_check)
      : engine_(engine),
        golden_(golden),
        prefix_(std::move(prefix)),
        options_(options),
        on_check_(on_check),
        n_vocab_(engine.config().n_vocab),
        d_(engine.config().d_model),
        session_(engine.new_session()),
        recorder_(engine.config().d_model, options.on_layer) {}

  bool run() {
    ids_ = golden_.tokens(prefix_ + "ids");
    prefill();
    check_hidden();
    check_routes();
    check_values("logits", logits_, golden_.floats(prefix_ + "logits", {n_tokens(), n_vocab_}),
                 n_vocab_);
    check_mtp();
    check_greedy();
    return all_passed_;
  }

 private:
  std::int64_t n_tokens() const { return static_cast<std::int64_t>(ids_.size()); }
  std::int64_t chunk_size() const {
    const std::int64_t fit = engine_.forward().max_tokens();
    return options_.chunk > 0 ? std::min(options_.chunk, fit) : fit;
  }

  void prefill() {
    logits_.resize(ids_.size() * static_cast<std::size_t>(n_vocab_));
    final_.resize(ids_.size() * static_cast<std::size_t>(d_));
    const std::int64_t chunk = chunk_size();
    for (std::int64_t begin = 0; begin < n_tokens(); begin += chunk) {
      const std::int64_t n = std::min(chunk, n_tokens() - begin);
      const Span span{.session = &session_,
                      .tokens = std::span(ids_).subspan(static_cast<std::size_t>(begin),
                                                        static_cast<std::size_t>(n)),
                      .logits_of = LogitsOf::EveryToken,
                      .logits = logits_.data() + begin * n_vocab_,
                      .hidden = final_.data() + begin * d_};
      engine_.run({&span, 1}, &recorder_);
    }
  }

  void report(VerifyCheck check) {
    check.prompt = prefix_.empty() ? "" : prefix_.substr(0, prefix_.size() - 1);
    all_passed_ = all_passed_ && check.passed;
    on_check_(check);
  }

  // Rows of `width` values, one for each position. `others_pass`: what else the check looks at.
  void check_values(const std::string& name, std::span<const float> ours,
                    std::span<const float> golden, std::int64_t width, std::string note = {},
                    bool others_pass = true) {
    const RowDifference difference = compare_rows(ours, golden, width);
    const bool close =
        difference.relative <= options_.tolerance && difference.value <= 2 * options_.tolerance;
    report({.name = name,
            .difference = difference,
            .note = std::move(note),
            .passed = close && others_pass});
  }

  void check_hidden() {
    const std::int64_t n_layers = engine_.config().n_layers();
    const std::vector<float> all =
        golden_.floats(prefix_ + "hidden", {n_layers + 1, n_tokens(), d_});
    const auto size = static_cast<std::size_t>(n_tokens() * d_);
    for (int i = 0; i <= n_layers; ++i) {
      const std::string name = i == 0          ? "embedding"
                               : i == n_layers ? "final norm"
                                               : fmt::format("layer {}", i - 1);
      check_values(name, recorder_.hidden[i],
                   std::span(all).subspan(static_cast<std::size_t>(i) * size, size), d_);
    }
    if (golden_.has(prefix_ + "final")) {
      check_values("final", final_, golden_.floats(prefix_ + "final", {n_tokens(), d_}), d_);
    }
  }

  void check_routes() {
    if (!golden_.must_have(prefix_, "route.")) return;
    for (const auto& [layer, routes] : recorder_.routes) {
      const std::string key = fmt::format("{}route.{}.", prefix_, layer);
      const auto ids = golden_.ints(key + "ids", {n_tokens(), routes.top_k});
      const auto weights = golden_.floats(key + "weights", {n_tokens(), routes.top_k});
      // Slots carry no meaning: bring ours into the golden's order, expert by expert.
      const auto top_k = static_cast<std::size_t>(routes.top_k);
      std::vector<float> matched(weights.size());
      std::int64_t n_same = 0;
      for (std::size_t begin = 0; begin < ids.size(); begin += top_k) {
        std::map<std::int32_t, float> ours;
        for (std::size_t i = begin; i < begin + top_k; ++i) ours[routes.ids[i]] = routes.weights[i];
        std::set<std::int32_t> found;
        for (std::size_t i = begin; i < begin + top_k; ++i) {
          if (!ours.contains(ids[i])) continue;
          found.insert(ids[i]);
          matched[i] = ours[ids[i]];
        }
        if (found.size() == top_k) ++n_same;
      }
      check_values(fmt::format("routes {}", layer), matched, weights, routes.top_k,
                   fmt::format("{}/{} tokens", n_same, n_tokens()), n_same == n_tokens());
    }
  }

  void check_mtp() {
    const bool has_head = engine_.config().mtp.has_value();
    if (!golden_.has(prefix_ + "mtp_logits") &&
        !(has_head && golden_.must_have(prefix_, "mtp_logits")))
      return;
    const auto golden = golden_.floats(prefix_ + "mtp_logits", {n_tokens() - 1, n_vocab_});
    if (!has_head) {
      report({.name = "mtp", .note = "the checkpoint has no MTP head", .passed = false});
      return;
    }
    std::vector<float> ours(golden.size());
    const std::int64_t chunk = chunk_size();
    for (std::int64_t begin = 0; begin + 1 < n_tokens(); begin += chunk) {
      const std::int64_t n = std::min(chunk, n_tokens() - 1 - begin);
      if (options_.on_layer) options_.on_layer();
      engine_.forward().run_mtp(
          {.session = &session_,
           .hidden = final_.data() + begin * d_,
           .tokens = std::span<const TokenId>(ids_).subspan(static_cast<std::size_t>(begin + 1),
                                                            static_cast<std::size_t>(n)),
           .logits = ours.data() + begin * n_vocab_});
    }
    check_values("mtp", ours, golden, n_vocab_);
  }

  // Feeds the golden continuation; our own choice at each step must be the golden's.
  void check_greedy() {
    if (!golden_.must_have(prefix_, "greedy")) return;
    const auto tokens = golden_.tokens(prefix_ + "greedy");
    const auto n = static_cast<std::int64_t>(tokens.size());
    const auto golden = golden_.floats(prefix_ + "greedy_logits", {n, n_vocab_});
    std::vector<float> ours(golden.size());
    Watch watch(options_.on_layer);
    std::int64_t n_same = argmax(&logits_[logits_.size() - static_cast<std::size_t>(n_vocab_)],
                                 n_vocab_) == tokens[0];
    for (std::int64_t i = 0; i < n; ++i) {
      const Span span{.session = &session_,
                      .tokens = std::span(tokens).subspan(static_cast<std::size_t>(i), 1),
                      .logits_of = LogitsOf::LastToken,
                      .logits = ours.data() + i * n_vocab_};
      engine_.run({&span, 1}, &watch);
      if (i + 1 < n && argmax(span.logits, n_vocab_) == tokens[static_cast<std::size_t>(i + 1)])
        ++n_same;
    }
    check_values("greedy", ours, golden, n_vocab_, fmt::format("{}/{} tokens", n_same, n),
                 n_same == n);
  }

  Engine& engine_;
  GoldenFile& golden_;
  std::string prefix_;
  const VerifyOptions& options_;
  const std::function<void(const VerifyCheck&)>& on_check_;
  std::int64_t n_vocab_, d_;
  Session session_;
  Recorder recorder_;
  std::vector<std::int32_t> ids_;
  std::vector<float> logits_, final_;
  bool all_passed_ = true;
};

constexpr double kTiny = 1e-30;  // keeps a row of zeros from dividing by zero

double nan_is_far(double x) {
  return std::isnan(x) ? std::numeric_limits<double>::infinity() : x;
}

RowDifference compare_row(std::span<const float> ours, std::span<const float> golden) {
  double difference = 0, ours_square = 0, golden_square = 0, product = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double a = ours[i], b = golden[i];
    difference += (a - b) * (a - b);
    ours_square += a * a;
    golden_square += b * b;
    product += a * b;
  }
  const double norm = std::max(std::sqrt(golden_square), kTiny);
  const double row_scale =
      std::min(norm / std::sqrt(static_cast<double>(ours.size())), kMaxRowScale);
  RowDifference row{
      .relative = nan_is_far(std::sqrt(difference) / norm),
      .cosine = product / std::max(std::sqrt(ours_square) * norm, kTiny),
  };
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double apart = nan_is_far(std::abs(double{ours[i]} - double{golden[i]}));
    const double scale = std::max(row_scale, std::abs(double{golden[i]}) / 2);
    row.max_abs = std::max(row.max_abs, apart);
    row.value = std::max(row.value, nan_is_far(apart / scale));
  }
  return row;
}

}  // namespace

bool verify_model(Engine& engine, const std::string& golden_path, const VerifyOptions& options,
                  const std::function<void(const VerifyCheck&)>& on_check) {
  GoldenFile golden(golden_path);
  bool all_passed = true;
  for (const std::string& prefix : golden.prompts()) {
    all_passed = Verifier(engine, golden, prefix, options, on_check).run() && all_passed;
  }
  if (const std::string unread = golden.unread(); !unread.empty())
    on_check({.name = "not compared", .note = unread, .passed = true});
  return all_passed;
}

RowDifference compare_rows(std::span<const float> ours, std::span<const float> golden,
                           std::int64_t width) {
  const auto n = static_cast<std::size_t>(width);
  MOEFLUX_ASSERT(ours.size() == golden.size() && ours.size() % n == 0);
  RowDifference worst;
  for (std::size_t begin = 0; begin < ours.size(); begin += n) {
    const RowDifference row = compare_row(ours.subspan(begin, n), golden.subspan(begin, n));
    if (std::max(row.relative, row.value) > std::max(worst.relative, worst.value))
      worst.row = static_cast<std::int64_t>(begin / n);
    worst.relative = std::max(worst.relative, row.relative);
    worst.value = std::max(worst.value, row.value);
    worst.cosine = std::min(worst.cosine, row.cosine);
    worst.max_abs = std::max(worst.max_abs, row.max_abs);
  }
  return worst;
}

}  // namespace moeflux
