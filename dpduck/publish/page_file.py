"""A page of HTML in a file: its frame, its style and its place."""

from __future__ import annotations

import os
import tempfile
from html import escape
from pathlib import Path

from dpduck.values.errors import Refusal

PAGES = (".html", ".htm")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
html { background: Canvas; color: CanvasText; } a { color: LinkText; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 3rem; }
figure { margin: 1.5rem 0; } figure svg { width: 100%; max-width: 38rem; height: auto; }
figcaption { font-size: .9rem; }
h3 { margin: .8rem 0 .2rem; font-size: 1rem; }
h1 { font-size: 2.2rem; margin: .5rem 0; } .lead { font-size: 1.15rem; max-width: 46rem; margin: .4rem 0; }
.date { opacity: .8; margin: .2rem 0 1rem; } .one { font-size: 1.6rem; font-weight: 600; margin: .4rem 0; }
.first { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
.first section { border: 1px solid #8886; border-radius: .5rem; padding: 0 1.2rem .6rem; }
.first p { margin: .3rem 0; }
.first h2 { margin: 1rem 0 .4rem; font-size: 1.2rem; } .first ul { padding-left: 1.1rem; margin: .3rem 0; }
nav ul { columns: 16rem; }
table { border-collapse: collapse; font-size: .9rem; } th, td { padding: .2rem .6rem; text-align: left; }
th { border-bottom: 2px solid; } td { border-bottom: 1px solid #8886; } td.number { text-align: right; }
td.number { font-variant-numeric: tabular-nums; } th.number { text-align: right; }
td.null { font-style: italic; opacity: .8; }
.wide { overflow: auto; max-height: 26rem; width: fit-content; max-width: 100%; }
pre { overflow-x: auto; padding: .6rem; border: 1px solid #8886; } summary { cursor: pointer; }
meter { width: 12rem; height: 1.2rem; }
thead th { position: sticky; top: 0; background: Canvas; }
@media print { .wide { max-height: none; }
  details > *, details { display: block; } section { break-inside: avoid-page; } }
"""


def require_place(target: Path, maker: str) -> None:
    """Refuses an existing file that `maker` did not make, and a name without .html or .htm."""
    if target.suffix.lower() not in PAGES:
        raise Refusal(f"{target.name} would be a page of HTML", accepted=str(target.with_suffix(".html")))
    if target.exists() and not (target.is_file() and generator(maker).encode() in target.read_bytes()[:2000]):
        raise Refusal(
            f"{target.name} exists, and something else made it",
            accepted=f"a new file, or one that {maker.rsplit(maxsplit=1)[-1]} made",
        )


def generator(maker: str) -> str:
    """Returns the line of HTML that marks a page as made by `maker`."""
    return f'<meta name="generator" content="{maker}">'


def replace_page(target: Path, page: str, mode: int) -> None:
    """Writes a page to a file that readers see as a whole or not at all. mode: the file's permissions."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=".dpduck", delete=False, encoding="utf-8") as file:
        file.write(page)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).chmod(mode)
    Path(file.name).replace(target)


def frame_page(title: str, maker: str, body: str, style: str = "") -> str:
    """Returns an HTML page that fetches nothing and runs no script. maker: see `generator`. style: further CSS."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{generator(maker)}'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{_STYLE}{style}</style></head><body><main>{body}</main></body></html>\n"
    )
