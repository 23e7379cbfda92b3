# How every target of the project is compiled: one place for flags, one function per kind of target.

# Of use to those who change the code. A compiler that nobody has tried must not keep a user from building.
option(MOEFLUX_WERROR "Warnings are errors" OFF)

add_library(moeflux_flags INTERFACE)
target_compile_options(moeflux_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Wold-style-cast
  -Wcast-qual -Woverloaded-virtual $<$<BOOL:${MOEFLUX_WERROR}>:-Werror>
  # g++ 12 reports these two for plain operations on std::string.
  -Wno-restrict -Wno-array-bounds
  # g++ collects garbage often to save memory, which takes a sixth of its time.
  $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-expand=1000>
  $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1000000>
  # A contracted multiply-add would make a result depend on the compiler and the ISA it targets.
  -ffp-contract=off)
target_include_directories(moeflux_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
if(MOEFLUX_SANITIZE)
  target_compile_options(moeflux_flags INTERFACE -fsanitize=${MOEFLUX_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all
    -Wno-maybe-uninitialized)  # g++ 12 sees some where there are none
  target_link_options(moeflux_flags INTERFACE -fsanitize=${MOEFLUX_SANITIZE})
endif()

# Every library of src/ may become part of the shared one: its code can lie anywhere, and its symbols are its own.
function(moeflux_shareable target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()

# The headers that cost most to read are read once for all libraries, and once for all tests.
option(MOEFLUX_PCH "Use precompiled headers" ON)
if(MOEFLUX_PCH)
  add_library(moeflux_pch STATIC ${CMAKE_SOURCE_DIR}/cmake/pch.cpp)
  target_link_libraries(moeflux_pch PRIVATE moeflux_flags fmt::fmt nlohmann_json::nlohmann_json)
  moeflux_shareable(moeflux_pch)
  target_precompile_headers(moeflux_pch PRIVATE <algorithm> <functional> <map> <memory> <optional> <span> <string>
    <unordered_map> <vector> <fmt/format.h> <nlohmann/json.hpp>)
endif()

# Most of the time goes to reading headers and instantiating templates, the same in every file of a target: several
# files are compiled as one. Files whose names clash with others', or that are slow by themselves, stay ALONE. With
# the preset `dev` all do: that shows whether each includes what it needs, and is quicker after a small change.
option(MOEFLUX_UNITY "Compile several files of a target as one" ON)
function(moeflux_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${MOEFLUX_UNITY} UNITY_BUILD_BATCH_SIZE 6)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# moeflux_library(NAME SOURCES a.cpp ... [ALONE b.cpp ...] DEPS base quant ... LIBS fmt::fmt ...)
# One folder of src/ is one static library. DEPS are other folders; tests/layers checks the includes against the
# same rule (docs/ARCHITECTURE.md).
function(moeflux_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;ALONE;DEPS;LIBS" ${ARGN})
  add_library(moeflux_${name} STATIC ${ARG_SOURCES} ${ARG_ALONE})
  moeflux_unity(moeflux_${name} ${ARG_ALONE})
  moeflux_shareable(moeflux_${name})
  target_link_libraries(moeflux_${name} PRIVATE moeflux_flags)
  target_include_directories(moeflux_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  foreach(dep ${ARG_DEPS})
    target_link_libraries(moeflux_${name} PUBLIC moeflux_${dep})
  endforeach()
  target_link_libraries(moeflux_${name} PUBLIC ${ARG_LIBS})
  if(MOEFLUX_PCH)
    target_precompile_headers(moeflux_${name} REUSE_FROM moeflux_pch)
  endif()
endfunction()

# moeflux_test(NAME SOURCES x_test.cpp ... [ALONE y_test.cpp ...] DEPS text ... [LABELS kernel] [TIMEOUT s])
# One test binary per folder of tests/; every TEST in it is its own ctest entry.
function(moeflux_test name)
  cmake_parse_arguments(ARG "" "LABELS;TIMEOUT" "SOURCES;ALONE;DEPS;LIBS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES} ${ARG_ALONE})
  moeflux_unity(${name} ${ARG_ALONE})
  target_link_libraries(${name} PRIVATE moeflux_flags moeflux_test_support GTest::gtest_main ${ARG_LIBS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_options(${name} PRIVATE -O1)  # tests are compiled more often than they run
  if(MOEFLUX_PCH)
    target_precompile_headers(${name} REUSE_FROM moeflux_test_pch)
  endif()
  foreach(dep ${ARG_DEPS})
    target_link_libraries(${name} PRIVATE moeflux_${dep})
  endforeach()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${ARG_LABELS} TIMEOUT ${ARG_TIMEOUT})
endfunction()

# moeflux_test_on_device(NAME [FILTER pattern])
# Runs a test program once more on the device of tests/support/test_device.h, with the experts driven by the host and
# by the device. FILTER: the tests that can run there.
function(moeflux_test_on_device name)
  cmake_parse_arguments(ARG "" "FILTER" "" ${ARGN})
  target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/support/on_test_device.cpp)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/support/on_test_device.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_link_libraries(${name} PRIVATE moeflux_test_models moeflux_emulated_cuda)
  foreach(driver host device)
    add_test(NAME ${name}.on_device.${driver} COMMAND ${name} --gtest_brief=1 --gtest_filter=${ARG_FILTER})
    set_tests_properties(${name}.on_device.${driver} PROPERTIES LABELS device TIMEOUT 900
      ENVIRONMENT MOEFLUX_TEST_DEVICE=${driver})
  endforeach()
endfunction()

# moeflux_python_test(NAME script.py arguments...)
# A test that python3 runs. A script skips itself by exiting with 77; without python3 all are skipped.
function(moeflux_python_test name)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(Python3_Interpreter_FOUND)
    add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${ARGN})
  else()
    add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "SKIP: python3 is not on this machine")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS unit TIMEOUT 60 SKIP_RETURN_CODE 77
    SKIP_REGULAR_EXPRESSION "^SKIP: python3")
endfunction()
