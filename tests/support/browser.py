"""A real browser for tests of pages: Debian's Chromium, held by Playwright, and axe-core's rules of accessibility."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SIZES = {"phone": (390, 844), "tablet": (820, 1180), "desktop": (1280, 900)}
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None or find_spec("playwright") is None, reason="no Chromium here (Debian: chromium), or no Playwright"
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Starts the browser, which must end with the test."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where there is a browser

    with sync_playwright() as playwright:
        rooted = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=rooted)
        try:
            yield browser
        finally:
            browser.close()


def violations(page: Page) -> list[tuple[str, Any]]:
    """Returns the faults of a page as it is now, by all of axe-core's rules. Requires that the rules did run."""
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # noqa: PLC0415

    found = Axe().run(page).response
    assert len(found["passes"]) > 8, "the rules were run"
    return [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found["violations"]]
