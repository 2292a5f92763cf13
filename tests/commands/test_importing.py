"""dpduck policy draft --from: files as people have them become a table, a policy and a count."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.support.commands import run

COUNT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))


class Draft(str):
    """The text of a draft. notes: the lines that were printed beside the draft."""

    __slots__ = ("notes",)
    notes: str


def drafted(folder: Path, *words: object) -> Draft:
    """Returns a draft of the table visits of files."""
    ran = run("policy", "draft", folder / "d.duckdb", "visits", *words)
    assert ran.exit_code == 0, ran.output
    draft = Draft(ran.stdout)
    draft.notes = ran.stderr
    return draft


def notes(draft: Draft) -> str:
    """Returns the notes beside a draft as one line."""
    return " ".join(draft.notes.split())


def columns(folder: Path) -> list[tuple[str, str]]:
    with duckdb.connect(str(folder / "d.duckdb")) as con:
        return [(row[0], row[1]) for row in con.execute("DESCRIBE visits").fetchall()]


def asked(folder: Path, draft: str, unit: str, rows: int) -> None:
    """Fills in a draft, applies it as it stands, and asks for a count. It is off by 30 with probability below 1e-9."""
    filled = draft.replace("PRIVACY UNIT TODO", f'PRIVACY UNIT "{unit}"').replace("TODO", "1")
    filled = filled.replace("BUDGET (epsilon = 1)", "BUDGET (epsilon = 2)")
    ran = run("sql", folder / "d.duckdb", "-", typed=filled)
    assert ran.exit_code == 0, ran.output
    ran = run("sql", folder / "d.duckdb", COUNT, "--format", "csv")
    assert ran.exit_code == 0, ran.output
    assert abs(int(ran.output.split()[-1].split(",")[0]) - rows) < 30


def lines(header: str, rows: Sequence[str]) -> str:
    return "\n".join([header, *rows]) + "\n"


PERSONS = [f"{i // 2},{'женщина' if i % 3 else ''},{20 + i % 60}" for i in range(200)]
HEADERS = {
    "cyrillic": "пациент,пол,возраст", "greek": "ασθενής,φύλο,ηλικία", "chinese": "病人,性别,年龄",
    "arabic": "مريض,جنس,عمر", "accents": "médecin,prénom,âge", "blanks": "patient no,the sex,age in years",
    "quotes": '"the ""patient""","it\'s sex","a,b"', "emoji": "\U0001f600,\U0001f6bb,\U0001f382",
    "reserved": "select,from,table", "twice": "a,a,A", "empty": "a,,",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", [*HEADERS, "mark", "utf-16", "latin-1", "gz", "semicolon", "tab", "no end"])
def test_a_csv_becomes_a_policy_and_a_count(name: str, tmp_path: Path) -> None:
    """The draft of a header in any alphabet is accepted as it stands, once its TODOs are filled in."""
    text, words, ending = lines(HEADERS.get(name, HEADERS["cyrillic"]), PERSONS), list[str](), "csv"
    written = text.encode("utf-16" if name == "utf-16" else "utf-8-sig" if name == "mark" else "utf-8")
    if name == "latin-1":
        written = text.replace("женщина", "féminin").replace(HEADERS["cyrillic"], HEADERS["accents"]).encode(name)
        words = ["--read", "encoding=latin-1"]
    elif name == "gz":
        written, ending = gzip.compress(written), "csv.gz"
    elif name in ("semicolon", "tab"):
        written, ending = text.replace(",", ";" if name == "semicolon" else "\t").encode(), "txt"
    elif name == "no end":
        ending = ""
    file = tmp_path / f"visits.{ending}".rstrip(".")
    file.write_bytes(written)
    draft = drafted(tmp_path, "--from", file, *words)
    first = columns(tmp_path)
    assert [kind for _, kind in first] == ["BIGINT", "VARCHAR", "BIGINT"]
    assert ("were changed: a_1, A_2." in notes(draft)) is (name == "twice")
    assert ("were changed: column1, column2." in notes(draft)) is (name == "empty")
    assert bool(notes(draft)) is (name in ("twice", "empty")) and "header" not in draft
    asked(tmp_path, draft, first[0][0].replace('"', '""'), 100 if name else 0)


def test_files_without_a_header_and_of_one_column(tmp_path: Path) -> None:
    """Where there is no header, the notes name the option. One column of numbers makes a policy, too."""
    file = tmp_path / "visits.csv"
    file.write_text(lines("0,F,30", [f"{i},M,30" for i in range(9)]), encoding="utf-8")
    draft = drafted(tmp_path, "--from", file)
    assert "seems to have no header. --read names=column0" in notes(draft)
    assert [name for name, _ in columns(tmp_path)] == ["column0", "column1", "column2"]
    (tmp_path / "d.duckdb").unlink()
    named = drafted(tmp_path, "--from", file, "--read", "names=patient_id,sex,age")
    assert "header" not in notes(named) and "PRIVACY UNIT patient_id" in named
    (tmp_path / "d.duckdb").unlink()
    file.write_text(lines("ann,F", ["bob,M", "eve,F"]), encoding="utf-8")
    assert "--read header=false" in notes(drafted(tmp_path, "--from", file))
    (tmp_path / "d.duckdb").unlink()
    file.write_text(lines("a,b", ["1,2,3", "4"]), encoding="utf-8")
    assert "One column was found" in notes(drafted(tmp_path, "--from", file))
    (tmp_path / "d.duckdb").unlink()
    file.write_text(lines("patient", [str(i) for i in range(300)]), encoding="utf-8")
    asked(tmp_path, drafted(tmp_path, "--from", file), "patient", 300)


def test_several_files_folders_and_patterns(tmp_path: Path) -> None:
    """Files become one table. Columns that differ are named, and are NULL where a file does not have them."""
    folder = tmp_path / "in [1]"
    (folder / "later").mkdir(parents=True)
    (folder / "visits_1*.csv").write_text(lines("patient_id,x", [f"{i},1" for i in range(100)]), encoding="utf-8")
    (folder / "later" / "visits_2.csv").write_text(
        lines("patient_id,x,y", [f"{i},b,2" for i in range(100, 200)]), encoding="utf-8"
    )
    for other in ("readme.md", "_SUCCESS", "LICENSE", ".visits.csv", "notes.xlsx"):
        (folder / other).write_text("no data", encoding="utf-8")
    ways: list[list[object]] = [
        ["--from", folder],
        ["--from", folder / "visits_1*.csv", "--from", folder / "later" / "visits_2.csv"],
        ["--from", tmp_path / "*" / "**" / "visits_?*.csv"],
    ]
    for way in ways:
        draft = drafted(tmp_path, *way)
        assert "2 files became one table." in notes(draft) and "NULL for the others: y." in notes(draft)
        assert "one was chosen for all files: x." in notes(draft)
        assert dict(columns(tmp_path)) == {"patient_id": "BIGINT", "x": "VARCHAR", "y": "BIGINT"}
        asked(tmp_path, draft, "patient_id", 200)
        for made in tmp_path.glob("d*"):
            made.unlink()


def test_parquet_files_of_a_partitioned_folder(tmp_path: Path) -> None:
    """The names of folders give a column, as DuckDB reads them. Nested columns have their advice in the draft."""
    with duckdb.connect() as made:
        rows = "SELECT range // 2 AS patient_id, {'city': 'x'} AS address, range % 3 AS year FROM range(300)"
        made.execute(f"COPY ({rows}) TO '{tmp_path / 'in'}' (FORMAT parquet, PARTITION_BY (year))")
    draft = drafted(tmp_path, "--from", tmp_path / "in")
    assert "3 files became one table." in notes(draft) and "address.city AS address_city" in draft
    assert ("year", "BIGINT") in columns(tmp_path)
    asked(tmp_path, draft, "patient_id", 150)


def test_json_lines(tmp_path: Path) -> None:
    """JSON has nested columns, which the draft advises about, and dates."""
    row = '{"patient_id": %d, "address": {"city": "a", "zip": 7}, "tags": ["x", "y"], "came": "2024-05-01"}'
    (tmp_path / "visits.jsonl").write_text("\n".join(row % i for i in range(150)), encoding="utf-8")
    draft = drafted(tmp_path, "--from", tmp_path / "visits.jsonl")
    assert "CREATE TABLE visits_flat" in draft and "unnest(tags)" in draft and ("came", "DATE") in columns(tmp_path)
    asked(tmp_path, draft, "patient_id", 150)


def dates(tmp_path: Path) -> Path:
    """Writes dates and amounts as texts, as exports have them."""
    with duckdb.connect() as made:
        made.execute(
            "CREATE TABLE t AS SELECT range AS patient_id, DATE '2013-01-01' + CAST(range AS INTEGER) AS d, "
            "DATE '2013-01-01' + CAST(range % 12 AS INTEGER) AS few, TIMESTAMP '2013-01-01' + to_hours(range) AS m "
            "FROM range(400)"
        )
        made.execute(
            "COPY (SELECT patient_id, strftime(d, '%d.%m.%Y') AS german, strftime(few, '%d/%m/%Y') AS either, "
            "strftime(m, '%Y-%m-%dT%H:%M:%SZ') AS iso, strftime(d, '%Y%m%d') AS tight, "
            "CAST(strftime(d, '%Y%m%d') AS INTEGER) AS number, strftime(m, '%m/%d/%Y %I:%M %p') AS american, "
            "CASE WHEN patient_id % 50 = 0 THEN 'unknown' ELSE strftime(d, '%d %b %Y') END AS some, "
            "replace(printf('%.2f', patient_id / 7), '.', ',') AS price, 'v1.2.' || patient_id AS version, "
            "'0' || patient_id AS code, CASE patient_id % 3 WHEN 0 THEN 'N' ELSE '1.5' END AS income FROM t) "
            f"TO '{tmp_path / 'visits.parquet'}'"
        )
    return tmp_path / "visits.parquet"


READ = {
    "german": ("dates by '%d.%m.%Y'", "DATE"), "iso": ("moments by '%Y-%m-%dT%H:%M:%SZ'", "TIMESTAMP"),
    "tight": ("dates by '%Y%m%d'", "DATE"), "number": ("dates by '%Y%m%d'", "DATE"),
    "american": ("moments by '%m/%d/%Y %I:%M %p'", "TIMESTAMP"), "some": ("dates by '%d %b %Y'", "DATE"),
    "price": ("numbers with a decimal comma", "DOUBLE"), "income": ("numbers", "DOUBLE"),
}  # fmt: skip


def test_dates_that_are_texts_have_a_format(tmp_path: Path) -> None:
    """Notes name the format that reads all values, and the statement that converts them, which runs as it stands."""
    draft = drafted(tmp_path, "--from", dates(tmp_path))
    said = notes(draft)
    for name, (how, _) in READ.items():
        share = {"some": "98 %", "income": "66.5 %"}.get(name, "all")
        lost = {"some": " now, or by --convert when a table is made", "income": ""}.get(name)
        assert lost is None or f"are {how}. In DuckDB{lost}, with NULL for other values: ALTER TABLE" in said
        assert f"{name}: {share} of its values are {how}." in said, said
    assert "either: all of its values are dates by '%d/%m/%Y'. Only you know which format is meant." in said
    assert "either: all of its values are dates by '%m/%d/%Y'. Only you know" in said
    assert "dates by '%d.%m.%Y'. In DuckDB now, or by --convert when a table is made:" in said
    assert "98 %" not in draft and "by '%" not in draft, "the ledger keeps the text of a policy"
    assert "version" not in said and "code" not in said and "unknown" not in said
    statements = [line for line in draft.notes.splitlines() if line.startswith("ALTER TABLE")]
    with duckdb.connect(str(tmp_path / "d.duckdb")) as con:
        for statement in statements:
            if '"either"' not in statement:
                con.execute(statement)
        kinds = dict(columns(tmp_path))
        assert {name: kinds[name] for name in READ} == {name: kind for name, (_, kind) in READ.items()}
        row = con.execute('SELECT german, iso, price, "some", income FROM visits WHERE patient_id = 50').fetchall()[0]
        assert [str(value) for value in row] == ["2013-02-20", "2013-01-03 02:00:00", "7.14", "None", "1.5"]
    asked(tmp_path, run("policy", "draft", tmp_path / "d.duckdb", "visits").output, "patient_id", 400)


def test_dates_are_converted_where_there_is_one_format(tmp_path: Path) -> None:
    """With --convert the table has dates at once. A column with two formats stays as it is."""
    draft = drafted(tmp_path, "--from", dates(tmp_path), "--convert")
    kinds = dict(columns(tmp_path))
    assert {name: kinds[name] for name in READ} == {name: kind for name, (_, kind) in READ.items()} | {
        "income": "VARCHAR"
    }
    assert kinds["either"] == kinds["version"] == kinds["code"] == "VARCHAR"
    assert "DOMAIN german RANGE TODO TO TODO STEP MONTH" in draft
    assert "some: 98 % of its values are dates by '%d %b %Y'. The column became DATE, with NULL" in notes(draft)
    assert "income: 66.5 % of its values are numbers. In DuckDB, with NULL for other values: ALTER TABLE" in notes(
        draft
    )


def test_a_check_before_the_policy_names_formats(tmp_path: Path) -> None:
    """dp_check says the same of a table that is there already. A draft without files reads no row."""
    file = dates(tmp_path)
    with duckdb.connect(str(tmp_path / "d.duckdb")) as con:
        con.execute(f"CREATE TABLE visits AS FROM '{file}'")
    assert "by '%" not in drafted(tmp_path)
    ran = run("check", tmp_path / "d.duckdb", "visits", "--format", "csv")
    assert "values of german that are dates by '%d.%m.%Y'" in ran.output
    assert 'which format is meant; in DuckDB: ALTER TABLE ""visits"" ALTER ""either""' in ran.output
    assert 'in DuckDB, with NULL for others: ALTER TABLE ""visits"" ALTER ""income""' in ran.output


def test_a_date_of_a_csv_that_has_two_readings(tmp_path: Path) -> None:
    """DuckDB reads 03/04/2024 with the day first. The notes say so unless a day above 12 settles it."""
    file = tmp_path / "visits [2] x'y.csv"
    file.write_text(lines("patient_id,came", ["1,03/04/2024", "2,01/02/2024"]), encoding="utf-8")
    assert "--read dateformat=%m/%d/%Y" in notes(drafted(tmp_path, "--from", file))
    (tmp_path / "d.duckdb").unlink()
    american = drafted(tmp_path, "--from", file, "--read", "dateformat=%m/%d/%Y")
    assert notes(american) == "" and ("came", "DATE") in columns(tmp_path)
    (tmp_path / "d.duckdb").unlink()
    file.write_text(lines("patient_id,came", ["1,13/04/2024", "2,01/02/2024"]), encoding="utf-8")
    assert notes(drafted(tmp_path, "--from", file)) == ""


def test_a_comma_with_three_digits_behind_it_has_two_readings(tmp_path: Path) -> None:
    """1,250 may be a thousand, or a little more than one. 1.250,50 is no question."""
    file = tmp_path / "visits.csv"
    file.write_text(lines("patient_id;either;sure", ["1;1,250;1.250,50", "2;12,500;3", "3;7;-0,5"]), encoding="utf-8")
    draft = drafted(tmp_path, "--from", file, "--convert")
    said = notes(draft)
    assert "either: all of its values are numbers with a decimal comma. Only you know which format is meant." in said
    assert "either: all of its values are numbers with commas between thousands. Only you know" in said
    assert "sure: all of its values are numbers with a decimal comma. The column became DOUBLE." in said
    statements = [line for line in draft.notes.splitlines() if line.startswith("ALTER TABLE") and "BIGINT" in line]
    with duckdb.connect(str(tmp_path / "d.duckdb")) as con:
        con.execute(statements[0])
        assert con.execute("FROM visits ORDER BY patient_id").fetchall() == [
            (1, 1250, 1250.5),
            (2, 12500, 3.0),
            (3, 7, -0.5),
        ]


KEPT = "sec'ret"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("v.csv", f"a,{KEPT}é\n1,2\n".encode("latin-1"), "v.csv is not in UTF-8; accepted: --read encoding=latin-1"),
        ("v.csv", f"a,{KEPT}ж\n1,2\n".encode("cp1251"), "iconv -f WINDOWS-1252 -t UTF-8"),
        ("v.csv", f"\ufeffa,{KEPT}\n".encode("utf-16-be"), "iconv -f UTF-16 -t UTF-8"),
        ("v.parquet", KEPT.encode(), "cannot be read as Parquet"),
        ("v.json", f"{{{KEPT}".encode(), "cannot be read as JSON"),
        ("v.xlsx", b"PK\x03\x04", "saved as CSV"),
        ("v.zip", b"PK\x03\x04", "saved as CSV"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    """The line names what to type, and no value of the file. No table and no new database remains."""
    (tmp_path / name).write_bytes(content)
    ran = run("policy", "draft", tmp_path / "d.duckdb", "visits", "--from", tmp_path / name)
    assert ran.exit_code == 1 and said in ran.output and "accepted: " in ran.output and ran.output.count("\n") == 1
    assert "sec" not in ran.output and "ret" not in ran.output
    assert not (tmp_path / "d.duckdb").exists()


def test_a_line_that_does_not_fit_is_named_by_its_number(tmp_path: Path) -> None:
    """Types hold for all rows, also those after the first 20,480. A broken line is refused without its text."""
    rows = [f"{i},1" for i in range(25_000)]
    (tmp_path / "v.csv").write_text(lines("patient_id,x", [*rows, f"2,{KEPT}"]), encoding="utf-8")
    drafted(tmp_path, "--from", tmp_path / "v.csv")
    assert ("x", "VARCHAR") in columns(tmp_path)
    (tmp_path / "w.csv").write_text(lines("patient_id,x", [*rows, f"2,3,{KEPT}"]), encoding="utf-8")
    ran = run("policy", "draft", tmp_path / "d.duckdb", "w", "--from", tmp_path / "w.csv")
    assert ran.exit_code == 1 and "line 25002 of a file" in ran.output and "sec" not in ran.output


def test_options_and_files_that_are_not_there(tmp_path: Path) -> None:
    """One line each, with what would be accepted."""
    (tmp_path / "v.csv").write_text("a\n1\n", encoding="utf-8")
    (tmp_path / "v.json").write_text('{"a": 1}', encoding="utf-8")
    (tmp_path / "none").mkdir()
    for words, said in (
        (["--from", tmp_path / "nosuch.csv"], "there is no file"),
        (["--from", tmp_path / "nosuch*.csv"], "no file fits"),
        (["--from", tmp_path / "none"], "has no file of data"),
        (["--from", tmp_path / "v.csv", "--from", tmp_path / "v.json"], "different formats"),
        (["--from", tmp_path / "v.csv", "--read", "filename=true"], "is no option of a file"),
        (["--from", tmp_path / "v.csv", "--read", "skip"], "is no option of a file"),
        (["--read", "skip=1"], "--from a file"),
    ):
        ran = run("policy", "draft", tmp_path / "d.duckdb", "visits", *words)
        assert ran.exit_code == 1 and said in ran.output and "accepted: " in ran.output, ran.output
        assert ran.output.count("\n") == 1
    (tmp_path / "folder.d").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "v.parquet").write_bytes(b"PAR1")
    for words, said in (
        (["--from", tmp_path / "folder*"], "no file fits"),
        (["--from", tmp_path / "pipe"], "pipe is no regular file; accepted: cat .. > visits.csv"),
        (["--from", tmp_path / "v.csv", "--read", "skip=x"], "an option of --read does not fit CSV: skip;"),
        (["--from", tmp_path / "v.csv", "--read", "names=a,b"], "v.csv cannot be read as CSV with --read names;"),
        (["--from", tmp_path / "v.json", "--read", "skip=2"], "an option of --read does not fit JSON: skip;"),
    ):
        ran = run("policy", "draft", tmp_path / "d.duckdb", "visits", *words)
        assert ran.exit_code == 1 and said in ran.output and ran.output.count("\n") == 1, ran.output
    odd = "x', all_varchar = true); --"
    ran = run(
        "policy", "draft", tmp_path / "d.duckdb", "visits", "--from", tmp_path / "v.csv", "--read", f"delim={odd}"
    )
    assert ran.exit_code == 1 and re.search("cannot be read as CSV", ran.output)


def test_values_of_options_are_texts(tmp_path: Path) -> None:
    """999 and true are texts that mean NULL, and DuckDB reads numbers of texts."""
    (tmp_path / "v.csv").write_text("no line\npatient_id,x\n1,999\n2,true\n3,ja\n", encoding="utf-8")
    for null in ("999", "true"):
        (tmp_path / "d.duckdb").unlink(missing_ok=True)
        options = ["skip=1", "header=true", "sample_size=-1", f"nullstr={null}"]
        drafted(tmp_path, "--from", tmp_path / "v.csv", *(word for text in options for word in ("--read", text)))
        with duckdb.connect(str(tmp_path / "d.duckdb")) as con:
            kept = [row[0] for row in con.execute("SELECT x FROM visits ORDER BY patient_id").fetchall()]
        assert kept == [None if value == null else value for value in ("999", "true", "ja")]


def test_a_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says that a file cannot be read."""
    file = tmp_path / "v.csv"
    file.write_text("a\n1\n", encoding="utf-8")
    opening = Path.open

    def closed(path: Path, *words: Any) -> Any:
        if path == file:
            raise PermissionError(13, "Permission denied")
        return opening(path, *words)

    monkeypatch.setattr(Path, "open", closed)
    ran = run("policy", "draft", tmp_path / "d.duckdb", "visits", "--from", file)
    assert ran.exit_code == 1 and ran.output.startswith("Error: v.csv cannot be read; accepted: a file that you may")


def test_files_with_several_formats_of_dates(tmp_path: Path) -> None:
    """DuckDB reads each file by its own format. The notes say so, and the doubt is about all files."""
    for number, days in enumerate((["13/04/2024"], ["04/13/2024"], ["03/04/2024"])):
        (tmp_path / f"v{number}.csv").write_text(lines("patient_id,came", [f"1,{day}" for day in days]), "utf-8")
    several = notes(drafted(tmp_path, "--from", tmp_path / "v?.csv"))
    assert "several formats, and each file was read by its own: %d/%m/%Y, %m/%d/%Y." in several
    (tmp_path / "d.duckdb").unlink()
    alike = notes(drafted(tmp_path, "--from", tmp_path / "v0.csv", "--from", tmp_path / "v2.csv"))
    assert "several formats" not in alike and "2 files" in alike
    (tmp_path / "d.duckdb").unlink()
    (tmp_path / "u.csv").write_text("patient_id\n1\n", encoding="utf-8")
    later = notes(drafted(tmp_path, "--from", tmp_path / "u.csv", "--from", tmp_path / "v2.csv"))
    assert "--read dateformat=%m/%d/%Y" in later


@pytest.mark.parametrize("kept", [False, True], ids=["new database", "other tables"])
def test_a_draft_that_fails_leaves_no_table(kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left by Ctrl-C while notes are made or the draft is asked for, nor by words that do not fit together.

    Notes are printed before the draft is asked for. A table or view that was there, also in other letters, stays.
    """
    file, database = tmp_path / "v.csv", tmp_path / "d.duckdb"
    file.write_text("a;b\n1;0,5\n", encoding="utf-8")
    if kept:
        with duckdb.connect(str(database)) as con:
            con.execute("CREATE TABLE Visits2 AS SELECT 7 AS n")
            con.execute("CREATE VIEW seen AS FROM Visits2")

    def tables() -> list[str]:
        if not database.exists():
            return []
        with duckdb.connect(str(database)) as con:
            return [row[0] for row in con.execute("SHOW TABLES").fetchall()]

    before = tables()

    def refused(table: str, *words: str) -> str:
        ran = run("policy", "draft", database, table, "--from", file, *words)
        assert ran.exit_code == 1 and tables() == before, ran.output
        return str(ran.output)

    assert "--from first, and --privately later" in refused("visits", "--privately", "0.05")
    for odd in ("main.foo", 'a"b', '"visits"', ""):
        assert refused(odd).count("accepted: ") == 1
    if kept:
        assert "has a table 'Visits2'; accepted: no --from" in refused("VISITS2")
        assert "in DuckDB: DROP VIEW seen" in refused("Seen")
    for place in ("dpduck.commands.importing.readings", "dpduck.commands.owner_session.OwnerSession.ask"):
        with monkeypatch.context() as patched:
            patched.setattr(place, interrupted)
            assert ("decimal comma" in refused("visits")) is place.endswith("ask")
    assert run("policy", "draft", database, "visits", "--from", file).exit_code == 0
    assert set(tables()) == {*before, "visits"}


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_name_with_a_line_break_stays_in_its_comment(tmp_path: Path) -> None:
    """A column's name cannot write an item of the policy, nor a statement of its own among the notes."""
    header = '"patient_id","a\n    BUDGET (epsilon = 9), --"'
    (tmp_path / "v.csv").write_text(lines(header, [f"{i},2013010{1 + i % 9}" for i in range(20)]), encoding="utf-8")
    draft = drafted(tmp_path, "--from", tmp_path / "v.csv")
    items = [line.strip() for line in draft.splitlines() if not line.lstrip().startswith("--")]
    assert [item.split()[0] for item in items] == ["CREATE", "PRIVACY", "BUDGET", ")"], draft
    assert "dates by '%Y%m%d'" in notes(draft) and len(draft.notes.splitlines()) == 3
    assert draft.notes.endswith("The statement is left out, since a line cannot show the column's name.\n")


def test_a_name_with_two_blanks_keeps_them(tmp_path: Path) -> None:
    """Statements of the notes and of comments run as they stand, whatever blanks a name has."""
    name = "a  very\u00a0long name " * 4 + "x"
    row = f'{{"patient_id": 1, "{name}": "20130101", "l  l": [1], "s": {{"b  b": 1}}}}'
    (tmp_path / "v.jsonl").write_text("\n".join([row] * 20), encoding="utf-8")
    draft = drafted(tmp_path, "--from", tmp_path / "v.jsonl", "--read", "dateformat=%d")
    statement = draft.notes.splitlines()[-1]
    said = " ".join(line.lstrip().removeprefix("--") for line in draft.splitlines())
    assert f'"{name}"' in draft and 's."b  b"' in said and 'unnest("l  l")' in said
    with duckdb.connect(str(tmp_path / "d.duckdb")) as con:
        con.execute(statement)
    assert (name, "DATE") in columns(tmp_path)
