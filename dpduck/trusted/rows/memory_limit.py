"""A limit of memory that the operating system enforces, for processes that run what others wrote."""

from __future__ import annotations

import re
import resource
from pathlib import Path

_OWN_DATA = re.compile(r"^VmData:\s+(\d+) kB$", re.MULTILINE)


def limit_memory(more: int, process: int | None = None) -> bool:
    """Lets a process have at most so many bytes beside what it has now; False where the system does not count them.

    What is counted is the process's own data (RLIMIT_DATA of Linux), not files that it maps or address space that it
    reserves. Whatever asks for more is refused: an allocation fails in the statement that makes it, and no other
    process has to be killed to make room. process: a child by its number, this one if not given. The limit stays.
    """
    status = Path(f"/proc/{process or 'self'}/status")
    if not status.is_file() or not hasattr(resource, "prlimit"):
        return False
    found = _OWN_DATA.search(status.read_text(encoding="ascii", errors="replace"))
    if found is None:
        return False
    most = int(found[1]) * 1024 + more
    _, hard = resource.prlimit(process or 0, resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.prlimit(process or 0, resource.RLIMIT_DATA, (most, most))
    return True
