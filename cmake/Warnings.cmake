# Flags of every target of ours, as one interface target that is never exported.
add_library(mantissa-flags INTERFACE)
target_compile_features(mantissa-flags INTERFACE cxx_std_20)
# -fPIC also for programs: a precompiled header that was built without it is silently ignored.
# -fopenmp: without it at::parallel_for in a file of ours is silently sequential.
# -ffp-contract=off: a result must not depend on whether a compiler saw a fused multiply-add.
set(cxx_flags
  -fPIC -fopenmp -fvisibility=hidden -fvisibility-inlines-hidden -ffp-contract=off
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers)
if(MANTISSA_DEVELOPER)
  list(APPEND cxx_flags -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND cxx_flags -Winvalid-pch)
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
    message(FATAL_ERROR "g++ ${CMAKE_CXX_COMPILER_VERSION}; mantissa needs C++20 as of g++ 12 or newer")
  endif()
endif()
target_compile_options(mantissa-flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${cxx_flags}>")
