"""The Hyena of bench/hyena.cpp in Python's torch: same weights and batches, FP32.

    hyena_step.py INPUT.safetensors VARIANT THREADS

INPUT has the parameters, tokens and targets, and the settings in its metadata. Each line on stdin is
answered by one step, and its loss on stdout. Variants: eager, fused (AdamW in one kernel), compile (and fused).
"""

import math
import sys

import torch
import torch.nn.functional as F
from step_server import adamw, parameters_of, read_input, serve


class Model(torch.nn.Module):
    def __init__(self, tensors, settings, context):
        super().__init__()
        self.layers, self.eps = int(settings["layers"]), float(settings["norm_eps"])
        self.weights = parameters_of(tensors)
        t = torch.linspace(0, 1, context, dtype=torch.float64).unsqueeze(1)
        bands = int(settings["bands"])
        angle = torch.arange(context, dtype=torch.float64).unsqueeze(1) * (2 * math.pi / context) * torch.linspace(1e-4, bands - 1, bands, dtype=torch.float64)
        self.register_buffer("positions", torch.cat([t, angle.cos(), -angle.sin()], 1).float())
        target = math.log(float(settings["decay_target"]))
        width = self.weight("embedding.weight").shape[1]
        rates = torch.linspace(target / float(settings["slow_decay"]), target / float(settings["fast_decay"]), width, dtype=torch.float64)
        self.register_buffer("decay", (t * rates).exp().float())

    def weight(self, name):
        return self.weights[name.replace(".", "/")]

    def linear(self, name, x):
        return F.linear(x, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"))

    def norm(self, name, x):
        return F.layer_norm(x, x.shape[-1:], self.weight(f"{name}.weight"), self.weight(f"{name}.bias"), self.eps)

    def filter(self, name):
        x = self.positions
        for layer in range(3):
            x = torch.sin(self.weight(f"{name}.frequency") * self.linear(f"{name}.layers.{layer}", x))
        return (F.linear(x, self.weight(f"{name}.last.weight")) * self.decay).t()

    def convolve(self, x, taps, bias):
        length, size = x.shape[-1], 2 * x.shape[-1]
        spectrum = torch.fft.rfft(x, size) * (torch.fft.rfft(taps, size) / size)
        return torch.fft.irfft(spectrum, size, norm="forward")[..., :length] + x * bias.unsqueeze(-1)

    def mix(self, name, x):
        u = self.linear(f"{name}.in", x).transpose(1, 2)
        short = F.conv1d(u, self.weight(f"{name}.short.weight"), self.weight(f"{name}.short.bias"), padding=2, groups=u.shape[1])
        gate, x1, v = short[..., : x.shape[1]].chunk(3, 1)
        y = self.convolve(v * x1, self.filter(f"{name}.filter"), self.weight(f"{name}.filter.bias"))
        return self.linear(f"{name}.out", (y * gate).transpose(1, 2))

    def forward(self, tokens, targets):
        embedding = self.weight("embedding.weight")
        x = F.embedding(tokens, embedding)
        for layer in range(self.layers):
            block = f"blocks.{layer}"
            x = x + self.mix(f"{block}.hyena", self.norm(f"{block}.hyena_norm", x))
            hidden = self.linear(f"{block}.mlp.up", self.norm(f"{block}.mlp_norm", x))
            x = x + self.linear(f"{block}.mlp.down", F.gelu(hidden, approximate="tanh"))
        logits = F.linear(self.norm("final_norm", x), embedding)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main():
    file, variant, threads = sys.argv[1:]
    tensors, settings, batches = read_input(file, threads)
    model = Model(tensors, settings, batches[0][0].shape[-1])
    optimizer = adamw(model.parameters(), settings, fused=variant != "eager")
    loss_of = torch.compile(model) if variant == "compile" else model

    def step(tokens, targets):
        loss = loss_of(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    serve(batches, step)


if __name__ == "__main__":
    main()
