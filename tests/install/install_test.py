"""Installs the build, builds the examples against the installed package alone, and runs them; and
holds the README to the example that it shows. Run by ctest: install_test.py BUILD_DIR LIBTORCH."""

import os
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
    # The programs are small: threads would only wait for each other.
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1"})
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
            self.check_examples(lambda name: run(build / name))
            self.assertIn("train", run(prefix / "bin/mantissa", "--help"))
            self.assertIn("RUN", run(prefix / "bin/mantissa-report", "--help"))

    def check_examples(self, output_of):
        for name in ["three_lines", "gradient_accumulation", "port_from_python"]:
            output = output_of(name)
            losses = [float(value) for value in re.findall(r"loss ([0-9.]+)", output)]
            self.assertEqual(len(losses), 4, name)
            # Targets are sums of 16 normal numbers: a model that learnt nothing has a loss of 16.
            self.assertLess(losses[-1], 4, name)
        applied, skipped = map(int, re.search(r"(\d+) applied, (\d+) skipped", output).groups())
        self.assertEqual(applied + skipped, 200)
        self.assertGreater(skipped, 0, "a scale of 2^24 times gradients above 2^-8 is beyond FP16")
        self.assertGreater(applied, 150)

        moments = re.findall(r"mean (\S+) deviation (\S+),", output_of("gan"))
        self.assertGreater(abs(float(moments[0][0]) - 3), 2, "it had to learn the mean")
        self.assertAlmostEqual(float(moments[-1][0]), 3, delta=0.5)
        self.assertAlmostEqual(float(moments[-1][1]), 2, delta=0.5)

        # Guessing one of ten digits is right in 10 % of the cases.
        recognized = float(re.search(r"([0-9.]+) % of 1000", output_of("mnist_size")).group(1))
        self.assertGreater(recognized, 80)

        self.assertEqual(output_of("own_function"), "backward multiplied in Half\n"
                         "forward in Half, gradient in Float, right\n")
        self.assertEqual(output_of("own_policy"),
            "torch-fixed compute=fp16: encoder in Half, head in Half, result inf\n"
            "torch-fixed compute=fp16 scope:head=fp32: encoder in Half, head in Float, result 65536\n")

        # A probability underflows before its logarithm, or exp overflows: as the processor rounds.
        report = output_of("watch")
        self.assertRegex(report, r"^step \d+: the first value that is not finite is (inf from aten::exp|-inf from aten::log) in fp32 \(loss\), whose self is ")
        self.assertRegex(report, r"looked at \d of \d+ steps, which cost [0-9.]+ % of their time\n$")

    def test_the_readme_shows_the_example_as_it_is(self):
        blocks = re.findall(r"```cpp\n(.*?)```", (SOURCE / "README.md").read_text(), re.S)
        self.assertEqual(blocks, [(SOURCE / "examples/three_lines.cpp").read_text()])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
