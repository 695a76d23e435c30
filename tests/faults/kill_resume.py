"""Kills a training run at random moments and resumes it until it is done, then compares its last
checkpoint, byte for byte, with that of a run that was never stopped.

    MANTISSA=build/dev/bin/mantissa python3 tests/faults/kill_resume.py [KILLS] [SEED]
"""

import hashlib
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

MANTISSA = os.environ["MANTISSA"]
SOURCE = pathlib.Path(__file__).resolve().parents[2]

# fp16 with a scale that overflows at first and grows again, accumulation, 16-bit parameters: all of
# the state moves. Checkpoints are frequent, so that kills fall into them.
RUN_FILE = f"""
[data]
fasta = "{SOURCE / 'data' / 'lambda.fa'}"
validation = ["NC_001416.1:47653-48502"]
context = 32
threads = 2
[model]
layers = 1
width = 16
heads = 2
[train]
steps = {{steps}}
batch = 4
microbatch = 2
eval_every = 50
checkpoint_every = 5
[optim]
lr = 1e-2
warmup = 10
[precision]
compute = "fp16"
param = "fp16"
[scale]
initial = 1e9
growth_interval = 20
"""


def command(folder):
    started = (folder / "run.toml").exists()
    return [MANTISSA, "train", "--resume", folder] if started else [MANTISSA, "train", folder.with_suffix(".toml"), "--out", folder]


def state_of(folder):
    newest = max((folder / "checkpoints").glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))
    return newest.name, {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(newest.iterdir())
    }


def main():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(2**32)
    generator = random.Random(seed)
    print(f"kills {kills}, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        whole, broken = root / "whole", root / "broken"
        for folder in (whole, broken):
            folder.with_suffix(".toml").write_text(RUN_FILE.format(steps=150 * kills))
        start = time.monotonic()
        subprocess.run(command(whole), check=True, capture_output=True)
        span = time.monotonic() - start
        start = time.monotonic()
        subprocess.run(command(whole), check=True, capture_output=True)  # has nothing left to do
        startup = time.monotonic() - start
        done = 0
        while True:
            process = subprocess.Popen(command(broken), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            if done < kills:
                # Anywhere from before the first line to well into the steps, but on average less
                # than a share of the run, so that it does not end before the last kill.
                time.sleep(generator.uniform(0.0, startup + 1.6 * span / kills))
                process.kill()
            stderr = process.communicate()[1].decode()
            if process.returncode == 0:
                break
            if process.returncode != -9:
                print(stderr)
                return f"a resume failed with exit code {process.returncode} after {done} kills"
            done += 1
        if done == 0:
            return "the run ended before the first kill; nothing was tested"
        expected, found = state_of(whole), state_of(broken)
        if not expected[1] or expected != found:
            return f"after {done} kills the state differs: {expected} against {found}"
        leftovers = [path.name for path in (broken / "checkpoints").iterdir() if ".tmp" in path.name]
        if leftovers:
            return f"left behind: {leftovers}"
        print(f"{done} of {kills} kills, state bit-equal")
        return 0


if __name__ == "__main__":
    result = main()
    if result:
        print(result)
    sys.exit(1 if result else 0)
