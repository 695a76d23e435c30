#!/usr/bin/env bash
# Compiles the kernels for devices where a compiler for them is there; they need no LibTorch.
#
#   compile_kernels.sh cuda   nvcc, for sm_80, sm_90 and sm_100
#   compile_kernels.sh hip    hipcc, for gfx90a
#
# Exits with 77 and the reason where the compiler is not installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

skip() {
  echo "skipped: $1"
  exit 77
}

# check_architecture SOURCE OBJECT NAME: whether the kernels of SOURCE, if any, are there for it.
check_architecture() {
  if grep -q __global__ "$1" && [[ $(strings -a "$2" | grep -c "$3") == 0 ]]; then
    echo "$1: no code for $3" >&2
    return 1
  fi
}

compile_cuda() {
  local nvcc
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) || skip "nvcc is not installed"
  # Not compressed, so that the names of architectures can be read.
  "$nvcc" -std=c++20 -O1 --fmad=false --no-compress -Werror=all-warnings -I. \
    -Xcompiler=-Wall,-Wextra,-Wshadow,-Werror -gencode arch=compute_80,code=sm_80 \
    -gencode arch=compute_90,code=sm_90 -gencode arch=compute_100,code=sm_100 \
    -c "$1" -o "$2"
  for architecture in sm_80 sm_90 sm_100; do
    check_architecture "$1" "$2" "$architecture"
  done
}

compile_hip() {
  command -v hipcc >/dev/null || skip "hipcc is not installed"
  hipcc --offload-arch=gfx90a -std=c++20 -O1 -ffp-contract=off -Wall -Wextra -Werror -I. -c "$1" -o "$2"
  check_architecture "$1" "$2" gfx90a
}

for source in mantissa/ops/cuda/*.cu; do
  "compile_$1" "$source" "$out/$(basename "$source").o"
  echo "$source: compiled"
done
