#include "engine/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "base/error.h"
#include "quant/codec.h"
#include "source/safetensors.h"

namespace moeflux {
namespace {

// Golden tensors by name, with checked shapes.
class Golden {
 public:
  explicit Golden(const std::string& path) : file_(open_tensor_file(path)) {}

  // "" for a file with one prompt, "p0.", "p1.", ... for several.
  std::vector<std::string> prompts() const {
    std::vector<std::string> prefixes;
    for (const auto& [name, info] : file_->tensors()) {
      const std::size_t at = name.rfind("ids");
      if (at == std::string::npos || at + 3 != name.size() ||
          name.find("route.") != std::string::npos)
        continue;
      if (at == 0 || name[at - 1] == '.') prefixes.push_back(name.substr(0, at));
    }
    if (prefixes.empty())
      fail(Errc::BadInput, "{}: not a golden file: it has no \"ids\" tensor", file_->path());
    return prefixes;
  }

  bool has(const std::string& name) const { return file_->find(name) != nullptr; }

  std::vector<float> floats(const std::string& name,
                            std::initializer_list<std::int64_t> shape) const {
    const TensorInfo& info = tensor(name, shape);
    std::vector<std::byte> raw = bytes(name, info, DType::F32);
    std::vector<float> values(raw.size() / sizeof(float));
    if (!raw.empty()) std::memcpy(values.data(), raw.data(), raw.size());
    return values;
  }

  std::vector<std::int32_t> ints(const std::string& name,
                                 std::initializer_list<std::int64_t> shape) const {
    const TensorInfo& info = tensor(name, shape);
    std::vector<std::byte> raw = bytes(name, info, DType::I32);
    std::vector<std::int32_t> values(raw.size() / sizeof(std::int32_t));
    if (!raw.empty()) std::memcpy(values.data(), raw.data(), raw.size());
    return values;
  }

  std::int64_t length(const std::string& name) const {  // of the first dimension
    const TensorInfo* info = file_->find(name);
    return info == nullptr || info->shape.empty() ? 0 : info->shape.front();
  }

 private:
  const TensorInfo& tensor(const std::string& name,
                           std::initializer_list<std::int64_t> shape) const {
    const TensorInfo* info = file_->find(name);
    if (info == nullptr) fail(Errc::NotFound, "{}: tensor \"{}\" is missing", file_->path(), name);
    if (!std::equal(info->shape.begin(), info->shape.end(), shape.begin(), shape.end())) {
      fail(Errc::BadInput, "{}: tensor \"{}\" is {}, but this model and prompt give {}",
           file_->path(), name, shape_text(info->shape), shape_text(std::vector(shape)));
    }
    return *info;
  }

  std::vector<std::byte> bytes(const std::string& name, const TensorInfo& info, DType dtype) const {
    if (info.dtype != dtype) {
      fail(Errc::BadInput, "{}: tensor \"{}\" is {}, expected {}", file_->path(), name,
           dtype_name(info.dtype), dtype_name(dtype));
    }
    std::vector<std::byte> raw(info.bytes);
    file_->read(info.extent(), raw);
    return raw;
  }

  std::shared_ptr<const ModelSource> file_;
};

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

void compare(std::span<const float> ours, std::span<const float> golden, VerifyCheck& check) {
  MOEFLUX_ASSERT(ours.size() == golden.size());
  double difference = 0, ours_square = 0, golden_square = 0, product = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double a = ours[i], b = golden[i];
    difference += (a - b) * (a - b);
    ours_square += a * a;
    golden_square += b * b;
    product += a * b;
    check.max_abs = std::max(check.max_abs, std::abs(a - b));
  }
  check.relative = std::sqrt(difference) / std::max(std::sqrt(golden_square), 1e-30);
  check.cosine = product / std::max(std::sqrt(ours_square) * std::sqrt(golden_square), 1e-30);
  if (std::isnan(check.relative)) check.relative = std::numeric_limits<double>::infinity();
}

std::int32_t argmax(const float* logits, std::int64_t n) {
  return static_cast<std::int32_t>(std::max_element(logits, logits + n) - logits);
}

class Verifier {
 public:
  Verifier(Engine& engine, const Golden& golden, std::string prefix, const VerifyOptions& options,
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
    ids_ = golden_.ints(prefix_ + "ids", {golden_.length(prefix_ + "ids")});
    if (ids_.empty()) fail(Errc::BadInput, "the golden prompt \"{}ids\" has no tokens", prefix_);
    prefill();
    check_hidden();
    check_routes();
    if (golden_.has(prefix_ + "logits")) {
      check_values("logits", logits_, golden_.floats(prefix_ + "logits", {n_tokens(), n_vocab_}));
    }
    check_mtp();
    check_greedy();
    if (n_checks_ == 0)
      fail(Errc::BadInput, "the golden prompt \"{}ids\" comes with nothing to compare", prefix_);
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
    ++n_checks_;
    on_check_(check);
  }

  void check_values(const std::string& name, std::span<const float> ours,
                    std::span<const float> golden) {
    VerifyCheck check{.name = name};
    compare(ours, golden, check);
    check.passed = check.relative <= options_.tolerance;
    report(std::move(check));
  }

  void check_hidden() {
    const std::int64_t n_layers = engine_.config().n_layers();
    if (golden_.has(prefix_ + "hidden")) {
      const std::vector<float> all =
          golden_.floats(prefix_ + "hidden", {n_layers + 1, n_tokens(), d_});
      const auto size = static_cast<std::size_t>(n_tokens() * d_);
      for (int i = 0; i <= n_layers; ++i) {
        const std::string name = i == 0          ? "embedding"
                                 : i == n_layers ? "final norm"
                                                 : fmt::format("layer {}", i - 1);
        check_values(name, recorder_.hidden[i],
                     std::span(all).subspan(static_cast<std::size_t>(i) * size, size));
      }
    }
    if (golden_.has(prefix_ + "final")) {
      check_values("final", final_, golden_.floats(prefix_ + "final", {n_tokens(), d_}));
    }
  }

  void check_routes() {
    for (const auto& [layer, routes] : recorder_.routes) {
      const std::string key = fmt::format("{}route.{}.", prefix_, layer);
      if (!golden_.has(key + "ids")) continue;
      const auto ids = golden_.ints(key + "ids", {n_tokens(), routes.top_k});
      const auto weights = golden_.floats(key + "weights", {n_tokens(), routes.top_k});
      // Slots carry no meaning: bring ours into the golden's order, expert by expert.
      std::vector<float> matched(weights.size());
      std::int64_t n_different = 0;
      for (std::int64_t t = 0; t < n_tokens(); ++t) {
        bool same = true;
        for (int k = 0; k < routes.top_k; ++k) {
          const auto* begin = routes.ids.data() + t * routes.top_k;
          const auto* at = std::find(begin, begin + routes.top_k,
                                     ids[static_cast<std::size_t>(t * routes.top_k + k)]);
          if (at == begin + routes.top_k) {
            same = false;
          } else {
            matched[static_cast<std::size_t>(t * routes.top_k + k)] =
                routes.weights[static_cast<std::size_t>(at - routes.ids.data())];
          }
        }
        if (!same) ++n_different;
      }
      VerifyCheck check{.name = fmt::format("routes {}", layer)};
      compare(matched, weights, check);
      check.note = fmt::format("{}/{} tokens", n_tokens() - n_different, n_tokens());
      check.passed = n_different == 0 && check.relative <= options_.tolerance;
      report(std::move(check));
    }
  }

  void check_mtp() {
    if (!golden_.has(prefix_ + "mtp_logits")) return;
    const auto golden = golden_.floats(prefix_ + "mtp_logits", {n_tokens() - 1, n_vocab_});
    if (!engine_.config().mtp) {
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
    check_values("mtp", ours, golden);
  }

  // Feeds the golden continuation; our own choice at each step must be the golden's.
  void check_greedy() {
    const std::int64_t n = golden_.length(prefix_ + "greedy");
    if (n == 0) return;
    const auto tokens = golden_.ints(prefix_ + "greedy", {n});
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
    VerifyCheck check{.name = "greedy"};
    compare(ours, golden, check);
    check.note = fmt::format("{}/{} tokens", n_same, n);
    check.passed = n_same == n && check.relative <= options_.tolerance;
    report(std::move(check));
  }

  Engine& engine_;
  const Golden& golden_;
  std::string prefix_;
  const VerifyOptions& options_;
  const std::function<void(const VerifyCheck&)>& on_check_;
  std::int64_t n_vocab_, d_;
  Session session_;
  Recorder recorder_;
  std::vector<std::int32_t> ids_;
  std::vector<float> logits_, final_;
  bool all_passed_ = true;
  int n_checks_ = 0;
};

}  // namespace

bool verify_model(Engine& engine, const std::string& golden_path, const VerifyOptions& options,
                  const std::function<void(const VerifyCheck&)>& on_check) {
  const Golden golden(golden_path);
  bool all_passed = true;
  for (const std::string& prefix : golden.prompts()) {
    all_passed = Verifier(engine, golden, prefix, options, on_check).run() && all_passed;
  }
  return all_passed;
}

}  // namespace moeflux
