"""Check of a folder that dpduck release made: `python check.py` in the folder. It needs only Python.

1. Each file is there and unchanged, by its SHA-256 in manifest.json, and no other file is there.
2. The certificates hold, by certificates/check.py.

Whoever changes a file can change manifest.json, too. So compare the last line with the one that the owner published.
"""

from __future__ import annotations

import hashlib
import json
import runpy
import sys
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
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    found.pop(MANIFEST)
    for name in sorted({*listed, *found}):
        if name not in found:
            yield f"{name} is missing"
        elif name not in listed:
            yield f"{name} is not of this release"
        elif found[name].is_symlink() or (name not in edited and sha256(found[name]) != listed[name]):
            yield f"{name} was changed"


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
