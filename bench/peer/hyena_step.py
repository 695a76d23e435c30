"""The Hyena of bench/hyena.cpp in Python's torch: same weights and batches, FP32.

    hyena_step.py INPUT.safetensors VARIANT THREADS

INPUT has the parameters, positions, decay, tokens and targets, and the settings in its metadata. Each line
on stdin is answered by one step, and its loss on stdout. Variants: eager, fused (AdamW in one kernel),
compile (and fused).
"""

import sys

import torch
import torch.nn.functional as F
from step_server import adamw, parameters_of, read_input, serve


class Model(torch.nn.Module):
    def __init__(self, tensors, settings):
        super().__init__()
        self.layers = int(settings["layers"])
        self.sine, self.eps = float(settings["sine"]), float(settings["norm_eps"])
        self.register_buffer("positions", tensors.pop("positions"))
        self.register_buffer("decay", tensors.pop("decay"))
        self.weights = parameters_of(tensors)

    def weight(self, name):
        return self.weights[name.replace(".", "/")]

    def norm(self, name, x):
        return F.layer_norm(x, x.shape[-1:], self.weight(f"{name}.weight"), self.weight(f"{name}.bias"), self.eps)

    def filter(self, block):
        x = self.positions
        for layer in ("filter.0", "filter.1"):
            x = torch.sin(F.linear(x, self.weight(f"{block}.{layer}")) * self.sine)
        return (F.linear(x, self.weight(f"{block}.filter.2")) * self.decay).t()

    def convolve(self, x, taps, bias):
        length, size = x.shape[-1], 2 * x.shape[-1]
        spectrum = torch.fft.rfft(x, size) * (torch.fft.rfft(taps, size) / size)
        return torch.fft.irfft(spectrum, size, norm="forward")[..., :length] + x * bias.unsqueeze(-1)

    def mix(self, block, x):
        u = F.linear(x, self.weight(f"{block}.in")).transpose(1, 2)
        short = F.conv1d(u, self.weight(f"{block}.short"), self.weight(f"{block}.short_bias"), padding=2, groups=u.shape[1])
        gate, x1, v = short[..., : x.shape[1]].chunk(3, 1)
        y = self.convolve(v * x1, self.filter(block), self.weight(f"{block}.bias"))
        return F.linear((y * gate).transpose(1, 2), self.weight(f"{block}.out"))

    def forward(self, tokens, targets):
        embedding = self.weight("embedding")
        x = F.embedding(tokens, embedding)
        for block in range(self.layers):
            x = x + self.mix(block, self.norm(f"{block}.mixer_norm", x))
            hidden = F.linear(self.norm(f"{block}.mlp_norm", x), self.weight(f"{block}.up"))
            x = x + F.linear(F.gelu(hidden, approximate="tanh"), self.weight(f"{block}.down"))
        logits = F.linear(self.norm("norm", x), embedding)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main():
    file, variant, threads = sys.argv[1:]
    tensors, settings, batches = read_input(file, threads)
    model = Model(tensors, settings)
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
