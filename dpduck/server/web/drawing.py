"""Draws pictures in a separate process without other data, since Vega-Lite is large and may have to be killed."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from dpduck.server.limits import Places, limit_memory, remember
from dpduck.values.child_process import ChildFailed, ChildProcess
from dpduck.values.errors import Refusal

SECONDS = 10.0
"""The time limit of one picture in seconds. The time of the first one includes the start of the process."""

OF_A_PAGE = 10.0
"""Seconds for all pictures of one page, with their wait for pictures of other pages."""

MEMORY = 2 << 30
"""Bytes beyond the memory of the process at its start. V8 reserves much of this."""

REMEMBERED, REMEMBERED_LENGTH = 64, 2**20
"""The number of remembered pictures, and their largest length. A returning browser asks for the same pictures."""

OPEN_FILES = 64

_CHILD = f"""
import json, resource
from multiprocessing.connection import Connection
for limit, most in ((resource.RLIMIT_NOFILE, {OPEN_FILES}), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
    resource.setrlimit(limit, (most, most))
import vl_convert
pipe = Connection(0)
while True:
    spec = json.loads(pipe.recv_bytes())
    try:
        drawn = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    except Exception:
        drawn = None
    pipe.send_bytes(json.dumps(drawn).encode())
"""


class Artist:
    """Draws one picture at a time. The principal with the least recent drawing is next. Many threads may use it."""

    def __init__(self) -> None:
        self._able = find_spec("vl_convert") is not None
        self._places = Places(1, 1)
        self._lock = threading.Lock()
        self._remembered: OrderedDict[tuple[str, bytes], str | None] = OrderedDict()
        self._process: ChildProcess | None = None

    def picture(self, name: str, spec: Mapping[str, Any], until: float | None = None) -> str | None:
        """Returns an SVG, or None without vl-convert, if the time is over, or if this picture has failed before.

        name: the principal. until: the end of the page's time for pictures, by time.monotonic.
        """
        if not self._able:
            return None
        line = json.dumps(spec)
        key = name, hashlib.sha256(line.encode()).digest()
        with self._lock:
            if key in self._remembered:
                return self._remembered[key]
        left = OF_A_PAGE if until is None else until - time.monotonic()
        if left <= 0:
            return None
        try:
            with self._places.place(name, left):
                drawn = self._draw(line)
        except Refusal:  # no place was free, so the picture did not fail
            return None
        if drawn is None or len(drawn) <= REMEMBERED_LENGTH:
            with self._lock:
                remember(self._remembered, key, drawn, REMEMBERED)
        return drawn

    def close(self) -> None:
        self._places.close()
        if self._process is not None:
            self._process.kill()

    def _draw(self, line: str) -> str | None:
        if self._process is None or not self._process.alive:
            environment = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}
            self._process = ChildProcess([sys.executable, "-I", "-c", _CHILD], environment, SECONDS)
            limit_memory(MEMORY, self._process.process.pid)
        process, end = self._process, time.monotonic() + SECONDS
        try:
            process.send(line.encode())
            svg = json.loads(bytes(process.receive(max(0.0, end - time.monotonic()), until=end)))
        except (ChildFailed, ValueError):  # it ran out of time or memory, or what it said is no JSON
            process.kill()
            return None
        return None if svg is None else str(svg)
