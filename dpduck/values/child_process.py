"""Child processes: each has one end of a socket as its standard input, and exchanges frames over the socket.

Frames are those of multiprocessing.connection, which the child may use: the length in four bytes, and the content.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from math import inf
from multiprocessing.connection import Connection
from time import monotonic

PIECE = 1 << 24  # bytes that are taken for a frame at first


class ChildFailed(OSError):
    """Error for a process that has ended, or that does not answer in time."""


class ChildProcess:
    """Process that this one has started. `pipe` is this end of the socket. It closes when nothing refers to it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None, patience: float) -> None:
        """Starts the process without waiting for it.

        environment: the whole environment of the process, which then has no output, and / as its folder. With None, the
        process inherits environment, output and folder, and has its own process group, so that Ctrl-C does not reach
        it.
        patience: seconds to wait for the next bytes of a frame that has begun.
        """
        ours, theirs = socket.socketpair()
        limit = struct.pack("ll", int(patience), int(patience % 1 * 1e6))
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, option, limit)
        self.pipe = Connection(ours.detach())
        output, folder, group = (None, None, 0) if environment is None else (subprocess.DEVNULL, "/", None)
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603
                command,
                stdin=theirs.fileno(),
                stdout=output,
                stderr=output,
                cwd=folder,
                env=environment,
                process_group=group,
            )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def send(self, *frames: bytes | memoryview) -> None:
        """Sends frames. Raises ChildFailed if the process does not take them."""
        try:
            for frame in frames:
                self.pipe.send_bytes(frame)
        except OSError:
            raise ChildFailed from None

    def receive(self, seconds: float | None, most: int = sys.maxsize, until: float = inf) -> memoryview:
        """Returns the next frame. Raises ChildFailed if it begins too late, or has more than `most` bytes.

        until: moment of the monotonic clock at which a frame that is not whole is given up.
        """
        try:
            if not self.pipe.poll(seconds):
                raise ChildFailed
            (length,) = struct.unpack("!i", self._read_bytes(4, until))
            if length == -1:  # a long frame
                (length,) = struct.unpack("!Q", self._read_bytes(8, until))
            if not 0 <= length <= most:
                raise ChildFailed
            return self._read_bytes(length, until)
        except (OSError, MemoryError):
            raise ChildFailed from None

    def kill(self) -> int:
        """Kills the process, and returns its exit status. A wait for its frames ends at once."""
        self.process.kill()
        return self.process.wait()

    def _read_bytes(self, count: int, until: float) -> memoryview:
        """Reads bytes, ten times faster than Connection.recv_bytes, which asks for new memory at each read.

        A length that the other end claims costs no memory before its bytes arrive.
        """
        content, filled = bytearray(min(count, PIECE)), 0
        while filled < count:
            if filled == len(content):
                content.extend(bytes(min(count - filled, filled)))
            with memoryview(content) as view:
                read = os.readv(self.pipe.fileno(), [view[filled:]])
            if not read or monotonic() > until:
                raise ChildFailed
            filled += read
        return memoryview(content)
