"""Runs the commands that stand in each recipe of recipes/lessons and looks for what stands below them:

# $ mantissa ...    a command; OUT is a new folder
# ! 3               its exit code, when it is not 0
# > text            must be in what it prints
"""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

MANTISSA = os.environ["MANTISSA"]
SOURCE = pathlib.Path(__file__).resolve().parents[2]
LESSONS = SOURCE / "recipes" / "lessons"


def commands_of(recipe):
    """(arguments, exit code, texts) of each command."""
    commands = []
    for line in recipe.read_text().splitlines():
        if found := re.match(r"# \$ mantissa (.*)", line):
            commands.append([found[1].split(), 0, []])
        elif found := re.match(r"# ! (\d+)", line):
            commands[-1][1] = int(found[1])
        elif found := re.match(r"# > (.*)", line):
            commands[-1][2].append(found[1])
    return commands


class LessonsTest(unittest.TestCase):
    def check(self, name, texts_of):
        commands = commands_of(LESSONS / name)
        self.assertEqual([len(texts) for _, _, texts in commands], texts_of)
        with tempfile.TemporaryDirectory() as folder:
            for number, (arguments, code, texts) in enumerate(commands):
                arguments = [f"{folder}/{number}" if argument == "OUT" else argument for argument in arguments]
                result = subprocess.run([MANTISSA, *arguments], cwd=SOURCE, capture_output=True, text=True, timeout=600)
                self.assertEqual(result.returncode, code, result.stderr + result.stdout)
                for text in texts:
                    self.assertIn(text, result.stdout)
            return json.loads((pathlib.Path(folder) / str(number) / "comparison.json").read_text())

    def test_every_lesson_is_checked(self):
        names = {path.stem.replace("-", "_") for path in LESSONS.glob("*.toml")}
        self.assertEqual(names, {name.removeprefix("test_lesson_") for name in dir(self)
                                 if name.startswith("test_lesson_")})

    def test_lesson_small_gradients(self):
        self.check("small-gradients.toml", [1, 2])

    def test_lesson_large_gradients(self):
        self.check("large-gradients.toml", [4, 1])

    def test_lesson_small_updates(self):
        self.check("small-updates.toml", [2, 1])

    def test_lesson_few_tokens(self):
        doctor = subprocess.run([MANTISSA, "doctor"], capture_output=True, text=True, check=True).stdout
        if not re.search(r"bf16 products +ours", doctor):
            self.skipTest("this processor has BF16 units")
        # Whether the interval is clear of 1 depends on what else the machine does; the median does not.
        self.assertLess(self.check("few-tokens.toml", [3])["arms"][1]["speed"]["value"], 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
