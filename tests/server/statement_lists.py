"""The lists of attacks and of honest statements, as data files."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
_ESCAPE = re.compile(r"\\(?:u[0-9a-f]{4}|x[0-9a-f]{2}|[nt])")


def statements(name: str) -> list[str]:
    """One statement a line. Headings begin with #."""
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.strip() and not line.startswith("#")]
    return [_ESCAPE.sub(lambda found: str(found[0]).encode().decode("unicode_escape"), line) for line in kept]
