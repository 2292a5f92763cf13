"""Builds the docs as a site: `python site/build.py --to dist/site`. A link that leads nowhere is an error.

The pages are those of docs/ and of the repository's first folder. They are copied with their links as the site has
them: what names a page in code, `docs/sql.md`, becomes a link to it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sphinx.cmd.build import build_main

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).resolve().parent
ABOVE = {"README.md": "index.md", "SECURITY.md": "security.md", "CONTRIBUTING.md": "contributing.md"} | {
    "CHANGELOG.md": "changelog.md"
}
"""Pages of the first folder, and what the site calls them."""

SECTIONS = {
    "Tutorial": (
        "first_counts", "whose_data", "sums_and_averages", "budget", "cubes", "publishing", "start", "tour", "glossary",
    ),
    "How-to": ("how_to", "coming_from"),
    "How-to: policies": (
        "policy_register", "policy_web_logs", "policy_shop", "table_shapes", "forgot_a_column", "choosing",
    ),
    "How-to: questions": ("top_20", "difference", "year_on_year", "rare_groups", "public_totals", "budget_ran_out"),
    "How-to: tools": (
        "superset", "metabase", "grafana", "power_bi_tableau", "excel", "postgresql", "psycopg", "dbt", "python",
    ),
    "How-to: ask": ("dpduck_shell", "notebook_use", "adbc", "agents", "flight_sql", "shell", "web"),
    "How-to: run": (
        "parquet_to_folder", "trial", "release", "registry", "monthly", "report", "recipients", "certificates",
        "documents", "prepared", "stores", "engines", "plan_a_budget", "run_a_server",
    ),
    "Reference": (
        "sql", "reference", "aggregates", "strategies", "summaries", "sparse_queries", "synthetic_data", "known",
        "left_out",
    ),
    "Understanding": (
        "guarantee", "odds", "privacy", "audit", "nist_800_226", "security", "peers", "papers", "papers_items",
    ),
    "For developers": ("architecture", "decisions", "contributing", "changelog"),
}  # fmt: skip

_BLOCK = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"(?<!\[)`(?:docs/)?(\w+\.md)`")
_FILE = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|docs/)([\w.-]+/[\w./-]+)\)")
_LINK = re.compile(r"\]\((?:\.\./|\w+/)*(\w+\.md)((?:#[\w-]*)?)\)")
_PICTURE = re.compile(r"\]\((?:\.\./|docs/)*pictures/")


def linked(text: str, pages: frozenset[str]) -> str:
    """Returns a page's text with the site's links; blocks of code stay as they are."""

    def named(found: re.Match[str]) -> str:
        page = ABOVE.get(found[1], found[1])
        return f"[{found[1]}]({page})" if page in pages else found[0]

    def file(found: re.Match[str]) -> str:
        """A file of the repository that is no page: the site has its name."""
        return found[0] if found[2].rpartition("/")[2] in pages else f"{found[1]} (`{found[2]}`)"

    def moved(found: re.Match[str]) -> str:
        return f"]({ABOVE.get(found[1], found[1])}{found[2]})"

    def written(part: str) -> str:
        named_files = _FILE.sub(file, part)
        named_files = _PICTURE.sub("](pictures/", named_files)
        return _NAMED.sub(named, _LINK.sub(moved, named_files))

    return "".join(part if part.startswith("```") else written(part) for part in _BLOCK.split(text))


def gather(folder: Path) -> None:
    """Copies every page and picture into one folder, the README as its first page. No two pages have one name."""
    found = {path.name: path for path in (ROOT / "docs").rglob("*.md")}
    found |= {page: ROOT / name for name, page in ABOVE.items()}
    pages = frozenset(found)
    for name, path in found.items():
        text = linked(path.read_text(encoding="utf-8"), pages)
        (folder / name).write_text(text + (_contents() if name == "index.md" else ""), encoding="utf-8")
    shutil.copytree(ROOT / "docs" / "pictures", folder / "pictures")


def _contents() -> str:
    listed = (
        f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"
        for caption, pages in SECTIONS.items()
    )
    return "".join(listed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds the site; returns Sphinx's status."""
    parser = argparse.ArgumentParser(description="Builds the docs as a site.")
    parser.add_argument("--to", type=Path, default=ROOT / "dist" / "site", help="the folder of the site")
    target = parser.parse_args(arguments).to
    with tempfile.TemporaryDirectory() as folder:
        gather(Path(folder))
        strict = ["-q", "-W", "--keep-going", "-b", "html", "-c", str(HERE), "-d", f"{folder}/.made"]
        return int(build_main([*strict, folder, str(target)]))


if __name__ == "__main__":
    sys.exit(main())
