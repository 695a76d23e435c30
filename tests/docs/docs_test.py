"""Holds the documentation to the tests that it names and the files that it links. Run by ctest."""

import fnmatch
import pathlib
import re
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted(SOURCE.glob("*.md")) + sorted((SOURCE / "docs").rglob("*.md"))


def names_of_tests():
    names = set()
    for source in [*(SOURCE / "mantissa").rglob("*_test.cpp"), *(SOURCE / "tests").rglob("*_test.cpp")]:
        names.update(f"{suite}.{name}" for suite, name in
                     re.findall(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", source.read_text(), re.M))
    return names


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


if __name__ == "__main__":
    unittest.main()
