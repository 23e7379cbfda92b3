#include "cli/prefix_session.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/memory_budget.h"
#include "cli/options/environment.h"
#include "cli/options/model_options.h"

namespace moeflux::cli {

void add_prefix_options(Command& command, PrefixOptions& options) {
  command.group("Prefix store")
      .option("--prefix-store", options.store, "WHERE",
              "keep what was read: on, off, auto (on with --messages), or a directory")
      .option("--prefix-size", options.size, "SIZE",
              fmt::format("what the store may take of the disk (default: {})",
                          format_bytes(PrefixStoreOptions().max_bytes)))
      .flag("--prefix-ahead", options.ahead,
            "after the answer, read it as the next turn will show it");
}

void check_prefix_options(const PrefixOptions& options) {
  if (options.store.empty()) throw UsageError("--prefix-store needs on, off, auto or a directory");
  if (options.size) parse_size(*options.size, "--prefix-size");
}

std::string default_prefix_directory() {
  const auto& home = environment().cache_home;
  return home ? *home + "/moeflux/prefixes" : "";
}

PrefixSession::PrefixSession(Engine& engine, const PrefixOptions& options, bool is_chat) {
  const bool named = options.store != "on" && options.store != "auto";
  if (options.store != "off" && (options.store != "auto" || is_chat)) {
    PrefixStoreOptions store;
    store.directory = named ? options.store : default_prefix_directory();
    if (options.size) store.max_bytes = parse_size(*options.size, "--prefix-size");
    if (store.directory.empty())
      warning_ = "no prefix store: there is no home for it; name a directory with --prefix-store";
    else
      store_.emplace(std::move(store), prefix_identity(engine));
  }
  sync_.emplace(engine, store_ ? &*store_ : nullptr);
}

void PrefixSession::read_ahead(Session& session, std::span<const TokenId> tokens,
                               const std::function<bool()>& cancelled) {
  const auto n = std::ssize(tokens);
  if (n < 2 || n > session.max_length()) return;
  sync_->sync(session, tokens);
  try {
    sync_->prefill(session, tokens, std::span(&n, 1), cancelled);
  } catch (const Error& error) {
    if (error.code() != Errc::Cancelled) throw;  // the answer is there; this was only for later
  }
}

std::string PrefixSession::warning() const {
  return store_ && warning_.empty() ? store_->warning() : warning_;
}

void PrefixSession::add_to(Json& json, const SyncResult& reused) const {
  Json& usage = json["usage"];
  for (const char* count : {"prompt_tokens", "total_tokens"})
    usage[count] = usage[count].get<std::int64_t>() + reused.n_tokens;
  usage["cached_tokens"] = reused.n_tokens;
  Json& prefix = json["prefix"];
  prefix = {{"cached_tokens", reused.n_tokens}, {"from", prefix_origin_name(reused.origin)}};
  if (!store_) return;
  const PrefixStoreStats& stats = store_->stats();
  prefix["directory"] = store_->options().directory;
  prefix["bytes_read"] = stats.bytes_read;
  prefix["bytes_written"] = stats.bytes_written;
  prefix["files_damaged"] = stats.files_damaged;
  prefix["files_evicted"] = stats.files_evicted;
}

std::string PrefixSession::text(const SyncResult& reused, std::size_t n_prompt) const {
  if (!store_) return "";
  const PrefixStoreStats& stats = store_->stats();
  return fmt::format("{:<10}{:>6} of {} tokens of the prompt from the store, {} read, {} written\n",
                     "prefix", reused.n_tokens, n_prompt, format_bytes(stats.bytes_read),
                     format_bytes(stats.bytes_written));
}

}  // namespace moeflux::cli
