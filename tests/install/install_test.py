"""Installs the build, builds the examples against the installed package alone, and runs them; and
holds the README to the example that it shows. Run by ctest: install_test.py BUILD_DIR LIBTORCH."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = sys.argv[1]
LIBTORCH = sys.argv[2]


def run(*command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode != 0:
        raise AssertionError(f"{command}: {result.stdout}\n{result.stderr}")
    return result.stdout


class InstallTest(unittest.TestCase):
    def test_examples_build_and_run_against_the_installed_package(self):
        with tempfile.TemporaryDirectory() as temporary:
            prefix, build = pathlib.Path(temporary) / "prefix", pathlib.Path(temporary) / "build"
            run("cmake", "--install", BUILD, "--prefix", prefix)
            self.assertFalse(list(prefix.rglob("*_keys.h")), "private headers were installed")
            run("cmake", "-S", SOURCE / "examples", "-B", build, "-G", "Ninja",
                f"-DCMAKE_PREFIX_PATH={prefix}", f"-DMANTISSA_LIBTORCH={LIBTORCH}")
            run("cmake", "--build", build)
            losses = [float(value) for value in re.findall(r"loss ([0-9.]+)", run(build / "three_lines"))]
            self.assertEqual(len(losses), 4)
            # Targets are sums of 16 normal numbers: a model that learnt nothing has a loss of 16.
            self.assertLess(losses[-1], 4)
            self.assertIn("train", run(prefix / "bin/mantissa", "--help"))

    def test_the_readme_shows_the_example_as_it_is(self):
        blocks = re.findall(r"```cpp\n(.*?)```", (SOURCE / "README.md").read_text(), re.S)
        self.assertEqual(blocks, [(SOURCE / "examples/three_lines.cpp").read_text()])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
