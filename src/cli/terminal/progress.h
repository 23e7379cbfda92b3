// How far a long step has come, on standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/options/general_options.h"
#include "convert/output_file.h"

namespace moeflux::cli {

// A bar that redraws itself on a terminal, nothing elsewhere.
class ProgressBar {
 public:
  // `shown` false: every call does nothing.
  ProgressBar(std::string label, bool shown);
  ~ProgressBar();  // removes the bar
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `detail` stands after the bar: "12.0 of 30.0 MiB".
  void update(std::uint64_t done, std::uint64_t total, const std::string& detail);

 private:
  std::string label_;
  bool shown_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), last_ = start_;
};

// How far a step that moves many bytes has come, how fast, and how long it will still take: a bar
// on a terminal, now and then a line elsewhere.
class TransferProgress {
 public:
  TransferProgress(std::string label, const GeneralOptions& general);

  // The first call says where the step begins: bytes done before it count for neither speed nor
  // time.
  void update(std::uint64_t done, std::uint64_t total);

 private:
  std::string label_;
  const GeneralOptions& general_;
  ProgressBar bar_;
  std::optional<std::uint64_t> first_;
  std::chrono::steady_clock::time_point start_, last_line_;
};

// How far a prompt has been read, on a terminal.
class PromptProgress {
 public:
  explicit PromptProgress(bool shown) : shown_(shown) {}

  // Tokens of it that the session has. The first call says how many it had before.
  void update(std::int64_t done, std::int64_t total);
  void end() { bar_.reset(); }  // before anything else is written

 private:
  bool shown_;
  std::optional<ProgressBar> bar_;
  std::optional<std::int64_t> first_;
  std::chrono::steady_clock::time_point start_;
};

// "0:35", "2:07:10".
std::string format_duration(double seconds);

// A bar for each stage of writing a model.
class StageProgress {
 public:
  explicit StageProgress(const GeneralOptions& general) : general_(general) {}

  // Throws when the user has interrupted.
  void update(const ConvertProgress& progress);

 private:
  const GeneralOptions& general_;
  ConvertProgress::Stage stage_ = ConvertProgress::Stage::Writing;
  std::unique_ptr<TransferProgress> bar_;
};

}  // namespace moeflux::cli
