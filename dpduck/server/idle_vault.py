"""Idle process that can become a vault: it has imported all code, and waits for a message with its settings.

Until then it holds no file, no lock and no row, so it may be ended at any time.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from dpduck.server.limits import FLOOR, SECONDS, Quota
from dpduck.values.child_process import ChildProcess

KINDNESS = 5
"""Steps of nice for a vault, so that it leaves the processor to readers first."""

PATIENCE = 60.0
"""Seconds after which a vault that does not read a message, or stops within one, is given up."""


@dataclass(frozen=True)
class Keeping:
    """Settings of the vault's process. engines: the engines to attach, as name=address.

    floor: seconds before which no new answer is given. seconds: the time limit of a SELECT over released answers.
    memory: the most bytes beyond the process's memory at its start, 0 for no limit.
    """

    quota: Quota = field(default_factory=Quota)
    floor: float = FLOOR
    memory: int = 0
    seconds: float = SECONDS
    engines: tuple[str, ...] = ()


def begin_idle_vault() -> ChildProcess:
    """Starts an idle process, which ends when its socket is closed."""
    return ChildProcess([sys.executable, "-m", "dpduck.server.vault_process"], None, PATIENCE)
