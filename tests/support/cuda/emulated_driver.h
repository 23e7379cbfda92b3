// A driver whose GPU is emulated: its streams are threads, its kernels those of the program, run by
// emulated_launch.h. Everything above the driver is what runs on a GPU.
#pragma once

#include "backends/cuda/driver.h"

namespace moeflux::test {

const cuda::Driver& emulated_cuda_driver();

// That, or with MOEFLUX_TEST_DEVICE=cuda-gpu the driver of this machine.
const cuda::Driver& cuda_test_driver();

// Launches from now on fail after so many, as when a device is lost; negative: they do not.
void fail_launches_after(long n);

}  // namespace moeflux::test
