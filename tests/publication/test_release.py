"""dpduck release: one command from a plan to a folder, which can be killed, repeated, and checked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

import dpduck
from dpduck.commands.release import ReleaseSettings, release_plan
from dpduck.commands.trial import TrialSettings, print_trial
from dpduck.publication import check_folder
from dpduck.publication.check_folder import errors_of
from dpduck.publication.folder import _open_unfinished
from dpduck.publication.plan import read_plan
from dpduck.values.errors import Refusal
from tests.publication.releasing import charges, check, files_of, read_files
from tests.support.registry import accepted

pytest.importorskip("vl_convert", reason="a release draws pictures")

PLAN = """
CREATE PRIVATE VIEW by_ward OPTIONS (epsilon = 0.5, title = 'Visits by ward') AS
    SELECT ward, count(*) AS n FROM visits GROUP BY ward;
CREATE PRIVATE TABLE made_up OPTIONS (epsilon = 0.5, rows = 100) AS SELECT ward FROM visits WORKLOAD MARGINALS (1);
CREATE PRIVATE STREAM by_month OPTIONS (epsilon = 1, periods = 3) AS
    SELECT day, count(*) AS n FROM visits GROUP BY day;
REFRESH PRIVATE STREAM by_month
"""
FILES = files_of(("by_ward", "made_up", "by_month"))
CANARY = "a secret nobody else has"
FILLED_IN = ["documents/registry_record.yaml", "documents/methods.md"]
"""Files that their owner fills in. They alone may change."""


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    return make_clinic(tmp_path)


def make_clinic(folder: Path) -> Path:
    """Makes a database with 3,000 visits, one of them with a text that no file may have, and the plan beside it."""
    database = folder / "clinic.duckdb"
    with dpduck.connect(database) as con:
        con.execute(
            "CREATE TABLE visits AS SELECT i // 3 AS patient_id, ['north', 'south'][1 + i % 2] AS ward, "
            f"DATE '2024-01-01' + CAST(i % 80 AS INTEGER) AS day, CASE WHEN i = 7 THEN '{CANARY}' ELSE 'x' END AS note "
            "FROM range(3000) AS r(i)"
        )
        con.execute(
            "FROM dp($$ CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient_id MAX ROWS 3, BUDGET (epsilon = 5), "
            "DOMAIN ward IN ('north', 'south'), DOMAIN day RANGE '2024-01-01' TO '2024-04-01' STEP MONTH) $$)"
        )
    (folder / "plan.sql").write_text(PLAN, "utf-8")
    return database


def release(clinic: Path, steps: Callable[[str], None] = lambda step: None, **changed: Any) -> bool:
    settings = ReleaseSettings(
        "Visits", "data@clinic.example", changed.get("criteria"), 20, "", changed.get("confirm", lambda question: True)
    )
    plan, folder = clinic.with_name("plan.sql"), clinic.with_name("public")
    return release_plan(clinic, None, plan, changed.get("folder", folder), settings, steps)


def test_a_release_is_whole_and_repeats_for_nothing(clinic: Path) -> None:
    """The folder has all files, the registry accepts the record, no row is in it, and a second run changes nothing."""
    assert release(clinic)
    folder, paid = clinic.with_name("public"), charges(clinic)
    before = read_files(folder)
    assert set(before) == FILES
    assert len(paid) == 3
    checked = check(folder)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert accepted(before["documents/registry_record.yaml"].decode())["tier"] == 3
    assert not any(CANARY.encode() in content for content in before.values())
    assert release(clinic, confirm=lambda question: pytest.fail("a repeated plan has no price"))
    assert read_files(folder) == before
    assert charges(clinic) == paid
    for name in ("registry_record.yaml", "methods.md"):
        (folder / "documents" / name).write_text("filled in", "utf-8")
    assert check(folder).returncode == 0


@pytest.mark.slow
def test_a_killed_release_goes_on(clinic: Path, tmp_path: Path) -> None:
    """Killed at each step and run again: one charge for each statement, and the same files."""
    seen: list[str] = []
    assert release(clinic, seen.append)
    assert len(seen) == len(set(seen)) == 11
    for step in seen:
        folder = tmp_path / step.replace(" ", "_").replace(".", "_")
        folder.mkdir()
        make_clinic(folder)
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, str(folder), step], capture_output=True, text=True, check=False
        )
        assert killed.returncode == 9, killed.stderr
        assert not (folder / "public").exists()
        database = folder / "clinic.duckdb"
        first = charges(database)
        assert release(database)
        assert len(charges(database)) == 3
        assert charges(database)[: len(first)] == first
        assert set(read_files(folder / "public")) == FILES
        assert check(folder / "public").returncode == 0
        assert not list(folder.glob(".public*"))


KILLED = """
import os, sys
from pathlib import Path
from dpduck.commands.release import ReleaseSettings, release_plan
folder, step = Path(sys.argv[1]), sys.argv[2]
settings = ReleaseSettings("Visits", "data@clinic.example", None, 20, "", lambda question: True)
release_plan(folder / "clinic.duckdb", None, folder / "plan.sql", folder / "public", settings,
             lambda name: os._exit(9) if name == step else None)
"""


def change(folder: Path, name: str) -> None:
    path = folder / name
    path.write_bytes(path.read_bytes() + b"\n")


@pytest.mark.parametrize("name", sorted(FILES - {"manifest.json", *FILLED_IN, "check.py"}))
def test_each_changed_file_is_found(released: Path, name: str) -> None:
    """The checker names a changed, a missing and a new file."""
    content = (released / name).read_bytes()
    change(released, name)
    assert list(errors_of(released)) == [f"{name} was changed"]
    (released / name).unlink()
    assert list(errors_of(released)) == [f"{name} is missing"]
    (released / name).write_bytes(content)
    (released / f"{name}.more").write_text("new", "utf-8")
    assert list(errors_of(released)) == [f"{name}.more is not of this release"]
    (released / f"{name}.more").unlink()
    assert list(errors_of(released)) == []


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A released folder with made-up files, since the checker reads their hashes alone."""
    from dpduck.publication.folder import Publication, _write_manifest  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("released") / "public"
    for name in FILES - {"manifest.json"}:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name, "utf-8")
    assert Publication("", (), "", "", frozenset()).views == ()
    _write_manifest(folder, FILLED_IN, "source")
    return folder


def test_a_changed_manifest_has_another_digest(clinic: Path) -> None:
    """A manifest that was written anew passes, but its digest is not the one that the owner published."""
    assert release(clinic)
    folder = clinic.with_name("public")
    digest = check(folder).stdout
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    change(folder, "data/csv/by_ward.csv")
    assert check(folder).returncode == 1
    from dpduck.publication.check_folder import sha256  # noqa: PLC0415

    manifest["files"]["data/csv/by_ward.csv"] = sha256(folder / "data/csv/by_ward.csv")
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    assert check(folder).returncode == 0
    assert check(folder).stdout != digest


def test_nothing_is_charged_in_vain(clinic: Path) -> None:
    """A plan beyond the budget, one that nobody confirms, and one that misses a criterion charge nothing."""
    assert not release(clinic, confirm=lambda question: False)
    criteria = clinic.with_name("criteria.toml")
    criteria.write_text("[[criteria]]\nstatement = 1\nerror = 0.000001\n", "utf-8")
    assert not release(clinic, criteria=criteria)
    clinic.with_name("plan.sql").write_text(PLAN.replace("epsilon = 1,", "epsilon = 4.5,"), "utf-8")
    with pytest.raises(click.ClickException, match="budget"):
        release(clinic)
    assert charges(clinic) == []


def test_a_trial_is_said(clinic: Path) -> None:
    """If criteria decided, the record says that the rows were looked at."""
    criteria = clinic.with_name("criteria.toml")
    criteria.write_text("[[criteria]]\nstatement = 1\nerror = 0.5\n", "utf-8")
    assert release(clinic, criteria=criteria)
    record = record_of(clinic.with_name("public"))
    assert "by_ward was tried on the true rows before it was paid" in record
    assert UNTOLD in record, "the other tables were not tried"


UNTOLD = "whether bounds, ranges and prices were chosen after a look"


def record_of(folder: Path) -> str:
    return " ".join((folder / "documents" / "registry_record.yaml").read_text("utf-8").split())


def test_a_trial_of_all_tables_is_said_once(clinic: Path) -> None:
    """A trial of all statements is one of the release. In a second folder, no trial ran, and none is told of."""
    criteria = clinic.with_name("criteria.toml")
    clinic.with_name("plan.sql").write_text(f"{VIEW.format('a')}; {VIEW.format('b').replace('0.5', '0.4')}", "utf-8")
    criteria.write_text("[[criteria]]\nerror = 0.5\n", "utf-8")
    assert release(clinic, criteria=criteria)
    first = record_of(clinic.with_name("public"))
    assert "The release was tried on the true rows before it was paid" in first
    assert UNTOLD not in first
    criteria.write_text("[[criteria]]\nerror = 0.000001\nshare = 1.0\n", "utf-8")
    assert release(clinic, criteria=criteria, folder=clinic.with_name("second"))
    second = record_of(clinic.with_name("second"))
    assert "tried on the true rows" not in second
    assert UNTOLD in second


def test_another_folder_is_never_written_over(clinic: Path) -> None:
    """A folder with other files, or of another plan, is refused and stays as it was."""
    folder = clinic.with_name("public")
    folder.mkdir()
    (folder / "mine.txt").write_text("mine", "utf-8")
    with pytest.raises(click.ClickException, match="another folder"):
        release(clinic)
    assert read_files(folder) == {"mine.txt": b"mine"}
    assert release(clinic, folder=clinic.with_name("second"))
    clinic.with_name("plan.sql").write_text(PLAN.partition(";")[0], "utf-8")
    with pytest.raises(click.ClickException, match="another release"):
        release(clinic, folder=clinic.with_name("second"))


VIEW = "CREATE PRIVATE VIEW {} OPTIONS (epsilon = 0.5) AS SELECT ward, count(*) AS n FROM visits GROUP BY ward"


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (f"{VIEW.format('a')}; {VIEW.format('A').replace('0.5', '0.4')}", "made twice"),
        (f"{VIEW.format('a')}; {VIEW.format('there').replace('0.5', '0.4')}", "exists"),
        (f"{VIEW.format('a')}; {VIEW.format('dpduck_releases')}", "reserved"),
        (f"{VIEW.format('a')}; REFRESH PRIVATE STREAM typo", "does not exist"),
        (f"{PLAN}; CREATE PRIVATE TABLE more AS SAMPLE 5 FROM made_up", "synthetic table already"),
    ],
)
def test_a_plan_that_cannot_be_finished_costs_nothing(clinic: Path, plan: str, reason: str) -> None:
    """A name that is taken, and a table that does not exist, are found before the first charge."""
    with dpduck.connect(clinic) as con:
        con.execute("FROM dp($1)", [VIEW.format("there")])
    clinic.with_name("plan.sql").write_text(plan, "utf-8")
    with pytest.raises(click.ClickException, match=reason):
        release(clinic)
    assert len(charges(clinic)) == 1


def test_a_folder_is_looked_at_before_the_charge(clinic: Path) -> None:
    """A folder with files, one below a file, and one beside somebody's directory of the same name cost nothing."""
    clinic.with_name("plan.sql").write_text(VIEW.format("a"), "utf-8")
    mine = clinic.with_name(".public.unfinished")
    mine.mkdir()
    (mine / "mine.txt").write_text("mine", "utf-8")
    for folder in (clinic.parent, clinic / "below", clinic.with_name("public")):
        with pytest.raises(click.ClickException, match="another"):
            release(clinic, folder=folder)
    assert charges(clinic) == []
    assert read_files(mine) == {"mine.txt": b"mine"}


def test_a_changed_policy_gives_no_second_price(clinic: Path) -> None:
    """A plan in other letters, through a link, whose policy was altered later: still one charge and one folder."""
    plan = VIEW.format("Daily").replace("CREATE", "CREATE OR REPLACE")
    clinic.with_name("plan.sql").write_text(plan, "utf-8")
    clinic.with_name("public").symlink_to(clinic.with_name("elsewhere"))
    assert release(clinic)
    assert check(clinic.with_name("elsewhere")).returncode == 0
    with dpduck.connect(clinic) as con:
        con.execute("FROM dp($$ALTER PRIVACY POLICY ON visits SET PRIVACY UNIT patient_id MAX ROWS 2$$)")
    assert release(clinic, confirm=lambda question: pytest.fail("a repeated plan has no price"))
    assert len(charges(clinic)) == 1
    documents = clinic.with_name("later") / "documents"
    assert release(clinic, folder=documents.parent)
    for name in ("label.html", "methods.md", "registry_record.yaml", "codebook.html"):
        text = (documents / name).read_text("utf-8")
        assert "At most 3 rows of one patient are counted" in text, name
        assert "At most 2 rows" not in text, name
    assert len(charges(clinic)) == 1


@pytest.mark.slow
def test_a_release_killed_after_its_charge_goes_on(clinic: Path) -> None:
    """A statement that took the whole budget and was killed before its answer is answered for the same charge."""
    clinic.with_name("plan.sql").write_text(VIEW.format("a").replace("0.5", "5"), "utf-8")
    counting = (
        "import os; from dpduck.mechanisms.release import Releaser\nReleaser._produce = lambda *parts: os._exit(9)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", counting + KILLED, str(clinic.parent), ""], capture_output=True, text=True, check=False
    )
    assert killed.returncode == 9, killed.stderr
    paid = charges(clinic)
    assert len(paid) == 1
    assert release(clinic)
    assert charges(clinic) == paid
    assert check(clinic.with_name("public")).returncode == 0


def test_a_stream_may_be_spelt_otherwise(clinic: Path) -> None:
    """Files have the name that the first statement gives."""
    stream = PLAN.split(";")[2].replace("by_month", "By_Month")
    clinic.with_name("plan.sql").write_text(f"{stream}; REFRESH PRIVATE STREAM by_month", "utf-8")
    assert release(clinic)
    assert (clinic.with_name("public") / "data" / "csv" / "By_Month.csv").is_file()


def test_one_answer_has_one_price(clinic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A question under three names is charged once, and so is one that was answered before."""
    plan = "; ".join(VIEW.format(name).replace("0.5", "3") for name in "abc")
    clinic.with_name("plan.sql").write_text(plan, "utf-8")
    asked = list[str]()

    def confirm(question: str) -> bool:
        asked.append(question)
        return True

    assert release(clinic, confirm=confirm)
    assert asked == ["Charge 1 of 3 statements to the budget?"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("a: 60 % of your budget")
    assert lines[1:3] == ["b: answered already: free", "c: answered already: free"]
    clinic.with_name("plan.sql").write_text(f"{plan}; {VIEW.format('d').replace('0.5', '3')}", "utf-8")
    assert release(
        clinic, folder=clinic.with_name("other"), confirm=lambda question: pytest.fail("an answer has no second price")
    )
    assert "d: answered already: free" in capsys.readouterr().out
    assert len(charges(clinic)) == 1


def test_an_error_names_its_statement(clinic: Path) -> None:
    """By its number in the plan: of a trial, of names and of prices. An empty plan is told the statements of a plan."""
    criteria = clinic.with_name("criteria.toml")
    criteria.write_text("[[criteria]]\nerror = 0.5\n", "utf-8")
    wrong = VIEW.format("b").replace("ward", "note")
    refused = r"statement 2: line 1, column \d+: the column 'note'"
    for plan, given, reason in (
        (f"{VIEW.format('a')}; {wrong}", None, refused),
        (f"{VIEW.format('a')}; {wrong}", criteria, refused),
        (f"{VIEW.format('a')}; REFRESH PRIVATE STREAM typo", None, "statement 2: 'typo' does not exist"),
        ("-- nothing", None, "there is no statement; accepted: CREATE PRIVATE VIEW, TABLE or STREAM name"),
    ):
        clinic.with_name("plan.sql").write_text(plan, "utf-8")
        with pytest.raises(click.ClickException, match=reason):
            release(clinic, criteria=given)
    plan_file, settings = clinic.with_name("plan.sql"), TrialSettings(2, None, None, False, None, "box")
    with pytest.raises(click.ClickException, match=r"accepted: SELECT WITH DIFFERENTIAL_PRIVACY .., and CREATE"):
        print_trial(clinic, None, plan_file, settings)
    plan_file.write_text(f"{VIEW.format('a')}; {wrong}", "utf-8")
    with pytest.raises(click.ClickException, match=refused):
        print_trial(clinic, None, plan_file, settings)
    assert charges(clinic) == []


def test_a_name_that_no_disk_takes_is_refused(clinic: Path) -> None:
    """A name of 250 letters has no room for the place beside it, and one of 300 has none at all."""
    for letters in (250, 300):
        with pytest.raises(click.ClickException, match=r"File name too long; accepted: another folder"):
            release(clinic, folder=clinic.with_name("x" * letters))
    assert charges(clinic) == []


def test_a_free_statement_makes_nothing_in_vain(clinic: Path) -> None:
    """A plan of samples alone is refused for its folder, or for a name, before it makes a table."""
    sample = "CREATE PRIVATE TABLE {} AS SAMPLE 5 FROM by_ward"
    assert release(clinic)
    tables = "SELECT count(*) FROM dp_releases() WHERE kind = 'view'"
    for more, folder, reason in (
        (sample.format("few"), "public", "public has another release, or other files"),
        (f"{sample.format('few')}; {sample.format('dpduck_releases')}", "other", "statement 6: .* reserved"),
    ):
        clinic.with_name("plan.sql").write_text(f"{PLAN}; {more}", "utf-8")
        with pytest.raises(click.ClickException, match=reason):
            release(clinic, folder=clinic.with_name(folder))
        with dpduck.connect(clinic) as con:
            assert con.execute(tables).fetchall() == [(3,)]
    clinic.with_name("plan.sql").write_text(f"{PLAN}; {sample.format('few')}", "utf-8")
    assert release(clinic, folder=clinic.with_name("other"))


def test_criteria_are_numbered_as_in_the_plan(clinic: Path) -> None:
    """A criterion of the second statement is of it, even if the first is paid. One of a third statement is refused."""
    second = VIEW.format("second").replace("ward", "day")
    clinic.with_name("plan.sql").write_text(VIEW.format("first"), "utf-8")
    assert release(clinic)
    clinic.with_name("plan.sql").write_text(f"{VIEW.format('first')}; {second}", "utf-8")
    criteria = clinic.with_name("criteria.toml")
    criteria.write_text("[[criteria]]\nstatement = 2\nerror = 0.000001\nshare = 1.0\n", "utf-8")
    assert not release(clinic, criteria=criteria, folder=clinic.with_name("other"))
    criteria.write_text("[[criteria]]\nstatement = 3\nerror = 0.5\n", "utf-8")
    with pytest.raises(click.ClickException, match="1 to 2"):
        release(clinic, criteria=criteria, folder=clinic.with_name("other"))
    assert len(charges(clinic)) == 1


def test_what_is_no_file_is_found(released: Path, tmp_path: Path) -> None:
    """The checker finds links, pipes, empty folders, a linked manifest, and names that would forge its lines."""
    odd = "new\neach file is as it was released"
    makers: list[tuple[str, Callable[[Path], None]]] = [
        ("link", lambda path: path.symlink_to(tmp_path)), ("broken", lambda path: path.symlink_to("nowhere")),
        ("pipe", os.mkfifo), ("empty", Path.mkdir), (odd, Path.touch),
    ]  # fmt: skip
    for name, make in makers:
        make(released / name)
        (line,) = errors_of(released)
        assert line.endswith("is not of this release")
        assert line.isprintable()
        (released / name).rmdir() if name == "empty" else (released / name).unlink()
    manifest = released / "manifest.json"
    manifest.rename(tmp_path / "manifest.json")
    manifest.symlink_to(tmp_path / "manifest.json")
    assert list(errors_of(released)) == ["manifest.json is a link"]
    manifest.unlink()
    (tmp_path / "manifest.json").rename(manifest)


def test_a_file_in_the_folder_is_not_run(tmp_path: Path) -> None:
    """A json.py beside the checker does not take the place of Python's own."""
    (tmp_path / "check.py").write_text(Path(check_folder.__file__).read_text("utf-8"), "utf-8")
    (tmp_path / "json.py").write_text("raise SystemExit(0)", "utf-8")
    assert check(tmp_path).returncode == 1


def test_two_processes_do_not_share_a_directory(tmp_path: Path) -> None:
    """While one process builds a folder, another is refused, and a folder that was filled meanwhile stays."""
    folder = tmp_path / "public"
    with _open_unfinished(folder) as first:
        first.mkdir()
        with pytest.raises(Refusal, match="another process"), _open_unfinished(folder):
            pass
        assert first.is_dir()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["SELECT 1", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM t", ""]
)
def test_a_plan_names_its_tables(text: str) -> None:
    """A statement that publishes nothing under a name is refused."""
    with pytest.raises(Refusal):
        read_plan(text)
