"""mantissa beside Python's torch: the same model, weights and batches, on one thread.

Runs tests/peer/peer_curves.cpp (its program in $PEER_CURVES) and compares bit for bit: the loss curve
under torch.autocast in BF16, and losses and scales in FP16 with torch.amp.GradScaler, whose scale grows
and backs off many times. `./run test --peer` runs this in the environment of tools/setup_peer.
"""

import os
import pathlib
import subprocess
import tempfile
import unittest

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file

WIDTH, TOKENS, BATCH, LENGTH = 32, 16, 4, 12
BF16_STEPS, FP16_STEPS = 40, 200
GROWTH_INTERVAL = 5


def make_input():
    torch.manual_seed(31)

    def weight(*shape):
        return torch.randn(shape) * 0.2

    parameters = {
        "embedding": weight(TOKENS, WIDTH),
        "qkv": weight(3 * WIDTH, WIDTH),
        "out": weight(WIDTH, WIDTH),
        "up": weight(4 * WIDTH, WIDTH),
        "up_bias": torch.zeros(4 * WIDTH),
        "down": weight(WIDTH, 4 * WIDTH),
        "down_bias": torch.zeros(WIDTH),
        "head": weight(TOKENS, WIDTH),
    }
    for name in ("norm1", "norm2", "norm3"):
        parameters[f"{name}.weight"] = torch.ones(WIDTH)
        parameters[f"{name}.bias"] = torch.zeros(WIDTH)
    tokens = torch.randint(TOKENS, (FP16_STEPS, BATCH, LENGTH))
    tensors = {f"parameter.{name}": value for name, value in parameters.items()}
    return tensors | {"tokens": tokens, "targets": (tokens + tokens.roll(1, -1)) % TOKENS}


def parameters_of(tensors):
    prefix = "parameter."
    return {name.removeprefix(prefix): value.clone().requires_grad_() for name, value in sorted(tensors.items()) if name.startswith(prefix)}


def loss_of(p, tokens, targets):
    def norm(name, x):
        return F.layer_norm(x, (WIDTH,), p[f"{name}.weight"], p[f"{name}.bias"])

    x = F.embedding(tokens, p["embedding"])
    q, k, v = F.linear(norm("norm1", x), p["qkv"]).chunk(3, -1)
    scores = torch.matmul(q, k.transpose(-2, -1)) * 0.25
    x = x + F.linear(torch.matmul(F.softmax(scores, -1), v), p["out"])
    x = x + F.linear(F.gelu(F.linear(norm("norm2", x), p["up"], p["up_bias"])), p["down"], p["down_bias"])
    logits = F.linear(norm("norm3", x), p["head"])
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def curve(parameters, losses):
    return {"losses": torch.stack(losses)} | {f"parameter.{name}": value.detach() for name, value in parameters.items()}


def train_bf16(tensors, autocast=True):
    parameters = parameters_of(tensors)
    optimizer = torch.optim.AdamW(parameters.values(), lr=1e-2, foreach=False)
    losses = []
    for step in range(BF16_STEPS):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = loss_of(parameters, tensors["tokens"][step], tensors["targets"][step])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return curve(parameters, losses)


def train_fp16(tensors):
    parameters = parameters_of(tensors)
    optimizer = torch.optim.AdamW(parameters.values(), lr=1e-2, foreach=False)
    scaler = torch.amp.GradScaler("cpu", growth_interval=GROWTH_INTERVAL)
    losses, scales = [], []
    for step in range(FP16_STEPS):
        with torch.autocast("cpu", torch.float16):
            loss = loss_of(parameters, tensors["tokens"][step], tensors["targets"][step])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.detach())
        scales.append(torch.tensor(scaler.get_scale()))
    return curve(parameters, losses) | {"scales": torch.stack(scales)}


class Peer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        cls.input = make_input()
        with tempfile.TemporaryDirectory() as folder:
            given, written = pathlib.Path(folder) / "input.safetensors", pathlib.Path(folder) / "ours.safetensors"
            save_file(cls.input, given)
            subprocess.run([os.environ["PEER_CURVES"], given, written], check=True)
            with safe_open(written, "pt") as file:
                version = file.metadata()["torch"]
                cls.ours = {name: file.get_tensor(name) for name in file.keys()}
        if version != torch.__version__.split("+")[0]:
            raise RuntimeError(f"mantissa was built with LibTorch {version}, Python's torch is {torch.__version__}; unset MANTISSA_LIBTORCH")

    def expect_same(self, name, theirs):
        ours = {key.removeprefix(name): value for key, value in self.ours.items() if key.startswith(name)}
        self.assertEqual(ours.keys(), theirs.keys())
        for key, value in theirs.items():
            self.assertTrue(torch.equal(ours[key], value), f"{name}{key}: {ours[key]} and {value}")

    def test_bf16_curve_is_that_of_torch_bit_for_bit(self):
        theirs = train_bf16(self.input)
        self.expect_same("bf16.", theirs)
        self.assertFalse(torch.equal(theirs["losses"], train_bf16(self.input, autocast=False)["losses"]), "nothing was cast")
        self.assertLess(theirs["losses"][-1], 0.9 * theirs["losses"][0])

    def test_fp16_losses_and_scales_are_those_of_grad_scaler_bit_for_bit(self):
        theirs = train_fp16(self.input)
        self.expect_same("fp16.", theirs)
        changes = theirs["scales"].diff()
        for what, count in (("growths", (changes > 0).sum()), ("overflows", (changes < 0).sum())):
            self.assertGreaterEqual(count, 10, what)


if __name__ == "__main__":
    unittest.main()
