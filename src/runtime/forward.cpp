#include "runtime/forward.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/stopwatch.h"
#include "runtime/workspace_size.h"

namespace moeflux {

Forward::Forward(const Parts& parts, MemoryBudget& budget, std::int64_t max_tokens)
    : config_(*parts.config),
      tensors_(*parts.tensors),
      backend_(*parts.backend),
      experts_(*parts.experts),
      max_tokens_(max_tokens),
      workspace_(budget, workspace_floats(config_, max_tokens)),
      layer_ns_(config_.layers.size() + 1) {}

std::uint64_t Forward::workspace_floats(const ModelConfig& config, std::int64_t max_tokens) {
  return moeflux::workspace_floats(config, max_tokens);
}

void Forward::run(std::span<const Span> batch, ForwardObserver* observer,
                  const std::function<bool()>& cancelled) {
  std::int64_t n = 0;
  for (const Span& span :
       batch) {  // before any session begins, so that a refused span costs the others nothing
    check_tokens(span.tokens);
    span.session->check(static_cast<std::int64_t>(span.tokens.size()));
    n += static_cast<std::int64_t>(span.tokens.size());
  }
  if (n == 0) return;
  MOEFLUX_ASSERT(n <= max_tokens_);
  for (const Span& span : batch)
    span.session->begin(static_cast<std::int64_t>(span.tokens.size()), span.n_drafts);
  observer_ = observer;
  experts_.begin_step(static_cast<int>(n));

  const std::int64_t d = config_.d_model;
  Workspace::Frame frame(workspace_);
  float* x = frame.floats(n * d);
  try {
    run_layers(batch, cancelled, x, n);
  } catch (...) {
    for (const Span& span : batch) span.session->abandon();
    throw;
  }

  float* h = frame.floats(n * d);
  norm(x, tensors_.final_norm, n, h);
  if (observer_ != nullptr) observer_->on_hidden(config_.n_layers(), h, n);
  const float* rows = h;
  for (const Span& span : batch) {
    const std::int64_t n_floats = std::ssize(span.tokens) * d;
    if (span.hidden != nullptr) std::copy_n(rows, n_floats, span.hidden);
    rows += n_floats;
  }
  head(batch, h, x);
  for (const Span& span : batch) span.session->commit(span.tokens);
}

void Forward::run_layers(std::span<const Span> batch, const std::function<bool()>& cancelled,
                         float* x, std::int64_t n) {
  std::int64_t row = 0;
  for (const Span& span : batch) {
    backend_.embed({tensors_.embed, span.tokens, x + row * config_.d_model});
    row += std::ssize(span.tokens);
  }
  if (observer_ != nullptr) observer_->on_hidden(0, x, n);

  layer_index_ = -1;
  look_ahead(x, n);
  for (int i = 0; i < config_.n_layers(); ++i) {
    if (cancelled && cancelled()) fail(Errc::Cancelled, "cancelled");
    layer_index_ = i;
    rows_.clear();
    row = 0;
    for (const Span& span : batch) {
      const std::int64_t n_span = std::ssize(span.tokens);
      rows_.push_back({.state = &span.session->layer(i),
                       .first = row,
                       .n = n_span,
                       .position = span.session->length(),
                       .session = span.session,
                       .n_drafts = span.n_drafts,
                       .keep_before = span.undo_on_failure,
                       .prompt_tokens = span.prompt_tokens});
      row += n_span;
    }
    layer(config_.layers[static_cast<std::size_t>(i)], tensors_.layers[static_cast<std::size_t>(i)],
          rows_, x, n);
    if (observer_ != nullptr && i + 1 < config_.n_layers()) observer_->on_hidden(i + 1, x, n);
  }
}

// x <- x + mixer(norm(x)); x <- x + ffn(norm(x))
void Forward::layer(const LayerSpec& spec, const LayerTensors<Resident>& tensors,
                    std::span<const Rows> rows, float* x, std::int64_t n) {
  const std::int64_t d = config_.d_model;
  const Stopwatch stopwatch(layer_ns_[static_cast<std::size_t>(layer_index_)]);
  mix_in_slices(spec, tensors, rows, x, n);

  Workspace::Frame frame(workspace_);
  float* h = frame.floats(n * d);
  float* y = frame.floats(n * d);
  norm(x, tensors.ffn_norm, n, h);
  std::visit(
      [&](const auto& ffn_spec, const auto& ffn_tensors) {
        if constexpr (requires { ffn(ffn_spec, ffn_tensors, FfnRows{x, h, n}, y); }) {
          ffn(ffn_spec, ffn_tensors, FfnRows{x, h, n}, y);
        } else {
          MOEFLUX_ASSERT(!"the tensors of a layer are those of another feed-forward");
        }
      },
      spec.ffn, tensors.ffn);
  backend_.add({y, x, n * d});
}

// Experts want as many tokens as possible, so that each is fetched once for all of them. A mixer
// reads the same weights for every token: it takes the tokens of a long pass in slices, whose
// intermediate values fit into a cache and need little memory.
void Forward::mix_in_slices(const LayerSpec& spec, const LayerTensors<Resident>& tensors,
                            std::span<const Rows> rows, float* x, std::int64_t n) {
  const std::int64_t d = config_.d_model;
  Workspace::Frame frame(workspace_);
  const std::int64_t slice = mixer_slice(spec.mixer), most = std::min(n, slice);
  float* h = frame.floats(most * d);
  float* y = frame.floats(most * d);
  for (std::int64_t begin = 0, end = 0; begin < n; begin = end) {
    end = std::min(begin + slice, n);
    slice_.clear();
    for (const Rows& r : rows) {
      const std::int64_t from = std::max(r.first, begin), to = std::min(r.first + r.n, end);
      if (from >= to) continue;
      if (r.n_drafts > 0 && to < r.first + r.n) {  // drafts stay with the token they follow
        MOEFLUX_ASSERT(r.first > begin);
        end = r.first;
        break;
      }
      Rows part = r;
      part.first = from - begin;
      part.n = to - from;
      part.position = r.position + (from - r.first);
      part.begins = r.begins && from == r.first;
      slice_.push_back(part);
    }
    float* x_slice = x + begin * d;
    const std::int64_t count = end - begin;
    norm(x_slice, tensors.mixer_norm, count, h);
    std::visit(
        [&](const auto& mixer_spec, const auto& mixer_tensors) {
          const MixerRows mixed{slice_, count, h, y};
          if constexpr (requires { mix(mixer_spec, mixer_tensors, mixed); }) {
            mix(mixer_spec, mixer_tensors, mixed);
          } else {
            MOEFLUX_ASSERT(!"the tensors of a layer are those of another mixer");
          }
        },
        spec.mixer, tensors.mixer);
    backend_.add({y, x_slice, count * d});
  }
}

void Forward::run_mtp(const MtpSpan& span) {
  MOEFLUX_ASSERT(config_.mtp.has_value());
  Session& session = *span.session;
  const auto n = static_cast<std::int64_t>(span.tokens.size());
  if (n == 0) return;
  MOEFLUX_ASSERT(n <= max_tokens_ && session.mtp_length() + n <= session.max_length());
  check_tokens(span.tokens);
  observer_ = nullptr;
  layer_index_ = config_.n_layers();

  const MtpTensors<Resident>& t = *tensors_.mtp;
  const std::int64_t d = config_.d_model;
  Workspace::Frame frame(workspace_);
  float* embedded = frame.floats(n * d);
  float* pair = frame.floats(n * 2 * d);  // [embedding | hidden]
  backend_.embed({tensors_.embed, span.tokens, embedded});
  backend_.rms_norm({embedded, d, t.embed_norm, config_.norm_eps, n, d, pair, 2 * d});
  backend_.rms_norm({span.hidden, d, t.hidden_norm, config_.norm_eps, n, d, pair + d, 2 * d});
  float* x = embedded;
  backend_.matmul({t.fc, pair, 2 * d, n, x, d});

  const Rows rows{.state = &session.mtp(),
                  .first = 0,
                  .n = n,
                  .position = session.mtp_length(),
                  .session = &session,
                  .n_drafts = 0};
  layer(*config_.mtp, t.layer, {&rows, 1}, x, n);
  float* h = frame.floats(n * d);
  norm(x, t.final_norm, n, h);
  if (span.out_hidden != nullptr) std::copy_n(h, n * d, span.out_hidden);
  head(h, n, span.logits_of, span.logits);
  session.commit_mtp(n);
}

void Forward::norm(const float* x, const float* weight, std::int64_t n, float* out) {
  const std::int64_t d = config_.d_model;
  backend_.rms_norm({x, d, weight, config_.norm_eps, n, d, out, d});
}

// Rows of several sessions whose logits lie side by side are one product: the head is read once.
void Forward::head(std::span<const Span> batch, const float* h, float* gathered) {
  const std::int64_t d = config_.d_model;
  float* logits = nullptr;  // of the first gathered row
  std::int64_t n_gathered = 0;
  const auto flush = [&] {
    head(gathered, n_gathered, LogitsOf::EveryToken, logits);
    n_gathered = 0;
  };
  for (const Span& span : batch) {
    const auto n = static_cast<std::int64_t>(span.tokens.size());
    const std::int64_t n_wanted = span.logits_of == LogitsOf::EveryToken ? n
                                  : span.logits_of == LogitsOf::LastToken
                                      ? std::min<std::int64_t>(n, 1)
                                      : 0;
    if (n_wanted > 0) {
      if (logits + n_gathered * config_.n_vocab != span.logits) flush();
      if (n_gathered == 0) logits = span.logits;
      std::copy_n(h + (n - n_wanted) * d, n_wanted * d, gathered + n_gathered * d);
      n_gathered += n_wanted;
    }
    h += n * d;
  }
  flush();
}

void Forward::head(const float* h, std::int64_t n, LogitsOf logits_of, float* logits) {
  if (n == 0 || logits_of == LogitsOf::None) return;
  if (logits_of == LogitsOf::LastToken) {
    h += (n - 1) * config_.d_model;
    n = 1;
  }
  backend_.matmul({tensors_.head, h, config_.d_model, n, logits, config_.n_vocab});
}

void Forward::check_tokens(std::span<const std::int32_t> tokens) const {
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= config_.n_vocab) {
      fail(Errc::BadInput, "token {} is outside of the model's vocabulary of {}", token,
           config_.n_vocab);
    }
  }
}

}  // namespace moeflux
