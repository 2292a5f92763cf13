"""Plants each fault of the list in a copy of the tree, and says which tests find it: `python -m tests.planted`.

The copy is of the files that git knows, as they are here, or of a commit. One fault is in it at a time. Its own tests
run first: without those that `make test` samples, and then with them. Where they find nothing, a whole tier may follow.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import io
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.planted.faults import ROOT, Fault, faults, planted

QUICK, TEST, LONG = "quick", "test", "long"
NOBODY, ABSENT = "nobody", "not there"
SECONDS = 600
"""How long the tests of one fault may take: a fault by which they never end is found, too."""

TIER_SECONDS = 7200
RECORD = Path(__file__).with_name("found.tsv")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Found:
    """Which tier finds a fault, by which test, and how long that took."""

    fault: Fault
    tier: str
    test: str
    seconds: float

    @property
    def said(self) -> str:
        """Returns tier and test in a few words."""
        return f"{self.tier}: {self.test}" if self.test else self.tier


def variable(name: str) -> str:
    """Returns a variable of the Makefile, as it is written there."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", "")
    return next(line.partition(":=")[2].strip() for line in makefile.splitlines() if line.startswith(f"{name} :="))


PRELOADED = (
    *("pytest", "click", "duckdb", "numpy", "pyarrow.compute", "sqlglot"),
    *("scipy.linalg", "scipy.optimize", "scipy.sparse.linalg", "scipy.special", "scipy.stats"),
)
"""What all tests import, and no fault is planted in: it is imported once, and each run of tests is a fork."""


class WithoutShrinking:
    """Lets hypothesis end with the first example that fails: whoever plants a fault needs no smaller one."""

    def pytest_sessionstart(self) -> None:
        """Loads the settings after those of tests/conftest.py."""
        hypothesis = importlib.import_module("hypothesis")
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("planted", hypothesis.settings.default, phases=phases)
        hypothesis.settings.load_profile("planted")


class Copy:
    """A throw-away copy of the tree in which tests run."""

    def __init__(self, root: Path, commit: str | None) -> None:
        self.root = root
        if commit is not None:
            packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                archive.extractall(root, filter="data")
        else:
            listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
            for name in filter(None, listed.decode().split("\0")):
                if (ROOT / name).is_file():
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    (root / name).write_bytes((ROOT / name).read_bytes())
        for name in PRELOADED:
            importlib.import_module(name)

    def first_failure(self, tests: Sequence[str], marks: str, seconds: float = SECONDS) -> str:
        """Returns the first test that fails; "" where none does."""
        code, said = self._run(["-q", "-x", "-n", "0", "--tb=no", "-rfE", "-m", marks, *tests], seconds)
        if code is None:
            return "the tests do not end"
        if code in (0, 5):  # of 5 no test was chosen
            return ""
        failed = _FAILED.search(said)
        if code not in (1, 2) or failed is None:
            raise SystemExit(f"the tests cannot be run: {' '.join(tests)}\n{said}")
        return failed[1].partition("[")[0]

    def _run(self, words: Sequence[str], seconds: float) -> tuple[int | None, str]:
        """Runs pytest in a fork; None where it does not end in time."""
        with tempfile.TemporaryFile() as said:
            child = os.fork()
            if child == 0:
                os._exit(self._forked(words, said.fileno()))
            end = time.monotonic() + seconds
            while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
                if time.monotonic() > end:
                    os.killpg(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    return None, ""
                time.sleep(0.05)
            said.seek(0)
            return os.waitstatus_to_exitcode(ended[1]), said.read().decode(errors="replace")

    def _forked(self, words: Sequence[str], output: int) -> int:
        """Imports what is tested from the copy, and returns pytest's status."""
        try:
            os.setsid()
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.chdir(self.root)
            os.environ["PYTHONPATH"] = str(self.root)
            os.environ.setdefault("DPDUCK_DATA", str(ROOT.parent / "shared" / "data"))
            for name in [name for name in sys.modules if name.partition(".")[0] in ("benchmarks", "dpduck", "tests")]:
                del sys.modules[name]
            sys.path[:] = [str(self.root), *(one for one in sys.path if one and Path(one).resolve() != ROOT)]
            importlib.invalidate_caches()
            dpduck = importlib.import_module("dpduck")
            if dpduck.__file__ != str(self.root / "dpduck" / "__init__.py"):
                return 99
            return int(sys.modules["pytest"].main([*words], plugins=[WithoutShrinking()]))
        except BaseException:  # a fork must not go on as its parent
            traceback.print_exc()
            return 98
        finally:
            sys.stdout.flush()
            sys.stderr.flush()


def tier_of(test: str, default: str) -> str:
    """Returns quick for tests of `make quick`, else another tier."""
    file = Path(test.partition("::")[0])
    inside = any(file == Path(part) or Path(part) in file.parents for part in variable("QUICK").split())
    return QUICK if inside and file.name != "test_golden.py" and default == TEST else default


def marks_of(tier: str) -> str:
    """Returns the marks of tests that are always in `make test`, or in any tier."""
    ordinary = variable("DEFAULT")
    return f"({ordinary}) and not slow and not sampled" if tier != LONG else ordinary.replace("not audit and ", "")


def looked_for(fault: Fault, copy: Copy, widest: str | None) -> Found:
    """Plants one fault and looks for it: by its own tests, and where these find nothing by a whole tier."""
    start = time.monotonic()
    tests = fault.there(copy.root)
    if fault.times(copy.root) != 1:
        return Found(fault, ABSENT, "", 0.0)
    with planted(fault, copy.root):
        for tier in (TEST, LONG):
            failed = copy.first_failure(tests, marks_of(tier)) if tests else ""
            if failed:
                return Found(fault, tier_of(failed, tier), failed, time.monotonic() - start)
        if widest is not None:
            every = variable("QUICK").split() if widest == QUICK else []
            failed = copy.first_failure(every, marks_of(widest), TIER_SECONDS)
            if failed:
                return Found(fault, tier_of(failed, widest), failed, time.monotonic() - start)
    return Found(fault, NOBODY, "", time.monotonic() - start)


def alarms(found: Sequence[Found], copy: Copy) -> str:
    """Returns a test that found something and fails where nothing is planted; "" where there is none."""
    tests = sorted({one.test for one in found if "::" in one.test or one.test.endswith(".py")})
    return copy.first_failure(tests, marks_of(LONG), TIER_SECONDS) if tests else ""


def record(column: str, found: Sequence[Found]) -> None:
    """Writes what was found into a column of found.tsv: `before`, or `after`."""
    rows = {}
    if RECORD.is_file():
        with RECORD.open(encoding="utf-8", newline="") as file:
            rows = {row["name"]: row for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)}
    told = {one.fault.name: one for one in found}
    names = ("name", "area", "breaks", "before", "after")
    with RECORD.open("w", encoding="utf-8") as file:
        file.write("\t".join(names) + "\n")
        for fault in faults():
            row = {**dict.fromkeys(names, ""), **rows.get(fault.name, {})}
            row |= {"name": fault.name, "area": fault.area, "breaks": fault.breaks}
            row |= {column: told[fault.name].said} if fault.name in told else {}
            file.write("\t".join(row[name] for name in names) + "\n")


def main(words: Sequence[str]) -> int:
    """Plants what is asked for, and returns 1 where a fault is found by nobody."""
    reader = argparse.ArgumentParser(prog="python -m tests.planted", description=(__doc__ or "").partition("\n")[0])
    reader.add_argument("--list", action="store_true", help="print the faults, and plant none")
    reader.add_argument("--only", action="append", metavar="NAME", help="one fault, or those of one area")
    reader.add_argument(
        "--tier", choices=(QUICK, TEST, LONG), help="run all of a tier where a fault's tests find nothing"
    )
    reader.add_argument("--at", metavar="COMMIT", help="plant in a copy of this commit")
    reader.add_argument("--record", choices=("before", "after"), help="write what was found into found.tsv")
    read = reader.parse_args(words)
    chosen = [one for one in faults() if not read.only or {one.name, one.area} & set(read.only)]
    if read.list or not chosen:
        sys.stdout.writelines(f"{one.area:11} {one.name}: {one.breaks}\n" for one in chosen)
        return int(not chosen)
    found, start = list[Found](), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted_") as folder:
        copy = Copy(Path(folder).resolve(), read.at)
        for fault in chosen:
            found.append(looked_for(fault, copy, read.tier))
            sys.stdout.write(f"{fault.area:11} {fault.name:52} {found[-1].seconds:5.0f} s  {found[-1].said}\n")
            sys.stdout.flush()
        alarm = alarms(found, copy)
    if read.record:
        record(read.record, found)
    missed = [one for one in found if one.tier == NOBODY or (one.tier == ABSENT and read.at is None)]
    tiers = Counter(one.tier for one in found)
    by_tier = ", ".join(f"{tier} {tiers[tier]}" for tier in (QUICK, TEST, LONG, NOBODY, ABSENT))
    sys.stdout.write(f"{len(found)} faults in {(time.monotonic() - start) / 60:.0f} minutes: {by_tier}\n")
    if alarm:
        sys.stdout.write(f"{alarm} fails where nothing is planted\n")
    return int(bool(missed or alarm))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
