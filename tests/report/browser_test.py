"""Pages of the report in headless Chromium: they draw without a word on the console, ask the network for nothing,
and can be used with the keyboard, in both colour schemes, on narrow screens and on paper. Run by ctest with
MANTISSA_REPORT set; exit code 77: skipped, there is no Chromium."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import browser  # noqa: E402
import records  # noqa: E402

REPORT = os.environ["MANTISSA_REPORT"]

# Of WCAG 2.2, from what the page computes.
CONTRAST = """
(() => {
  const parse = (text) => text.startsWith("#")
    ? [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16))
    : text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = (color) => parse(color).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const page = css("--page");
  const result = {};
  for (const name of ["--text", "--quiet", "--link"]) {
    result[name] = Math.min(contrast(css(name), page), contrast(css(name), css("--surface")));
  }
  for (let i = 0; i < 8; ++i) result[`--c${i}`] = contrast(css(`--c${i}`), page);
  result.body = contrast(getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor);
  return result;
})()
"""


class BrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls._folder = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls._folder.name)
        cls.browser = browser.Browser(browser.find_chromium())
        for seed in (1, 2, 3):
            for precision in ("fp32", "bf16", "fp16"):
                records.write(cls.folder / "c" / f"{precision}-{seed}", seed=seed, precision=precision, layers=4,
                              skipped=(5, 9) if precision == "fp16" else (), message="a warning", time_split_every=50)
        cls.page = cls.make_page("c")

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls._folder.cleanup()

    @classmethod
    def make_page(cls, *names):
        output = cls.folder / f"{names[0]}.html"
        subprocess.run([REPORT, *(str(cls.folder / name) for name in names), "-o", output], check=True,
                       capture_output=True)
        return output

    def open(self, page, **emulation):
        self.browser.emulate(**emulation)
        self.browser.open(page)
        self.assertEqual(self.browser.problems, [])
        self.assertEqual(self.browser.evaluate("document.documentElement.dataset.state"), "drawn")

    def painted(self):
        """For each chart whether its canvas has any dot, by id."""
        return self.browser.evaluate("""
            Object.fromEntries([...document.querySelectorAll("figure canvas[role=img]")].map((canvas) => {
              const dots = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
              return [canvas.closest("figure").id, new Set(new Uint32Array(dots.buffer)).size > 20];
            }))""")

    def test_every_chart_is_drawn_and_the_network_is_left_alone(self):
        self.open(self.page)
        painted = self.painted()
        self.assertGreaterEqual(len(painted), 9)
        self.assertTrue(all(painted.values()), painted)
        self.assertEqual(self.browser.requests, [self.page.as_uri()])

    def test_the_network_is_forbidden(self):
        self.open(self.page)
        refused = self.browser.evaluate(
            "fetch('http://127.0.0.1:9/').then(() => 'sent', (error) => 'refused')")
        self.assertEqual(refused, "refused")
        self.assertTrue(any("Content Security Policy" in text for text in self.browser.problems),
                        self.browser.problems)

    def test_one_run_fifty_runs_and_a_thousand_layers(self):
        records.write(self.folder / "one/run", steps=1)
        records.write(self.folder / "wide/run", steps=60, layers=1000, precision="fp16", skipped=(3,))
        for i in range(50):
            records.write(self.folder / "fifty" / f"run-{i}", steps=200 + i, layers=2)
        for name in ("one", "wide", "fifty"):
            with self.subTest(name):
                self.open(self.make_page(name))
                painted = self.painted()
                self.assertTrue(painted and all(painted.values()), painted)

    def test_ranges_of_one_and_of_a_thousand_layers(self):
        records.write(self.folder / "ranges-one/run", steps=1, layers=1, ranges_every=1)
        records.write(self.folder / "ranges-wide/run", steps=8, layers=1000, precision="fp16", ranges_every=2)
        for name in ("ranges-one", "ranges-wide"):
            with self.subTest(name):
                page = self.make_page(name)
                self.assertLess(page.stat().st_size, 4e6)
                self.open(page)
                painted = self.painted()
                for chart in ("exponents-activation", "exponents-gradient", "exponents-weight", "exponents-update",
                              "ranges-headroom"):
                    self.assertTrue(painted[f"chart-{chart}"], chart)

    def test_names_from_files_are_texts(self):
        evil = "</script><img src=x onerror=document.title='owned'>\"'&{};"
        folder = "<b onmouseover=alert(1)>&amp;'\"`"
        records.write(self.folder / "evil" / folder, layers=2, parameter=evil + ".#.weight", precision="fp16",
                      message=evil, skipped=(2,), cpu=evil, versions={evil: evil})
        self.open(self.make_page("evil"))
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('img, b').length"), 0)
        self.assertNotIn("owned", self.browser.evaluate("document.title"))
        # Names as they are: in a table, in a legend.
        self.assertEqual(self.browser.evaluate("document.querySelector('#table-runs tbody th').textContent"), folder)
        self.assertEqual(
            self.browser.evaluate("document.querySelector('#chart-training .legend button').textContent"), folder)
        self.assertIn(evil, self.browser.evaluate("document.querySelector('#table-messages').textContent"))

    def column(self, table, column):
        return self.browser.evaluate(
            f"[...document.querySelectorAll('#table-{table} tbody tr')].map(r => r.cells[{column}].textContent)")

    def test_tables_sort_by_click_and_by_keyboard(self):
        self.open(self.page)
        head = "document.querySelector('#table-runs thead').rows[0].cells[{}]"
        names = self.column("runs", 0)
        skipped = self.browser.evaluate("document.querySelector('#table-runs thead').rows[0].cells.length") - 1
        button = head.format(skipped) + ".querySelector('button')"
        self.browser.evaluate(button + ".click()")
        values = [int(value) for value in self.column("runs", skipped)]
        self.assertEqual(values, sorted(values))
        self.assertEqual(self.browser.evaluate(head.format(skipped) + ".ariaSort"), "ascending")
        self.assertEqual(self.column("runs", 0)[:3], names[:3], "equal rows keep their order")
        self.browser.evaluate(button + ".focus()")
        self.browser.press("Enter", 13)
        values = [int(value) for value in self.column("runs", skipped)]
        self.assertEqual(values, sorted(values, reverse=True))
        self.assertEqual(self.browser.evaluate(head.format(skipped) + ".ariaSort"), "descending")
        self.browser.evaluate(head.format(0) + ".querySelector('button').focus()")
        self.browser.press(" ", 32)
        self.assertEqual(self.column("runs", 0), names)
        self.assertIsNone(self.browser.evaluate(head.format(skipped) + ".ariaSort"))
        self.assertEqual(self.browser.problems, [])

    def test_tab_reaches_all_and_shows_where_it_is(self):
        self.open(self.page)
        reached = []
        for _ in range(400):
            self.browser.press("Tab", 9)
            name, is_shown = self.browser.evaluate("""(() => {
              const at = document.activeElement;
              const style = getComputedStyle(at);
              return [at.closest("figure, section, nav, header, footer")?.id || at.className || at.tagName,
                      style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2];
            })()""")
            if name == "BODY":
                break
            self.assertTrue(is_shown, name)
            reached.append(name)
        self.assertEqual(reached[0], "skip")
        for name in ("comparison", "chart-training", "chart-headroom", "messages", "reproduction"):
            self.assertIn(name, reached)

    def test_a_legend_hides_and_shows_a_line(self):
        self.open(self.page)
        button = "document.querySelector('#chart-training .legend button')"
        self.assertEqual(self.browser.evaluate(button + ".ariaPressed"), "true")
        self.browser.evaluate(button + ".focus()")
        picture = "document.querySelector('#chart-training canvas').toDataURL()"
        before = self.browser.evaluate(picture)
        self.browser.press("Enter", 13)
        self.assertEqual(self.browser.evaluate(button + ".ariaPressed"), "false")
        self.assertNotEqual(self.browser.evaluate(picture), before)
        self.assertTrue(self.browser.evaluate(button + " === document.activeElement"), "the focus stays")
        self.browser.press("Enter", 13)
        self.assertEqual(self.browser.evaluate(picture), before)

    def test_the_heat_map_is_read_with_the_arrow_keys(self):
        self.open(self.page)
        self.browser.evaluate("document.querySelector('#chart-headroom canvas').focus()")
        self.browser.press("ArrowRight", 39)
        self.browser.press("ArrowDown", 40)
        text = self.browser.evaluate("document.querySelector('#chart-headroom .readout').textContent")
        self.assertRegex(text, r"^blocks\.1, step 20: -?[\d.]+ bits$")
        self.browser.evaluate("""(() => {
          const choice = [...document.querySelectorAll('#chart-headroom select')].at(-1);
          choice.value = 1;
          choice.dispatchEvent(new Event("change"));
        })()""")
        text = self.browser.evaluate("document.querySelector('#chart-headroom .readout').textContent")
        self.assertRegex(text, r"^blocks\.1, step 20: [\d.e-]+ %$")

    def test_what_a_screen_reader_needs_is_there(self):
        self.open(self.page)
        missing = self.browser.evaluate("""
            [...document.querySelectorAll("figure")].filter((figure) =>
              !figure.querySelector("canvas[role=img]").ariaLabel || !figure.querySelector("details table")
                || !figure.querySelector("figcaption")).map((figure) => figure.id)""")
        self.assertEqual(missing, [])
        counts = self.browser.evaluate("""["header", "nav[aria-label]", "main", "footer", "h1", "html[lang=en]"]
            .map((name) => document.querySelectorAll(name).length)""")
        self.assertEqual(counts, [1] * 6)
        unnamed = self.browser.evaluate("""
            [...document.querySelectorAll("button, select, [role=region], section")].filter((one) =>
              !one.textContent.trim() || (one.matches("[role=region], section")
                && !document.getElementById(one.getAttribute("aria-labelledby")))).length""")
        self.assertEqual(unnamed, 0)
        self.assertEqual(self.browser.evaluate(
            "document.querySelectorAll('[id]').length - new Set([...document.querySelectorAll('[id]')]"
            ".map((one) => one.id)).size"), 0)

    def test_colours_have_contrast_in_both_schemes(self):
        backgrounds = set()
        for scheme in ("light", "dark"):
            self.open(self.page, scheme=scheme)
            for name, contrast in self.browser.evaluate(CONTRAST).items():
                # WCAG 2.2, 1.4.3 for texts and 1.4.11 for graphics.
                self.assertGreaterEqual(contrast, 3 if name.startswith("--c") else 4.5, f"{scheme} {name}")
            backgrounds.add(self.browser.evaluate("getComputedStyle(document.body).backgroundColor"))
        self.assertEqual(len(backgrounds), 2)

    def test_charts_follow_a_change_of_the_scheme(self):
        self.open(self.page, scheme="light")
        picture = "document.querySelector('#chart-training canvas').toDataURL()"
        before = self.browser.evaluate(picture)
        self.browser.emulate(scheme="dark")
        self.browser.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        self.assertNotEqual(self.browser.evaluate(picture), before)

    def test_a_narrow_screen_scrolls_only_down(self):
        for width in (360, 800, 1280):
            self.open(self.page, width=width)
            over = self.browser.evaluate("document.documentElement.scrollWidth - innerWidth")
            self.assertLessEqual(over, 0, f"at {width}")

    def test_it_prints_in_light_colours(self):
        self.open(self.page, scheme="dark")
        output = self.folder / "page.pdf"
        self.browser.pdf(output)
        self.assertTrue(output.read_bytes().startswith(b"%PDF"))
        self.assertGreater(output.stat().st_size, 50_000)
        self.assertFalse(self.browser.evaluate("document.documentElement.classList.contains('printing')"))
        # What a print looks like while it is made.
        self.browser.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        self.browser.emulate(scheme="dark", media="print")
        self.assertEqual(self.browser.evaluate("getComputedStyle(document.body).backgroundColor"),
                         "rgb(255, 255, 255)")
        self.assertEqual(self.browser.evaluate("getComputedStyle(document.querySelector('nav')).display"), "none")
        self.browser.evaluate("window.dispatchEvent(new Event('afterprint'))")
        self.assertEqual(self.browser.problems, [])

    def test_a_script_that_fails_says_so_and_leaves_the_tables(self):
        broken = self.folder / "broken.html"
        broken.write_text(self.page.read_text().replace('"parts":[', '"parts":null,"unused":[', 1))
        self.browser.emulate()
        self.browser.open(broken)
        self.assertEqual(self.browser.evaluate("document.documentElement.dataset.state"), "failed")
        self.assertIn("The charts could not be drawn", self.browser.evaluate(
            "document.querySelector('[role=alert]').textContent"))
        self.assertGreater(len(self.column("runs", 0)), 0)


if __name__ == "__main__":
    if browser.find_chromium() is None:
        print("skipped: there is no Chromium; install Debian's chromium")
        sys.exit(77)
    unittest.main(verbosity=2)
