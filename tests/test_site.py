"""The docs as a site: it builds without a warning, every page is in its contents, and it fetches nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="Sphinx is not installed")
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, str(ROOT / "site" / "build.py"), "--to", str(target)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, ""), built.stderr
    return target


@pytest.mark.slow
def test_the_site_has_every_page(site: Path) -> None:
    """Built with warnings as errors: links and anchors lead somewhere, and no page is outside of the contents."""
    pages = [path.stem for path in (ROOT / "docs").rglob("*.md")]
    assert len(set(pages)) == len(pages), "the site has one folder"
    written = {*pages, "index", "security", "contributing", "changelog"}
    assert written <= {path.stem for path in site.glob("*.html")}


@pytest.mark.slow
def test_the_site_fetches_nothing(site: Path) -> None:
    """A reader's visit is not reported to others: styles, scripts and pictures lie in the site."""
    for page in site.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*src="([^"]+)"|<link[^>]*href="([^"]+)"', text)
        assert not [one for both in loaded for one in both if re.match(r"(https?:)?//", one)], page.name


def test_pages_that_are_named_are_linked(site: Path) -> None:
    """`docs/sql.md` on a page is a link on the site. In blocks of code it is text."""
    assert '<a class="reference internal" href="sql.html">' in (site / "index.html").read_text(encoding="utf-8")
