"""Holds the documentation to the tests that it names, the files that it links and the commands that it shows. Run by
ctest with MANTISSA set."""

import fnmatch
import os
import pathlib
import re
import subprocess
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted(SOURCE.glob("*.md")) + sorted((SOURCE / "docs").rglob("*.md"))


def names_of_tests():
    names = set()
    for source in [*(SOURCE / "mantissa").rglob("*_test.cpp"), *(SOURCE / "tests").rglob("*_test.cpp")]:
        names.update(f"{suite}.{name}" for suite, name in
                     re.findall(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", source.read_text(), re.M))
    return names


def mantissa(*arguments):
    return subprocess.run([os.environ["MANTISSA"], *arguments], capture_output=True, text=True, check=True).stdout


def blocks_of(page):
    """The lines of each ``` block, those that end in a backslash with the next."""
    for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.M | re.S):
        yield block.replace("\\\n", " ").splitlines()


class DocsTest(unittest.TestCase):
    def test_every_test_that_is_named_exists(self):
        tests = names_of_tests()
        suites = {name.split(".")[0] for name in tests}
        self.assertGreater(len(tests), 400)
        named = 0
        for page in PAGES:
            for name in re.findall(r"`([A-Z]\w+\.[A-Z*][\w*]*)`", page.read_text()):
                if name.split(".")[0] in suites or "*" in name:
                    named += 1
                    self.assertTrue(fnmatch.filter(tests, name), f"{page.name}: no test {name}")
        self.assertGreater(named, 50)

    def test_every_link_within_the_tree_leads_somewhere(self):
        for page in PAGES:
            for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
                if "://" not in target:
                    self.assertTrue((page.parent / target).exists(), f"{page.name}: no {target}")

    def test_what_numerics_is_said_to_print_it_prints(self):
        checked = 0
        for page in PAGES:
            for block in blocks_of(page):
                printed = None
                for line in block:
                    if line.startswith("$ "):
                        is_numerics = line.startswith("$ mantissa numerics ")
                        printed = mantissa(*line.split()[2:]).splitlines() if is_numerics else None
                    elif printed is not None:
                        checked += 1
                        self.assertIn(line, printed, page.name)
        self.assertGreater(checked, 8)

    def test_options_of_claims_and_lessons_exist(self):
        roadmap = (SOURCE / "docs/roadmap.md").read_text()
        commands = mantissa("--help")
        helps = {}
        checked = 0
        for page in (SOURCE / "docs/claims.md", SOURCE / "docs/guides/lessons.md", SOURCE / "docs/guides/compare.md"):
            for line in (line for block in blocks_of(page) for line in block):
                if found := re.match(r"(?:\$ )?mantissa (\w+)( .*)", line):
                    if f"\n  {found[1]} " not in commands:
                        self.assertRegex(roadmap, rf"`{found[1]}`.*\| open", f"{page.name}: {line}")
                        continue
                    if found[1] not in helps:
                        helps[found[1]] = mantissa(found[1], "--help")
                    for option in re.findall(r" (--[\w-]+)", found[2]):
                        checked += 1
                        self.assertRegex(helps[found[1]], rf"{option}[ ,]", f"{page.name}: {line}")
        self.assertGreater(checked, 20)


if __name__ == "__main__":
    unittest.main()
