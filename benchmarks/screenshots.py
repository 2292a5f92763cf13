"""Takes the screenshots of docs/web.md and docs/report.md anew, in three sizes: `python -m benchmarks.screenshots`.

A made-up clinic is served by the command, and its page used in a real browser (Debian's Chromium, by Playwright) on a
phone, a tablet and a desk, light and dark. The names in DOCS go to docs/pictures, all others to --to alone.
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
from pathlib import Path
from typing import TYPE_CHECKING

import dpduck

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
DOCS = {"web_price_desk": "web_price", "web_answer_phone": "web_answer", "report_desk": "report"}
SIZES = {"phone": (390, 844, "dark"), "tablet": (820, 1180, "light"), "desk": (1000, 900, "light")}
WHOLE = ("web_price", "web_answer")
"""Pages that are taken down to their end; of others what a screen shows."""

ASKED = """SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.05)
    day, count(*) AS n, dp_stderr(n) FROM visits WHERE age >= {0} GROUP BY day"""
MADE = (
    "CREATE TABLE visits AS SELECT i // 3 AS patient, DATE '2024-01-01' + CAST(hash(i) % 366 AS INTEGER) AS day, "
    "hash(i // 3, 1) % 100 AS age, ['north', 'south', 'west'][1 + i % 3] AS ward FROM range(30000) AS r(i)",
    "FROM dp('CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 3, BUDGET (epsilon = 10), EXPECT ROWS "
    "30000, DOMAIN day RANGE 2024-01-01 TO 2025-01-01 STEP MONTH, DOMAIN age RANGE 0 TO 100 STEP 10, "
    "DOMAIN ward IN (''north'', ''south'', ''west''))')",
    "FROM dp('CREATE PRIVATE VIEW by_month OPTIONS (epsilon = 0.2) AS SELECT day, count(*) AS n FROM visits GROUP BY "
    "day')",
    "FROM dp('CREATE PRIVATE VIEW by_ward OPTIONS (epsilon = 0.2) AS SELECT ward, age, count(*) AS n FROM visits GROUP "
    "BY ward, age')",
)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "dpduck.commands.command_line", *words]


def taken(browser: Browser, address: str, token: str, page_file: Path, to: Path) -> list[str]:
    """Takes every page in every size; returns the names of the pictures."""
    names = []
    for number, (size, (width, height, scheme)) in enumerate(SIZES.items(), start=3):
        colours = "dark" if scheme == "dark" else "light"
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=colours)
        page = context.new_page()

        def shot(name: str, size: str = size) -> None:
            page.evaluate("scrollTo(0, 0)")  # noqa: B023
            page.screenshot(path=to / f"{name}_{size}.png", full_page=name in WHOLE)  # noqa: B023
            names.append(f"{name}_{size}")

        page.goto(address)
        page.fill("#token", token)
        page.keyboard.press("Enter")
        page.wait_for_selector("header nav")
        shot("web_views")
        page.goto(f"{address}/view/by_month")
        shot("web_view")
        page.goto(f"{address}/ask")
        page.fill("#statement", ASKED.format(10 * number))
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("main button.pay")
        shot("web_price")
        page.click("main button.pay")
        page.wait_for_selector("#result table")
        shot("web_answer")
        page.goto(page_file.as_uri())
        shot("report")
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
            for statement in MADE:
                con.execute(statement).fetchall()
        report = folder / "page.html"
        subprocess.run(command("report", str(database), "--to", str(report), "--title", "Visits of 2024"), check=True)
        added = command("principal", "add", str(database), "alice", "--share", "0.5")
        token = subprocess.run(added, check=True, capture_output=True, text=True).stdout.split()[-1]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        address = f"127.0.0.1:{port}"
        serving = command("serve", str(database), "--listen", "none", "--web", address)
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
