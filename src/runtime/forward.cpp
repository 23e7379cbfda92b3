#include "runtime/forward.h"

#include <algorithm>

#include "base/error.h"
#include "base/stopwatch.h"

namespace moeflux {
namespace {

// Rows of logits that there is always room for at a time.
constexpr std::int64_t kLogitRows = 8;

// Of the last rows of n.
std::int64_t n_logits(LogitsOf logits_of, std::int64_t n) {
  return logits_of == LogitsOf::EveryToken ? n : logits_of == LogitsOf::LastToken ? 1 : 0;
}

}  // namespace

Forward::Forward(const Parts& parts, MemoryBudget& budget, std::int64_t max_tokens,
                 std::uint64_t workspace_bytes)
    : config_(*parts.config),
      tensors_(*parts.tensors),
      backend_(*parts.backend),
      experts_(parts.experts),
      mixer_slice_(parts.mixer_slice),
      max_tokens_(max_tokens),
      workspace_(backend_, budget, workspace_bytes),
      layer_ns_(config_.layers.size() + 1) {}

void Forward::run(std::span<const Span> batch, ForwardObserver* observer,
                  const std::function<bool()>& cancelled) {
  tokens_and_positions_.clear();
  for (const Span& span :
       batch) {  // before any session begins, so that a refused span costs the others nothing
    check_tokens(span.tokens);
    span.session->check(std::ssize(span.tokens));
    tokens_and_positions_.insert(tokens_and_positions_.end(), span.tokens.begin(),
                                 span.tokens.end());
  }
  const std::int64_t n = std::ssize(tokens_and_positions_);
  if (n == 0) return;
  MOEFLUX_ASSERT(n <= max_tokens_);
  for (const Span& span : batch) {
    span.session->begin(std::ssize(span.tokens), span.n_drafts);
    for (std::int64_t i = 0; i < std::ssize(span.tokens); ++i)
      tokens_and_positions_.push_back(static_cast<std::int32_t>(span.session->length() + i));
  }
  observer_ = observer;
  if (experts_ != nullptr) experts_->begin_step(static_cast<int>(n));

  Workspace::Frame frame(workspace_);
  const Inputs inputs = upload_inputs(frame);
  const View x = frame.floats(n, config_.d_model);
  try {
    run_layers(batch, cancelled, inputs, x);
  } catch (...) {
    abandon_operations();
    for (const Span& span : batch) span.session->abandon();
    throw;
  }

  const View h = frame.floats(n, config_.d_model);
  norm(x, tensors_.final_norm, h);
  observe_hidden(config_.n_layers(), h);
  std::int64_t row = 0;
  for (const Span& span : batch) {
    const std::int64_t n_rows = std::ssize(span.tokens);
    if (span.hidden != nullptr) download(h.row_range(row, n_rows), span.hidden);
    row += n_rows;
  }
  head(batch, h, x);
  backend_.wait_for_all();
  for (const Span& span : batch) span.session->commit(span.tokens);
}

Forward::Inputs Forward::upload_inputs(Workspace::Frame& frame) {
  const std::int64_t n = std::ssize(tokens_and_positions_) / 2;
  const View both = frame.ints(2, n);
  backend_.upload(std::as_bytes(std::span(tokens_and_positions_)), both.bytes());
  return {both.row_range(0, 1), both.row_range(1, 1)};
}

void Forward::run_layers(std::span<const Span> batch, const std::function<bool()>& cancelled,
                         const Inputs& inputs, const View& x) {
  embed(inputs, x);
  observe_hidden(0, x);
  layer_index_ = -1;
  look_ahead(x);
  for (int i = 0; i < config_.n_layers(); ++i) {
    if (cancelled && cancelled()) fail(Errc::Cancelled, "cancelled");
    layer_index_ = i;
    rows_.clear();
    std::int64_t row = 0;
    for (const Span& span : batch) {
      const std::int64_t n = std::ssize(span.tokens);
      rows_.push_back({.state = &span.session->layer(i),
                       .first = row,
                       .n = n,
                       .positions = inputs.positions.col_range(row, n),
                       .session = span.session,
                       .n_drafts = span.n_drafts,
                       .keep_before = span.undo_on_failure,
                       .prompt_tokens = span.prompt_tokens});
      row += n;
    }
    layer(tensors_.layers[static_cast<std::size_t>(i)], rows_, x);
    if (i + 1 < config_.n_layers()) observe_hidden(i + 1, x);
  }
  end_device_experts();
}

// x <- x + mixer(norm(x)); x <- (x + ffn(norm(x))) * scale, where what is added may have a norm of
// its own
void Forward::layer(const Layer<Resident>& layer, std::span<const Rows> rows, const View& x) {
  const Stopwatch stopwatch(layer_ns_[static_cast<std::size_t>(layer_index_)]);
  mix_in_slices(layer, rows, x);

  Workspace::Frame frame(workspace_);
  const View h = frame.floats(x.rows, x.cols);
  const View y = frame.floats(x.rows, x.cols);
  norm(x, layer.ffn_norm, h);
  std::visit([&](const auto& ffn) { feed(ffn, {.x = x, .h = h, .out = y}); }, layer.ffn);
  if (!layer.ffn_post_norm.empty()) norm(y, layer.ffn_post_norm, y);
  backend_.add({.x = y, .y = x, .scale = layer.scale});
}

// Experts want as many tokens as possible, so that each is fetched once for all of them. A mixer
// reads the same weights for every token: it takes the tokens of a long pass in slices, whose
// intermediate values fit into a cache and need little memory.
void Forward::mix_in_slices(const Layer<Resident>& layer, std::span<const Rows> rows,
                            const View& x) {
  Workspace::Frame frame(workspace_);
  const bool is_latent = std::holds_alternative<LatentAttention<Resident>>(layer.mixer);
  const std::int64_t slice = is_latent ? kLatentSlice : mixer_slice_;
  const std::int64_t most = std::min(x.rows, slice);
  const View h = frame.floats(most, x.cols);
  const View y = frame.floats(most, x.cols);
  for (std::int64_t begin = 0, end = 0; begin < x.rows; begin = end) {
    end = std::min(begin + slice, x.rows);
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
      part.positions = r.positions.col_range(from - r.first, part.n);
      part.begins = r.begins && from == r.first;
      slice_.push_back(part);
    }
    const std::int64_t n = end - begin;
    const View x_slice = x.row_range(begin, n);
    const MixerRows mixed{slice_, h.row_range(0, n), y.row_range(0, n)};
    norm(x_slice, layer.mixer_norm, mixed.h);
    std::visit([&](const auto& mixer) { mix(mixer, mixed); }, layer.mixer);
    if (!layer.mixer_post_norm.empty()) norm(mixed.out, layer.mixer_post_norm, mixed.out);
    backend_.add({.x = mixed.out, .y = x_slice});
  }
}

void Forward::run_mtp(const MtpSpan& span) {
  MOEFLUX_ASSERT(config_.mtp.has_value());
  Session& session = *span.session;
  const std::int64_t n = std::ssize(span.tokens), d = config_.d_model;
  if (n == 0) return;
  MOEFLUX_ASSERT(n <= max_tokens_ && session.mtp_length() + n <= session.max_length());
  check_tokens(span.tokens);
  tokens_and_positions_.assign(span.tokens.begin(), span.tokens.end());
  for (std::int64_t i = 0; i < n; ++i)
    tokens_and_positions_.push_back(static_cast<std::int32_t>(session.mtp_length() + i));
  observer_ = nullptr;
  layer_index_ = config_.n_layers();

  const MtpTensors<Resident>& t = *tensors_.mtp;
  Workspace::Frame frame(workspace_);
  const Inputs inputs = upload_inputs(frame);
  const View x = frame.floats(n, d);
  const View hidden = frame.floats(n, d);
  const View pair = frame.floats(n, 2 * d);  // [embedding | hidden]
  if (!is_counted()) {
    const std::span rows(span.hidden, static_cast<std::size_t>(n * d));
    backend_.upload(std::as_bytes(rows), hidden.bytes());
  }
  embed(inputs, x);
  const float eps = config_.norm_eps;
  backend_.rms_norm({.x = x, .weight = t.embed_norm, .eps = eps, .out = pair.col_range(0, d)});
  backend_.rms_norm(
      {.x = hidden, .weight = t.hidden_norm, .eps = eps, .out = pair.col_range(d, d)});
  backend_.matmul({.weight = t.fc, .x = pair, .y = x});

  const Rows rows{.state = &session.mtp(),
                  .first = 0,
                  .n = n,
                  .positions = inputs.positions,
                  .session = &session};
  layer(t.layer, {&rows, 1}, x);
  end_device_experts();
  const View h = hidden;
  norm(x, t.final_norm, h);
  if (span.out_hidden != nullptr) download(h, span.out_hidden);
  const std::int64_t wanted = n_logits(span.logits_of, n);
  logit_rows_.clear();
  want_logits(span.logits, wanted);
  head(h.row_range(n - wanted, wanted));
  backend_.wait_for_all();
  session.commit_mtp(n);
}

void Forward::embed(const Inputs& inputs, const View& out) {
  backend_.embed(
      {.table = tensors_.embed, .tokens = inputs.tokens, .scale = config_.embed_scale, .out = out});
}

void Forward::norm(const View& x, const View& weight, const View& out) {
  backend_.rms_norm({.x = x, .weight = weight, .eps = config_.norm_eps, .out = out});
}

void Forward::observe_hidden(int index, const View& x) {
  if (observer_ == nullptr) return;
  observed_.resize(static_cast<std::size_t>(x.size()));
  download(x, observed_.data());
  backend_.wait_for_all();
  observer_->on_hidden(index, observed_.data(), x.rows);
}

void Forward::download(const View& view, void* to) {
  MOEFLUX_ASSERT(view.is_packed());
  const Bytes bytes = view.bytes();
  backend_.download(bytes, {static_cast<std::byte*>(to), bytes.size});
}

// The rows of all sessions that logits are wanted of are one product: the head is read once.
void Forward::head(std::span<const Span> batch, const View& h, const View& gathered) {
  logit_rows_.clear();
  std::int64_t row = 0;
  for (const Span& span : batch) {
    const std::int64_t n = std::ssize(span.tokens);
    const std::int64_t wanted = n_logits(span.logits_of, n), first = std::ssize(logit_rows_);
    if (wanted > 0) {
      backend_.copy(h.row_range(row + n - wanted, wanted).bytes(),
                    gathered.row_range(first, wanted).bytes());
      want_logits(span.logits, wanted);
    }
    row += n;
  }
  head(gathered.row_range(0, std::ssize(logit_rows_)));
}

void Forward::want_logits(float* logits, std::int64_t n_rows) {
  for (std::int64_t i = 0; i < n_rows; ++i)
    logit_rows_.push_back(logits == nullptr ? nullptr : logits + i * config_.n_vocab);
}

// As many rows at a time as the workspace has room for.
void Forward::head(const View& h) {
  if (h.rows == 0) return;
  Workspace::Frame frame(workspace_);
  const std::int64_t room = is_counted() ? 0 : frame.rows_left(config_.n_vocab);
  const std::int64_t most = std::min(h.rows, std::max(room, kLogitRows));
  const View logits = frame.floats(most, config_.n_vocab);
  for (std::int64_t first = 0; first < h.rows; first += most) {
    const std::int64_t n = std::min(most, h.rows - first);
    backend_.matmul(
        {.weight = tensors_.head, .x = h.row_range(first, n), .y = logits.row_range(0, n)});
    if (config_.logit_cap > 0)
      backend_.softcap({.x = logits.row_range(0, n), .cap = config_.logit_cap});
    for (std::int64_t i = 0; i < n; ++i)
      download(logits.row_range(i, 1), logit_rows_[static_cast<std::size_t>(first + i)]);
  }
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
