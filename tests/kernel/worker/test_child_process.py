"""Child processes: frames of any length arrive whole, and waiting ends if a process is late, silent or gone."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dpduck.values.child_process import ChildFailed, ChildProcess

ECHO = """
from multiprocessing.connection import Connection
pipe = Connection(0)
while True:
    pipe.send_bytes(pipe.recv_bytes())
"""
TELLS = """
import json, os
from multiprocessing.connection import Connection
told = {"folder": os.getcwd(), "names": sorted(os.environ), "group": os.getpgid(0) == os.getpid()}
Connection(0).send_bytes(json.dumps(told).encode())
"""
STOPS_WITHIN = "import os, time; os.write(0, bytes((0, 0, 0, 9)) + b'begun'); time.sleep(100)"
LONG_HEAD = "import os, struct, time; os.write(0, struct.pack('!iQ', -1, 5) + b'whole'); time.sleep(100)"
NEGATIVE = "import os, time; os.write(0, bytes((255, 0, 0, 0)) + b'less than nothing'); time.sleep(100)"
TOO_LONG = "import os, time; os.write(0, bytes((0, 0, 0, 9)) + b'too long!'); time.sleep(100)"
HUGE = "import os, struct, time; os.write(0, struct.pack('!iQ', -1, {})); time.sleep(100)"
DRIPS = """
import os, time
os.write(0, bytes((0, 0, 1, 0)))
while True:
    os.write(0, b"x")
    time.sleep(0.2)
"""
READS_NOTHING = "import time; time.sleep(100)"


@contextmanager
def process(script: str, environment: dict[str, str] | None = None, patience: float = 30.0) -> Iterator[ChildProcess]:
    """A process that runs a script, and is killed at the end."""
    child = ChildProcess([sys.executable, "-I", "-c", script], environment, patience)
    try:
        yield child
    finally:
        child.kill()
        assert not child.alive
        assert not Path(f"/proc/{child.process.pid}").exists(), "no zombie is left"


def test_frames_arrive_whole() -> None:
    """Frames arrive whole, also empty ones, and ones that no buffer of a socket holds."""
    with process(ECHO, {}) as child:
        for content in (b"", b"x", bytes(range(256)) * 20_000):
            child.send(content)
            assert bytes(child.receive(30.0)) == content
    with process(LONG_HEAD, {}) as child:
        assert bytes(child.receive(30.0)) == b"whole"


@pytest.mark.parametrize("script", [READS_NOTHING, STOPS_WITHIN, NEGATIVE, TOO_LONG, "", "raise SystemExit(3)"])
def test_a_process_that_gives_no_frame_is_given_up(script: str) -> None:
    """A process is given up that says nothing, stops within a frame, says more than was asked, or has ended."""
    start = time.monotonic()
    with process(script, {}, patience=0.5) as child, pytest.raises(ChildFailed):
        child.receive(0.5, most=8) if script == TOO_LONG else child.receive(2.0)
    assert time.monotonic() - start < 20


def test_a_process_that_reads_nothing_is_given_up() -> None:
    """Sending to a process that reads nothing is given up, and so is sending to one that has ended."""
    with process(READS_NOTHING, {}, patience=0.5) as child:
        with pytest.raises(ChildFailed):
            child.send(bytes(10_000_000))
        child.kill()
        with pytest.raises(ChildFailed):
            child.send(b"x")


def test_who_waits_is_woken_by_a_kill() -> None:
    """A thread that waits without a deadline ends with the process. The exit status tells the reason."""
    with process(ECHO, {}) as child:
        failed = threading.Event()

        def wait() -> None:
            with pytest.raises(ChildFailed):
                child.receive(None)
            failed.set()

        threading.Thread(target=wait).start()
        assert child.alive
        assert child.kill() == -signal.SIGKILL
        assert failed.wait(30)


def test_a_claimed_length_takes_no_memory() -> None:
    """A frame that is said to be huge fails as one that does not come. The memory is taken as its bytes arrive."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for length in (1 << 34, 1 << 62):
        with process(HUGE.format(length), {}, patience=0.5) as child, pytest.raises(ChildFailed):
            child.receive(30.0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000, "kilobytes, of 16 GiB"


def test_a_frame_that_drips_is_given_up() -> None:
    """Each read is in time, and the whole is not."""
    with process(DRIPS, {}, patience=30.0) as child, pytest.raises(ChildFailed):
        child.receive(30.0, until=time.monotonic() + 1)


def test_an_environment_is_all_that_a_process_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process gets exactly the given environment. Without one it inherits all, and Ctrl-C does not reach it."""
    monkeypatch.setenv("DPDUCK_SECRET", "x")
    with process(TELLS, {"PATH": os.defpath}) as child:
        told = json.loads(bytes(child.receive(30.0)))
    assert told["folder"] == "/" and not told["group"] and "DPDUCK_SECRET" not in told["names"]
    assert set(told["names"]) <= {"PATH", "LC_CTYPE"}
    with process(TELLS) as child:
        told = json.loads(bytes(child.receive(30.0)))
    assert told["folder"] == str(Path.cwd()) and told["group"] and "DPDUCK_SECRET" in told["names"]


def test_a_process_that_cannot_start_leaves_nothing_open(tmp_path: Path) -> None:
    """The system's own error is raised, which is not taken for a failure of the process."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(FileNotFoundError):
        ChildProcess([str(tmp_path / "nothing")], {}, 1.0)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
