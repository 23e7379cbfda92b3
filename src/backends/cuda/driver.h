// The CUDA driver, opened at run time: the few of its functions that are used, under the names and
// types of its documentation, so that building needs no toolkit and a machine without a driver runs
// the same program. A Driver is a table of functions: tests give one of an emulated GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace moeflux::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = std::uint64_t;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;

inline constexpr CUresult CUDA_SUCCESS = 0;
inline constexpr CUresult CUDA_ERROR_OUT_OF_MEMORY = 2;
inline constexpr CUresult CUDA_ERROR_NOT_READY = 600;
inline constexpr int CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16;
inline constexpr int CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75;
inline constexpr int CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76;
inline constexpr int CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97;
inline constexpr int CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8;
inline constexpr unsigned CU_STREAM_NON_BLOCKING = 1;
inline constexpr unsigned CU_EVENT_DISABLE_TIMING = 2;
inline constexpr unsigned CU_MEMHOSTALLOC_PORTABLE = 1, CU_MEMHOSTALLOC_DEVICEMAP = 2;
inline constexpr int CU_STREAM_CAPTURE_MODE_RELAXED = 2;

inline constexpr unsigned CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6;
struct CUlaunchAttribute {
  unsigned id;
  unsigned unused;
  union {
    int programmaticStreamSerializationAllowed;
    char all[64];
  } value;
};
struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned numAttrs;
};

// name, type of a pointer to it, symbol in the library
#define MOEFLUX_CUDA_FUNCTIONS(X)                                                                  \
  X(cuInit, CUresult (*)(unsigned), "cuInit")                                                      \
  X(cuDriverGetVersion, CUresult (*)(int*), "cuDriverGetVersion")                                  \
  X(cuDeviceGetCount, CUresult (*)(int*), "cuDeviceGetCount")                                      \
  X(cuDeviceGet, CUresult (*)(CUdevice*, int), "cuDeviceGet")                                      \
  X(cuDeviceGetName, CUresult (*)(char*, int, CUdevice), "cuDeviceGetName")                        \
  X(cuDeviceGetAttribute, CUresult (*)(int*, int, CUdevice), "cuDeviceGetAttribute")               \
  X(cuDevicePrimaryCtxRetain, CUresult (*)(CUcontext*, CUdevice), "cuDevicePrimaryCtxRetain")      \
  X(cuDevicePrimaryCtxRelease, CUresult (*)(CUdevice), "cuDevicePrimaryCtxRelease_v2")             \
  X(cuCtxSetCurrent, CUresult (*)(CUcontext), "cuCtxSetCurrent")                                   \
  X(cuMemGetInfo, CUresult (*)(std::size_t*, std::size_t*), "cuMemGetInfo_v2")                     \
  X(cuMemAlloc, CUresult (*)(CUdeviceptr*, std::size_t), "cuMemAlloc_v2")                          \
  X(cuMemFree, CUresult (*)(CUdeviceptr), "cuMemFree_v2")                                          \
  X(cuMemHostAlloc, CUresult (*)(void**, std::size_t, unsigned), "cuMemHostAlloc")                 \
  X(cuMemFreeHost, CUresult (*)(void*), "cuMemFreeHost")                                           \
  X(cuMemHostGetDevicePointer, CUresult (*)(CUdeviceptr*, void*, unsigned),                        \
    "cuMemHostGetDevicePointer_v2")                                                                \
  X(cuMemsetD8Async, CUresult (*)(CUdeviceptr, unsigned char, std::size_t, CUstream),              \
    "cuMemsetD8Async")                                                                             \
  X(cuMemcpyAsync, CUresult (*)(CUdeviceptr, CUdeviceptr, std::size_t, CUstream), "cuMemcpyAsync") \
  X(cuStreamCreate, CUresult (*)(CUstream*, unsigned), "cuStreamCreate")                           \
  X(cuStreamDestroy, CUresult (*)(CUstream), "cuStreamDestroy_v2")                                 \
  X(cuStreamSynchronize, CUresult (*)(CUstream), "cuStreamSynchronize")                            \
  X(cuEventCreate, CUresult (*)(CUevent*, unsigned), "cuEventCreate")                              \
  X(cuEventDestroy, CUresult (*)(CUevent), "cuEventDestroy_v2")                                    \
  X(cuEventRecord, CUresult (*)(CUevent, CUstream), "cuEventRecord")                               \
  X(cuEventQuery, CUresult (*)(CUevent), "cuEventQuery")                                           \
  X(cuEventSynchronize, CUresult (*)(CUevent), "cuEventSynchronize")                               \
  X(cuEventElapsedTime, CUresult (*)(float*, CUevent, CUevent), "cuEventElapsedTime")              \
  X(cuModuleLoadData, CUresult (*)(CUmodule*, const void*), "cuModuleLoadData")                    \
  X(cuModuleUnload, CUresult (*)(CUmodule), "cuModuleUnload")                                      \
  X(cuModuleGetFunction, CUresult (*)(CUfunction*, CUmodule, const char*), "cuModuleGetFunction")  \
  X(cuFuncSetAttribute, CUresult (*)(CUfunction, int, int), "cuFuncSetAttribute")                  \
  X(cuLaunchKernelEx, CUresult (*)(const CUlaunchConfig*, CUfunction, void**, void**),             \
    "cuLaunchKernelEx")                                                                            \
  X(cuStreamBeginCapture, CUresult (*)(CUstream, int), "cuStreamBeginCapture_v2")                  \
  X(cuStreamEndCapture, CUresult (*)(CUstream, CUgraph*), "cuStreamEndCapture")                    \
  X(cuGraphInstantiate, CUresult (*)(CUgraphExec*, CUgraph, unsigned long long),                   \
    "cuGraphInstantiateWithFlags")                                                                 \
  X(cuGraphLaunch, CUresult (*)(CUgraphExec, CUstream), "cuGraphLaunch")                           \
  X(cuGraphExecDestroy, CUresult (*)(CUgraphExec), "cuGraphExecDestroy")                           \
  X(cuGraphDestroy, CUresult (*)(CUgraph), "cuGraphDestroy")                                       \
  X(cuGetErrorName, CUresult (*)(CUresult, const char**), "cuGetErrorName")                        \
  X(cuGetErrorString, CUresult (*)(CUresult, const char**), "cuGetErrorString")

template <class Pointer>
using FunctionPointer = Pointer;

struct Driver {
#define MOEFLUX_CUDA_MEMBER(name, type, symbol) FunctionPointer<type> name = nullptr;
  MOEFLUX_CUDA_FUNCTIONS(MOEFLUX_CUDA_MEMBER)
#undef MOEFLUX_CUDA_MEMBER
};

// libcuda.so.1, opened and initialized once.
struct LoadedDriver {
  Driver driver;
  std::string missing;  // why there is none; empty: there is one, with at least one device
};
const LoadedDriver& loaded_driver();

// Throws Error that names the call and what the driver says of it.
void check(const Driver& driver, CUresult result, const char* call);

#define MOEFLUX_CUDA(driver, call, ...) \
  ::moeflux::cuda::check((driver), (driver).call(__VA_ARGS__), #call)

}  // namespace moeflux::cuda
