// The prefix store as commands use it: answers read only what no earlier run has read, and leave
// their own reading to later ones. docs/PREFIX_STORE.md.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "cli/command_line.h"
#include "engine/generate.h"
#include "engine/prefix/prefix_points.h"
#include "engine/prefix/session_sync.h"

namespace moeflux::cli {

struct PrefixOptions {
  std::string store = "auto";  // "on", "off", "auto" or a directory
  std::optional<std::string> size;
  bool ahead = false;
};

void add_prefix_options(Command& command, PrefixOptions& options);
void check_prefix_options(const PrefixOptions& options);  // throws UsageError

// Where the store lies unless told otherwise; empty when this user has no home.
std::string default_prefix_directory();

class PrefixSession {
 public:
  // "auto" means on for a chat, which will go on, and off for everything else.
  PrefixSession(Engine& engine, const PrefixOptions& options, bool is_chat);

  bool is_on() const { return store_.has_value(); }
  SessionSync& sync() { return *sync_; }  // without a store it knows what the session holds
  // Reads what later prompts will begin with and keeps it.
  void read_ahead(Session& session, std::span<const TokenId> tokens,
                  const std::function<bool()>& cancelled);

  std::string warning() const;  // why the store does not do what it could; empty: it does
  // To result_json(), which counts the tokens of the prompt that were read.
  void add_to(Json& json, const SyncResult& reused) const;
  // A line for --stats.
  std::string text(const SyncResult& reused, std::size_t n_prompt) const;

 private:
  std::optional<PrefixStore> store_;
  std::optional<SessionSync> sync_;
  std::string warning_;
};

}  // namespace moeflux::cli
