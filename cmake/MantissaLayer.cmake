# mantissa_layer(<name> [PLAIN] DEPENDS <layer>... HEADERS <h>... PRIVATE_HEADERS <h>... SOURCES <cpp>...
#                KERNELS <cpp>... CUDA_SOURCES <cu, cpp>... LIBRARIES <target>... TESTS <cpp>...
#                SLOW_TESTS <cpp>...)
#
# A layer is one folder of mantissa/. It may include itself and the layers in DEPENDS, each of
# which must already exist, so a cycle cannot be written. PLAIN says that the layer and all it
# depends on build without LibTorch. HEADERS are public and installed. KERNELS are sources whose
# speed matters: optimized in every preset. CUDA_SOURCES are built with MANTISSA_CUDA. LIBRARIES are
# linked privately.
# TESTS become one program <name>_test with label `unit`; each of SLOW_TESTS becomes a program of
# its own with label `slow`.
function(mantissa_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "PLAIN" ""
    "DEPENDS;HEADERS;PRIVATE_HEADERS;SOURCES;KERNELS;CUDA_SOURCES;LIBRARIES;TESTS;SLOW_TESTS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "layer ${name}: unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  mantissa_check_layer(${name} "${arg_PLAIN}" "${arg_DEPENDS}")

  if(arg_PLAIN)
    set(product mantissa-plain)
  else()
    set(product mantissa-library)
  endif()
  add_library(mantissa-${name} OBJECT ${arg_SOURCES} ${arg_KERNELS})
  if(MANTISSA_CUDA AND arg_CUDA_SOURCES)
    target_sources(mantissa-${name} PRIVATE ${arg_CUDA_SOURCES})
    # Those in C++ see CUDA's headers, which the precompiled one must not.
    set_property(SOURCE ${arg_CUDA_SOURCES} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
    target_include_directories(mantissa-${name} SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  endif()
  set_target_properties(mantissa-${name} PROPERTIES MANTISSA_PLAIN "${arg_PLAIN}")
  target_include_directories(mantissa-${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(mantissa-${name} PRIVATE mantissa-flags ${arg_LIBRARIES})
  if(NOT arg_PLAIN)
    target_link_libraries(mantissa-${name} PRIVATE Torch::torch_cpu)
    target_precompile_headers(mantissa-${name} REUSE_FROM mantissa-torch-headers)
  endif()
  # g++ 12 crashes on a precompiled header that was made with another -O.
  set_property(SOURCE ${arg_KERNELS} APPEND PROPERTY COMPILE_OPTIONS -O3)
  set_property(SOURCE ${arg_KERNELS} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
  target_sources(${product} PRIVATE $<TARGET_OBJECTS:mantissa-${name}>
    PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${arg_HEADERS})
  target_link_libraries(${product} PRIVATE ${arg_LIBRARIES})

  if(NOT MANTISSA_DEVELOPER)
    return()
  endif()
  if(arg_TESTS)
    mantissa_test(${name}_test LAYER ${name} SOURCES ${arg_TESTS} LIBRARIES ${arg_LIBRARIES} LABELS unit)
  endif()
  foreach(source IN LISTS arg_SLOW_TESTS)
    get_filename_component(stem ${source} NAME_WE)
    mantissa_test(${name}_${stem} LAYER ${name} SOURCES ${source} LIBRARIES ${arg_LIBRARIES} LABELS slow)
  endforeach()
endfunction()

# mantissa_test(<program> [PLAIN] LAYER <layer> SOURCES <cpp>... LIBRARIES <target>... LABELS <label>...)
# A GoogleTest program, linked with what its layer is part of.
function(mantissa_test program)
  cmake_parse_arguments(PARSE_ARGV 1 arg "PLAIN" "LAYER" "SOURCES;LIBRARIES;LABELS")
  add_executable(${program} ${arg_SOURCES})
  target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${program} PRIVATE mantissa-flags GTest::gmock_main ${arg_LIBRARIES})
  set(plain ${arg_PLAIN})
  if(arg_LAYER)
    get_target_property(plain mantissa-${arg_LAYER} MANTISSA_PLAIN)
  endif()
  if(plain)
    target_link_libraries(${program} PRIVATE mantissa-plain)
  else()
    target_link_libraries(${program} PRIVATE mantissa-library)
    target_precompile_headers(${program} REUSE_FROM mantissa-torch-headers)
  endif()
  target_compile_definitions(${program} PRIVATE MANTISSA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${program} COMMAND ${program})
  set_tests_properties(${program} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 600)
  if("unit" IN_LIST arg_LABELS)
    add_dependencies(unit-tests ${program})
  endif()
endfunction()

# Fails when the layer <name>, with the given dependencies, breaks a rule of the layering.
function(mantissa_check_layer name plain depends)
  foreach(dep IN LISTS depends)
    if(NOT TARGET mantissa-${dep})
      message(FATAL_ERROR "layer ${name} depends on ${dep}, which is not below it")
    endif()
    get_target_property(dep_plain mantissa-${dep} MANTISSA_PLAIN)
    if(plain AND NOT dep_plain)
      message(FATAL_ERROR "layer ${name} is PLAIN but depends on ${dep}, which needs LibTorch")
    endif()
  endforeach()
  # The folder is searched, not the lists: a header that no list names must not escape.
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.h ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp
    ${CMAKE_CURRENT_SOURCE_DIR}/*.cu ${CMAKE_CURRENT_SOURCE_DIR}/*.cuh)
  foreach(file IN LISTS files)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(STRINGS ${file} includes REGEX "^[ \t]*#[ \t]*include[ \t]*[<\"](mantissa|torch|ATen|c10)/")
    foreach(line IN LISTS includes)
      string(REGEX REPLACE "^[^<\"]*[<\"]([^/]+)/([^/>\"]+).*" "\\1;\\2" parts "${line}")
      list(GET parts 0 root)
      list(GET parts 1 layer)
      if(root STREQUAL "mantissa" AND NOT layer IN_LIST depends AND NOT layer STREQUAL name)
        message(FATAL_ERROR "${file} includes layer ${layer}; layer ${name} may include: ${name};${depends}")
      elseif(NOT root STREQUAL "mantissa" AND plain)
        message(FATAL_ERROR "${file} includes LibTorch; layer ${name} is PLAIN")
      endif()
    endforeach()
  endforeach()
endfunction()
