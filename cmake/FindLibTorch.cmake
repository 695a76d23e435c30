# Imported targets for LibTorch, without find_package(Torch): that one fails for a CUDA build of
# LibTorch on a machine without a CUDA toolkit, and writes absolute paths into exported targets.
#
#   MANTISSA_LIBTORCH  folder with include/ and lib/ (cache or environment variable)
#   Torch::torch_cpu   tensors, autograd, dispatcher, c10d; brings Torch::c10
#   LibTorch_VERSION   supported: 2.11 to 2.15
#
# With MANTISSA_CUDA it also brings LibTorch's CUDA part, which needs the full wheels
# (tools/setup_libtorch --cuda).

set(MANTISSA_LIBTORCH "$ENV{MANTISSA_LIBTORCH}" CACHE PATH "LibTorch folder with include/ and lib/")

find_path(LibTorch_INCLUDE_DIR ATen/core/Tensor.h HINTS ${MANTISSA_LIBTORCH}/include NO_DEFAULT_PATH)
set(LibTorch_libraries torch_cpu c10)
if(MANTISSA_CUDA)
  list(APPEND LibTorch_libraries torch_cuda c10_cuda)
endif()
foreach(name ${LibTorch_libraries})
  find_library(LibTorch_${name}_LIBRARY ${name} HINTS ${MANTISSA_LIBTORCH}/lib NO_DEFAULT_PATH)
endforeach()

if(LibTorch_INCLUDE_DIR)
  set(version_header ${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h)
  if(NOT EXISTS ${version_header})
    set(version_header ${LibTorch_INCLUDE_DIR}/torch/csrc/api/include/torch/version.h)
  endif()
  file(STRINGS ${version_header} version_lines REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9;]" "" version_numbers "${version_lines}")
  list(JOIN version_numbers "." LibTorch_VERSION)
endif()

list(TRANSFORM LibTorch_libraries REPLACE "(.+)" "LibTorch_\\1_LIBRARY" OUTPUT_VARIABLE LibTorch_required)
list(APPEND LibTorch_required LibTorch_INCLUDE_DIR)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS ${LibTorch_required}
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "set MANTISSA_LIBTORCH to a folder with include/ and lib/, or build with ./run, which fetches one")

if(LibTorch_FOUND AND (LibTorch_VERSION VERSION_LESS 2.11 OR LibTorch_VERSION VERSION_GREATER_EQUAL 2.16))
  message(FATAL_ERROR "LibTorch ${LibTorch_VERSION} in ${MANTISSA_LIBTORCH}; mantissa supports 2.11 to 2.15")
endif()

if(LibTorch_FOUND AND NOT TARGET Torch::torch_cpu)
  foreach(name c10 torch_cpu)
    add_library(Torch::${name} SHARED IMPORTED)
    set_target_properties(Torch::${name} PROPERTIES IMPORTED_LOCATION ${LibTorch_${name}_LIBRARY})
    target_include_directories(Torch::${name} SYSTEM INTERFACE
      ${LibTorch_INCLUDE_DIR} ${LibTorch_INCLUDE_DIR}/torch/csrc/api/include)
  endforeach()
  target_link_libraries(Torch::torch_cpu INTERFACE Torch::c10)
  # LibTorch's own OpenMP runtime: a second one in the process would double every thread pool.
  get_filename_component(library_dir ${LibTorch_torch_cpu_LIBRARY} DIRECTORY)
  target_link_options(Torch::torch_cpu INTERFACE -Wl,-rpath-link,${library_dir})
  if(MANTISSA_CUDA)
    # Nothing calls into them by name: loading them registers the device.
    target_link_libraries(Torch::torch_cpu INTERFACE -Wl,--no-as-needed
      ${LibTorch_torch_cuda_LIBRARY} ${LibTorch_c10_cuda_LIBRARY} -Wl,--as-needed)
    file(GLOB nvidia_dirs ${library_dir}/../../nvidia/*/lib)
    list(TRANSFORM nvidia_dirs PREPEND -Wl,-rpath-link,)
    target_link_options(Torch::torch_cpu INTERFACE ${nvidia_dirs})
  endif()
endif()
