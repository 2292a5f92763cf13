"""A vault's process that has opened nothing yet: its start, and the settings that it gets then.

It imports what plans, counts and adds noise, and waits for one message. Until then it holds no file, no lock and no
row, so it may be ended at any time. dpduck serve begins one before its own imports. Another one waits beside a vault at
work, and takes its place when that dies.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import dataclass, field

from dpduck.server.limits import FLOOR, SECONDS, Quota, stand_back

KINDNESS = 5
"""How far a vault stands back behind readers for the processor, in steps of nice."""


@dataclass(frozen=True)
class Keeping:
    """What the vault's process keeps to. floor: seconds before which no new answer is given. memory: bytes; 0 for all.
    seconds: of a SELECT around released answers. engines: that are attached, as name=address.

    The process may have that much beside what it begins with: the operating system refuses it more.
    """

    quota: Quota = field(default_factory=Quota)
    floor: float = FLOOR
    memory: int = 0
    seconds: float = SECONDS
    engines: tuple[str, ...] = ()


@dataclass(frozen=True)
class IdleVault:
    """The process, and this side of its pipe."""

    process: subprocess.Popen[bytes]
    socket: socket.socket

    @property
    def alive(self) -> bool:
        """Tells whether the process is there."""
        return self.process.poll() is None

    def end(self) -> None:
        """Ends the process, which has nothing to finish."""
        self.process.kill()
        self.process.wait()
        self.socket.close()


def begin_idle_vault(kindness: int | None = None) -> IdleVault:
    """Starts a process, and does not wait until it has imported anything. It ends when its pipe is closed.

    kindness: how far it stands back already, where nobody waits for it. It has a process group of its own: Ctrl-C
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
