// Makes a container out of a checkpoint of any layout, a container included. Bytes of dense tensors
// never change; those of experts only when they are requantized. Nothing opens before everything is
// written and has been read back. A conversion that was killed resumes when it is started again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convert/container_spec.h"
#include "convert/convert_plan.h"
#include "convert/drives.h"
#include "convert/output_file.h"

namespace moeflux {

struct ConvertOptions {
  std::optional<Requantize> requantize;
  std::vector<StripeShare> stripes;  // weight 0 in all: by measured bandwidth
  bool force = false;                // replace what is in the directory
  int n_threads = 0;                 // 0: one per core, at most 8
  std::string converted_by = "moeflux";
  // Called by one thread at a time; may throw, which stops the conversion until it is resumed.
  ConvertProgressCall progress;
  std::uint64_t checkpoint_bytes = 256u << 20;
  FreeBytes free = free_bytes;
};

struct MatrixReport {
  std::string projection;
  std::string from, to;  // formats: "bf16", "affine 4-bit g64"
  bool requantized = false;
  double relative_error = 0;
};

struct BankReport {
  std::string name;
  std::vector<MatrixReport> matrices;
};

struct ConvertReport {
  std::string fingerprint;
  std::uint64_t bytes = 0;  // of all weights written
  std::uint64_t resumed_bytes = 0;
  std::size_t n_tensors = 0;
  std::uint64_t n_records = 0;
  std::vector<StripeShare> stripes;
  std::vector<BankReport> banks;
};

ConvertReport convert(const std::string& from, const std::string& to,
                      const ConvertOptions& options);

}  // namespace moeflux
