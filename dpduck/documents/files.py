"""Files of documents that their owner edits: written once, and never over what somebody wrote into them."""

from __future__ import annotations

import re
from pathlib import Path

from dpduck.publish.page_file import replace_page
from dpduck.values.errors import Refusal

RECORD_NAME = re.compile(r"[a-z0-9_]+\.yaml")
"""The names that the registry of deployments takes."""


def require_suffix(target: Path, suffixes: tuple[str, ...], kind: str) -> None:
    """Refuses a target with another suffix."""
    if target.suffix.lower() not in suffixes:
        raise Refusal(f"{target.name} would be {kind}", accepted=str(target.with_suffix(suffixes[0])))


def require_record_name(target: Path) -> None:
    """Refuses a name that the registry of deployments would refuse."""
    if RECORD_NAME.fullmatch(target.name) is None:
        raise Refusal(
            f"the registry takes no file called {target.name}",
            accepted="lowercase letters, digits and _, as in clinic_visits_2026.yaml",
        )


def write_new(target: Path, text: str) -> None:
    """Writes a text to a new file. Refuses an existing file with another text: its owner may have edited it."""
    if target.exists():
        if target.is_file() and target.read_bytes() == text.encode():
            return
        raise Refusal(f"{target.name} is there, and may have been edited", accepted="the name of a new file")
    replace_page(target, text, 0o644)
