# Toolchain file: cross-compiles for 64-bit Arm with Debian's g++-aarch64-linux-gnu, and runs what it built with qemu.
# MOEFLUX_ARM64_ROOT is a folder with the libraries for Arm, as scripts/test_arm64.sh lays one out.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu)

set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MOEFLUX_ARM64_ROOT)
set(CMAKE_FIND_ROOT_PATH ${MOEFLUX_ARM64_ROOT} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${MOEFLUX_ARM64_ROOT})
set(ENV{PKG_CONFIG_LIBDIR}
  ${MOEFLUX_ARM64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${MOEFLUX_ARM64_ROOT}/usr/share/pkgconfig)
# What those libraries need themselves.
set(CMAKE_EXE_LINKER_FLAGS_INIT
  "-Wl,-rpath-link,${MOEFLUX_ARM64_ROOT}/usr/lib/aarch64-linux-gnu:${MOEFLUX_ARM64_ROOT}/lib/aarch64-linux-gnu")
