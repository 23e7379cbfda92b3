# Kernels for NVIDIA GPUs: clang compiles each .cu to PTX without any CUDA toolkit, and the PTX lies in the program as
# text that the driver compiles for its GPU.
#
# moeflux_cuda_kernels(OUT_VAR a.cu b.cu ...): sets OUT_VAR to a source file that defines cuda::kernel_modules().
# Without clang-19 that list is empty, and the backend `cuda` says so.
# The headers of the C++ library declare variadic functions: clang allows that by itself only where it finds a toolkit.
find_program(MOEFLUX_CUDA_CLANG NAMES clang++-19 clang++-20 clang++-21 DOC "A clang that compiles CUDA C++ to PTX")

function(moeflux_cuda_kernels out_var)
  set(modules ${CMAKE_CURRENT_BINARY_DIR}/cuda_modules.cpp)
  set(ptx_files "")
  if(MOEFLUX_CUDA_CLANG)
    foreach(source ${ARGN})
      get_filename_component(name ${source} NAME_WE)
      set(ptx ${CMAKE_CURRENT_BINARY_DIR}/${name}.ptx)
      add_custom_command(OUTPUT ${ptx}
        COMMAND ${MOEFLUX_CUDA_CLANG} -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch=sm_80
          -Xclang -target-feature -Xclang +ptx83 -Xclang -fcuda-allow-variadic-functions -Wno-unknown-cuda-version -Wall -Wextra -std=c++20 -O3
          -I${CMAKE_SOURCE_DIR}/src -MD -MF ${ptx}.d -S -o ${ptx} ${CMAKE_CURRENT_SOURCE_DIR}/${source}
        DEPENDS ${source} DEPFILE ${ptx}.d COMMENT "Compiling ${source} to PTX" VERBATIM)
      list(APPEND ptx_files ${ptx})
    endforeach()
  endif()
  add_custom_command(OUTPUT ${modules}
    COMMAND ${CMAKE_COMMAND} -DOUT=${modules} "-DPTX=${ptx_files}" -P ${CMAKE_SOURCE_DIR}/cmake/embed_ptx.cmake
    DEPENDS ${ptx_files} ${CMAKE_SOURCE_DIR}/cmake/embed_ptx.cmake COMMENT "Embedding kernels" VERBATIM)
  set_source_files_properties(${modules} PROPERTIES OBJECT_DEPENDS "${ptx_files}")
  set(${out_var} ${modules} PARENT_SCOPE)
endfunction()
