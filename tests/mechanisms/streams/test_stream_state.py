"""A stream's file that is lost, older, copied or another's is refused, as the ledger's own would be."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import duckdb
import pytest

from dpduck.database.connection import verify_store
from dpduck.values.errors import DpduckError
from tests.mechanisms.streams.streams import MOST, POLICY, Visits, options

ROWS = [(f"p{number}", f"2024-{1 + number % 6:02}-05", "ab"[number % 2], number) for number in range(40)]


def begun(folder: Path, months: int = 2) -> Visits:
    """A stream with so many published periods, in files."""
    visits = Visits(folder / "clinic.duckdb")
    visits.put(ROWS)
    visits.create(options(strategy="tree"))
    if months:
        visits.refresh(months)
    return visits


def file_of(folder: Path) -> Path:
    (found,) = (folder / "clinic_streams").glob("*.duckdb")
    return found


def again(folder: Path) -> Visits:
    return Visits(folder / "clinic.duckdb")


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Nobody else can read the file, or open its folder. Nothing in the file is in the store or in a listing."""
    visits = begun(tmp_path)
    assert stat.S_IMODE(file_of(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(file_of(tmp_path).parent.stat().st_mode) == 0o700
    databases = [name for (name,) in visits.con.execute("SELECT database_name FROM duckdb_databases()").fetchall()]
    assert not any("stream" in name for name in databases)
    visits.dp("DROP PRIVATE STREAM by_month")
    assert list((tmp_path / "clinic_streams").iterdir()) == []
    visits.con.close()


def test_a_file_that_is_lost(tmp_path: Path) -> None:
    """Without its file a stream is not refreshed. Published rows stay, and it can be dropped."""
    begun(tmp_path).con.close()
    file_of(tmp_path).unlink()
    visits = again(tmp_path)
    assert "the file of this stream is not there" in visits.refusal("REFRESH PRIVATE STREAM by_month")
    assert len(visits.published()) == 6
    visits.dp("DROP PRIVATE STREAM by_month")
    visits.con.close()


@pytest.mark.parametrize("ahead", [1, 2])
def test_an_older_file(tmp_path: Path, ahead: int) -> None:
    """A file that was copied before a refresh and put back is refused: periods would be measured again."""
    visits = begun(tmp_path, 1)
    visits.con.close()
    shutil.copy(file_of(tmp_path), tmp_path / "older")
    visits = again(tmp_path)
    for month in range(2, 2 + ahead):
        visits.refresh(month)
    before = visits.published()
    visits.con.close()
    shutil.copy(tmp_path / "older", file_of(tmp_path))
    visits = again(tmp_path)
    assert "is an older copy" in visits.refusal("REFRESH PRIVATE STREAM by_month")
    assert visits.published() == before
    visits.con.close()


def test_an_older_store_with_its_newer_file(tmp_path: Path) -> None:
    """An older store is refused as ever. Once it is adopted, its streams end: they published something else."""
    visits = begun(tmp_path, 1)
    visits.con.close()
    shutil.copy(tmp_path / "clinic_private.duckdb", tmp_path / "older")
    visits = again(tmp_path)
    visits.refresh(2)
    visits.refresh(3)
    visits.con.close()
    shutil.copy(tmp_path / "older", tmp_path / "clinic_private.duckdb")
    with pytest.raises(DpduckError, match="older copy"):
        again(tmp_path)
    verify_store(tmp_path / "clinic.duckdb", adopt=True)
    visits = again(tmp_path)
    assert "was adopted" in visits.refusal("REFRESH PRIVATE STREAM by_month")
    visits.con.close()


def test_the_file_of_another_stream_or_store(tmp_path: Path) -> None:
    """A file is its own stream's and store's alone."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        begun(tmp_path / name).con.close()
    shutil.copy(file_of(tmp_path / "other"), file_of(tmp_path / "one"))
    visits = again(tmp_path / "one")
    assert "is that of another stream" in visits.refusal("REFRESH PRIVATE STREAM by_month")
    visits.con.close()


@pytest.mark.sampled
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE kept SET dpduck_kept = 0",
        "DELETE FROM counts WHERE version = 1",
        "UPDATE versions SET closed = 1",
        "UPDATE versions SET answers = '\\x00'::BLOB",
        "DELETE FROM versions",
    ],
)
def test_a_file_that_was_changed(tmp_path: Path, change: str) -> None:
    """The records of units, counts, periods and answers are under a keyed seal."""
    begun(tmp_path).con.close()
    with duckdb.connect(str(file_of(tmp_path))) as con:
        con.execute(change)
    visits = again(tmp_path)
    assert "the file of this stream is" in visits.refusal("REFRESH PRIVATE STREAM by_month")
    visits.con.close()


def test_answers_that_were_changed(tmp_path: Path) -> None:
    """Measurements are under the seal, too: other answers of the same length are not published."""
    begun(tmp_path).con.close()
    with duckdb.connect(str(file_of(tmp_path))) as con:
        ((answers,),) = con.execute("SELECT answers FROM versions WHERE version = 1").fetchall()
        con.execute("UPDATE versions SET answers = ? WHERE version = 1", [bytes([answers[0] ^ 1]) + answers[1:]])
    visits = again(tmp_path)
    assert "the file of this stream is not what was written" in visits.refusal("REFRESH PRIVATE STREAM by_month")
    visits.con.close()


def test_a_damaged_file(tmp_path: Path) -> None:
    """A file that DuckDB cannot read is refused in one line."""
    begun(tmp_path).con.close()
    file_of(tmp_path).write_bytes(b"damaged" * 5000)
    visits = again(tmp_path)
    assert "the file of this stream cannot be" in visits.refusal("REFRESH PRIVATE STREAM by_month")
    visits.con.close()


def test_two_copies_of_a_store_at_work(tmp_path: Path) -> None:
    """Of two copies of everything that refresh side by side, the second one is refused before it publishes."""
    (tmp_path / "one").mkdir()
    begun(tmp_path / "one", 1).con.close()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    first = again(tmp_path / "one")
    first.refresh(2)
    first.con.close()
    with pytest.raises(DpduckError, match="copy"):
        second = again(tmp_path / "two")
        second.refresh(2)


@pytest.mark.parametrize("type_name", ["BLOB", "UUID"])
def test_a_unit_of_another_type_is_another_stream(tmp_path: Path, type_name: str) -> None:
    """Records of units are texts of the unit's type: under another type, units would be forgotten or merged."""
    visits = begun(tmp_path)
    made = "CAST(md5(person) AS UUID)" if type_name == "UUID" else "CAST(person AS BLOB)"
    visits.con.execute(f"ALTER TABLE visits ALTER person TYPE {type_name} USING {made}")
    assert "accepted: " in visits.refusal("REFRESH PRIVATE STREAM by_month")
    assert len(visits.published()) == 6
    visits.con.close()


def of_parts(column: str, source: str) -> Visits:
    """A stream over visits with a unit of person and a further column, or over notes that refer to visits."""
    visits = Visits()
    visits.dp("DROP PRIVACY POLICY ON visits")
    visits.con.execute(f"ALTER TABLE visits ADD COLUMN part {column}")
    visits.con.execute("ALTER TABLE visits ADD PRIMARY KEY (number)")
    for number, row in enumerate(ROWS):
        visits.con.execute("INSERT INTO visits VALUES (?, CAST(? AS DATE), ?, ?, ?)", [*row, str(number % 2)])
    visits.con.execute("CREATE TABLE notes AS SELECT number AS visit, came, ward FROM visits")
    visits.dp(POLICY.format(most=MOST, budget="epsilon = 9").replace("UNIT person", "UNIT (person, part)"))
    of_notes = "PRIVACY UNIT visit REFERENCES visits.number MAX ROWS 3, DOMAIN ward IN ('a', 'b')"
    months = "DOMAIN came RANGE 2024-01-01 TO 2025-01-01 STEP MONTH"
    visits.dp(f"CREATE PRIVACY POLICY ON notes ({of_notes}, {months})")
    visits.create(source=source)
    visits.refresh(1)
    return visits


@pytest.mark.sampled
@pytest.mark.parametrize("source", ["visits", "notes"])
@pytest.mark.parametrize(("column", "other"), [("INTEGER", "BOOLEAN"), ("BOOLEAN", "TINYINT"), ("INTEGER", "VARCHAR")])
def test_a_part_of_a_unit_of_another_type_is_another_stream(column: str, other: str, source: str) -> None:
    """(p, 1) that became (p, true) once was counted with MAX ROWS more. Its record is compared as written."""
    visits = of_parts(column, source)
    visits.con.execute(f"ALTER TABLE visits ALTER part TYPE {other}")
    assert "rests on changed: the unit" in visits.refusal("REFRESH PRIVATE STREAM by_month UNTIL '2024-03-01'")
    visits.con.execute(f"ALTER TABLE visits ALTER part TYPE {column}")
    assert "2 of 6 periods" in visits.refresh(2)
    visits.con.close()


@pytest.mark.parametrize(("column", "more"), [("ENUM('0', '1')", "ENUM('0', '1', '2')"), ("INTEGER", "HUGEINT")])
def test_a_part_of_a_unit_may_get_further_values(column: str, more: str) -> None:
    """An ENUM with more values and larger whole numbers are written as they were."""
    visits = of_parts(column, "visits")
    visits.con.execute(f"ALTER TABLE visits ALTER part TYPE {more}")
    assert "2 of 6 periods" in visits.refresh(2)
    visits.con.close()


def test_a_folder_that_was_open_is_closed(tmp_path: Path) -> None:
    """Its files' logs have exact counts while a refresh writes them."""
    (tmp_path / "clinic_streams").mkdir(mode=0o755)
    visits = begun(tmp_path)
    assert stat.S_IMODE((tmp_path / "clinic_streams").stat().st_mode) == 0o700
    visits.con.close()


@pytest.mark.parametrize("day", ["2024-03-01T00:00:00+00:00", "2024-03-01Z", "2024-W05", "soon"])
def test_until_is_a_day(tmp_path: Path, day: str) -> None:
    """Nothing else, which would be read in some zone's hours."""
    visits = begun(tmp_path, 0)
    assert f"{day!r} is not a day" in visits.refusal(f"REFRESH PRIVATE STREAM by_month UNTIL '{day}'")
    visits.con.close()
