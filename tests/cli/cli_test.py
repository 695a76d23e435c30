"""The command as a user meets it: results, messages, exit codes. Run by ctest with MANTISSA set."""

import json
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import time
import unittest

MANTISSA = os.environ["MANTISSA"]
SOURCE = pathlib.Path(__file__).resolve().parents[2]
LAMBDA = SOURCE / "data" / "lambda.fa"

RUN_FILE = f"""
[data]
fasta = "{LAMBDA}"
validation = ["NC_001416.1:43653-48502"]
context = 32
[model]
layers = 1
width = 16
heads = 2
[train]
steps = 12
batch = 4
eval_every = 5
[optim]
lr = 1e-2
warmup = 2
"""


class CliTest(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)
        self.run_file = self.folder / "tiny.toml"
        self.run_file.write_text(RUN_FILE)

    def tearDown(self):
        self._folder.cleanup()

    def mantissa(self, *arguments, code=0, **environment):
        result = subprocess.run(
            [MANTISSA, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True, timeout=120,
            env={**os.environ, **environment}
        )
        self.assertEqual(result.returncode, code, result.stderr + result.stdout)
        return result

    def fails(self, code, message, *arguments):
        """Exactly one line on stderr that holds `message`, nothing on stdout."""
        result = self.mantissa(*arguments, code=code)
        last = result.stderr.strip().splitlines()[-1]
        self.assertIn(message, last)
        self.assertEqual(result.stdout, "")
        return last

    def test_train_writes_the_run_and_its_summary(self):
        result = self.mantissa("train", self.run_file, "--out", "runs/a", "--json")
        summary = json.loads(result.stdout.splitlines()[-1])
        self.assertEqual(summary["precision"], "fp32")
        self.assertGreater(summary["bits_per_base"], 1.5)
        self.assertLess(summary["bits_per_base"], 4.1)
        self.assertAlmostEqual(summary["markov_bits_per_base"], 1.978, delta=0.01)
        self.assertEqual(summary["skipped_steps"], 0)
        self.assertGreater(summary["peak_bytes"]["weights"], 0)
        self.assertGreater(summary["peak_bytes"]["activations"], 0)
        self.assertGreater(summary["step_time_s"], 0)
        for name in ("run.toml", "record.jsonl", "summary.json", "checkpoints"):
            self.assertTrue((self.folder / "runs/a" / name).exists(), name)
        lines = (self.folder / "runs/a/record.jsonl").read_text().splitlines()
        for line in lines:
            json.loads(line)

    def test_the_allocator_is_chosen_by_the_run_file_and_by_set(self):
        for settings, expected in (([], "caching"), (["--set", "train.allocator=system"], "system")):
            folder = self.folder / "runs" / expected
            summary = json.loads(self.mantissa("train", self.run_file, "--out", folder, "--json", *settings).stdout)
            self.assertEqual(summary["allocator"], expected)
            self.assertIn("activations blocks.0.mlp", summary["peak_holders"])
            self.assertIn(f"allocator = '{expected}'", (folder / "run.toml").read_text())
            self.mantissa("eval", folder)
        self.fails(2, "did you mean \"caching\"?", "train", self.run_file, "--set", "train.allocator=cacheing")

    def test_every_precision_trains(self):
        for precision in ("tf32", "bf16", "fp16"):
            result = self.mantissa("train", self.run_file, "--precision", precision, "--json")
            summary = json.loads(result.stdout.splitlines()[-1])
            self.assertEqual(summary["precision"], precision)
            self.assertLess(summary["bits_per_base"], 4.1)
        for precision in ("bf16", "fp16"):
            self.mantissa("train", self.run_file, "--precision", precision, "--set", f"precision.param={precision}")

    def test_eval_reads_the_best_checkpoint(self):
        trained = json.loads(self.mantissa("train", self.run_file, "--out", "a", "--json").stdout.splitlines()[-1])
        evaluated = json.loads(self.mantissa("eval", "a", "--json", "--checkpoint", "latest").stdout)
        self.assertEqual(evaluated["validation"]["bits_per_base"], trained["bits_per_base"])
        self.assertIn("validation", self.mantissa("eval", "a").stdout)

    def test_eval_looks_at_the_average_that_the_run_validated(self):
        settings = ["--set", "optim.ema=0.9", "--set", "optim.moments=blockwise8"]
        trained = json.loads(self.mantissa("train", self.run_file, "--out", "a", "--json", *settings).stdout)
        self.assertEqual(trained["bytes_per_param"]["ema"], 4)
        self.assertLess(trained["bytes_per_param"]["moments"], 3)
        evaluated = json.loads(self.mantissa("eval", "a", "--json", "--checkpoint", "latest").stdout)
        self.assertEqual(evaluated["weights"], "ema")
        self.assertEqual(evaluated["validation"]["bits_per_base"], trained["bits_per_base"])
        self.assertIn("averaged weights", self.mantissa("eval", "a").stdout)

    def test_a_run_in_use_or_already_there_is_not_overwritten(self):
        self.mantissa("train", self.run_file, "--out", "a")
        before = (self.folder / "a/record.jsonl").read_bytes()
        self.fails(2, "already holds a run; continue it with --resume", "train", self.run_file, "--out", "a")
        self.assertEqual((self.folder / "a/record.jsonl").read_bytes(), before)

    def test_resuming_a_finished_run_gives_its_summary(self):
        first = json.loads(self.mantissa("train", self.run_file, "--out", "a", "--json").stdout)
        again = json.loads(self.mantissa("train", "--resume", "a", "--json").stdout)
        self.assertEqual(first, again)

    def test_a_signal_saves_and_exits_75_and_the_run_goes_on(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            out = f"run-{number}"
            process = subprocess.Popen(
                [MANTISSA, "train", self.run_file, "--out", out, "--set", "train.steps=100000"],
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            record = self.folder / out / "record.jsonl"
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not (record.exists() and '"step"' in record.read_text()):
                time.sleep(0.05)
            for _ in range(3):  # as a terminal and a wrapper do; a later one would end it at once
                process.send_signal(number)
                time.sleep(0.001)
            _, stderr = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 75, stderr)
            self.assertIn(f"go on with: mantissa train --resume {out}", stderr)
            self.assertTrue(list((self.folder / out / "checkpoints").glob("step-*")))

    def test_wrong_usage_is_one_line_and_exit_2(self):
        self.fails(2, 'unknown key "train.stepz"; did you mean "train.steps"?',
                   "train", self.run_file, "--set", "train.stepz=5")
        self.fails(2, 'did you mean "bf16"?', "train", self.run_file, "--precision", "bf61")
        self.fails(2, "is not KEY=VALUE", "train", self.run_file, "--set", "train.steps")
        self.fails(2, "name either a run file or --resume DIR", "train")
        self.fails(2, "--resume takes the settings of its run folder", "train", "--resume", "a", "--precision", "bf16")
        self.fails(2, "did you mean", "numerics", "bf61", "1.0")
        self.fails(2, 'unknown command "trian"; did you mean "train"?', "trian")
        self.fails(2, "is set twice", "train", self.run_file, "--precision", "fp16", "--set", "precision.compute=bf16")
        self.fails(2, "--stepz", "train", self.run_file, "--stepz", "5")
        self.fails(2, "named twice", "compare", self.run_file, "--precisions", "fp32,fp32", "--out", "c")
        for names in ("fp32,,bf16", "fp32,", ",fp32", ""):
            self.fails(2, f'"{names}" has an empty name', "compare", self.run_file, "--precisions", names, "--out", "c")
        self.fails(2, "train.seed is 18446744073709551615, which 64 bits do not hold; valid: at least 0",
                   "train", self.run_file, "--set", "train.seed=18446744073709551615")
        self.run_file.write_text(RUN_FILE + "lr = 1e-3\n")
        self.fails(2, "cannot redefine existing floating-point 'lr'; a name is given once", "train", self.run_file)
        self.run_file.write_text(RUN_FILE)
        self.fails(2, "--set precision.policy=torhc: precision.policy: policy: unknown base",
                   "train", self.run_file, "--policy", "torhc")

    def test_a_genome_shorter_than_the_context_is_named(self):
        (self.folder / "short.fa").write_text(">s\nACGTACGT\n")
        message = self.fails(2, "context", "train", self.run_file, "--set", "data.fasta=short.fa",
                             "--set", "data.validation=[]")
        self.assertNotIn("\n", message)

    def test_data_that_cannot_be_cut_into_windows_is_named(self):
        (self.folder / "unknown.fa").write_text(">s\n" + "N" * 500 + "\n")
        self.fails(2, "unknown.fa: training data: windows: the longest stretch without a gap (10 or more N", "train",
                   self.run_file, "--set", "data.fasta=unknown.fa", "--set", "data.validation=[]")
        self.fails(2, "lambda.fa: validation data (data.validation): windows: ", "train", self.run_file,
                   "--set", 'data.validation=["NC_001416.1:1-9"]')
        (self.folder / "empty.fa").write_text(">s\n")
        self.fails(2, "empty.fa: split: the genome has no bases", "train", self.run_file,
                   "--set", "data.fasta=empty.fa", "--set", "data.validation=[]")

    def test_a_damaged_record_says_how_to_go_on(self):
        self.mantissa("train", self.run_file, "--out", "a")
        record = self.folder / "a/record.jsonl"
        record.write_text("garbage\n")
        self.fails(1, "line 1: not a line of JSON; the record is damaged: move it away", "train", "--resume", "a")
        record.rename(self.folder / "moved")
        self.assertIn("has 0 of the 12 steps", self.mantissa("train", "--resume", "a").stderr)

    def test_a_damaged_run_file_is_said_to_be_the_runs_own(self):
        self.mantissa("train", self.run_file, "--out", "cmp/fp32/seed-1")
        (self.folder / "cmp/fp32/seed-1/run.toml").write_text("")
        for arguments in (("train", "--resume", "cmp/fp32/seed-1"), ("eval", "cmp/fp32/seed-1"),
                          ("compare", self.run_file, "--precisions", "fp32", "--out", "cmp")):
            self.fails(1, "run.toml: the settings of this run are damaged or were changed", *arguments)

    def test_eval_without_a_checkpoint_says_which_there_are(self):
        self.mantissa("train", self.run_file, "--out", "a")
        (self.folder / "a/checkpoints/best").unlink()
        self.fails(1, "no checkpoint was marked as the best; use the latest (mantissa eval --checkpoint latest)",
                   "eval", "a")
        (self.folder / "a/checkpoints").rename(self.folder / "moved")
        self.fails(1, "there is no checkpoint", "eval", "a")
        self.fails(1, "there is no checkpoint", "eval", "a", "--checkpoint", "latest")

    def test_missing_files_and_folders_are_named_and_exit_1(self):
        self.fails(1, "is a folder; name a run file", "train", self.folder)
        self.fails(1, "/dev/null: is a pipe or a device", "train", "/dev/null")
        self.fails(1, "file /dev/null: is there and is not a folder", "train", self.run_file, "--out", "/dev/null/x")
        self.fails(1, "is a folder; name a policy file", "policy", "check", f"{self.folder}/")
        self.fails(1, "absent.toml: no such run file", "train", "absent.toml")
        self.fails(1, "absent.fa", "train", self.run_file, "--set", "data.fasta=absent.fa")
        self.fails(1, "holds no run", "train", "--resume", "absent")
        self.fails(1, "holds no run", "eval", "absent")

    def test_an_unwritable_folder_is_named(self):
        (self.folder / "file").write_text("")
        self.fails(1, "file", "train", self.run_file, "--out", "file/run")

    def test_a_damaged_newest_checkpoint_is_refused_and_the_one_before_used(self):
        self.mantissa("train", self.run_file, "--out", "a")
        newest = max((self.folder / "a/checkpoints").glob("step-*"), key=lambda path: int(path.name[5:]))
        victim = max(newest.iterdir(), key=lambda path: path.stat().st_size)
        data = bytearray(victim.read_bytes())
        data[len(data) // 2] ^= 1
        victim.write_bytes(data)
        result = self.mantissa("eval", "a", "--checkpoint", "latest")
        self.assertIn("mantissa: warning:", result.stderr)
        self.assertIn(newest.name, result.stderr)

    def test_a_run_of_skipped_steps_alone_failed(self):
        result = self.mantissa("train", self.run_file, "--precision", "fp16", "--set", "scale.initial=1e30",
                               "--set", "train.steps=4", "--set", "train.explain_skips=false", code=1)
        self.assertIn("all 4 steps were skipped, so nothing was trained", result.stderr)

    def test_names_that_lead_out_of_a_run_are_refused(self):
        self.mantissa("train", self.run_file, "--out", "named")
        self.fails(2, "is no name within the run", "eval", "named", "--checkpoint", "../../other/step-1")
        for name in ("", ".", ".."):
            self.fails(2, f'--checkpoint "{name}" is no name within the run', "eval", "named", "--checkpoint", name)
        self.fails(2, "name a folder", "train", self.run_file, "--out", "")
        self.fails(2, "name a folder", "train", "--resume", "")
        self.fails(2, "name a folder", "eval", "")
        self.fails(2, "name a folder", "compare", self.run_file, "--out", "")

    def test_steps_skipped_in_a_row_end_the_run_with_a_reason(self):
        self.fails(1, "steps in a row were skipped", "train", self.run_file, "--precision", "fp16",
                   "--set", "scale.kind=static", "--set", "scale.initial=1e38", "--set", "train.max_skips=3")

    def test_numerics_teaches(self):
        text = self.mantissa("numerics", "bf16", "0.1").stdout
        self.assertIn("0.10009765625", text)
        value = json.loads(self.mantissa("numerics", "fp16", "65520", "--json").stdout)
        self.assertIsInstance(value, dict)
        for text, bits in (("-inf", "0xff80"), ("inf", "0x7f80"), ("-0.0", "0x8000")):
            self.assertIn(bits, self.mantissa("numerics", "bf16", text).stdout)
        self.assertIsInstance(json.loads(self.mantissa("numerics", "fp16", "-inf", "--json").stdout), dict)

    def test_policies_are_listed_shown_compared_checked_and_explained(self):
        names = [policy["name"] for policy in json.loads(self.mantissa("policy", "list", "--json").stdout)]
        self.assertIn("torch-fixed", names)
        for name in names:
            shown = json.loads(self.mantissa("policy", "show", name, "--json").stdout)
            self.assertEqual(shown["base"], name)
        self.assertIn("aten::mm", self.mantissa("policy", "show", "torch").stdout)
        differences = json.loads(self.mantissa("policy", "diff", "torch", "torch mm=fp32", "--json").stdout)
        self.assertEqual([each["what"] for each in differences if each["what"] == "aten::mm"], ["aten::mm"])
        self.assertEqual(self.mantissa("policy", "diff", "torch", "torch").stdout, "no difference\n")
        (self.folder / "own.toml").write_text('base = "lean"\n[scopes]\n"*filter" = "fp32"\n')
        self.assertIn("scope:*filter=fp32", self.mantissa("policy", "check", "./own.toml").stdout)
        (self.folder / "own.toml").write_text('base = "lean"\n[scope]\n"*filter" = "fp32"\n')
        self.fails(2, "own.toml:2: unknown key \"scope\"; did you mean \"scopes\"?", "policy", "check", "./own.toml")
        self.assertIn("runs in bf16", self.mantissa("policy", "explain", "mm", "fp32", "bf16").stdout)
        explained = json.loads(self.mantissa("policy", "explain", "mm.default", "fp32", "fp32", "--policy",
                                             "torch scope:a=fp32", "--scope", "a.b", "--json").stdout)
        self.assertEqual(explained[0]["outcome"], "runs in fp32")
        mixed = ("policy", "explain", "mm.default", "fp64", "bf16")
        self.assertIn("LibTorch computes mixed formats in some operations", self.mantissa(*mixed).stdout)
        self.assertIn("these formats differ", json.loads(self.mantissa(*mixed, "--json").stdout)[0]["note"])
        self.fails(2, "unknown operation", "policy", "explain", "mn", "fp32")

    def test_plan_says_what_a_run_will_take(self):
        plan = json.loads(self.mantissa("plan", self.run_file, "--json").stdout)
        run = json.loads(self.mantissa("train", self.run_file, "--out", "a", "--json").stdout.splitlines()[-1])
        self.assertEqual(plan["parameters"], run["params"])
        of_tensors = plan["bytes_per_rank"]["total"] - plan["bytes_per_rank"]["fragmentation"]
        self.assertAlmostEqual(of_tensors / sum(run["peak_bytes"].values()), 1, delta=0.05)
        by_category = {name: size for name, size in plan["bytes_per_rank"].items() if name != "total"}
        self.assertEqual(sum(by_category.values()), plan["bytes_per_rank"]["total"])

    def test_plan_shows_the_classic_case(self):
        recipe = SOURCE / "recipes" / "dna-2.5b.toml"
        arguments = ["plan", recipe, "--ranks", 8, "--zero", "0,3", "--device", "A100-40GB,H100"]
        plan = json.loads(self.mantissa(*arguments, "--json").stdout)
        self.assertAlmostEqual(plan["parameters"] / 2.5e9, 1, delta=0.02)
        self.assertAlmostEqual(plan["fp32_state_bytes"] / plan["parameters"], 16, delta=0.01)
        self.assertAlmostEqual(plan["state_bytes"] / plan["parameters"], 16, delta=0.01)
        self.assertEqual([stage["zero"] for stage in plan["stages"]], [0, 3])
        self.assertGreater(plan["stages"][0]["state_bytes"], 40e9)
        self.assertLess(plan["stages"][1]["state_bytes"], 10e9)
        self.assertEqual(plan["bytes_per_rank"], plan["stages"][1]["bytes_per_rank"])
        activations = [level["bytes_per_rank"]["activations"] for level in plan["recomputations"]]
        self.assertEqual(activations, sorted(activations, reverse=True))
        self.assertEqual([device["name"] for device in plan["devices"]], ["A100-40GB", "H100"])
        text = self.mantissa(*arguments).stdout
        self.assertIn("it is sharding that does it", text)
        self.assertIn("Times are bounds, not promises", text)

    def test_plan_exits_3_with_a_remedy_where_nothing_fits(self):
        total = json.loads(self.mantissa("plan", self.run_file, "--json").stdout)["bytes_per_rank"]["total"]
        fits = self.mantissa("plan", self.run_file, "--device-memory", f"{total}B").stdout
        self.assertIn("fits, 0 B left", fits)
        lacks = self.mantissa("plan", self.run_file, "--device-memory", f"{total - 1}B", code=3).stdout
        self.assertIn("lacks 1 B", lacks)
        self.assertIn("the cheapest change that makes it fit: --", lacks)
        nothing = self.mantissa("plan", self.run_file, "--device-memory", "1kB", code=3).stdout
        self.assertIn("no change known here makes it fit", nothing)

    def test_plan_chooses_the_microbatch_that_fits(self):
        auto = ["plan", self.run_file, "--microbatch", "auto"]
        plan = json.loads(self.mantissa(*auto, "--device-memory", "1GiB", "--json").stdout)
        self.assertEqual(plan["microbatch"], 4)
        self.fails(2, "train.microbatch \"auto\" needs a memory to fit into", *auto)

    def test_plan_takes_a_table_of_devices_of_ones_own(self):
        mine = self.folder / "mine.toml"
        mine.write_text('[[device]]\nname = "mine"\nmemory = { value = 1e9, source = "bought" }\n'
                        'bandwidth = { value = 1e10, source = "measured" }\nfp32 = { value = 1e11, source = "measured" }\n')
        plan = json.loads(self.mantissa("plan", self.run_file, "--devices", mine, "--device", "mine", "--json").stdout)
        device = plan["devices"][0]
        self.assertGreaterEqual(device["step_time_bound"]["products_s"], plan["flops"]["fp32"] / 1e11 * 0.999)
        self.assertEqual(device["sources"]["fp32"], "measured")
        self.assertIn("A100 Tensor Core GPU data sheet", self.mantissa("plan", "--list-devices").stdout)

    def test_what_plan_cannot_use_is_refused(self):
        self.fails(2, "name a run file, or --list-devices", "plan")
        self.fails(2, "--zero \"4\" is no stage of ZeRO; valid: 0 1 2 3", "plan", self.run_file, "--ranks", 2, "--zero", "0,4")
        self.fails(2, '--zero: "0" is named twice', "plan", self.run_file, "--ranks", 2, "--zero", "0,0")
        self.fails(2, '--device: "H100," has an empty name', "plan", self.run_file, "--device", "H100,")
        self.fails(2, "--zero 3 shares out among ranks, and there is one", "plan", self.run_file, "--zero", 3)
        self.fails(2, "unknown device \"H1000\"; did you mean \"H100\"?", "plan", self.run_file, "--device", "H1000")
        self.fails(2, "--device-memory is \"40 things\"; valid: a number and B", "plan", self.run_file, "--device-memory",
                   "40 things")
        self.fails(2, "--list-devices takes no run file", "plan", self.run_file, "--list-devices")

    def test_why_says_where_a_step_goes_and_why_16_bits_are_not_faster(self):
        result = self.mantissa("why", self.run_file, "--precision", "bf16", "--steps", 6, "--rows", 4)
        lines = result.stdout.splitlines()
        self.assertEqual(lines[0], f"{self.run_file} in fp32 and bf16 (policy torch-fixed), in turns, same batches")
        for phase in ("wait for data", "forward", "backward", "casts", "optimizer", "other"):
            self.assertTrue(any(line.startswith(phase + " ") for line in lines), phase)
        self.assertIn("more take less; --rows ", result.stdout)
        self.assertRegex(lines[-3], r"^bf16 is [\d.]+ times as fast as fp32 \(95 % interval [\d.]+ to [\d.]+, 6 pairs of turns\)")
        self.assertRegex(lines[-2], "^verdict: ")
        self.assertRegex(lines[-1], "^do: ")
        self.assertEqual([path.name for path in self.folder.iterdir()], [self.run_file.name])

    def test_why_json_has_both_runs_and_every_operation(self):
        why = json.loads(self.mantissa("why", self.run_file, "--precision", "fp16", "--steps", 6, "--json").stdout)
        self.assertEqual([run["precision"] for run in why["runs"]], ["fp32", "fp16"])
        for run in why["runs"]:
            self.assertEqual([len(rounds) for rounds in run["rounds"]], [1] * 6)
            split = run["time_split"]
            self.assertAlmostEqual(sum(split["phases"].values()) / split["step_time_s"], 1)
        self.assertEqual(why["runs"][0]["time_split"]["phases"]["casts"], 0)
        self.assertGreater(why["runs"][1]["time_split"]["phases"]["casts"], 0)
        products = [row for row in why["operations"] if row["operation"] == "aten::mm" and row["phase"] == "forward"]
        self.assertTrue(products)
        for row in products:
            self.assertTrue(row["eligible"] and row["in_16_bits"], row)
            self.assertEqual(row["format"], "fp16")
        kept = json.loads(self.mantissa("why", self.run_file, "--policy", "torch-fixed linear=fp32", "--steps", 6,
                                        "--json").stdout)
        reasons = {row["operation"]: row["detail"] for row in kept["operations"] if row["reason"] == "policy"}
        self.assertEqual(reasons["aten::mm"], "rule fp32 of aten::linear, by linear=fp32")

    def test_a_record_tells_why_and_the_report_draws_it(self):
        self.mantissa("train", self.run_file, "--precision", "bf16", "--set", "train.time_split_every=6", "--out", "a")
        events = [json.loads(line) for line in (self.folder / "a/record.jsonl").read_text().splitlines()]
        splits = [event for event in events if event["type"] == "time_split"]
        self.assertEqual([split["step"] for split in splits], [6, 12])
        for event in events:
            if event["type"] == "step":
                self.assertAlmostEqual(sum(event["phases"].values()) / event["step_time_s"], 1)
        tables = json.loads(self.mantissa("report", "a", "--json").stdout)["tables"]
        self.assertIn("time-split", [table["id"] for table in tables])
        self.assertIn("aten::mm", self.mantissa("report", "a", "--table", "operations").stdout)

    def test_what_why_cannot_use_is_refused(self):
        self.fails(2, "--precision is \"tf32\", which has no 16 bits; valid: bf16 fp16", "why", self.run_file,
                   "--precision", "tf32")
        self.fails(2, "steps is 7; use a multiple of 6", "why", self.run_file, "--steps", 7)

    def test_inspect_prints_what_is_nearest_to_overflow_and_writes_a_record(self):
        result = self.mantissa("inspect", self.run_file, "--precision", "fp16", "--steps", "2", "--out", "seen")
        lines = result.stdout.splitlines()
        self.assertTrue(lines[0].startswith("steps 1 to 2 in fp16"), lines[0])
        self.assertIn(" in fp16, policy torch-fixed, loss ", lines[0])
        head = next(line for line in lines if line.startswith("scope "))
        for column in ("kind", "values", "largest", "bf16", "fp16", "e4m3", "e5m2", "in fp16"):
            self.assertIn(column, head)
        self.assertIn("more rows have more room; --rows ", result.stdout)
        self.assertIn("mantissa report seen -o inspect.html", lines[-1])
        kinds = [json.loads(line)["type"] for line in (self.folder / "seen/record.jsonl").read_text().splitlines()]
        self.assertEqual(kinds[0], "run_start")
        self.assertEqual(kinds.count("ranges"), 2)
        report = self.mantissa("report", "seen", "--table", "ranges").stdout
        self.assertIn("blocks.0.mlp", report)
        self.mantissa("report", "seen", "-o", "r.html")
        self.assertIn("ranges-headroom", (self.folder / "r.html").read_text())
        self.assertTrue((self.folder / "seen/events.out.tfevents.mantissa").stat().st_size > 1000)
        # The same steps, the same numbers; a second folder, since the first one is taken.
        self.fails(1, "exists", "inspect", self.run_file, "--out", "seen")
        again = self.mantissa("inspect", self.run_file, "--precision", "fp16", "--steps", "2", "--out", "again")
        self.assertEqual(again.stdout.replace("again", "seen"), result.stdout)

    def test_inspect_json_has_every_range_under_every_format(self):
        seen = json.loads(self.mantissa("inspect", self.run_file, "--steps", "1", "--json").stdout.splitlines()[-1])
        self.assertEqual(seen["looked_at"], 1)
        self.assertEqual(seen["record"], "runs/tiny-fp32-inspect/record.jsonl")
        for kind in ("activation", "gradient", "weight", "update"):
            self.assertTrue([r for r in seen["ranges"] if r["kind"] == kind and r["scope"].startswith("blocks.0")], kind)
        for one in seen["ranges"]:
            self.assertEqual(list(one["formats"]), ["bf16", "fp16", "fp8_e4m3", "fp8_e5m2"])
            for counts in one["formats"].values():
                self.assertLessEqual(counts["zero"] + counts["subnormal"] + counts["overflow"], 1)
        # FP8 has less room than FP16, which has less than BF16.
        rooms = [[one["formats"][name]["headroom_bits"] for name in ("fp8_e4m3", "fp16", "bf16")] for one in seen["ranges"]]
        self.assertTrue(all(a < b < c for a, b, c in rooms if a is not None))

    def test_inspect_begins_at_a_checkpoint_and_emulates(self):
        self.mantissa("train", self.run_file, "--out", "run")
        seen = json.loads(self.mantissa("inspect", self.run_file, "--checkpoint", "run", "--steps", "1",
                                        "--json").stdout.splitlines()[-1])
        self.assertEqual([step["step"] for step in seen["steps"]], [13])
        trained = [json.loads(line) for line in (self.folder / "run/record.jsonl").read_text().splitlines()]
        last = [line["loss"] for line in trained if line["type"] == "step"][-1]
        at_12 = json.loads(self.mantissa("inspect", self.run_file, "--checkpoint", "run/checkpoints/step-10", "--steps",
                                         "2", "--json").stdout.splitlines()[-1])
        self.assertEqual(at_12["steps"][-1]["loss"], last, "the step that was trained, to the last bit")
        for name in ("fp8_e4m3", "fp8_e5m2", "fp16", "bf16"):
            emulated = self.mantissa("inspect", self.run_file, "--emulate", name, "--steps", "1").stdout
            self.assertIn(f" in emulated {name}, policy torch-fixed", emulated)

    def test_inspect_compares_a_step_with_its_fp32_twin(self):
        twin = ("inspect", self.run_file, "--precision", "bf16", "--steps", "2", "--twin")
        text = self.mantissa(*twin).stdout
        self.assertIn("step 2 beside its FP32 twin: policy torch-fixed compute=bf16, loss scale 1", text)
        self.assertRegex(text, r"\nforward +blocks\.0\.attention +")
        self.assertRegex(text, r"\nbackward +blocks\.0\.mlp +")
        seen = json.loads(self.mantissa(*twin, "--json").stdout.splitlines()[-1])
        self.assertEqual((seen["step"], seen["unmatched"]), (2, 0))
        self.assertEqual({"forward", "backward", "parameter"}, {row["place"] for row in seen["rows"]})
        self.assertEqual({"place", "scope", "operation", "format", "relative_error", "cosine", "mean_ulps", "max_ulps",
                          "zeros", "nonfinite", "input_error", "own_error", "bound"}, set(seen["rows"][0]))
        self.fails(2, "a twin is FP32, and this run computes in fp32", "inspect", self.run_file, "--twin")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["tiny.toml"])

    def test_inspect_blames_recommends_and_the_policy_cures(self):
        fault = (self.run_file, "--precision", "fp16", "--set", "optim.lr=10", "--set", "optim.warmup=0")
        blame = self.mantissa("inspect", *fault, "--blame", code=1).stdout
        self.assertRegex(blame, r"^step 2 fails: inf from aten::mm within .* in fp16 \(blocks\.0\..*, whose self reaches ")
        self.assertIn("the loss is not finite, which no loss scale changes; ", blame)
        failed = json.loads(self.mantissa("inspect", *fault, "--blame", "--json", code=1).stdout)["failed"]
        self.assertEqual((failed["step"], failed["cause"], failed["value"]), (2, "forward", "inf"))
        self.assertRegex(failed["bases"], r"^NC_001416\.1:\d+-\d+$")
        self.assertGreater(abs(failed["inputs"][0]["value"]), 100)
        cure = self.mantissa("inspect", *fault, "--steps", "3", "--recommend", "cure.toml").stdout
        self.assertIn("cheapest cure: --precision bf16", cure)
        self.assertIn("wrote cure.toml; with --policy cure.toml 3 of 3 steps are well", cure)
        self.mantissa("inspect", *fault, "--policy", "cure.toml", "--steps", "3", "--blame")
        well = self.mantissa("inspect", self.run_file, "--precision", "bf16", "--blame").stdout
        self.assertEqual(well, "well: 4 of 4 steps applied, gradients and updates as in FP32\n")
        self.fails(2, "excludes", "inspect", self.run_file, "--twin", "--blame")
        self.fails(2, "excludes", "inspect", self.run_file, "--blame", "--rows", "3")

    def test_the_fault_of_the_guide_is_blamed_and_cured(self):
        fault = (SOURCE / "recipes" / "faults" / "fp16-overflow.toml", "--steps", "12")
        cure = json.loads(self.mantissa("inspect", *fault, "--recommend", "cure.toml", "--json").stdout)
        self.assertEqual((cure["health"]["failed"]["operation"], cure["health"]["failed"]["within"],
                          cure["health"]["failed"]["cause"]), ("aten::mm", "aten::linear", "forward"))
        self.assertEqual((cure["cheapest"]["curable"], cure["kept"]["curable"], cure["shown_steps"]),
                         ("by_range", "by_policy", 12))
        twin = json.loads(self.mantissa("inspect", fault[0], "--steps", cure["health"]["failed"]["step"], "--twin",
                                        "--json").stdout)
        first = twin["rows"][twin["first_divergence"]["row"]]
        self.assertEqual((twin["first_divergence"]["kind"], first["operation"], first["scope"]),
                         ("nonfinite", "aten::linear", cure["health"]["failed"]["scope"]))

    def test_inspect_refuses_what_it_cannot_do_in_one_line(self):
        self.fails(2, "emulation of fp8_e4m3 stands for casts to 16 bits, and the precision is fp32", "inspect",
                   self.run_file, "--precision", "fp32", "--emulate", "fp8_e4m3")
        self.fails(2, "ask for bf16, fp16, fp8_e4m3 or fp8_e5m2", "inspect", self.run_file, "--format", "tf32")
        self.fails(2, 'did you mean "fp8_e4m3"?', "inspect", self.run_file, "--emulate", "fp8_e4m4")
        self.fails(2, "--steps", "inspect", self.run_file, "--steps", "0")
        self.fails(1, "absent", "inspect", self.run_file, "--checkpoint", "absent")
        self.assertFalse((self.folder / "runs").exists(), "a refused run leaves no folder")
        self.mantissa("train", self.run_file, "--out", "run")
        self.fails(2, "run: holds a run, whose record stays as it is; choose another --out", "inspect", self.run_file,
                   "--out", "run")

    def test_lint_names_hazards_with_their_remedies(self):
        clean = json.loads(self.mantissa("lint", self.run_file, "--precision", "bf16", "--json").stdout)
        self.assertEqual((clean["hazards"], clean["stopped"]), (0, ""))
        self.assertGreater(clean["calls"], 100)
        unscaled = ("lint", self.run_file, "--precision", "fp16", "--set", "scale.kind=none",
                    "--set", "train.batch=64", "--set", "data.context=128")  # gradients over 8,192 targets
        text = self.mantissa(*unscaled, code=1).stdout
        self.assertIn("hazard underflow", text)
        self.assertIn("a loss scale (scale.kind=dynamic), or bf16", text)
        findings = json.loads(self.mantissa(*unscaled, "--json", code=1).stdout)["findings"]
        self.assertEqual({"underflow"}, {each["rule"] for each in findings if each["severity"] == "hazard"})
        self.assertEqual(
            {"rule", "severity", "scope", "operation", "format", "value", "consequence", "remedy", "count",
             "of_values"}, set(findings[0]))
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["tiny.toml"])

    def test_the_recipes_lint_clean(self):
        for precision in ("fp32", "bf16", "fp16"):
            report = json.loads(self.mantissa("lint", SOURCE / "recipes" / "lambda.toml", "--precision", precision,
                                              "--json").stdout)
            self.assertEqual(report["findings"], [], precision)

    def test_lint_lists_its_rules(self):
        rules = json.loads(self.mantissa("lint", "--rules", "--json").stdout)
        self.assertIn("constant", [rule["name"] for rule in rules])
        self.assertIn("source: ", self.mantissa("lint", "--rules").stdout)
        self.fails(2, "name a run file, or --rules", "lint")
        self.fails(2, "takes no run file", "lint", self.run_file, "--rules")
        self.fails(2, 'did you mean "bf16"?', "lint", self.run_file, "--precision", "bf61")
        # 1 says hazards alone.
        self.fails(2, "no such run file", "lint", "absent.toml")
        self.fails(2, "absent.fa", "lint", self.run_file, "--set", "data.fasta=absent.fa")
        with open("/dev/full", "w") as full:
            result = subprocess.run([MANTISSA, "lint", "--rules"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(result.returncode, 2)
        self.assertIn("2 wrong usage or input, or a failure", self.mantissa("lint", "--help").stdout)

    def test_doctor_says_who_computes_16_bit_products(self):
        self.assertIn("bf16 products", self.mantissa("doctor").stdout)
        self.assertIn("huge pages", self.mantissa("doctor").stdout)
        self.assertRegex(self.mantissa("doctor").stdout, "CUDA products +FP32 factors as they are, FP32 sums")
        kernels = json.loads(self.mantissa("doctor", "--json").stdout)["kernels"]["bf16"]
        self.assertIn(kernels["products"]["chosen"], ("ours", "stock"))
        self.assertIn(kernels["attention"]["chosen"], ("ours", "stock"))
        self.assertEqual(kernels["depthwise"]["chosen"], "ours")

    def test_train_says_at_its_start_that_16_bits_bring_no_speed_here(self):
        kernels = json.loads(self.mantissa("doctor", "--json").stdout)["kernels"]
        notice = "expect less memory, not more speed"
        for precision in ("bf16", "fp16"):
            first = self.mantissa("train", self.run_file, "--precision", precision).stderr.splitlines()[0]
            products = kernels[precision]["products"]
            self.assertEqual(notice in first, products["chosen"] == "ours", first)
            self.assertEqual(products["reason"] in first, products["chosen"] == "ours", first)
        self.assertNotIn(notice, self.mantissa("train", self.run_file, "--precision", "fp32").stderr)

    def test_a_precision_that_is_none_names_those_that_are(self):
        for name in ("fp8", "fp8_e4m3", "FP16", "float16", "bfloat16", "int8", "mixed", ""):
            for command in ("train", "lint"):
                message = self.fails(2, f"'{name}'", command, self.run_file, "--precision", name)
                self.assertIn("precision.compute", message)
                self.assertTrue("fp32" in message or "fp16" in message or "bf16" in message, message)
            self.fails(2, "precision.compute", "compare", self.run_file, "--precisions", f"fp32,{name}x", "--out", "c")
        self.fails(2, 'did you mean "fp16"?', "train", self.run_file, "--precision", "FP16")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["tiny.toml"])

    def test_compare_says_which_precision_takes_more_memory_and_why(self):
        # Weights decide: few tokens in a wide model, FP32 parameters with 16-bit copies.
        wide = ["--set", "model.width=256", "--set", "train.batch=1", "--set", "data.context=8",
                "--set", "train.steps=4"]
        arguments = ["compare", self.run_file, "--precisions", "fp32,bf16,fp16", "--out", "cmp", *wide]
        text = self.mantissa(*arguments).stdout
        runs = json.loads(self.mantissa(*arguments, "--json").stdout)["runs"]
        peaks = {run["precision"]: sum(run["peak_bytes"].values()) for run in runs}
        for precision in ("bf16", "fp16"):
            said = f"{precision} takes more memory here" in text
            self.assertEqual(said, peaks[precision] > peaks["fp32"], peaks)
            self.assertEqual(said, f"set precision.param to {precision}" in text)

    def test_compare_prints_a_column_a_precision(self):
        table = self.mantissa("compare", self.run_file, "--precisions", "fp32,bf16", "--out", "cmp").stdout
        self.assertIn("fp32", table.splitlines()[0])
        self.assertIn("bf16", table.splitlines()[0])
        self.assertIn("peak tensor bytes", table)
        self.assertIn("bf16 beside fp32: quality not tested", table)
        self.assertIn("speed: ", table)

    def test_an_interrupted_comparison_is_continued_by_the_same_command(self):
        arguments = ("compare", self.run_file, "--precisions", "fp32,bf16", "--out", "cmp", "--json")
        self.mantissa("train", self.run_file, "--out", "cmp/fp32/seed-1")
        whole = json.loads(self.mantissa(*arguments).stdout)
        self.assertEqual([run["precision"] for run in whole["runs"]], ["fp32", "bf16"])
        # That run was trained by itself.
        self.assertEqual((whole["arms"][1]["pairs"], whole["arms"][1]["speed"]), (0, None))
        again = self.mantissa(*arguments)
        self.assertEqual(json.loads(again.stdout), whole)
        self.assertNotIn("validation", again.stderr)
        self.assertEqual(json.loads((self.folder / "cmp/comparison.json").read_text()), whole)
        self.fails(2, "holds a run with other settings", *arguments, "--set", "train.steps=13")

    def test_runs_that_take_turns_are_bit_for_bit_runs_alone_through_kills_too(self):
        arguments = ("compare", self.run_file, "--precisions", "fp32,bf16,fp16", "--seeds", "2", "--out", "cmp",
                     "--set", "train.steps=60", "--json")
        generator = random.Random(5)
        kills = 0
        while kills < 4:
            process = subprocess.Popen([MANTISSA, *map(str, arguments)], cwd=self.folder, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, text=True)
            # A kill comes after a random number of validations, so anywhere between two of them.
            for _ in range(generator.randrange(1, 8)):
                while "validation" not in process.stderr.readline():
                    self.assertIsNone(process.poll())
            process.send_signal(signal.SIGKILL)
            process.stderr.close()
            self.assertEqual(process.wait(), -signal.SIGKILL)
            kills += 1
        result = json.loads(self.mantissa(*arguments).stdout)
        self.assertEqual([(run["arm"], run["seed"]) for run in result["runs"]],
                         [(arm, seed) for arm in ("fp32", "bf16", "fp16") for seed in (1, 2)])
        self.assertEqual({run["steps"] for run in result["runs"]}, {60})
        self.assertGreaterEqual(result["arms"][1]["pairs"], 6)

        def checkpoints(folder):
            folder = self.folder / folder / "checkpoints"
            return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for arm, seed in (("fp16", 1), ("bf16", 2)):
            self.mantissa("train", self.run_file, "--precision", arm, "--set", f"train.seed={seed}",
                          "--set", "train.steps=60", "--out", f"alone-{arm}")
            alone, turns = checkpoints(f"alone-{arm}"), checkpoints(f"cmp/{arm}/seed-{seed}")
            self.assertGreater(len(alone), 3)
            self.assertEqual(set(alone), set(turns))
            self.assertTrue(alone == turns)

    def test_a_signal_saves_a_comparison_and_the_same_command_goes_on(self):
        arguments = ["compare", self.run_file, "--precisions", "fp32,bf16", "--out", "cmp", "--set", "train.steps=2000"]
        process = subprocess.Popen([MANTISSA, *map(str, arguments)], cwd=self.folder, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        while "validation" not in process.stderr.readline():
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=120)
        self.assertEqual((process.returncode, stdout), (75, ""))
        self.assertIn("the same command goes on", stderr)
        arguments[-1] = "train.steps=2001"
        self.fails(2, "holds a run with other settings", *arguments)

    def test_a_comparison_of_seeds_tests_quality_and_holds_gates(self):
        arguments = ("compare", self.run_file, "--precisions", "fp32,tf32,bf16", "--seeds", "2", "--out", "cmp",
                     "--target", "2.5", "--price", "2.50/h", "--watts", "60", "--margin", "0.5")
        text = self.mantissa(*arguments, "--require", "quality,memory=1.5,target,cost=1").stdout
        self.assertIn("bf16 beside fp32: as good", text)
        self.assertIn("gate quality: tf32: met: equivalent", text)
        self.assertIn("cost of a run", text)
        self.assertIn("energy: 60 W as given", text)
        unmet = self.mantissa(*arguments, "--require", "quality,speed=50", "--json", code=3).stdout
        result = json.loads(unmet.splitlines()[-1])
        self.assertEqual([(gate["gate"], gate["arm"], gate["met"]) for gate in result["gates"]],
                         [("quality", "tf32", True), ("speed=50", "tf32", False),
                          ("quality", "bf16", True), ("speed=50", "bf16", False)])
        self.assertIn("times as fast", result["gates"][1]["measured"])
        self.assertEqual(result["arms"][0]["reached"], 2)
        # Nothing is trained again for another question, and other seeds join those that are there.
        strict = ("compare", self.run_file, "--precisions", "fp32,tf32,bf16", "--seeds", "2", "--out", "cmp",
                  "--target", "0.5", "--margin", "1e-9", "--require", "quality,target", "--watts", "1")
        result = self.mantissa(*strict, code=3)
        self.assertNotIn("validation", result.stderr)
        self.assertIn("gate target: bf16: not met: not reached (0 of 2 runs)", result.stdout)
        more = self.mantissa("compare", self.run_file, "--precisions", "fp32,tf32,bf16", "--seeds", "3", "--out", "cmp")
        self.assertIn("seed 3", more.stderr)
        self.assertNotIn("seed 2", more.stderr)

    def test_a_gain_is_split_between_format_microbatch_and_early_stopping(self):
        arguments = ("compare", self.run_file, "--precisions", "fp32,bf16", "--microbatch", "2,auto", "--memory", "1GB",
                     "--attribute", "--target", "2.5", "--out", "cmp", "--set", "train.patience=1",
                     "--set", "train.eval_every=2", "--set", "train.eval_windows=8", "--set", "optim.lr=0.5")
        first = self.mantissa(*arguments)
        self.assertIn("bf16 microbatch auto: train.microbatch auto is 4 of the 4 sequences", first.stderr)
        self.assertRegex(first.stdout, r"sequences a pass +2 +4 +2 +4\n")
        self.assertIn("format: bf16 for fp32, at microbatch 2", first.stdout)
        self.assertIn("together: bf16 at auto (4) for fp32 at 2", first.stdout)
        self.assertRegex(first.stdout, "early stopping: fp32 microbatch 2: patience 1 ends at step [0-9]+ of 12")
        again = self.mantissa(*arguments, "--json")
        self.assertNotIn("sequences of a step", again.stderr)
        result = json.loads(again.stdout)
        self.assertEqual([effect["factor"] for effect in result["attribution"]["effects"]],
                         ["microbatch", "format", "interaction", "together"])
        self.assertEqual({effect["rounds"] for effect in result["attribution"]["effects"]}, {6})
        # The runs are whole, and what patience would have done is what it does.
        self.assertEqual({(run["steps"], run["stopped_by"]) for run in result["runs"]}, {(12, "steps")})
        alone = json.loads(self.mantissa(
            "train", self.run_file, "--microbatch", "2", "--out", "alone", "--json", *arguments[13:]).stdout)
        self.assertEqual(alone["stopped_by"], "patience")
        stopping = result["attribution"]["stopping"][0]
        self.assertEqual((stopping["arm"], stopping["step"]), ("fp32 microbatch 2", alone["steps"]))

    def test_a_smaller_repeat_takes_nothing_out_of_comparison_json(self):
        compare = ("compare", self.run_file, "--out", "cmp", "--json")
        whole = json.loads(self.mantissa(*compare, "--precisions", "fp32,bf16,tf32", "--seeds", "2").stdout)
        smaller = json.loads(self.mantissa(*compare, "--precisions", "fp32,tf32").stdout)
        self.assertEqual([(run["arm"], run["seed"]) for run in smaller["runs"]], [("fp32", 1), ("tf32", 1)])
        kept = json.loads((self.folder / "cmp/comparison.json").read_text())
        by_run = {(run["arm"], run["seed"]): run for run in kept["runs"]}
        self.assertEqual(by_run, {(run["arm"], run["seed"]): run for run in whole["runs"]})
        # A run of other settings is left where it is, and left out.
        self.mantissa("train", self.run_file, "--out", "other", "--set", "train.steps=14")
        os.rename(self.folder / "cmp/bf16/seed-1", self.folder / "bf16")
        os.rename(self.folder / "other", self.folder / "cmp/bf16/seed-1")
        told = self.mantissa(*compare, "--precisions", "fp32,tf32", "--seeds", "2")
        self.assertIn("bf16/seed-1 holds a run with other settings, which comparison.json leaves out", told.stderr)
        kept = json.loads((self.folder / "cmp/comparison.json").read_text())
        self.assertEqual(len(kept["runs"]), 5)

    def test_an_impossible_record_is_no_report(self):
        self.mantissa("train", self.run_file, "--out", "a")
        record = self.folder / "a/record.jsonl"
        lines = record.read_text().splitlines(keepends=True)
        record.write_text("".join(lines[1:]))
        self.fails(1, "line 1: is no run_start", "report", "a", "-o", "r.html")
        step = next(line for line in lines if '"step":3,' in line)
        record.write_text("".join(lines[:-1]) + step + lines[-1])
        self.fails(1, "step 3 comes after step 12", "report", "a", "-o", "r.html")

    def test_policies_are_arms_of_a_comparison(self):
        result = self.mantissa("compare", self.run_file, "--precisions", "fp32,bf16", "--policies", "lean,torch mm=fp32",
                               "--out", "cmp", "--json")
        self.assertEqual([run["arm"] for run in json.loads(result.stdout)["runs"]],
                         ["fp32", "bf16 lean", "bf16 torch mm=fp32"])
        self.assertTrue((self.folder / "cmp/bf16_torch_mm=fp32/seed-1/run.toml").exists())

    def test_a_comparison_counts_energy_where_the_machine_tells_it(self):
        zone = self.folder / "powercap/intel-rapl:0"
        zone.mkdir(parents=True)
        (zone / "name").write_text("package-0\n")
        (zone / "max_energy_range_uj").write_text("262143328850\n")
        (zone / "energy_uj").write_text("1000\n")
        arguments = ("compare", self.run_file, "--precisions", "fp32", "--json", "--powercap")
        measured = json.loads(self.mantissa(*arguments, "powercap", "--out", "a").stdout)
        self.assertEqual((measured["arms"][0]["energy_j"], measured["runs"][0]["energy_steps"]), (0, 12))
        (zone / "energy_uj").write_text("none\n")
        untold = json.loads(self.mantissa(*arguments, "powercap", "--out", "b").stdout)
        self.assertIsNone(untold["arms"][0]["energy_j"])
        self.assertIn("not a count of microjoules", untold["energy_problem"])

    def test_a_comparison_counts_energy_of_gpus_and_says_of_what(self):
        counters = self.folder / "gpus"
        counters.write_text("5000\n7000\n")
        result = self.mantissa("compare", self.run_file, "--precisions", "fp32,bf16", "--out", "a",
                               LD_LIBRARY_PATH=os.environ["PLANTED_NVML_FOLDER"], PLANTED_NVML=str(counters))
        self.assertRegex(result.stdout, r"energy: of (\d+ processor packages? and )?2 GPUs, with validations")
        turns = [json.loads(line) for line in (self.folder / "a/slices.jsonl").read_text().splitlines()]
        self.assertTrue(all(turn["energy_of"].endswith("2 GPUs") for turn in turns))

    def test_a_comparison_says_what_steps_would_take_on_other_devices(self):
        arguments = ("compare", self.run_file, "--precisions", "fp32,bf16", "--devices", "h100,V100", "--out", "a")
        text = self.mantissa(*arguments).stdout
        self.assertRegex(text, r"(?m)^V100 +[0-9.]+ us +no rate of bf16 products$")
        self.assertIn("arithmetic, not measured", text)
        times = json.loads(self.mantissa(*arguments, "--json").stdout)["devices"]
        self.assertEqual([(time["device"], time["arm"]) for time in times],
                         [("H100", "fp32"), ("H100", "bf16"), ("V100", "fp32"), ("V100", "bf16")])
        plan = json.loads(self.mantissa("plan", self.run_file, "--precision", "bf16", "--device", "H100", "--json").stdout)
        self.assertEqual(times[1]["step_time_bound"], plan["devices"][0]["step_time_bound"])
        self.assertEqual(times[1]["bytes"], plan["bytes_per_rank"]["total"])

    def test_a_run_that_fails_is_told_of_and_the_others_go_on(self):
        result = self.mantissa("compare", self.run_file, "--precisions", "fp32,fp16", "--out", "cmp",
                               "--set", "scale.initial=1e38", "--set", "train.max_skips=3", code=1)
        self.assertIn("fp16 seed 1 failed: train: 3 steps in a row were skipped", result.stderr)
        self.assertIn("fp16 beside fp32: failed", result.stdout)
        self.assertIn("quality: failed: 1 of 1 run did not come to an end; seed 1: train: 3 steps in a row", result.stdout)
        self.fails(1, "steps in a row were skipped", "compare", self.run_file, "--precisions", "fp16", "--out", "b",
                   "--set", "scale.initial=1e38", "--set", "train.max_skips=3")

    def test_what_compare_cannot_use_is_refused(self):
        compare = ("compare", self.run_file, "--out", "cmp")
        self.fails(2, '"2.50" is not a price of an hour', *compare, "--price", "2.50")
        self.fails(2, "--target: -1 is not a number above 0", *compare, "--target", "-1")
        self.fails(2, "--margin: nan is not a number above 0", *compare, "--margin=nan", "--seeds", "2")
        self.fails(2, "--watts: 0 is not a number above 0", *compare, "--watts", "0")
        self.fails(2, "one seed is no test; use --seeds 5", *compare, "--margin", "0.1")
        self.fails(2, "one seed is no test; use --seeds 5", *compare, "--require", "quality")
        self.fails(2, "--require: is empty; leave the option out, or give it a value", *compare, "--require", "")
        self.fails(2, "valid: 1 to 1000", *compare, "--seeds", "1001")
        self.fails(2, "differ in the format alone; name two in --microbatch", *compare, "--attribute")
        self.fails(2, '"2" is named twice', *compare, "--microbatch", "2,2")
        self.fails(2, "train.batch 4 is not a multiple of train.microbatch 3", *compare, "--microbatch", "2,3")
        self.fails(2, "train.memory has no effect", *compare, "--microbatch", "2,4", "--memory", "1GB")
        self.fails(2, "train.microbatch is set twice", *compare, "--microbatch", "2", "--set", "train.microbatch=4")
        self.fails(2, "there is only bf16; name two", *compare, "--precisions", "bf16", "--require", "speed=1")
        self.fails(2, "set --target", *compare, "--require", "target")
        self.fails(2, "set --price", *compare, "--require", "cost=1", "--target", "2")
        self.fails(2, 'unknown gate "sped"; did you mean "speed"?', *compare, "--require", "sped=1")
        self.fails(2, "--seeds: 0", *compare, "--seeds", "0")
        self.fails(2, "leave one out", *compare, "--watts", "5", "--powercap", "powercap")
        self.fails(2, "they differ in nothing in fp32", *compare, "--precisions", "fp32", "--policies", "lean,torch")
        self.fails(2, "precision.policy is set twice", *compare, "--policies", "lean", "--set", "precision.policy=torch")
        self.fails(2, '"lean" is named twice', *compare, "--policies", "lean,lean")
        self.fails(2, '--devices: unknown device "h1000"; did you mean "H100"?', *compare, "--devices", "h1000")
        self.fails(2, '--devices: "H100" is named twice', *compare, "--devices", "H100,H100")
        self.fails(2, '--require: "speed=1," has an empty name', *compare, "--require", "speed=1,")
        self.fails(2, "nothing is held out", *compare, "--target", "2", "--set", "data.validation=[]")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["tiny.toml"])

    def test_a_full_disk_is_one_line_and_the_run_goes_on_once_there_is_room(self):
        disk = self.folder / "disk"
        disk.mkdir()
        # A disk of its own for this process, without root where the system allows it.
        script = """
            mount -t tmpfs -o size=%s none disk || exit 99
            "$1" train "$2" --out disk/a 2> err; echo $? > code
            mount -o remount,size=64m disk
            "$1" train --resume disk/a 2> err2; echo $? > code2
            "$1" eval disk/a --json > eval
        """
        whole = json.loads(self.mantissa("train", self.run_file, "--out", "whole", "--json").stdout)
        size = sum(path.stat().st_size for path in (self.folder / "whole").rglob("*") if path.is_file())
        result = subprocess.run(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script % (size // 2), "sh",
             MANTISSA, self.run_file], cwd=self.folder, capture_output=True, text=True, timeout=120)
        if result.returncode != 0 and not (self.folder / "code").exists():
            self.skipTest("this system gives no mount namespace: " + result.stderr.strip())
        self.assertEqual((self.folder / "code").read_text().strip(), "1")
        last = (self.folder / "err").read_text().strip().splitlines()[-1]
        self.assertIn("No space left on device", last)
        self.assertIn("free some space", last)
        self.assertEqual((self.folder / "code2").read_text().strip(), "0", (self.folder / "err2").read_text())
        bits = json.loads((self.folder / "eval").read_text())["validation"]["bits_per_base"]
        self.assertAlmostEqual(bits, whole["bits_per_base"], places=12)

    def test_a_model_larger_than_the_memory_is_one_line(self):
        remedy = "use a smaller train.batch, train.microbatch, model or context"
        self.fails(1, remedy, "train", self.run_file, "--set", "model.width=1000000", "--out", "a")
        self.fails(2, remedy, "lint", self.run_file, "--set", "model.width=1000000")
        limit = 'ulimit -v 3000000; "$1" --version || exit 99; "$1" train "$2" --set model.width=16384 --set train.threads=1 --out b'
        result = subprocess.run(["bash", "-c", limit, "sh", MANTISSA, self.run_file], cwd=self.folder,
                                capture_output=True, text=True, timeout=120)
        if result.returncode == 99:
            self.skipTest("the libraries alone take more than the limit")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1), result.stderr)
        self.assertIn(remedy, result.stderr)

    def test_the_microbatch_is_found_and_kept(self):
        result = self.mantissa("train", self.run_file, "--microbatch", "auto", "--memory", "1GB", "--out", "a", "--json")
        self.assertRegex(result.stderr, r"train.microbatch auto is 4 of the 4 sequences of a step, which takes \d+ "
                                        r"bytes of tensors; train.memory gives 1000000000")
        whole = json.loads(result.stdout.splitlines()[-1])
        last = self.fails(1, "train.microbatch auto: a step of one sequence a pass takes", "train", self.run_file,
                          "--microbatch", "auto", "--memory", "1kB", "--out", "b")
        needed = last.split(" takes ")[1].split()[0]
        result = self.mantissa("train", self.run_file, "--microbatch", "auto", "--memory", needed + "B", "--out", "b")
        self.assertIn("train.microbatch auto is 1 of the 4 sequences", result.stderr)
        self.assertIn("microbatch = 1\n", (self.folder / "b/run.toml").read_text())
        self.assertNotIn("memory =", (self.folder / "b/run.toml").read_text())
        given = json.loads(self.mantissa("train", self.run_file, "--microbatch", "4", "--out", "c", "--json").stdout)
        self.assertEqual((given["loss"], given["bits_per_base"]), (whole["loss"], whole["bits_per_base"]))
        resumed = json.loads(self.mantissa("train", "--resume", "a", "--json").stdout)
        self.assertEqual(resumed["loss"], whole["loss"])
        self.fails(2, "train.memory has no effect", "train", self.run_file, "--memory", "1GB", "--out", "d")
        self.fails(2, "--set train.memory=much: train.memory is", "train", self.run_file, "--microbatch", "auto",
                   "--memory", "much", "--out", "d")
        arguments = ("compare", self.run_file, "--precisions", "fp32", "--out", "cmp", "--set", "train.microbatch=auto")
        self.assertEqual(self.mantissa(*arguments).stdout, self.mantissa(*arguments).stdout)
        self.mantissa("lint", self.run_file, "--set", "train.microbatch=auto")

    def test_recomputation_changes_no_result_and_takes_less(self):
        runs = {}
        for level in ("none", "elementwise", "block", "full"):
            result = self.mantissa("train", self.run_file, "--recompute", level, "--precision", "bf16", "--out", level,
                                   "--set", "model.layers=4", "--json")
            runs[level] = json.loads(result.stdout.splitlines()[-1])
            self.assertEqual(runs[level]["bits_per_base"], runs["none"]["bits_per_base"])
        for more, less in (("none", "elementwise"), ("elementwise", "block")):
            self.assertGreater(sum(runs[more]["peak_bytes"].values()), sum(runs[less]["peak_bytes"].values()))
        self.fails(2, "train.recompute is", "train", self.run_file, "--recompute", "some", "--out", "d")
        lint = self.mantissa("lint", self.run_file, "--precision", "fp16", "--set", "train.recompute=block")
        self.assertIn("0 hazards, 0 notes", lint.stdout)

    def test_a_pipe_as_genome_is_refused(self):
        os.mkfifo(self.folder / "pipe.fa")
        self.fails(1, "is a pipe or a device", "train", self.run_file, "--set", "data.fasta=pipe.fa", "--out", "a")

    def test_a_refused_run_can_be_corrected_in_the_same_folder(self):
        self.fails(2, "policy", "train", self.run_file, "--out", "a", "--policy", "nope")
        self.mantissa("train", self.run_file, "--out", "a")

    def test_a_diverged_run_is_a_failure(self):
        result = self.mantissa("train", self.run_file, "--precision", "fp16", "--set", "optim.lr=1e5", code=1)
        self.assertIn("diverged", result.stderr)
        result = self.mantissa("compare", self.run_file, "--precisions", "fp16", "--out", "cmp",
                               "--set", "optim.lr=1e5", code=1)
        self.assertIn("diverged", result.stderr)
        self.assertIn("fp16", result.stdout)

    def test_output_that_cannot_be_written_is_a_failure(self):
        for arguments in (["--help"], ["doctor"], ["numerics", "bf16", "1"]):
            with open("/dev/full", "w") as full:
                result = subprocess.run([MANTISSA, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(result.returncode, 1, arguments)

    def test_help_and_version(self):
        self.assertIn("train", self.mantissa("--help").stdout)
        self.assertIn("mantissa 0.", self.mantissa("--version").stdout)
        self.assertIn("train.microbatch = 0", self.mantissa("train", "--help-keys").stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
