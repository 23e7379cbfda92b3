#include "base/cpu_features.h"

#include <cstdint>
#include <fstream>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace moeflux {
namespace {

#if defined(__x86_64__)

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);
  return r;
}

bool bit(unsigned value, int index) {
  return ((value >> index) & 1u) != 0;
}

// Which register files the operating system saves on a task switch.
std::uint64_t saved_state() {
  std::uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

CpuFeatures probe() {
  CpuFeatures f;
  const Registers one = cpuid(1, 0);
  if (!bit(one.c, 27)) return f;  // no XSAVE: no wide registers
  const std::uint64_t state = saved_state();
  const bool os_avx = (state & 0x6) == 0x6;
  const bool os_avx512 = os_avx && (state & 0xE0) == 0xE0;
  const bool os_amx = (state & 0x60000) == 0x60000;
  const Registers seven = cpuid(7, 0);
  const Registers seven_one = cpuid(7, 1);
  f.avx2 = os_avx && bit(seven.b, 5) && bit(seven.b, 8) && bit(one.c, 12) && bit(one.c, 29);
  f.avx512 = f.avx2 && os_avx512 && bit(seven.b, 16) && bit(seven.b, 17) && bit(seven.b, 30) &&
             bit(seven.b, 31);
  f.avx512_vnni = f.avx512 && bit(seven.c, 11);
  f.avx512_vbmi = f.avx512 && bit(seven.c, 1);
  f.avx512_bf16 = f.avx512 && bit(seven_one.a, 5);
  f.amx_tile = os_amx && bit(seven.d, 24);
  f.amx_int8 = f.amx_tile && bit(seven.d, 25);
  f.amx_bf16 = f.amx_tile && bit(seven.d, 22);
  return f;
}

#elif defined(__aarch64__)

CpuFeatures probe() {
  constexpr unsigned long kDotProducts = 1ul << 20;  // as the kernel names it: asimddp
  CpuFeatures f;
  f.neon = true;
  f.dotprod = (getauxval(AT_HWCAP) & kDotProducts) != 0;
  return f;
}

#else

CpuFeatures probe() {
  return {};
}

#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures kFeatures = probe();
  return kFeatures;
}

std::string describe(const CpuFeatures& f) {
  std::string text;
  const auto add = [&](bool present, const char* name) {
    if (!present) return;
    if (!text.empty()) text += ' ';
    text += name;
  };
  add(f.avx2, "avx2");
  add(f.avx512, "avx512");
  add(f.avx512_vnni, "avx512_vnni");
  add(f.avx512_bf16, "avx512_bf16");
  add(f.avx512_vbmi, "avx512_vbmi");
  add(f.amx_tile, "amx_tile");
  add(f.amx_int8, "amx_int8");
  add(f.amx_bf16, "amx_bf16");
  add(f.neon, "neon");
  add(f.dotprod, "dotprod");
  return text.empty() ? "baseline" : text;
}

std::string cpu_model_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    return colon == std::string::npos ? "" : line.substr(colon + 2);
  }
  return "";
}

}  // namespace moeflux
