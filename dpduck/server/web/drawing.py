"""Drawing of pictures in a process of its own that holds nothing else: Vega-Lite is a large program, and may be ended.

A picture is one line in each direction of the pipe. The process has limits of time, memory and open files. It writes no
file and fetches nothing. Without vl-convert there are no pictures.
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
"""The largest time of one picture in seconds. The first one includes the start of the process."""

OF_A_PAGE = 10.0
"""Seconds for all pictures of one page together, with their wait for the pictures of other pages."""

MEMORY = 2 << 30
"""Bytes beside the memory of the process at its start. V8 reserves much of this."""

REMEMBERED, REMEMBERED_LENGTH = 64, 2**20
"""The number of remembered pictures, and their largest length. A returning browser asks for the same pictures."""

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
    """Artist of one picture at a time. The principal that drew least lately comes first. Many threads may use it."""

    def __init__(self) -> None:
        self._able = find_spec("vl_convert") is not None
        self._places = Places(1, 1)
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, bytes], str | None] = OrderedDict()
        self._process: subprocess.Popen[str] | None = None

    def picture(self, name: str, spec: Mapping[str, Any], until: float | None = None) -> str | None:
        """Returns an SVG, None if it takes too long, now or before, or if nothing can draw.

        name: the principal. until: the end of the page's time for pictures, by time.monotonic.
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
                drawn = self._draw(line)
        except Refusal:  # no place was free: not the fault of the picture
            return None
        if drawn is None or len(drawn) <= REMEMBERED_LENGTH:
            with self._lock:
                self._known[key] = drawn
                while len(self._known) > REMEMBERED:
                    self._known.popitem(last=False)
        return drawn

    def close(self) -> None:
        """Ends the process, and refuses everyone who waits for it."""
        self._places.close()
        if self._process is not None:
            self._end(self._process)

    def _draw(self, line: str) -> str | None:
        if self._process is None or self._process.poll() is not None:
            if self._process is not None:
                self._end(self._process)
            self._process = _start_process()
        process = self._process
        assert process.stdin is not None and process.stdout is not None  # noqa: S101
        clock = threading.Timer(SECONDS, process.kill)
        clock.start()
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            svg = json.loads(process.stdout.readline())
        except (OSError, ValueError):  # it ended, for want of time or of memory
            self._end(process)
            return None
        finally:
            clock.cancel()
        return None if svg is None else str(svg)

    def _end(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # data that was not sent yet
                    pipe.close()


def _start_process() -> subprocess.Popen[str]:
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-I", "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        cwd="/", env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"}, encoding="utf-8",
    )  # fmt: skip
    limit_memory(MEMORY, process.pid)
    return process
