#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""bench/first_chart.py LINK RUN REPS - asks headless Chromium for a run's page again and again.

Prints, a line each, the milliseconds from the navigation to the first chart that is drawn. For
Debian's own Python, which python3-selenium is for.
"""

import shutil
import sys
import time

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

LIMIT_S = 60


def first_chart(driver: webdriver.Chrome, link: str, run: str) -> float:
    driver.get("about:blank")
    driver.get(f"{link}#/run/{run}")
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        found = driver.execute_script(
            "const e = performance.getEntriesByName('first-chart')[0]; return e && e.startTime")
        if found is not None:
            return float(found)
        time.sleep(0.01)
    sys.exit("no chart was drawn")


def main(link: str, run: str, reps: str) -> None:
    options = Options()
    options.binary_location = shutil.which("chromium")
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
    try:
        for _ in range(int(reps)):
            print("first_chart_ms", first_chart(driver, link, run))
    finally:
        driver.quit()


if __name__ == "__main__":
    main(*sys.argv[1:])
