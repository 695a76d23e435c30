"""mantissa's Hyena beside another program's HyenaDNA: that of multimolecule, in Python's torch.

Runs tests/peer/peer_hyena.cpp (its program in $PEER_HYENA), which loads weights from here by its table
of names, and compares logits, loss, and the gradient of every weight. `./run test --peer` runs this in
the environment of tools/setup_peer.
"""

import contextlib
import importlib
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

import torch
from safetensors import safe_open
from safetensors.torch import save_file

LAYERS, WIDTH, POSITIONS, VOCABULARY = 3, 32, 200, 12
BATCH, LENGTH = 2, 131  # fewer than the positions, and odd
SIZES = {"tiny-1k": (2, 128), "tiny-1k-d256": (2, 256), "small-32k": (4, 256), "large-1m": (8, 256)}


def import_hyenadna():
    """Of the package the modules of this model alone, as they are; all of it needs dozens of others."""
    root = pathlib.Path(importlib.util.find_spec("multimolecule").origin).parent
    for name, folder in (("multimolecule", root), ("multimolecule.models", root / "models"), ("multimolecule.models.hyenadna", root / "models/hyenadna")):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [str(folder)]
    # What they import and a language model does not use.
    unused = {
        "multimolecule.modules": ("BaseHeadConfig", "HeadConfig", "MaskedLMHeadConfig", "SequencePredictionHead", "TokenPredictionHead"),
        "danling": ("NestedTensor",),
    }
    for name, classes in unused.items():
        sys.modules[name] = types.ModuleType(name)
        for cls in classes:
            setattr(sys.modules[name], cls, type(cls, (), {}))
    package = "multimolecule.models.hyenadna"
    return importlib.import_module(f"{package}.modeling_hyenadna"), importlib.import_module(f"{package}.configuration_hyenadna")


modeling, configuration = import_hyenadna()


def config(layers, width, positions):
    return configuration.HyenaDnaConfig(
        vocab_size=VOCABULARY, hidden_size=width, num_hidden_layers=layers, max_position_embeddings=positions, embedding_dropout=0.0
    )


@contextlib.contextmanager
def default_dtype(dtype):
    """Tables of positions are then made in it, by the constructor and again by the first forward pass."""
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def make_model():
    return modeling.HyenaDnaForCausalLM(config(LAYERS, WIDTH, POSITIONS))


def random_weights(model):
    """Of a size that shows all parts; one frequency for the layers of a filter, as in its authors' model."""
    torch.manual_seed(41)
    weights = {}
    for name, value in model.state_dict().items():
        if name == "lm_head.weight":
            weights[name] = weights["model.embeddings.word_embeddings.weight"].clone()
        elif name.endswith((".3.freq", ".5.freq")):
            weights[name] = weights[name[: -len("3.freq")] + "1.freq"].clone()
        elif name.endswith("freq"):
            weights[name] = 10 + torch.randn(value.shape)
        elif "norm" in name and name.endswith("weight"):
            weights[name] = 1 + 0.2 * torch.randn(value.shape)
        elif "implicit_filter" in name:
            weights[name] = 0.05 * torch.randn(value.shape)
        else:
            weights[name] = torch.randn(value.shape) * (0.3 if value.dim() == 1 else value[0].numel() ** -0.5)
    return weights


def direct_convolution(u, k, D):
    """The FFT of theirs is FP32 in every format; sums over taps are not."""
    out = u * D.unsqueeze(-1)
    for s in range(u.shape[-1]):
        out[..., s:] = out[..., s:] + u[..., : u.shape[-1] - s] * k[:, s, None]
    return out


def results(model, weights, tokens, targets):
    model.load_state_dict(weights)
    logits = model.lm_head(model.model(input_ids=tokens).last_hidden_state)  # forward() rounds them to FP32
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    gradients = {f"gradient.{name}": parameter.grad for name, parameter in model.named_parameters()}
    for layer in range(LAYERS):
        sines = [gradients.pop(f"gradient.model.layers.{layer}.mixer.filter_fn.implicit_filter.{i}.freq") for i in (1, 3, 5)]
        gradients[f"gradient.model.layers.{layer}.mixer.filter_fn.implicit_filter.1.freq"] = sum(sines).squeeze(0)
    return {"logits": logits.detach(), "loss": loss.detach()} | gradients


def error(a, exact):
    """Relative, of all numbers together."""
    return ((a.double() - exact).norm() / exact.norm()).item()


class Hyena(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        torch.manual_seed(43)
        tokens = torch.randint(6, VOCABULARY, (BATCH, LENGTH))  # not the padding, whose gradient theirs drops
        targets = torch.randint(VOCABULARY, (BATCH, LENGTH))
        model = make_model()
        weights = random_weights(model)
        cls.fp32 = results(model, weights, tokens, targets)
        fftconv, modeling.fftconv = modeling.fftconv, direct_convolution
        try:
            with default_dtype(torch.float64):
                cls.exact = results(make_model(), {name: value.double() for name, value in weights.items()}, tokens, targets)
        finally:
            modeling.fftconv = fftconv
        settings = {"layers": str(LAYERS), "width": str(WIDTH), "positions": str(POSITIONS), "decay_shift": "0.05"}
        with tempfile.TemporaryDirectory() as folder:
            given, written = pathlib.Path(folder) / "input.safetensors", pathlib.Path(folder) / "ours.safetensors"
            save_file({f"weights.{name}": value for name, value in weights.items()} | {"tokens": tokens, "targets": targets}, given, settings)
            subprocess.run([os.environ["PEER_HYENA"], given, written], check=True)
            with safe_open(written, "pt") as file:
                cls.counts = file.metadata()
                cls.ours = {name: file.get_tensor(name) for name in file.keys()}

    def pairs(self, prefix):
        ours = {name.removeprefix(prefix): value for name, value in self.ours.items() if name.startswith(prefix)}
        self.assertEqual(ours.keys(), self.exact.keys())
        return ours.items()

    def test_in_fp64_outputs_and_gradients_are_the_same(self):
        # Roundings of 2^-53, in sums of up to 131 * 32 terms, through 3 blocks with sines of
        # frequency 10: 1e-16 * 4192 * 3 * 10 at the very most.
        for name, value in self.pairs("fp64."):
            self.assertLess(error(value, self.exact[name]), 1e-11, name)

    def test_in_fp32_ours_is_as_near_to_the_exact_values_as_theirs(self):
        # Both round the same operations to the same format, in other orders; theirs computes positions
        # in FP32 too. Nothing allows ours an error of another size.
        for name, value in self.pairs("fp32."):
            theirs = error(self.fp32[name], self.exact[name])
            self.assertLess(error(value, self.exact[name]), 2 * theirs + 2**-22, name)
            self.assertLess(theirs, 1e-4, name)

    def test_parameter_counts_are_theirs(self):
        for size, (layers, width) in SIZES.items():
            theirs = sum(p.numel() for p in modeling.HyenaDnaForCausalLM(config(layers, width, 64)).parameters())
            own_frequencies = layers * 2 * 64  # for each layer of a filter, where ours and its authors' share one
            self.assertEqual(int(self.counts[f"parameters.{size}"]), theirs - own_frequencies, size)


if __name__ == "__main__":
    unittest.main()
