"""Process of a vault that has opened nothing yet: its start, and the settings that it gets later.

It imports the code that plans, counts and adds noise, and waits for one message. Until then it holds no file, no lock
and no row, so it may be ended at any time. dpduck serve starts one before its own imports. Another one waits beside a
running vault, and takes its place when that vault dies.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import dataclass, field

from dpduck.server.limits import FLOOR, SECONDS, Quota, stand_back

KINDNESS = 5
"""Steps of nice by which a vault yields the processor to readers."""


@dataclass(frozen=True)
class Keeping:
    """Settings of the vault's process. floor: seconds before which no new answer is given. seconds: the largest time of
    a SELECT around released answers. engines: the engines to attach, as name=address.

    memory: bytes beyond the memory of the process at its start, 0 for all. The operating system refuses more.
    """

    quota: Quota = field(default_factory=Quota)
    floor: float = FLOOR
    memory: int = 0
    seconds: float = SECONDS
    engines: tuple[str, ...] = ()


@dataclass(frozen=True)
class IdleVault:
    """Idle process, with this side of its pipe."""

    process: subprocess.Popen[bytes]
    socket: socket.socket

    @property
    def alive(self) -> bool:
        """Tells whether the process still runs."""
        return self.process.poll() is None

    def end(self) -> None:
        """Ends the process, which has nothing to finish."""
        self.process.kill()
        self.process.wait()
        self.socket.close()


def begin_idle_vault(kindness: int | None = None) -> IdleVault:
    """Starts an idle process without waiting for its imports. It ends when its pipe is closed.

    kindness: its steps of nice from the start, if nobody waits for it. The process has its own process group: Ctrl-C
    reaches the server alone, which decides.
    """
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "dpduck.server.vault_process", str(theirs.fileno())]
    try:
        process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), process_group=0
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    if kindness is not None:
        stand_back(kindness, process.pid)
    return IdleVault(process, ours)
