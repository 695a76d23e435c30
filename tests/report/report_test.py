"""The command of the report as a user meets it. Run by ctest with MANTISSA_REPORT set, and MANTISSA for the
same as a subcommand."""

import csv
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import records  # noqa: E402

REPORT = os.environ["MANTISSA_REPORT"]
MANTISSA = os.environ["MANTISSA"]


class ReportTest(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)

    def tearDown(self):
        self._folder.cleanup()

    def run_program(self, *command, code=0):
        result = subprocess.run([*map(str, command)], cwd=self.folder, capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, code, result.stderr + result.stdout)
        return result

    def report(self, *arguments, code=0):
        return self.run_program(REPORT, *arguments, code=code)

    def fails(self, code, message, *arguments):
        """Exactly one line on stderr that holds `message`, nothing on stdout, no file left; also as `mantissa report`."""
        before = sorted(self.folder.rglob("*"))
        for command, name in (((REPORT,), "mantissa-report"), ((MANTISSA, "report"), "mantissa")):
            result = self.run_program(*command, *arguments, code=code)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertTrue(result.stderr.startswith(f"{name}: "), result.stderr)
            self.assertIn(message, result.stderr)
            self.assertEqual(result.stdout, "")
        self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_tables_as_text_csv_and_json_agree(self):
        for seed in (1, 2):
            for precision in ("fp32", "fp16"):
                records.write(self.folder / "c" / f"{precision}-{seed}", seed=seed, precision=precision, layers=3,
                              skipped=(5,) if precision == "fp16" else ())
        text = self.report("c").stdout
        for part in ("Comparison", "fp16 (2 runs)", "Skipped steps", "inf in head", "Gradients by parameter",
                     "Environment"):
            self.assertIn(part, text)
        tables = {table["id"]: table for table in json.loads(self.report("c", "--json").stdout)["tables"]}
        rows = list(csv.reader(io.StringIO(self.report("c", "--csv").stdout)))
        self.assertEqual(rows[0], tables["runs"]["columns"])
        self.assertEqual([row[0] for row in rows[1:]], ["fp16-1", "fp16-2", "fp32-1", "fp32-2"])
        for row, values in zip(rows[1:], tables["runs"]["rows"]):
            for cell, value in zip(row, values):
                self.assertEqual(cell if isinstance(value, str) else float(cell), value)
        self.assertEqual(len(tables["parameters"]["rows"]), 12)
        one = json.loads(self.report("c", "--json", "--table", "memory").stdout)
        self.assertEqual(one, tables["memory"])

    def test_the_time_of_a_step_is_split_and_the_slower_run_says_why(self):
        for precision in ("fp32", "bf16"):
            records.write(self.folder / "c" / precision, precision=precision, time_split_every=50)
        text = self.report("c").stdout
        self.assertIn("Where the time goes\nbf16: cast-bound: 30 % of a step is casts between fp32 and bf16, 46 % products", text)
        tables = {table["id"]: table for table in json.loads(self.report("c", "--json").stdout)["tables"]}
        split = {row[0]: dict(zip(tables["time-split"]["columns"], row)) for row in tables["time-split"]["rows"]}
        self.assertAlmostEqual(split["bf16"]["casts"], 30)
        self.assertAlmostEqual(split["fp32"]["casts"], 0)
        self.assertEqual(len(tables["operations"]["rows"]), 3 + 4)
        self.report("c", "-o", "r.html")
        page = (self.folder / "r.html").read_text()
        for part in ('id="chart-phases"', 'id="table-operations"', 'href="#time"'):
            self.assertIn(part, page)

    def test_the_subcommand_does_the_same(self):
        records.write(self.folder / "a")
        self.assertEqual(self.run_program(MANTISSA, "report", "a").stdout, self.report("a").stdout)
        self.run_program(MANTISSA, "report", "a", "-o", "one.html")
        result = self.report("a", "-o", "two.html")
        self.assertRegex(result.stderr, r"^mantissa-report: wrote two.html, \d+ kB\n$")
        one, two = ((self.folder / name).read_text() for name in ("one.html", "two.html"))
        self.assertIn("Made by <code>mantissa report a -o one.html", one)
        self.assertEqual(len(one.splitlines()), len(two.splitlines()))

    def test_help_says_what_to_type(self):
        for command in ((REPORT,), (MANTISSA, "report")):
            text = self.run_program(*command, "--help").stdout
            self.assertIn("mantissa report runs/a runs/b -o r.html", text)
        self.assertRegex(self.report("--version").stdout, r"^mantissa-report \d")

    def test_a_record_that_was_cut_short_is_read_to_its_last_whole_line(self):
        record = records.write(self.folder / "a", ended=False) / "record.jsonl"
        record.write_text(record.read_text() + '{"schema":1,"ti')
        result = self.report("a")
        self.assertIn("not ended", result.stdout)
        self.assertRegex(result.stderr, r"^mantissa-report: record a/record.jsonl: the last line, 15 bytes, has no end")

    def test_what_is_wrong_is_one_line_and_leaves_nothing(self):
        records.write(self.folder / "a")
        whole = (self.folder / "a/record.jsonl").read_text()
        for name, text in {"empty": "", "damaged": whole + "{}\n", "later": whole.replace('"schema": 1', '"schema": 9'),
                           "binary": "\0\xff\n"}.items():
            (self.folder / name).mkdir()
            (self.folder / name / "record.jsonl").write_text(text)
        (self.folder / "none").mkdir()
        records.write(self.folder / "yeast", fasta="yeast.fa")
        (self.folder / "taken.html").mkdir()
        page = ("-o", "r.html")
        self.fails(1, "No such file or directory; check the path", "missing", *page)
        self.fails(1, "none: holds no run (no record.jsonl)", "none", *page)
        self.fails(1, "has no line; name a run that has begun", "empty", *page)
        self.fails(1, "damaged/record.jsonl: line", "damaged", *page)
        self.fails(1, "binary/record.jsonl: line 1", "binary", *page)
        self.fails(1, "schema", "later", *page)
        self.fails(2, "bits per base of other data cannot be compared", "a", "yeast", *page)
        self.fails(2, "a/record.jsonl is named twice", "a", "a/record.jsonl", *page)
        self.fails(1, "cannot", "a", "-o", "nowhere/r.html")
        self.fails(1, "cannot", "a", "-o", "taken.html")
        self.fails(2, "is no name of a page", "a", "-o", "a/record.jsonl")
        self.fails(2, "--help", "a", "--csv", "--json")
        self.fails(2, "--help", *page)
        self.fails(2, 'did you mean "runs"?', "a", "--table", "run")
        self.assertEqual((self.folder / "a/record.jsonl").read_text(), whole)

    def test_a_full_stdout_is_a_failure(self):
        records.write(self.folder / "a")
        with open("/dev/full", "w") as full:
            result = subprocess.run([REPORT, str(self.folder / "a")], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("stdout: cannot be written", result.stderr)

    def test_it_needs_no_libtorch(self):
        libraries = subprocess.run(["ldd", REPORT], capture_output=True, text=True, check=True).stdout
        self.assertIn("libmantissa_plain", libraries)
        self.assertNotIn("torch", libraries)

    def test_pages_of_many_and_of_long_runs_are_small(self):
        for i in range(50):
            records.write(self.folder / "many" / f"run-{i}", steps=300 + i, layers=10)
        records.write(self.folder / "long/run", steps=30000, layers=5, gradients_every=100, precision="fp16",
                      skipped=range(1, 30000, 1000))
        records.write(self.folder / "wide/run", steps=40, layers=1000)
        for name in ("many", "long", "wide"):
            self.report(name, "-o", f"{name}.html")
            self.assertLess((self.folder / f"{name}.html").stat().st_size, 2_000_000, name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
