"""Check of a folder that dpduck release made: `python check.py` in the folder. It needs only Python.

1. Each file is there and unchanged, by its SHA-256 in manifest.json, and nothing else is there.
2. The certificates hold, by certificates/check.py.

Whoever changes a file can change manifest.json, too. So compare the last line with the one that the owner published.
They can change this file, too. A copy from elsewhere takes the folder as an argument: python check.py FOLDER.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.isolated:
    del sys.path[0]  # the folder that is checked: a json.py in it would run in place of Python's own

import hashlib
import json
import os
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FORMAT = "dpduck release 1"
MANIFEST, CHECKER = "manifest.json", "check.py"


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def errors_of(folder: Path) -> Iterator[str]:
    """Yields a line for each error of the files. A folder as it was made has none."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text("utf-8"))
        listed: dict[str, str] = dict(manifest["files"])
        edited = set(manifest["edited_by_hand"])
        known = manifest["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        yield f"{MANIFEST} is missing, or cannot be read"
        return
    if not known:
        yield f"{MANIFEST} is not of the format {FORMAT!r}"
        return
    parents = {parent.as_posix() for name in listed for parent in Path(name).parents}
    found = {path.relative_to(folder).as_posix(): path for path in entries_of(folder)}
    found = {name: path for name, path in found.items() if _is_file(path) or name not in parents}
    if not _is_file(found.pop(MANIFEST)):
        yield f"{MANIFEST} is a link"
    for name in sorted({*listed, *found}):
        if name not in found:
            yield f"{escape_name(name)} is missing"
        elif name not in listed:
            yield f"{escape_name(name)} is not of this release"
        elif not _is_file(found[name]) or (name not in edited and sha256(found[name]) != listed[name]):
            yield f"{escape_name(name)} was changed"


def entries_of(folder: Path) -> Iterator[Path]:
    """Yields everything in a folder, without following links."""
    for place, folders, files in os.walk(folder):
        yield from (Path(place, name) for name in (*folders, *files))


def escape_name(name: str) -> str:
    """Returns a file's name for a message. A name with line breaks or other controls is escaped."""
    return name if name.isprintable() else ascii(name)


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def certificate_errors(bundle: Path) -> Iterator[str]:
    """Yields the errors of the certificates, by their own check.py, which the manifest holds."""
    checker = runpy.run_path(str(bundle / CHECKER))
    yield from checker["check"](json.loads((bundle / "certificates.json").read_text("utf-8")))


def main() -> int:
    """Prints the errors of the folder in which this file is, or that it has none. Returns the exit status."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    errors = [*errors_of(folder)] or [*certificate_errors(folder / "certificates")]
    whole = ["each file is as it was released, and the certificates hold", f"manifest {sha256(folder / MANIFEST)}"]
    sys.stdout.write("\n".join(errors or whole) + "\n")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
