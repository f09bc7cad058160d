"""Checks that Chromium shows report.html without errors and without the network, and that a resumed run keeps its curves.

usage: check_report.py CAROLE
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser

from sample_run import SampleRun

CHARTS = {
    "loss": ["total", "cross entropy", "regularization", "evaluation, cross entropy"],
    "accuracy": ["training batches", "evaluation", "evaluation, top 5"],
    "rate": ["learning rate"],
    "norm": ["gradient norm"],
    "throughput": ["throughput"],
    "time": ["forward", "backward", "optimizer"],
}
HOVER = """<script>
for (const svg of document.querySelectorAll('svg[data-x]')) {
  const box = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent('pointermove',
      {clientX: box.left + box.width, clientY: box.top + 20}));
}
</script>"""


class Page(HTMLParser):
    """Parses a report: for each figure, the names of its lines, and text and position of its tooltip."""

    def __init__(self):
        super().__init__()
        self.figure, self.in_tip = "", False
        self.series, self.tips, self.positions, self.titles, self.points = {}, {}, {}, 0, {}

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "figure":
            self.figure = attributes.get("id", "")
            self.series[self.figure] = []
        if "data-name" in attributes:
            self.series[self.figure].append(attributes["data-name"])
            self.points[self.figure] = attributes["points"].split()
        self.titles += tag == "rect" and attributes.get("class") in ("right", "wrong")
        self.in_tip = tag == "div" and attributes.get("class") == "tip"
        if self.in_tip:
            self.positions[self.figure] = re.findall(r"(left|top): (-?[\d.]+)px", attributes["style"])

    def handle_data(self, data):
        if self.in_tip:
            self.tips[self.figure] = data
            self.in_tip = False


def browse(browser, page, *words):
    """Returns standard output, standard error, and the URLs that Chromium requested."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "net.json"
        done = subprocess.run(
            [browser, "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--enable-logging=stderr", "--hide-scrollbars",
             f"--user-data-dir={folder}/profile", f"--log-net-log={log}", *words,
             page.absolute().as_uri()], capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        urls = re.findall(r'"url":"([^"]*)"', log.read_text())
    return done.stdout, done.stderr, urls


def read_history(page):
    return json.loads(re.search(r'id="history">(.*?)</script>', page.read_text(), re.S)[1])


def check_page(browser, page):
    hovered = page.with_name("hovered.html")
    hovered.write_text(page.read_text().replace("</body>", HOVER + "</body>"))
    dom, log, urls = browse(browser, hovered, "--dump-dom")
    assert "CONSOLE" not in log, log
    foreign = [url for url in urls if not url.startswith(("file:", "data:", "chrome"))]
    assert not foreign, foreign
    found = Page()
    found.feed(dom)
    for figure, names in CHARTS.items():
        missing = set(names) - set(found.series[figure])
        assert not missing, (figure, missing, found.series[figure])
        assert found.tips[figure].startswith("step 30\n"), (figure, found.tips)
        position = dict(found.positions[figure])
        assert float(position["left"]) > 100 and float(position["top"]) > 20, (figure, position)
    assert found.titles >= 10, "the confusion matrix has too few cells"
    rows = read_history(page)["rows"]
    total = float(re.search(r"total  (\S+)", found.tips["loss"])[1])
    last = rows[-1][6]  # a chart of this few rows is not smoothed
    assert abs(total - last) < 1e-3 * last, (found.tips["loss"], last)
    rate = float(re.search(r"learning rate  (\S+)", found.tips["rate"])[1])
    assert abs(rate - rows[-1][10]) < 1e-3 * rate, (rate, rows[-1])


def check_without_scripts(browser, page):
    plain = page.with_name("plain.html")
    plain.write_text(re.sub(r"<script>.*?</script>", "", page.read_text(), flags=re.S))
    dom, _, _ = browse(browser, plain, "--dump-dom")
    found = Page()
    found.feed(dom)
    for figure in CHARTS:
        assert len(found.points[figure]) >= 3, figure


def main():
    browser = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if browser is None:
        print("skipped: no Chromium (apt-get install chromium-headless-shell)")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        run = SampleRun(sys.argv[1], folder)
        page = run.train_dir / "report.html"
        run.train(20, "--eval_every=10")
        first = read_history(page)
        assert [row[0] for row in first["rows"]] == list(range(1, 21))
        run.train(30, "--eval_every=10")
        resumed = read_history(page)
        assert resumed["rows"][:19] == first["rows"][:19], "the resumed run lost its first rows"
        assert [row[0] for row in resumed["rows"]] == list(range(1, 31))
        assert [e[0] for e in resumed["evaluations"]] == [10, 20, 30]
        if len(sys.argv) > 2:
            shutil.copy(page, sys.argv[2])
        check_page(browser, page)
        check_without_scripts(browser, page)
    print("Chromium shows the report")


main()
