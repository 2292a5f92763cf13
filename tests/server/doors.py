"""The owner's door of a served store, in a process of its own, without any listener for clients."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCRIPT = """
import sys
from pathlib import Path
from dpduck.server.local_vault import LocalVault
from dpduck.server.owner import door_path
from dpduck.server.owner_door import OwnerDoor
from dpduck.store.store_files import store_files
database = Path(sys.argv[1])
door = OwnerDoor(LocalVault(database), door_path(store_files(database, None)))
print("open", flush=True)
sys.stdin.read()
door.close()
"""


@contextmanager
def door_process(database: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the store open and answers the owner, until the block ends or somebody kills it."""
    command = [sys.executable, "-c", SCRIPT, str(database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "open\n"
        try:
            yield process
        finally:
            process.stdin.close()
            process.wait(600)
