"""The NaN benchmark in Python, scored for torch's anomaly mode beside mantissa.

Runs each step of nan_cases.py under torch.autograd.set_detect_anomaly(True) and asks what of the fault a
reader is told; tests/nan_benchmark/truth.json says what is true, and $NAN_BENCHMARK is the program whose
`--json` has what mantissa named. `./run test --peer` runs this in the environment of tools/setup_peer.

The rule is generous. A fault counts as named when
- the backward pass stops with "Function 'X' returned nan values" and X is the node that is to be named or,
  of a fault of the forward pass, a node of that operation: then the traceback that anomaly mode prints shows
  its line, which counts as the scope;
- or the step itself raises an error in the operation that is to be named, with or without anomaly mode.
Formats, casts and whether the loss scale is to blame are not asked for.
"""

import json
import os
import pathlib
import re
import subprocess
import unittest
import warnings

import torch
from nan_cases import CASES

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TRUTH = SOURCE / "tests" / "nan_benchmark" / "truth.json"

# The nodes that an operation of the forward pass leaves, where they are not called as it is.
NODES = {
    "linear": {"mm", "addmm", "t"},
    "matmul": {"mm", "bmm", "mv", "dot", "unsafeview"},
    "einsum": {"bmm", "mm"},
    "bilinear": {"trilinear"},
    "conv1d": {"convolution"},
    "conv2d": {"convolution"},
    "conv3d": {"convolution"},
    "convtranspose1d": {"convolution"},
    "convtranspose2d": {"convolution"},
    "layernorm": {"nativelayernorm"},
    "groupnorm": {"nativegroupnorm"},
    "instancenorm": {"nativebatchnorm"},
    "batchnorm": {"nativebatchnorm"},
    "crossentropyloss": {"nllloss", "logsoftmax"},
    "poissonnllloss": {"exp", "log", "sub", "mul"},
    "maxpool2d": {"maxpool2dwithindices"},
    "to": {"tocopy"},
    "rsqrt": {"rsqrt"},
}


def plain(name):
    """`logsoftmax` of `aten::log_softmax_`, `LogSoftmaxBackward0`."""
    return re.sub(r"Backward\d*$", "", name).removeprefix("aten::").replace("_", "").lower()


def same_place(node, truth):
    if truth["pass"] == "backward":
        return node == truth["operation"]
    operation = plain(truth["operation"])
    return plain(node) == operation or plain(node) in NODES.get(operation, set())


def run(name, is_faulty, scale):
    """The node or the operation that is blamed; empty: none."""
    faulty, healthy, step = CASES[name]
    x = (faulty if is_faulty else healthy).clone().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.set_detect_anomaly(True):
            try:
                y = step(x, is_faulty)
            except (RuntimeError, IndexError) as error:
                found = re.search(r"Function '(\w+)' returned nan", str(error))
                return found.group(1) if found else "error"
            if y is None or not y.requires_grad:
                return ""
            try:
                (y.float().sum() * scale).backward()
            except RuntimeError as error:
                found = re.search(r"Function '(\w+)' returned nan", str(error))
                if found is None:
                    raise
                return found.group(1)
    return ""


def is_named(truth):
    blamed = run(truth["name"], True, truth.get("scale", 1))
    if blamed == "error":
        return truth["finding"] in ("constant", "half-fft", "index")
    return bool(blamed) and same_place(blamed, truth)


class AnomalyMode(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        cls.truths = json.loads(TRUTH.read_text())["cases"]
        program = subprocess.run([os.environ["NAN_BENCHMARK"], "--json"], stdout=subprocess.PIPE, text=True)
        cls.ours = {case["name"]: case["exact"] for case in json.loads(program.stdout)["cases"]}

    def test_every_case_is_there_in_both_languages(self):
        names = {truth["name"] for truth in self.truths}
        self.assertEqual(names, set(CASES))
        self.assertEqual(names, set(self.ours))

    def test_no_twin_is_blamed(self):
        for truth in self.truths:
            self.assertEqual(run(truth["name"], False, truth.get("scale", 1)), "", truth["name"])

    def test_who_names_what(self):
        rows = {}
        for truth in self.truths:
            row = rows.setdefault(truth["kind"], [0, 0, 0])
            row[0] += 1
            row[1] += self.ours[truth["name"]]
            row[2] += is_named(truth)
        rows["all"] = [sum(column) for column in zip(*rows.values())]
        print("\n| kind | cases | mantissa | anomaly mode |\n| --- | --- | --- | --- |")
        for kind, row in rows.items():
            print(f"| {kind} | {' | '.join(map(str, row))} |")
        self.assertGreater(rows["all"][1], rows["all"][2])
        # It does name the classical case.
        self.assertTrue(is_named(next(truth for truth in self.truths if truth["name"] == "where_hides_the_root_of_zero")))


if __name__ == "__main__":
    unittest.main()
