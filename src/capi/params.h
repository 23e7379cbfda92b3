// Structs of the C API: versions of them, and what they mean inside.
//
// A caller's struct may be shorter than ours (it was compiled against an older header: the rest
// keeps its defaults) or longer (against a newer one: what we do not know must be 0, which means
// "as before" in every field that is ever added).
#pragma once

#include <algorithm>
#include <cstring>

#include <moeflux/moeflux.h>

#include "capi/guard.h"
#include "engine/engine.h"
#include "engine/generate.h"

namespace moeflux::capi {

inline constexpr std::size_t kMaxStructSize = 4096;  // more is an uninitialized struct_size

// The smallest size a caller can have: that of version 0.1, where each struct began.
template <class T>
inline constexpr std::size_t kFirstSize = sizeof(T);

template <class T>
T defaults() {
  T params{};
  params.struct_size = sizeof params;
  return params;
}
template <>
mf_model_params defaults();
template <>
mf_context_params defaults();
template <>
mf_sampling_params defaults();

void check_struct(const void* given, std::size_t given_size, std::size_t first, std::size_t ours,
                  const char* name);

// The caller's struct, completed. `given` NULL: all defaults.
template <class T>
T read_params(const T* given, const char* name) {
  T params = defaults<T>();
  if (given == nullptr) return params;
  check_struct(given, given->struct_size, kFirstSize<T>, sizeof(T), name);
  std::memcpy(&params, given, std::min(given->struct_size, sizeof(T)));
  params.struct_size = sizeof(T);
  return params;
}

// Fills the caller's struct, whatever its size; bytes we do not know become 0.
template <class T>
void write_struct(T* given, std::size_t given_size, const T& ours) {
  std::memset(static_cast<void*>(given), 0, given_size);
  std::memcpy(static_cast<void*>(given), &ours, std::min(given_size, sizeof(T)));
  given->struct_size = given_size;
}

template <class T>
void init_params(T* params, std::size_t struct_size) noexcept {
  guarded([&] {
    need(params, "params");
    if (struct_size < kFirstSize<T> || struct_size > kMaxStructSize)
      fail_with(MF_ERROR_BAD_INPUT, "struct_size {} cannot be right", struct_size);
    write_struct(params, struct_size, defaults<T>());
  });
}

// For structs the library fills: struct_size must be set.
template <class T>
void write_result(T* result, const T& ours, const char* name) {
  const std::size_t size = result->struct_size;
  if (size < kFirstSize<T> || size > kMaxStructSize)
    fail_with(MF_ERROR_BAD_INPUT, "struct_size of {} is {}, but must be its sizeof", name, size);
  write_struct(result, size, ours);
}

EngineOptions engine_options(const mf_model_params& params);
std::shared_ptr<const ModelSource> open_source(const mf_model_params& params);
SamplingParams sampling_params(const mf_sampling_params* given, const ModelSource& source);
mf_sampling_params to_c(const SamplingParams& params);

}  // namespace moeflux::capi
