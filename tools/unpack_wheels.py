"""Unpacks what a build against LibTorch needs from wheels: unpack_wheels.py cpu|cuda FROM TO."""
import pathlib
import sys
import zipfile

CPU_PREFIXES = ("torch/include/", "torch/version.py", "nvidia/cu13/lib/libcudart.so", "nvidia/cu13/lib/libcupti.so")
CPU_LIBRARIES = {"torch/lib/libtorch_cpu.so", "torch/lib/libc10.so", "torch/lib/libgomp.so.1"}


def wanted(name: str, kind: str) -> bool:
    return kind == "cuda" or name.startswith(CPU_PREFIXES) or name in CPU_LIBRARIES


def main() -> int:
    kind, source, target = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    for wheel in sorted(source.glob("*.whl")):
        try:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(target, [name for name in archive.namelist() if wanted(name, kind)])
        except (OSError, zipfile.BadZipFile) as error:
            print(f"setup: {wheel.name}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
