"""A directory that takes another's place at once, so that a reader finds one whole directory."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_AT_FDCWD = -100
_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2(2) and RENAME_SWAP of renamex_np(2) alike


def replace_directory(finished: Path, target: Path) -> None:
    """Moves `finished` to `target`, in one step if the system can. The caller removes the old directory beside it."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        finished.replace(target)  # an empty directory may be replaced by a rename
    elif not swap_directories(finished, target):
        aside = finished.with_name(f"{finished.name}_earlier")
        target.rename(aside)
        finished.rename(target)


def swap_directories(first: Path, second: Path) -> bool:
    """Swaps two directories in one step. Returns False if the system cannot."""
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(first), os.fsencode(second)
    if sys.platform == "darwin":
        return hasattr(library, "renamex_np") and library.renamex_np(*names, _EXCHANGE) == 0
    if not hasattr(library, "renameat2"):
        return False
    return bool(library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE) == 0)
