"""The training step of bench/training_step.cpp in Python's torch: same model, weights and batches.

    training_step.py INPUT.safetensors VARIANT THREADS

INPUT has the parameters, tokens and targets, and the settings in its metadata. Each line on stdin is
answered by one step, and its loss on stdout. Variants: eager, fused (AdamW in one kernel), compile (and
fused), autocast (BF16, and fused).
"""

import sys

import torch
import torch.nn.functional as F
from step_server import adamw, parameters_of, read_input, serve


class Model(torch.nn.Module):
    def __init__(self, tensors, settings):
        super().__init__()
        self.layers, self.heads = int(settings["layers"]), int(settings["heads"])
        self.weights = parameters_of(tensors)
        cosines, sines = rotary_tables(tensors, settings)
        self.register_buffer("cosines", cosines)
        self.register_buffer("sines", sines)

    def weight(self, name):
        return self.weights[name.replace(".", "/")]

    def norm(self, name, x):
        return F.layer_norm(x, x.shape[-1:], self.weight(f"{name}.weight"), self.weight(f"{name}.bias"))

    def rotate(self, x):
        low, high = x.chunk(2, -1)
        return x * self.cosines.to(x.dtype) + torch.cat((-high, low), -1) * self.sines.to(x.dtype)

    def attend(self, block, x):
        batch, length, width = x.shape
        q, k, v = F.linear(x, self.weight(f"{block}.attention.qkv.weight")).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True)
        return F.linear(y.transpose(1, 2).reshape(batch, length, width), self.weight(f"{block}.attention.out.weight"))

    def forward(self, tokens, targets):
        embedding = self.weight("embedding.weight")
        x = F.embedding(tokens, embedding)
        for layer in range(self.layers):
            block = f"blocks.{layer}"
            x = x + self.attend(block, self.norm(f"{block}.attention_norm", x))
            hidden = F.linear(self.norm(f"{block}.mlp_norm", x), self.weight(f"{block}.mlp.up.weight"))
            x = x + F.linear(F.gelu(hidden, approximate="tanh"), self.weight(f"{block}.mlp.down.weight"))
        logits = F.linear(self.norm("final_norm", x), embedding)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def rotary_tables(tensors, settings):
    width = tensors["embedding.weight"].shape[1] // int(settings["heads"])
    frequencies = float(settings["rope_base"]) ** (-2.0 * torch.arange(width // 2, dtype=torch.double) / width)
    angles = torch.outer(torch.arange(int(settings["context"]), dtype=torch.double), frequencies).repeat(1, 2)
    return angles.cos().float(), angles.sin().float()


def main():
    file, variant, threads = sys.argv[1:]
    tensors, settings, batches = read_input(file, threads)
    model = Model(tensors, settings)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() == 1]
    optimizer = adamw([{"params": decayed}, {"params": plain, "weight_decay": 0.0}], settings, fused=variant != "eager")
    loss_of = torch.compile(model) if variant == "compile" else model

    def step(tokens, targets):
        with torch.autocast("cpu", torch.bfloat16, enabled=variant == "autocast"):
            loss = loss_of(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), float(settings["clip"]))
        optimizer.step()
        optimizer.zero_grad()
        return loss

    serve(batches, step)


if __name__ == "__main__":
    main()
