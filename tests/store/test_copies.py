"""Older copies of a store, and copies in use at the same time, are noticed through load(), in one clear line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

import dpduck
from tests.support.clinics import CHARGES, Clinic, by, one_line

OpenClinic = Callable[..., Clinic]


def store_files(database: Path) -> list[Path]:
    return [path for path in database.parent.iterdir() if path.name.startswith("clinic_private")]


@pytest.fixture
def backup(clinic_file: Path, tmp_path: Path) -> Iterator[Path]:
    """Copies the store and its secrets as they were after the first release."""
    directory = tmp_path / "backup"
    directory.mkdir()
    for path in store_files(clinic_file):
        shutil.copy2(path, directory / path.name)
    yield directory


def restore(backup: Path, database: Path, kind: Callable[[str], bool]) -> None:
    for path in store_files(database):
        if kind(path.name):
            path.unlink()
    for path in backup.iterdir():
        if kind(path.name):
            shutil.copy2(path, database.with_name(path.name))


def refused_at_load(database: Path) -> str:
    with duckdb.connect(str(database)) as con:
        with pytest.raises(dpduck.StoreError) as caught:
            dpduck.load(con)
        assert con.execute("SELECT 1 FROM duckdb_databases() WHERE database_name = 'private'").fetchall() == []
    message = str(caught.value)
    assert "\n" not in message and "accepted:" in message
    return message


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("the store", lambda name: not name.endswith("_secrets")),
        ("its secrets", lambda name: name.endswith("_secrets")),
        ("both", lambda name: True),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_older_copy_is_refused(
    open_clinic: OpenClinic, clinic_file: Path, backup: Path, what: str, kind: Callable[[str], bool]
) -> None:
    """A store from before the last charges would give budget back: it answers nothing, not even from the cache."""
    clinic = open_clinic(clinic_file)
    for tag in "ab":
        clinic.dp(by("sex", more=f"refresh = '{tag}'"))
    clinic.con.close()
    restore(backup, clinic_file, kind)
    assert "copy" in refused_at_load(clinic_file)


def test_a_deleted_store_does_not_begin_anew(clinic_file: Path) -> None:
    """Without the store, its secrets still know that something was spent."""
    clinic_file.with_name("clinic_private.duckdb").unlink()
    assert "older copy" in refused_at_load(clinic_file)


def test_the_newest_store_is_accepted_after_a_refusal(
    open_clinic: OpenClinic, clinic_file: Path, backup: Path, tmp_path: Path
) -> None:
    """The refusal changes nothing: with the newest files back in place all is as it was."""
    clinic = open_clinic(clinic_file)
    answer = clinic.dp(by("ward"))
    clinic.con.close()
    newest = tmp_path / "newest"
    newest.mkdir()
    for path in store_files(clinic_file):
        shutil.copy2(path, newest / path.name)
    restore(backup, clinic_file, lambda name: True)
    refused_at_load(clinic_file)
    restore(newest, clinic_file, lambda name: True)
    clinic = open_clinic(clinic_file)
    assert clinic.dp(by("ward")) == answer
    assert clinic.charges() == 2


SECOND_PROCESS = """
import sys, dpduck
con = dpduck.connect(sys.argv[1])
print("open", flush=True)
sys.stdin.readline()
try:
    print(len(con.execute("FROM dp(?)", [sys.argv[2]]).fetchall()), flush=True)
except Exception as error:
    print(str(error).splitlines()[0], flush=True)
"""


def test_two_processes_on_copies_of_one_store(open_clinic: OpenClinic, clinic_file: Path, tmp_path: Path) -> None:
    """Both processes opened a current copy. After one of them charged, the other is refused before it counts."""
    copy = tmp_path / "copy"
    shutil.copytree(clinic_file.parent, copy, ignore=lambda *_: {"copy", "state", "backup"})
    process = subprocess.Popen(
        [sys.executable, "-c", SECOND_PROCESS, str(copy / clinic_file.name), by("age")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "open\n"
    clinic = open_clinic(clinic_file)
    assert len(clinic.dp(by("ward"))) == 6
    output, _ = process.communicate("go\n", timeout=600)
    assert "copies of the store were used" in output or "older copy" in output
    assert "accepted:" in output and output.count("\n") == 1
    assert clinic.charges() == 2
    clinic.con.close()
    assert "cop" in refused_at_load(copy / clinic_file.name)
    assert open_clinic(clinic_file).charges() == 2


def test_a_store_that_is_replaced_while_it_is_open(open_clinic: OpenClinic, clinic_file: Path, backup: Path) -> None:
    """Attaching an older store in the middle of a session is noticed at the next statement."""
    clinic = open_clinic(clinic_file)
    clinic.dp(by("ward"))
    clinic.rows("DETACH private")
    clinic.rows(f"ATTACH '{backup / 'clinic_private.duckdb'}' AS private")
    for statement in (by("age"), by("sex", more="refresh = 'again'")):
        with pytest.raises(duckdb.Error) as caught:
            clinic.dp(statement)
        assert "ledger" in one_line(caught.value) and "accepted:" in one_line(caught.value)


def test_a_detached_store_is_told_in_one_line(open_clinic: OpenClinic, clinic_file: Path) -> None:
    """A detached store gives one line and no answers. load() attaches it again."""
    clinic = open_clinic(clinic_file)
    answer = clinic.dp(by("sex"))
    clinic.rows("DETACH private")
    for call in ("dp_budget()", "dp_ledger()", f"dp($${by('sex')}$$)", f"dp($${by('ward')}$$)"):
        with pytest.raises(duckdb.Error) as caught:
            clinic.rows(f"FROM {call}")
        assert "accepted:" in one_line(caught.value)
    dpduck.load(clinic.con)
    assert clinic.dp(by("sex")) == answer
    assert clinic.value(CHARGES) == 1


def test_a_tampered_ledger_is_refused(clinic_file: Path) -> None:
    """A charge that somebody reduced by hand breaks the chain."""
    with duckdb.connect(str(clinic_file.with_name("clinic_private.duckdb"))) as con:
        con.execute("UPDATE dpduck.ledger_entries SET epsilon = '1/1000' WHERE rho <> '0'")
    assert "ledger entry" in refused_at_load(clinic_file)
