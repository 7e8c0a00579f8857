# SPDX-License-Identifier: Apache-2.0
"""The dashboard's page in a real browser: what is drawn, said, reached by keyboard, and asked for.

Debian's chromium, chromium-driver and python3-selenium; skipped where one of them is missing.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

DEBIAN = "/usr/bin/python3"
try:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    MISSING = ""
except ImportError:
    if os.path.exists(DEBIAN) and not os.environ.get("MANTA_TEST_DEBIAN"):
        os.environ["MANTA_TEST_DEBIAN"] = "1"  # its package is for Debian's own Python
        os.execv(DEBIAN, [DEBIAN, *sys.argv])
    MISSING = "python3-selenium is not installed"

sys.path.insert(0, str(Path(__file__).resolve().parent))
from served import Dashboard, Pretence, Skip, main, make_bed, pretend  # noqa: E402
from served import pretend_trials, wait_for  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
BED = make_bed()

# Counts the pixels of a canvas that are not empty.
INK = """const c = arguments[0], d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n;"""
# What can be operated and has no name that a screen reader could say.
NAMELESS = """return [...document.querySelectorAll(
  'a, button, input, select, canvas, [tabindex="0"]')].filter((e) => e.checkVisibility()
  && !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('section[aria-label]')))
  .map((e) => e.outerHTML.slice(0, 120));"""


class Page:
    """One browser for all tests, with a dashboard of its own."""

    def __init__(self) -> None:
        if MISSING or not CHROMIUM or not DRIVER:
            raise Skip(MISSING or "chromium or chromium-driver is not installed")
        self.requests: list[str] = []
        self.runs = BED.root / "shown"
        pretend(self.runs, "first", "--rows", 400, "--ranks", 4, "--loss-at", 320)
        pretend(self.runs, "second", "--rows", 300, "--ranks", 2, "--seed", 4)
        pretend(self.runs, "third", "--rows", 40, "--fail")
        pretend_trials(self.runs, "tuned", 30)
        self.served = Dashboard(BED, self.runs)
        self.served.whole(4)
        o = Options()
        o.binary_location = CHROMIUM
        for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000",
                     "--disable-dev-shm-usage", "--disable-background-networking"):
            o.add_argument(word)
        o.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(service=Service(DRIVER), options=o)
        self.driver.set_page_load_timeout(30)
        self.driver.get(self.served.link)

    def go(self, place: str) -> None:
        self.driver.execute_script("location.hash = arguments[0]", place)

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements(By.CSS_SELECTOR, selector))

    def one(self, selector: str) -> Any:
        return wait_for(selector, lambda: self.all(selector))[0]

    def text(self, selector: str) -> str:
        return str(self.driver.execute_script(
            "const e = document.querySelector(arguments[0]); return e ? e.innerText : ''",
            selector))

    def shows(self, selector: str, what: str) -> None:
        try:
            wait_for(what, lambda: what in self.text(selector), 20)
        except AssertionError:
            raise AssertionError(f"{what!r} is not in {self.text(selector)!r}") from None

    def charts(self, least: int = 1) -> list[Any]:
        """Those that are drawn, once there are so many: the first one comes before the others."""
        def drawn() -> Any:
            found = self.all(".chart canvas")
            return len(found) >= least and all(
                self.driver.execute_script(INK, c) > 1000 for c in found) and found
        return list(wait_for("charts", drawn))

    def asked(self, part: str) -> list[str]:
        """The requests with this in them so far, without the host."""
        for entry in self.driver.get_log("performance"):
            m = json.loads(entry["message"])["message"]
            if m["method"] == "Network.requestWillBeSent":
                self.requests.append(m["params"]["request"]["url"])
        ours = f"http://127.0.0.1:{self.served.port}"
        return [u.removeprefix(ours) for u in self.requests if part in u]

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def focus(self, element: Any) -> None:
        self.driver.execute_script("arguments[0].focus()", element)


PAGE: Page | None = None


def page() -> Page:
    global PAGE
    PAGE = PAGE or Page()
    return PAGE


def test_the_list() -> None:
    p = page()
    p.go("#/")
    p.shows("table", "third")
    assert len(p.all("tbody tr")) == 4
    rows = {r.find_element(By.TAG_NAME, "a").text: r.text for r in p.all("tbody tr")}
    assert "finished" in rows["first"] and "loss 0." in rows["first"] and "400" in rows["first"]
    assert "failed" in rows["third"] and "30 of 30 trials" in rows["tuned"]
    p.one('input[type="search"]').send_keys("fail")
    wait_for("one row", lambda: len(p.all("tbody tr")) == 1)
    p.one('input[type="search"]').send_keys("nothing")
    p.shows(".empty", "No run matches")
    p.go("#/compare")
    p.shows("main", "Choose two to eight runs")


def test_sorting_by_keyboard() -> None:
    p = page()
    p.go("#/")
    p.shows("table", "third")
    p.focus(p.one('th button'))
    p.press(Keys.ENTER)
    names = [e.text for e in p.all("tbody th a")]
    assert names == ["first", "second", "third", "tuned"], names
    assert p.one('th[aria-sort="ascending"]').text.startswith("Run")
    p.press(Keys.ENTER)  # the button has kept the focus
    assert [e.text for e in p.all("tbody th a")] == names[::-1]


def test_a_run_is_drawn() -> None:
    p = page()
    p.go("#/run/first")
    charts = p.charts(6)  # three metrics, step time, CPUs, memory
    label = charts[0].get_attribute("aria-label")
    assert "loss" in label and "mean 0." in label and "iteration" in label, label
    p.shows(".facts", "400")
    p.shows(".marks", "rank 3 on node-1: killed by signal 9 (SIGKILL)")
    p.shows("[aria-label=Workers]", "straggler")
    p.shows("[aria-label=Configuration]", "optimizer/lr")
    p.shows("pre.log", "loss 2.21")
    assert "\x1b" not in p.text("pre.log") and "[32m" not in p.text("pre.log")
    assert p.one(".axis svg").get_attribute("aria-label").endswith("1 workers lost, 8 checkpoints")
    p.one('[data-value="time"]').click()
    wait_for("time", lambda: "after" in p.all(".chart canvas")[0].get_attribute("aria-label"))
    p.one('[data-value="each"]').click()
    wait_for("ranks", lambda: "4 lines" in p.all(".chart canvas")[0].get_attribute("aria-label"))
    p.go("#/run/third")
    p.shows(".notice", "ValueError: batch 7 has no labels")
    p.go("#/run/nobody")
    p.shows("main", "no such run")


def test_a_chart_is_read_by_keyboard() -> None:
    p = page()
    p.go("#/run/second")
    chart = p.charts()[0]
    p.focus(chart)
    p.press(Keys.ARROW_RIGHT)
    p.shows("#said", "iteration 300: 0.")
    p.press(Keys.HOME)
    p.shows("#said", "iteration 1: 2.")
    p.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    p.shows("#said", "iteration 3: 2.")


def test_a_run_as_it_grows() -> None:
    p = page()
    growing = Pretence(p.runs, "growing", "--rows", 60, "--ranks", 2)
    wait_for("the run", lambda: "growing" in p.served.runs())
    p.go("#/run/growing")
    p.shows(".title", "running")
    p.shows(".facts", "60")
    chart = p.charts()[0]
    growing.say("", "", "")
    p.shows(".facts", "63")
    wait_for("the chart", lambda: "iteration 63" in chart.get_attribute("aria-label"))
    growing.say("lose")
    p.shows(".facts", "1 lost")
    p.shows(".marks", "attempt 2")
    growing.say("finish")
    growing.end()
    p.shows(".title", "finished")


def test_an_address_that_is_opened_is_asked_for_once() -> None:
    p = page()
    mark = "return performance.getEntriesByName('asked')[0].startTime"
    p.driver.get("about:blank")
    before = len(p.asked("/api/events"))
    p.driver.get(p.served.link + "#/run/second")
    p.charts()
    assert p.asked("/api/events")[before:] == ["/api/events?run=second"]
    # Before the chart library was read, which is the longest part of the page.
    assert p.driver.execute_script(mark) < p.driver.execute_script(mark.replace("asked", "read"))
    p.driver.get("about:blank")
    p.driver.get(p.served.link + "#/run/%zz")  # no address of ours
    p.shows("table", "third")
    p.driver.get("about:blank")
    before = len(p.asked("/api/"))
    p.driver.get(p.served.link + "#/compare/" + ",".join("abcdefghi"))
    p.shows("main", "Choose two to eight runs")
    assert p.asked("/api/")[before:] == []


def test_few_iterations_and_none_that_is_finite() -> None:
    p = page()
    pretend(p.runs, "short_run", "--rows", 3, "--nan")
    wait_for("the run", lambda: p.served.runs().get("short_run", {}).get("whole"))
    p.go("#/run/short_run")
    wait_for("charts", lambda: len(p.all(".chart canvas")) > 3)
    ticks = p.driver.execute_script("""return [...document.querySelectorAll('.chart')].map((e) => {
      const {x, y} = Chart.getChart(e.querySelector('canvas')).scales;
      return [e.querySelector('h3').textContent,
        x.options.display ? x.ticks.map((t) => t.label) : [], y.options.display];
    })""")
    drawn = {name: (labels, shown) for name, labels, shown in ticks}
    assert drawn["loss"] == (["1", "2", "3"], True), drawn  # not 1, 1, 2, 2, 3
    assert drawn["broken"] == ([], False), drawn
    p.shows('[aria-label="broken"]', "6 not finite")


def test_runs_side_by_side() -> None:
    p = page()
    p.go("#/compare/first,second")
    charts = p.charts()
    assert len(charts) == 3
    assert "2 lines" in charts[0].get_attribute("aria-label")
    p.shows("table", "optimizer/lr")
    differing = {e.text for e in p.all("td.differs")}
    assert {"0.001", "0.005"} <= differing, differing


def test_an_experiment() -> None:
    p = page()
    p.go("#/experiment/tuned")
    charts = p.charts()
    assert len(charts) == 2
    assert "Best loss so far" in charts[0].get_attribute("aria-label")
    p.shows(".facts", "scheduler asha")
    p.shows(".notice", "3 trials failed: 7, 18, 29")
    p.shows(".notice pre", "loss is NaN")
    assert len(p.all(".parallel .trial")) == 30
    assert "over optimizer/lr, optimizer/name, dropout, width" in \
        p.one(".parallel").get_attribute("aria-label")
    assert len(p.all("tbody tr")) == 30
    p.focus(p.one('th[data-key="best"] button'))
    p.press(Keys.ENTER)
    assert "best" in p.all("tbody tr th")[0].text


def test_themes() -> None:
    p = page()
    p.go("#/")
    button, seen = p.one("#theme"), {}
    for _ in range(3):
        button.click()
        ground = p.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        seen[button.text] = ground
    assert set(seen) == {"Light", "Dark", "Auto"} and seen["Light"] != seen["Dark"], seen
    assert button.get_attribute("aria-label").startswith("Theme: ")


def test_everything_has_a_name() -> None:
    p = page()
    for place in ("#/", "#/run/first", "#/compare/first,second", "#/experiment/tuned"):
        p.go(place)
        p.shows("h1", place.split("/")[-1] if "run/" in place or "exp" in place else "uns")
        nameless = p.driver.execute_script(NAMELESS)
        assert not nameless, (place, nameless)
        headings = p.driver.execute_script(
            "return [...document.querySelectorAll('h1')].length")
        assert headings == 1, place
    p.go("#/")
    p.focus(p.one(".skip"))
    p.press(Keys.ENTER)
    assert p.driver.execute_script("return document.activeElement.id") == "main"


def test_it_fits_a_narrow_window() -> None:
    p = page()
    p.driver.set_window_size(500, 900)
    try:
        for place in ("#/", "#/run/first"):
            p.go(place)
            p.shows("main", "first")
            wide = p.driver.execute_script(
                "return document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 0, (place, wide)
    finally:
        p.driver.set_window_size(1280, 1000)


def test_last_of_all_no_error_and_no_other_host() -> None:
    p = page()
    said = [e for e in p.driver.get_log("browser") if "/api/events?run=nobody" not in e["message"]]
    assert not said, said
    asked = p.asked("")
    others = [u for u in asked if not u.startswith(("/", "data:"))]
    assert asked and not others, others
    with_token = [u for u in asked if "token=" in u and not p.served.link.endswith(u)]
    assert not with_token, with_token  # only the link that was opened has it
    p.served.stop()
    p.shows("#link", "connection lost")
    p.driver.quit()


main(globals())
