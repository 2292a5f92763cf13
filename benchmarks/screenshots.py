"""Takes the screenshots of docs/web.md and docs/report.md anew, in three sizes: `python -m benchmarks.screenshots`.

A made-up clinic is served by the command, and its page is used in a real browser (Debian's Chromium, by Playwright) on
a phone, a tablet and a desk, each light and dark. The names in DOCS go to docs/pictures, all others to --to alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import dpduck

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
DOCS = {
    "web_home_desk_light": "web_home",
    "web_view_tablet_light": "web_view",
    "web_price_desk_light": "web_price",
    "web_answer_phone_dark": "web_answer",
    "report_desk_light": "report",
    "report_groups_desk_light": "report_groups",
}
SIZES = {"phone": (390, 844), "tablet": (820, 1180), "desk": (1280, 900)}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WHOLE = ("web_home", "web_view", "web_price", "web_answer")
"""Pages that are taken down to their end; of others what a screen shows."""

TITLE = "Visits of 2024 in the made clinic, by its data office"
ASKED = """SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.05)
    day, count(*) AS n, dp_stderr(n) FROM visits WHERE age >= {0} GROUP BY day"""
ROWS = """CREATE TABLE visits AS SELECT i // 3 AS patient,
    DATE '2024-01-01' + CAST(floor(366 * pow(hash(i) % 1000 / 1000.0, 1.3)) AS INTEGER) AS day,
    CAST(100 * pow(hash(i // 3, 1) % 1000 / 1000.0, 0.7) AS INTEGER) AS age,
    ['north', 'north', 'south', 'west', 'west', 'west', NULL][1 + CAST(hash(i, 2) % 7 AS INTEGER)] AS ward,
    ['women', 'men'][1 + CAST(hash(i // 3, 3) % 2 AS INTEGER)] AS sex FROM range(30000) AS r(i)"""
POLICY = """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 3, BUDGET (epsilon = 2), EXPECT ROWS 30000,
    DOMAIN day RANGE 2024-01-01 TO 2025-01-01 STEP MONTH, DOMAIN age RANGE 0 TO 110 STEP 10,
    DOMAIN ward IN ('north', 'south', 'west') WITH NULL, DOMAIN sex IN ('women', 'men'))"""
VIEWS = (
    "by_month OPTIONS (epsilon = 0.1, title = 'Visits by month', description = 'Women and men, each month of 2024.', "
    "answer_units = 'visits') AS SELECT day, sex, count(*) AS n FROM visits GROUP BY day, sex",
    "by_ward OPTIONS (epsilon = 0.1, title = 'Visits by ward and sex', description = 'With totals, and visits without "
    "a ward.', answer_units = 'visits') AS SELECT ward, sex, count(*) AS n FROM visits GROUP BY CUBE (ward, sex)",
    "by_age OPTIONS (epsilon = 0.3, title = 'Visits by age and month') AS SELECT age, day, count(*) AS n FROM visits "
    "GROUP BY age, day",
    "visits_in_all OPTIONS (epsilon = 0.01, title = 'All visits', answer_units = 'visits') AS SELECT count(*) AS n "
    "FROM visits",
)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "dpduck.commands.command_line", *words]


def taken(browser: Browser, address: str, token: str, page_file: Path, to: Path) -> list[str]:
    """Takes every page in every size, light and dark, and returns the names of the pictures."""
    names = []
    for number, ((size, (width, height)), scheme) in enumerate(product(SIZES.items(), SCHEMES), start=2):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        page = context.new_page()

        def shot(name: str, at: str = f"{size}_{scheme}") -> None:
            page.screenshot(path=to / f"{name}_{at}.png", full_page=name in WHOLE)  # noqa: B023
            names.append(f"{name}_{at}")

        page.goto(address)
        shot("web_login")
        page.fill("#token", token)
        page.keyboard.press("Enter")
        page.wait_for_selector("header nav")
        shot("web_home")
        page.goto(f"{address}/view/by_ward?sort=n&down=1&row=3#row-3")
        shot("web_view")
        page.goto(f"{address}/ask")
        page.fill("#statement", ASKED.format(10 * number))
        shot("web_ask")
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("main button.pay")
        page.evaluate("scrollTo(0, 0)")
        shot("web_price")
        page.click("main button.pay")
        page.wait_for_selector("#result table")
        page.evaluate("scrollTo(0, 0)")
        shot("web_answer")
        page.goto(page_file.as_uri())
        shot("report")
        for view in ("by_month", "by_ward", "by_age"):
            page.locator(f"section:has(> h2#{view}) figure").first.scroll_into_view_if_needed()
            page.evaluate(f"document.getElementById('{view}').scrollIntoView()")
            shot("report_groups" if view == "by_ward" else f"report_{view}")
        context.close()
    return names


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, help="a folder for all of them; docs/pictures is left alone then")
    given = parser.parse_args(arguments).to
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where there is a browser

    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        folder = Path(directory)
        to = given or folder
        to.mkdir(parents=True, exist_ok=True)
        os.environ["DPDUCK_STATE_DIR"] = str(folder / "state")
        database = folder / "clinic.duckdb"
        with dpduck.connect(database) as con:
            con.execute(ROWS)
            for statement in (POLICY, *(f"CREATE PRIVATE VIEW {view}" for view in VIEWS)):
                con.execute("FROM dp(?)", [statement]).fetchall()
        report = folder / "page.html"
        titled = ("--title", "Visits of 2024", "--about", "Who came to the made clinic, to which ward, and when.")
        subprocess.run(command("report", str(database), "--to", str(report), *titled), check=True)
        added = command("principal", "add", str(database), "alice", "--share", "0.5")
        token = subprocess.run(added, check=True, capture_output=True, text=True).stdout.split()[-1]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        address = f"127.0.0.1:{port}"
        serving = command("serve", str(database), "--listen", "none", "--web", address, "--web-title", TITLE)
        with subprocess.Popen(serving, stdout=subprocess.PIPE, text=True) as server:
            try:
                while server.stdout is not None and "http://" not in (line := server.stdout.readline()):
                    assert line, "the server ended"
                rooted = ["--no-sandbox"] if os.geteuid() == 0 else []
                browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=rooted)
                names = taken(browser, f"http://{address}", token, report, to)
                browser.close()
            finally:
                server.terminate()
                server.wait(60)
        for name in () if given else set(names) & set(DOCS):
            shutil.copy(to / f"{name}.png", FOLDER / f"{DOCS[name]}.png")


if __name__ == "__main__":
    main()
