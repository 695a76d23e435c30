#!/usr/bin/env bash
# Tests and measures mantissa on a GPU, in less than eight minutes, and writes one JSON file.
#
#   tools/device_check.sh [--build DIR] [--out FILE] [--seconds N]
#
#   --build DIR    a build with MANTISSA_CUDA and MANTISSA_BENCH, taken as it is (default: build/device,
#                  which is built, optimized, unless it holds a file `carried`)
#   --out FILE     default: build/device_check.json
#   --seconds N    time for a figure (default: 10)
#
# The build is with MANTISSA_LIBTORCH, else with the torch of this machine's Python, else with the
# pinned one, which is fetched. One that was carried here runs with the first two too, of its version. Without a device it says "no CUDA device" and why, writes that into the
# file too, and succeeds: nothing was checked then, and nothing failed.
set -euo pipefail
cd "$(dirname "$0")/.."

build=
out=build/device_check.json
seconds=10
while (($# > 0)); do
  case $1 in
    --build) build=$2 ;;
    --out) out=$2 ;;
    --seconds) seconds=$2 ;;
    *)
      echo "device_check: unknown option $1; see the head of $0" >&2
      exit 2
      ;;
  esac
  shift 2 || {
    echo "device_check: an option without a value; see the head of $0" >&2
    exit 2
  }
done

targets=(mantissa mantissa_bench ops_devices_test other_device_test)
start=$SECONDS
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

libtorch() {
  if [[ -n ${MANTISSA_LIBTORCH:-} ]]; then
    echo "$MANTISSA_LIBTORCH"
  else
    python3 -c 'import torch; print(torch.__path__[0])' 2>/dev/null || tools/setup_libtorch --cuda
  fi
}

if [[ -z $build ]]; then
  build=build/device
  folder=$(libtorch)
  if [[ -e $build/carried ]]; then
    export LD_LIBRARY_PATH=$folder/lib:$PWD/$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  else
    cmake --preset cuda -B "$build" -DMANTISSA_LIBTORCH="$folder" -DCMAKE_BUILD_TYPE=Release \
      -DCMAKE_CXX_FLAGS_RELEASE=-O2 >"$work/configure.log" 2>&1 || {
      cat "$work/configure.log" >&2
      exit 1
    }
    ninja -C "$build" "${targets[@]}" >&2
  fi
fi
echo "device_check: the build took $((SECONDS - start)) s" >&2

# Without a device the tests on it are skipped, with the reason.
"$build/bin/ops_devices_test" --gtest_filter='*HasKernels/cuda' >"$work/probe.txt" 2>&1 || true
reason=$(grep -m 1 -o 'no CUDA device.*' "$work/probe.txt" || true)
if [[ -n $reason ]]; then
  echo "device_check: $reason"
fi

failed=0
for program in ops_devices_test other_device_test; do
  "$build/bin/$program" --gtest_output="json:$work/$program.json" >"$work/$program.txt" 2>&1 || {
    failed=1
    grep -B 8 '^\[  FAILED' "$work/$program.txt" >&2 || tail -n 40 "$work/$program.txt" >&2
  }
done
"$build/bin/mantissa" doctor --json >"$work/doctor.json" 2>/dev/null || echo '{}' >"$work/doctor.json"
if [[ -z $reason ]]; then
  "$build/bin/mantissa_bench" --only '^device/' --seconds "$seconds" --json "$work/bench.json" || failed=1
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader \
    >"$work/smi.txt" 2>/dev/null || true
fi

mkdir -p "$(dirname "$out")"
REASON=$reason WORK=$work OUT=$out BUILD=$build ELAPSED=$((SECONDS - start)) python3 - <<'PYTHON'
import datetime
import json
import os
import pathlib
import subprocess

work = pathlib.Path(os.environ["WORK"])


def read(name):
    path = work / name
    return json.loads(path.read_text()) if path.exists() else None


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def outcome(case):
    return "failed" if case.get("failures") else "skipped" if case["result"] == "SKIPPED" else "passed"


tests = {}
for program in ("ops_devices_test", "other_device_test"):
    report = read(program + ".json") or {"testsuites": []}
    cases = [case for suite in report["testsuites"] for case in suite["testsuite"]]
    counts = {key: sum(outcome(case) == key for case in cases) for key in ("passed", "failed", "skipped")}
    tests[program] = counts | {"on_cuda": sum(case["name"].endswith("/cuda") and outcome(case) == "passed"
                                              for case in cases)}
smi = work / "smi.txt"
bench = read("bench.json") or {}
result = {
    "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    "commit": output_of("git", "describe", "--always", "--dirty"),
    "device": smi.read_text().strip() if smi.exists() else None,
    "no_device": os.environ["REASON"] or None,
    "nvcc": (output_of("nvcc", "--version") or output_of("/usr/local/cuda/bin/nvcc", "--version") or "").split("\n")[-1] or None,
    "doctor": read("doctor.json"),
    "tests": tests,
    "figures": bench.get("figures", []),
    "machine": bench.get("machine"),
    "elapsed_s": int(os.environ["ELAPSED"]),
}
out = pathlib.Path(os.environ["OUT"])
out.write_text(json.dumps(result, indent=1) + "\n")
for program, counts in tests.items():
    print(f"device_check: {program}: " + ", ".join(f"{count} {what}" for what, count in counts.items()))
# GPT-2's share of what the device's tensor cores do at best (989 TFLOP/s of BF16 on an H200).
for figure in result["figures"]:
    if figure["name"] == "device/G2" and "cases" in figure:
        rate = figure["cases"][0]["ours"]["GFLOP/s"] / 1e3
        print(f"device_check: GPT-2 124M: {rate:.0f} TFLOP/s, {rate / 989:.1%} of 989")
print(f"device_check: {out}")
PYTHON
exit "$failed"
