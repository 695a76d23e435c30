"""`mantissa score` as a user meets it. Run by ctest with MANTISSA set. Where bcftools is installed, it reads what is
written, and its normal forms have the same scores."""

import collections
import gzip
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

MANTISSA = os.environ["MANTISSA"]
SOURCE = pathlib.Path(__file__).resolve().parents[2]
LAMBDA = SOURCE / "data" / "lambda.fa"
CONTIG = "NC_001416.1"

RUN_FILE = """
[data]
fasta = "{fasta}"
validation = ["NC_001416.1:43653-48502"]
context = 32
objective = "{objective}"
[model]
layers = 1
width = 16
heads = 2
[train]
steps = 12
batch = 4
eval_every = 6
[optim]
lr = 1e-2
warmup = 2
"""

HEADER = f"""##fileformat=VCFv4.2
##contig=<ID={CONTIG},length=48502>
##contig=<ID=chr{CONTIG}>
##contig=<ID=other>
##ALT=<ID=DEL,Description="Deletion">
##INFO=<ID=AF,Number=A,Type=Float,Description="Frequency">
#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO
"""


def lambda_sequence():
    return "".join(line.strip() for line in LAMBDA.read_text().splitlines() if not line.startswith(">"))


SEQUENCE = lambda_sequence()


def record(position, alt, size=1, ref=None, contig=CONTIG, info="."):
    ref = ref or SEQUENCE[position - 1:position - 1 + size]
    return f"{contig}\t{position}\t.\t{ref}\t{alt}\t.\t.\t{info}\n"


def other(position):
    return "A" if SEQUENCE[position - 1] != "A" else "C"


def every_kind():
    """One record of every kind; the alternatives that have scores, by index of record."""
    base = SEQUENCE[5000 - 1]
    records = [
        (record(5000, other(5000)), 1),
        (record(4000, other(4000)), 1),  # out of order
        (record(5000, other(5000) + other(5001) + other(5002), size=3), 1),
        (record(5000, base + "ACGT"), 1),
        (record(5000, base, size=5), 1),
        (record(5000, other(5000) + "GG", size=5), 1),
        (record(5000, f"{other(5000)},{base}TT,<DEL>,*", info="AF=0.1,0.2,0.3,0.4"), 2),
        (record(5000, "<DEL>"), 0),
        (record(5000, "*"), 0),
        (record(5000, f"{base}]{CONTIG}:800]"), 0),
        (record(5000, "."), 0),
        (record(5000, other(5000), ref=other(5000)), 0),  # no reference base
        (record(5000, "R"), 0),
        (record(5000, other(5000), contig="chr" + CONTIG), 1),
        (record(5000, other(5000), contig="other"), 0),
        (record(48503, "A", ref="C"), 0),
        (record(1, other(1)), 1),
        (record(48502, other(48502)), 1),
        (record(5000, base, size=40), 0),  # longer than half a window
    ]
    return [text for text, _ in records], [count for _, count in records]


def info_of(line):
    return dict(field.partition("=")[::2] for field in line.split("\t")[7].split(";"))


def list_ratios(text):
    """((contig, position, REF, ALT), LLR), of all alternatives that have one."""
    found = []
    for line in text.splitlines():
        if not line.startswith("#"):
            columns = line.split("\t")
            for alt, ratio in zip(columns[4].split(","), info_of(line).get("MANTISSA_LLR", ".").split(",")):
                if ratio != ".":
                    found.append(((columns[0], int(columns[1]), columns[3], alt), ratio))
    return found


def ratios_of(text):
    return dict(list_ratios(text))


class ScoreTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls._folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls._folder.name)
        for objective in ("causal", "masked"):
            run_file = cls.root / f"{objective}.toml"
            run_file.write_text(RUN_FILE.format(fasta=LAMBDA, objective=objective))
            subprocess.run([MANTISSA, "train", run_file, "--out", cls.root / objective], check=True,
                           capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls._folder.cleanup()

    def setUp(self):
        self._own = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._own.name)

    def tearDown(self):
        self._own.cleanup()

    def command(self, vcf, out, *options, model="causal"):
        return [MANTISSA, "score", "--model", self.root / model, "--vcf", vcf, "--fasta", LAMBDA, "--out", out,
                *options]

    def score(self, vcf, out, *options, model="causal", code=0):
        result = subprocess.run([str(word) for word in self.command(vcf, out, *options, model=model)],
                                cwd=self.folder, capture_output=True, text=True, timeout=300)
        self.assertEqual(result.returncode, code, result.stderr + result.stdout)
        return result

    def fails(self, code, message, *arguments, **options):
        result = self.score(*arguments, code=code, **options)
        self.assertIn(message, result.stderr.strip().splitlines()[-1])
        self.assertEqual(result.stdout, "")

    def write(self, name, records):
        (self.folder / name).write_text(HEADER + "".join(records))
        return name

    def gene(self, name="cro.vcf", region=f"{CONTIG}:38041-38241"):
        text = subprocess.run([sys.executable, SOURCE / "tools" / "all_snvs", LAMBDA, region], check=True,
                              capture_output=True, text=True).stdout
        (self.folder / name).write_text(text)
        return name

    def test_every_record_is_scored_or_explained_in_its_order(self):
        records, scored = every_kind()
        vcf = self.write("x.vcf", records)
        for model in ("causal", "masked"):
            out = self.folder / f"{model}.vcf"
            summary = json.loads(self.score(vcf, out, "--json", model=model).stdout.splitlines()[-1])
            lines = [line for line in out.read_text().splitlines() if not line.startswith("#")]
            self.assertEqual([line.split("\t")[:7] for line in lines],
                             [line.rstrip("\n").split("\t")[:7] for line in records])
            for line, count in zip(lines, scored):
                fields = info_of(line)
                ratios = [value for value in fields.get("MANTISSA_LLR", "").split(",") if value not in ("", ".")]
                reasons = [value for value in fields.get("MANTISSA_REASON", "").split(",") if value not in ("", ".")]
                self.assertEqual(len(ratios), count, line)
                none = "MANTISSA_NO_ALTERNATIVE" in fields
                self.assertEqual(len(ratios) + len(reasons) + none, line.split("\t")[4].count(",") + 1, line)
            self.assertIn("AF=0.1,0.2,0.3,0.4;MANTISSA_KIND=", lines[6])
            counts = summary["records"]
            self.assertEqual(counts["all"], len(records))
            self.assertEqual(counts["all"], counts["scored"] + counts["in_part"] + counts["explained"])
            self.assertEqual(counts["in_part"], 1)
            self.assertEqual(counts["renamed_contig"], 1)
            self.assertEqual(summary["alternatives"]["scored"], sum(scored))
            self.assertEqual(summary["alternatives"]["all"], sum(scored) + sum(summary["reasons"].values()))
            self.assertEqual(set(summary["reasons"]), {
                "symbolic", "overlapping_deletion", "breakend", "no_alternative", "reference_mismatch",
                "ambiguous_alternative", "contig_missing", "out_of_contig", "too_long"})
            self.assertIsNone(summary["agreement"])
        text = self.score(vcf, "again.vcf").stdout
        self.assertIn("records: 19 = 9 scored + 1 in part + 9 explained", text)
        self.assertIn("breakend: a breakend: its sequence is not known", text)

    def test_a_score_depends_on_no_neighbour(self):
        records, _ = every_kind()
        self.score(self.write("all.vcf", records), "all.out.vcf")
        together = ratios_of((self.folder / "all.out.vcf").read_text())
        self.score(self.write("reversed.vcf", reversed(records)), "reversed.out.vcf")
        self.assertEqual(ratios_of((self.folder / "reversed.out.vcf").read_text()), together)
        for i in (0, 3, 6):
            self.score(self.write(f"{i}.vcf", [records[i]]), f"{i}.out.vcf")
            for key, ratio in ratios_of((self.folder / f"{i}.out.vcf").read_text()).items():
                self.assertEqual(ratio, together[key])

    @unittest.skipUnless(shutil.which("bcftools"), "bcftools is not installed")
    def test_bcftools_reads_it_and_its_normal_forms_have_the_same_scores(self):
        records, _ = every_kind()
        # In repeats, one base in two ways, with more bases than needed: what normal forms are for.
        at = SEQUENCE.index("AAAAAA") + 1
        records += [record(at + 3, "A", size=2), record(at + 4, "AA"), record(at - 1, SEQUENCE[at - 2] + "AAAA", size=6)]
        at = SEQUENCE.index("CACACA") + 1
        records += [record(at + 2, "CA", size=4), record(at + 4, "CACA", size=2)]
        # What it refuses or leaves alone has no normal form.
        plain = [line for line in records if line.split("\t")[0] == CONTIG and int(line.split("\t")[1]) <= 48502
                 and set(line.split("\t")[4]) <= set("ACGT,") and line.split("\t")[3] ==
                 SEQUENCE[int(line.split("\t")[1]) - 1:][:len(line.split("\t")[3])]]
        vcf = self.write("plain.vcf", plain)
        normal = subprocess.run(["bcftools", "norm", "-m-", "-f", LAMBDA, vcf], cwd=self.folder, check=True,
                                capture_output=True, text=True).stdout
        (self.folder / "normal.vcf").write_text(normal)
        self.assertNotEqual([line.split("\t")[:5] for line in normal.splitlines() if not line.startswith("#")],
                            [line.split("\t")[:5] for line in plain])
        for model in ("causal", "masked"):
            self.score(vcf, f"{model}.vcf", model=model)
            self.score("normal.vcf", f"{model}.normal.vcf", model=model)
            # Two records may have one normal form: counted, not looked up.
            of_file, of_normal = (sorted(ratio for _, ratio in list_ratios((self.folder / name).read_text()))
                                  for name in (f"{model}.vcf", f"{model}.normal.vcf"))
            self.assertEqual(len(of_file), 13)
            self.assertEqual(of_file, of_normal)
        # It reads what was written, with no complaint of our fields, and splits them with their alternatives.
        self.score(self.write("all.vcf", every_kind()[0]), "all.out.vcf")
        read = subprocess.run(["bcftools", "norm", "-m-", "all.out.vcf"], cwd=self.folder, check=True,
                              capture_output=True, text=True)
        self.assertNotIn("MANTISSA", read.stderr)
        split = [line for line in read.stdout.splitlines() if not line.startswith("#")]
        self.assertEqual(len(split), 19 + 3)
        for line in split:
            self.assertNotIn(",", info_of(line).get("MANTISSA_LLR", ""))

    @unittest.skipUnless(shutil.which("bcftools"), "bcftools is not installed")
    def test_bcf_and_bgzip_are_read(self):
        records, _ = every_kind()
        vcf = self.write("x.vcf", records)
        self.score(vcf, "expected.vcf")
        expected = ratios_of((self.folder / "expected.vcf").read_text())
        for name, kind in (("x.bcf", "b"), ("x.vcf.gz", "z")):
            subprocess.run(["bcftools", "view", f"-O{kind}", "-o", name, vcf], cwd=self.folder, check=True,
                           capture_output=True)
            self.score(name, f"{name}.out.vcf.gz")
            text = gzip.decompress((self.folder / f"{name}.out.vcf.gz").read_bytes()).decode()
            self.assertEqual(ratios_of(text), expected)

    def test_what_is_killed_or_interrupted_goes_on(self):
        vcf = self.gene(region=f"{CONTIG}:38041-39000")
        self.score(vcf, "whole.vcf")
        whole = (self.folder / "whole.vcf").read_bytes()
        progress = self.folder / "out.vcf.progress"
        for number, code in ((signal.SIGKILL, -9), (signal.SIGTERM, 75)):
            command = [str(word) for word in self.command(vcf, "out.vcf", "--save-every", "50")]
            process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            while not progress.exists() and process.poll() is None:
                time.sleep(0.001)
            process.send_signal(number)
            stderr = process.communicate()[1].decode()
            self.assertEqual(process.returncode, code, stderr)
            self.assertFalse((self.folder / "out.vcf").exists())
            done = json.loads(progress.read_text())["records"]
            self.assertGreater(done, 0)
            self.assertLess(done, 2880)
            self.fails(2, "was begun with weights", vcf, "out.vcf", "--save-every", "50", "--context", "16")
            summary = json.loads(self.score(vcf, "out.vcf", "--json").stdout)
            self.assertEqual(summary["records"]["all"], 2880)
            self.assertEqual((self.folder / "out.vcf").read_bytes(), whole)
            self.assertEqual([path.name for path in self.folder.glob("out.vcf*")], ["out.vcf"])
            (self.folder / "out.vcf").unlink()

    def test_sixteen_bits_are_compared_with_fp32(self):
        vcf = self.gene()
        for precision in ("bf16", "fp16"):
            out = f"{precision}.vcf"
            result = self.score(vcf, out, "--precision", precision, "--json")
            agreement = json.loads(result.stdout)["agreement"]
            self.assertEqual(agreement["pairs"], 603)
            self.assertGreater(agreement["spearman"], 0.9)
            self.assertLessEqual(agreement["spearman"], 1)
            self.assertGreater(agreement["largest_difference"], 0)
        self.score(vcf, "fp32.vcf")
        in_fp32 = ratios_of((self.folder / "fp32.vcf").read_text())
        for line in (self.folder / "bf16.vcf").read_text().splitlines():
            if not line.startswith("#"):
                columns = line.split("\t")
                key = (columns[0], int(columns[1]), columns[3], columns[4])
                self.assertEqual(info_of(line)["MANTISSA_LLR_FP32"], in_fp32[key])
        text = self.score(vcf, "some.vcf", "--precision", "bf16", "--agree", "0.25").stdout
        self.assertIn("Spearman's correlation with FP32: ", text)
        self.assertIsNone(json.loads(
            self.score(vcf, "none.vcf", "--precision", "bf16", "--agree", "0", "--json").stdout)["agreement"])
        self.fails(2, "--agree with scores in FP32", vcf, "x.vcf", "--agree", "0.5")
        self.fails(2, "valid: a share from 0 to 1", vcf, "x.vcf", "--precision", "bf16", "--agree", "2")

    def test_labels_give_an_area_with_its_interval_beside_the_markov_model(self):
        vcf = self.gene()
        genes = SOURCE / "data" / "lambda.gff3"
        summary = json.loads(self.score(vcf, "out.vcf", "--annotation", genes, "--json").stdout)
        coding = SEQUENCE[38041 - 1:38241]
        standard = {a + b + c: "FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG"[16 * i + 4 * j + k]
                    for i, a in enumerate("TCAG") for j, b in enumerate("TCAG") for k, c in enumerate("TCAG")}
        expected = collections.Counter()
        for at, base in enumerate(coding):
            codon = coding[at - at % 3:][:3]
            for new in set("ACGT") - {base}:
                before, after = standard[codon], standard[codon[:at % 3] + new + codon[at % 3 + 1:]]
                expected["initiator_codon" if at < 3 else "synonymous" if before == after != "*" else
                         "stop_retained" if before == after else "stop_lost" if before == "*" else
                         "nonsense" if after == "*" else "missense"] += 1
        self.assertEqual(summary["coding"]["consequences"], dict(expected))
        separation = summary["separation"]
        self.assertEqual((separation["num_benign"], separation["num_harmful"]),
                         (expected["synonymous"], expected["nonsense"]))
        # The area again, from the file.
        groups = {"synonymous": [], "nonsense": []}
        for line in (self.folder / "out.vcf").read_text().splitlines():
            fields = info_of(line) if not line.startswith("#") else {}
            if fields.get("MANTISSA_CONSEQUENCE") in groups:
                groups[fields["MANTISSA_CONSEQUENCE"]].append(
                    (float(fields["MANTISSA_LLR"]), float(fields["MANTISSA_LLR_MARKOV"])))
        for i, by in enumerate(("model", "markov")):
            pairs = [(bad[i] < good[i]) + 0.5 * (bad[i] == good[i])
                     for bad in groups["nonsense"] for good in groups["synonymous"]]
            self.assertAlmostEqual(separation[by]["auroc"], sum(pairs) / len(pairs), places=9)
            self.assertLess(separation[by]["low"], separation[by]["auroc"])
            self.assertGreater(separation[by]["high"], separation[by]["auroc"])
        text = self.score(vcf, "text.vcf", "--annotation", genes, "--label", "synonymous,missense", "--code", "11").stdout
        self.assertRegex(text, r"AUROC, \d+ missense below \d+ synonymous: 0\.\d{4} \(95 % interval")
        self.assertRegex(text, r"best Markov model, order \d+: 0\.\d{4} \(")
        self.fails(2, "--label without --annotation", vcf, "x.vcf", "--label", "synonymous,nonsense")
        self.fails(2, "--code without --annotation", vcf, "x.vcf", "--code", "4")
        self.fails(2, "genetic code: table 9", vcf, "x.vcf", "--annotation", genes, "--code", "9")
        self.fails(2, "did you mean \"nonsense\"", vcf, "x.vcf", "--annotation", genes, "--label", "synonymous,nonsens")

    def test_what_is_wrong_is_said_in_one_line(self):
        records, _ = every_kind()
        vcf = self.write("x.vcf", records)
        self.fails(1, "vcf none.vcf: no such file", "none.vcf", "out.vcf")
        self.fails(1, "does not begin with \"##fileformat=VCF\"", LAMBDA, "out.vcf")
        self.fails(2, "it ends in .vcf, .vcf.gz or .vcf.bgz", vcf, "out.txt")
        self.fails(2, "valid: 2 or more", vcf, "out.vcf", "--context", "1")
        self.fails(2, "prefix \"A-B\"", vcf, "out.vcf", "--prefix", "A-B")
        self.fails(2, "no name within the run", vcf, "out.vcf", "--checkpoint", "../x")
        self.fails(2, "save_every 0", vcf, "out.vcf", "--save-every", "0")
        self.score(vcf, "out.vcf")
        before = (self.folder / "out.vcf").read_bytes()
        self.fails(2, "is there already", vcf, "out.vcf")
        self.assertEqual((self.folder / "out.vcf").read_bytes(), before)
        self.fails(2, "choose another --prefix", "out.vcf", "twice.vcf")
        self.score("out.vcf", "twice.vcf", "--prefix", "SECOND")
        for line in (self.folder / "twice.vcf").read_text().splitlines():
            if "MANTISSA_LLR=" in line and not line.startswith("#"):
                self.assertEqual(info_of(line)["SECOND_LLR"], info_of(line)["MANTISSA_LLR"])


if __name__ == "__main__":
    unittest.main()
