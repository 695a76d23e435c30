"""Records for tests, in the format of docs/formats/record.md."""

import json
import math
import random

CONFIG = """[data]
fasta = '/data/{fasta}'
validation = ['{held_out}']

[train]
steps = {steps}
seed = {seed}

[precision]
compute = '{precision}'
policy = 'torch-fixed'
"""


def line(kind, **keys):
    return json.dumps({"schema": 1, "time_s": 1796046992.25, "type": kind, **keys}) + "\n"


def statistics(random_, share=0.01):
    return {"norm": random_.uniform(0.01, 1), "largest": 2.0 ** random_.uniform(-12, 0), "smallest": 1e-9,
            "zeros": 0.0, "non_finite": 0.0, "fp32_subnormal": 0.0, "fp16_zero": random_.uniform(0, share),
            "fp16_subnormal": random_.uniform(0, 0.5), "fp16_infinite": 0.0}


def value_range(random_, kind, scope):
    """A bell of exponents, as values of a layer have."""
    first, counts = random_.randint(-30, -12), [1, 4, 20, 90, 400, 1200, 1600, 800, 200, 30, 2]
    total = sum(counts)
    return {"kind": kind, "scope": scope, "name": "aten::mm", "format": "fp16", "count": total + 7, "zeros": 7, "nan": 0,
            "positive_infinity": 0, "negative_infinity": 0, "smallest": 2.0 ** first,
            "largest": 1.5 * 2.0 ** (first + len(counts) - 1), "first_exponent": first, "exponents": counts,
            "narrow": {"bf16": {"zero": 0, "subnormal": 0, "overflow": 0},
                       "fp16": {"zero": sum(counts[:max(0, -24 - first)]), "subnormal": 9, "overflow": 0},
                       "fp8_e4m3": {"zero": sum(counts[:max(0, -9 - first)]), "subnormal": 9, "overflow": 0},
                       "fp8_e5m2": {"zero": sum(counts[:max(0, -16 - first)]), "subnormal": 9, "overflow": 0}}}


def operation(phase, name, kind, fmt, time_s, **keys):
    return {"phase": phase, "scope": "blocks.*.mlp", "operation": name, "kind": kind, "format": fmt, "calls": 8,
            "time_s": time_s, "flops": 1e9 if kind == "product" else 0.0, "bytes": 1e6, "eligible": kind == "product",
            "in_16_bits": fmt != "fp32", "reason": "", "detail": "", **keys}


def time_split(step, precision):
    """A step of 50 ms, of which casts take 15 in 16 bits."""
    casts = 0.0 if precision == "fp32" else 0.015
    fmt = "fp32" if precision == "fp32" else precision
    rows = [operation("backward", "aten::mm", "product", fmt, 0.015),
            operation("forward", "aten::mm", "product", fmt, 0.008),
            operation("backward", "GeluBackward0", "other", "fp32", 0.004, reason="kind")]
    if casts:
        rows.append(operation("forward", "aten::_to_copy", "cast", "fp32", casts, reason="cast"))
    return line("time_split", step=step, step_time_s=0.05, look_s=0.001, operations=rows,
                phases={"data": 0.001, "forward": 0.01, "backward": 0.034 - casts, "casts": casts, "optimizer": 0.004,
                        "other": 0.001})


def write(folder, steps=100, seed=1, precision="fp32", layers=0, gradients_every=20, ranges_every=0, skipped=(), ended=True,
          fasta="lambda.fa", held_out="chr1:1-100", parameter="blocks.#.weight", message=None, wait_s=0.0,
          cpu="A processor", versions=None, time_split_every=0):
    """The folder of a run with its record. All values follow from the arguments."""
    random_ = random.Random(f"{steps} {seed} {precision}")
    folder.mkdir(parents=True)
    scale = 2.0 ** 16 if precision == "fp16" else 1.0
    with open(folder / "record.jsonl", "w") as out:
        out.write(line("run_start", config=CONFIG.format(fasta=fasta, held_out=held_out, steps=steps, seed=seed,
                                                         precision=precision),
                       versions=versions or {"libtorch": "2.13.0", "mantissa": "0.1.0"}, cpu=cpu, resumed_from=-1))
        for step in range(1, steps + 1):
            bits = 1.9 + 2 * math.exp(-step / (0.1 * steps)) + random_.gauss(0, 0.02)
            is_skipped = step in skipped
            event = dict(step=step, loss=bits * math.log(2), bits_per_base=bits, lr=1e-3,
                         grad_norm="inf" if is_skipped else abs(random_.gauss(1, 0.2)), scale=scale,
                         skipped=is_skipped, tokens_per_s=80000.0, step_time_s=abs(random_.gauss(0.05, 0.002)),
                         data_wait_s=wait_s, peak_bytes=40000000)
            if layers and step % gradients_every == 0:
                event["gradients"] = {parameter.replace("#", str(i)): statistics(random_) for i in range(layers)}
            out.write(line("step", **event))
            if time_split_every and step % time_split_every == 0:
                out.write(time_split(step, precision))
            if ranges_every and step % ranges_every == 0:
                out.write(line("ranges", step=step, scale=scale, values=[
                    value_range(random_, kind, f"blocks.{i}") for i in range(layers)
                    for kind in ("activation", "gradient", "weight", "update")]))
            if is_skipped:
                scale /= 2
                out.write(line("message", step=step, level="info", text=f"step {step} skipped: inf in head"))
            if step % max(1, steps // 10) == 0:
                out.write(line("evaluation", step=step, bits_per_base=bits, loss=bits * math.log(2)))
        if message:
            out.write(line("message", step=steps, level="warning", text=message))
        if ended:
            out.write(line("run_end", summary=dict(
                steps=steps, bits_per_base=bits, loss=bits * math.log(2), markov_bits_per_base=1.978,
                step_time_s=0.05, tokens_per_s=80000.0,
                peak_bytes={"weights": 400000, "gradients": 8000, "optimizer": 800000, "activations": 25000000},
                peak_holders={"activations blocks.0.mlp": 3000000},
                bytes_per_param={"weights": 4.0, "gradients": 4.0, "moments": 8.0}, scale=scale,
                skipped_steps=len(skipped), params=99968, seed=seed, precision=precision, policy="torch-fixed",
                allocator="caching", stopped_by="steps")))
    return folder
