# With MANTISSA_CUDA: the language of .cu files, which know plain pointers only (mantissa/ops/cuda).
#
#   CMAKE_CUDA_ARCHITECTURES  default: A100, H100 and H200, B200, and what later devices translate
#   CUDA::cudart_static       for what is linked of them: the runtime itself, so that nothing has to
#                             find LibTorch's copy of it, with which it shares context and streams
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(CMAKE_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin)
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
# --fmad=false: the kernels of updates round each product as those for CPUs do, which is what they are
# tested against bit for bit; all of them wait for memory, not for arithmetic.
# CMake 3.25 does not know that CUDA 13's compiler has C++20.
set(cuda_flags -std=c++20 --fmad=false -O3
  "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra,-Wshadow,-ffp-contract=off")
if(MANTISSA_DEVELOPER)
  list(APPEND cuda_flags -Werror=all-warnings -Xcompiler=-Werror)
endif()
target_compile_options(mantissa-flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_flags}>")
