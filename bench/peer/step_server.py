"""What the steps of bench/peer have in common: their input, their optimizer, and an answer a line."""

import itertools
import sys

import torch
from safetensors import safe_open


def read_input(file, threads):
    """The tensors, their settings, and the batches (tokens, targets), which are taken out of the tensors."""
    torch.set_num_threads(int(threads))
    with safe_open(file, "pt") as opened:
        settings = opened.metadata()
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}
    return tensors, settings, list(zip(tensors.pop("tokens"), tensors.pop("targets")))


def parameters_of(tensors):
    """A parameter's name has no dots in Python's torch."""
    return torch.nn.ParameterDict({name.replace(".", "/"): torch.nn.Parameter(value) for name, value in tensors.items()})


def adamw(groups, settings, fused):
    return torch.optim.AdamW(
        groups,
        lr=float(settings["lr"]),
        betas=(float(settings["beta1"]), float(settings["beta2"])),
        eps=float(settings["eps"]),
        weight_decay=float(settings["weight_decay"]),
        fused=fused,
    )


def serve(batches, step):
    """Answers each line on stdin by one step, and its loss on stdout."""
    for _, (tokens, targets) in zip(sys.stdin, itertools.cycle(batches)):
        print(step(tokens, targets).item(), flush=True)
