"""Pictures, drawn in a process of its own that holds nothing else: Vega-Lite is a large program, and may be ended.

One picture a line each way. The process has a clock and limits: of memory and open files, no file that it writes, and
nothing that it fetches. Without vl-convert there are no pictures.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from dpduck.server.limits import Places, limit_memory
from dpduck.values.errors import Refusal

SECONDS = 10.0
"""Of one picture; the first one waits for the process to start, too."""

OF_A_PAGE = 10.0
"""Seconds for all pictures of one page together, with the time that they wait for others'."""

MEMORY = 2 << 30
"""Beside what the process begins with: V8 reserves much of it."""

REMEMBERED, REMEMBERED_LENGTH = 64, 2**20
"""Pictures, and characters of each: a browser that comes back asks for the same."""

OPEN_FILES = 64

_CHILD = f"""
import json, resource, sys
for limit, most in ((resource.RLIMIT_NOFILE, {OPEN_FILES}), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
    resource.setrlimit(limit, (most, most))
import vl_convert
for line in sys.stdin:
    try:
        drawn = vl_convert.vegalite_to_svg(json.loads(line), allowed_base_urls=[])
    except Exception:
        drawn = None
    print(json.dumps(drawn), flush=True)
"""


class Artist:
    """Draws, one picture at a time, whoever drew least lately first; safe to use from many threads."""

    def __init__(self) -> None:
        self._able = find_spec("vl_convert") is not None
        self._places = Places(1, 1)
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, bytes], str | None] = OrderedDict()
        self._process: subprocess.Popen[str] | None = None

    def picture(self, name: str, spec: Mapping[str, Any], until: float | None = None) -> str | None:
        """Returns an SVG; None where it takes too long, now or before, or where nothing can draw.

        name: the principal's. until: when the page's time for pictures is over, as time.monotonic tells it.
        """
        if not self._able:
            return None
        line = json.dumps(spec)
        key = name, hashlib.sha256(line.encode()).digest()
        with self._lock:
            if key in self._known:
                return self._known[key]
        left = OF_A_PAGE if until is None else until - time.monotonic()
        if left <= 0:
            return None
        try:
            with self._places.place(name, left):
                drawn = self._drawn(line)
        except Refusal:  # for want of a place, not of its own doing
            return None
        if drawn is None or len(drawn) <= REMEMBERED_LENGTH:
            with self._lock:
                self._known[key] = drawn
                while len(self._known) > REMEMBERED:
                    self._known.popitem(last=False)
        return drawn

    def close(self) -> None:
        """Ends the process, and sends away whoever waits for it."""
        self._places.close()
        if self._process is not None:
            self._end(self._process)

    def _drawn(self, line: str) -> str | None:
        if self._process is None or self._process.poll() is not None:
            if self._process is not None:
                self._end(self._process)
            self._process = _started()
        process = self._process
        assert process.stdin is not None and process.stdout is not None  # noqa: S101
        clock = threading.Timer(SECONDS, process.kill)
        clock.start()
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            found = json.loads(process.stdout.readline())
        except (OSError, ValueError):  # it ended: of its clock or of memory
            self._end(process)
            return None
        finally:
            clock.cancel()
        return None if found is None else str(found)

    def _end(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what was still to be sent
                    pipe.close()


def _started() -> subprocess.Popen[str]:
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-I", "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        cwd="/", env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"}, encoding="utf-8",
    )  # fmt: skip
    limit_memory(MEMORY, process.pid)
    return process
