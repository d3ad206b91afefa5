"""The page in a real browser: nothing goes wrong, and what the keys and the pointer show are the run's numbers."""

import csv
import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest
from run_folders import make_run

from pagesim.report.loaded import chosen, load_runs
from pagesim.report.page import page_html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr",
         "--virtual-time-budget=60000", "--dump-dom")

# Runs in the page when its own script has run; leaves what it saw in #seen.
DRIVER = """
<script>
(async () => {
  const key = (target, name, shiftKey = false) =>
    target.dispatchEvent(new KeyboardEvent("keydown", { key: name, shiftKey, bubbles: true, cancelable: true }));
  const soon = () => new Promise(done => setTimeout(done, 50));
  const read = figure => figure.querySelector("output").textContent;
  const seen = { cells: {}, load: [], map: [], marks: [], pointer: [], taps: [], scales: [] };
  for (const row of document.querySelectorAll(".glance tbody tr"))
    seen.cells[row.querySelector("th").textContent] =
      Object.fromEntries([...row.querySelectorAll("td")].map(({ dataset }) => [dataset.key, JSON.parse(dataset.value)]));
  for (const figure of document.querySelectorAll("figure")) {
    const svg = figure.querySelector("svg"), kind = figure.dataset.kind;
    svg.scrollIntoView();
    svg.focus();
    svg.dispatchEvent(new Event("focus"));
    await soon();
    const label = svg.getAttribute("aria-label"), first = read(figure);
    key(svg, "ArrowRight");
    if (kind === "map") { for (let k = 0; k < 30; k++) key(svg, "ArrowUp"); }
    await soon();
    const second = read(figure);
    key(svg, "End");
    await soon();
    seen[kind === "time" ? "load" : kind].push({ label, first, second, last: read(figure) });
    const frame = svg.getBoundingClientRect();
    seen.scales.push(frame.width / svg.viewBox.baseVal.width);
    svg.dispatchEvent(new PointerEvent("pointerdown",
      { clientX: frame.left + frame.width / 4, clientY: frame.top + frame.height / 3, bubbles: true }));
    await soon();
    if (kind === "time") seen.taps.push(read(figure));
    svg.dispatchEvent(new PointerEvent("pointermove",
      { clientX: frame.left + frame.width / 2, clientY: frame.top + frame.height / 3, bubbles: true }));
    await soon();
    if (kind !== "marks") seen.pointer.push(read(figure));
  }
  seen.links = [...document.querySelectorAll("nav a")].map(link => document.querySelector(link.hash).firstChild.textContent);
  const shades = selector => [...document.querySelectorAll(selector)].map(each => getComputedStyle(each));
  seen.free = [...shades("rect.idle").map(({ fill }) => fill),
               ...shades(".legend i.idle").map(({ backgroundColor }) => backgroundColor)];
  seen.number = document.querySelector(".numbers td").getBoundingClientRect().right <= window.innerWidth;
  seen.wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  const out = document.createElement("pre");
  out.id = "seen";
  out.textContent = JSON.stringify(seen);
  document.body.append(out);
})();
</script>
"""


def opened(page: str, folder: Path, *flags: str) -> tuple[dict, list[str]]:
    """What the driver saw in the page, and what the browser's console said."""
    path = folder / "driven.html"
    path.write_text(page.replace("</body>", DRIVER + "</body>"), encoding="utf-8")
    done = subprocess.run([CHROMIUM, *FLAGS, *flags, f"--user-data-dir={folder / 'profile'}", path.as_uri()],
                          capture_output=True, check=False, text=True, timeout=120)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert found, f"the page's scripts did not come to their end: {console or done.stderr[-2000:]}"
    return json.loads(unescape(found[1])), console


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="module")
def page(run):
    loaded = load_runs([run])
    return page_html(loaded, chosen(loaded, []))


@pytest.fixture(scope="module")
def seen(page, tmp_path_factory):
    return opened(page, tmp_path_factory.mktemp("opened"))


def test_the_console_stays_silent(seen):
    assert seen[1] == []


def test_an_error_in_the_page_would_be_heard(page, tmp_path):
    broken = page.replace("</main>", "</main><script>nothing.at.all()</script><img src='https://example.org/x.png'>")
    _, console = opened(broken, tmp_path)
    assert any("nothing is not defined" in line for line in console)
    assert any("Content Security Policy" in line for line in console)


def test_the_table_at_a_glance_holds_the_figures_of_metrics_json(run, seen):
    for case in json.loads((run / "metrics.json").read_text())["cases"]:
        cells = seen[0]["cells"][case["name"]]
        assert cells["utilization_share"] == case["utilization"]
        assert cells["mean.running"] == case["mean"]["running"]
        assert cells["latency.ttft.p99_s"] == case["latency"]["ttft"]["p99"]
        assert len(cells) == 11


def test_keys_read_the_ledger_stretch_by_stretch_as_the_timeline_has_it(run, seen):
    for shown in seen[0]["load"]:
        name = shown["label"].split(": ledger")[0]
        folder = next(path.parent for path in run.glob("cases/*/timeline.csv")
                      if path.parent.name == name.replace(" ", "+"))
        with open(folder / "timeline.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        for text, row in ((shown["first"], rows[0]), (shown["second"], rows[1]), (shown["last"], rows[-1])):
            start, _, values = re.fullmatch(r"([\d.,]+) to ([\d.,]+) s: (.*)", text).groups()
            assert float(start) == pytest.approx(float(row["start_s"]), abs=1e-3)
            shown_share = float(re.search(r"token states ([\d.]+) %", values)[1])
            assert shown_share == pytest.approx(100 * float(row["mean_token_states_slots"]) / 160, abs=0.0051)
            assert f"running {float(row['mean_running']):g}" in values


def test_keys_read_the_owner_of_every_address(run, seen):
    cases = {case.name: case for case in load_runs([run])[0].cases}
    for shown in seen[0]["map"]:
        recorded = cases[shown["label"].split(": which")[0]].ownership()
        for text in (shown["first"], shown["second"], shown["last"]):
            step, unit, owner = re.match(
                r"step ([\d,]+) at [\d.,]+ s, (?:slot|block) ([\d,]+).*: (free|request [\d,]+)$", text).groups()
            expected = int(recorded.owners_at(int(step))[int(unit)])
            assert owner == ("free" if expected < 0 else f"request {expected}")
    assert any("request" in shown["second"] for shown in seen[0]["map"])


def test_every_bar_dot_and_point_can_be_read_by_keys(seen):
    assert len(seen[0]["marks"]) > 10
    for shown in seen[0]["marks"]:
        assert shown["first"] and shown["last"], shown["label"]


def test_the_pointer_reads_what_lies_below_it(seen):
    assert len(seen[0]["pointer"]) == 8 and all(seen[0]["pointer"])


def test_the_page_is_no_wider_than_the_window(seen):
    assert not seen[0]["wide"]


@pytest.fixture(scope="module")
def on_a_phone(page, tmp_path_factory):
    return opened(page, tmp_path_factory.mktemp("phone"), "--window-size=390,844", "--force-dark-mode")[0]


def test_a_tap_reads_what_lies_below_the_finger(seen):
    for tap, keys in zip(seen[0]["taps"], seen[0]["load"], strict=True):
        assert tap and tap not in (keys["first"], keys["second"], keys["last"])


def test_on_a_phone_letters_stay_legible_numbers_are_in_sight_and_nothing_sticks_out(on_a_phone):
    assert min(on_a_phone["scales"]) > 0.7 and on_a_phone["number"] and not on_a_phone["wide"]


def test_what_is_free_has_one_colour_in_bars_and_legend(on_a_phone, seen):
    for shown in (on_a_phone, seen[0]):
        assert len(shown["free"]) > 2 and len(set(shown["free"])) == 1


def test_the_list_of_contents_leads_to_every_section(seen, page):
    assert seen[0]["links"] == [unescape(title) for title in re.findall(r"<h2>(.*?)</h2>", page)]


def test_the_ledgers_of_all_cases_share_one_time_axis(page):
    figures = re.findall(r'data-kind="time">.*?</figure>', page, re.DOTALL)
    ticks = [re.findall(r'text-anchor="middle">([^<]*)<', each) for each in figures]
    assert len(figures) == 4 and all(each == ticks[0] for each in ticks)
