"""Makes a table of an owner's files, for dpduck policy draft --from. Says what the owner should know about the files.

The notes are for the owner alone, since they depend on the rows. So they are printed beside the draft, not in it: the
ledger keeps the text of a policy, and certificates show the ledger. No message holds a value of a file.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

from dpduck.commands.printing import say
from dpduck.database.about import read_table_name
from dpduck.language.rows.facts import CatalogColumn
from dpduck.store.attaching import open_database
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold, plain_name, printable, quote_identifier, quote_text
from dpduck.values.sqltypes import sql_type
from dpduck.values.text_readings import TextReading, readings

FORMATS: Mapping[str, str] = {
    **dict.fromkeys(("csv", "tsv", "txt", "psv", "dat", "tab"), "csv"),
    **dict.fromkeys(("json", "ndjson", "jsonl", "geojson"), "json"),
    **dict.fromkeys(("parquet", "pq", "parq"), "parquet"),
}
"""The format of a file by the end of its name."""

PACKED = ("gz", "zst", "zstd")
"""Ends of the names of compressed files that DuckDB reads."""

READ = (
    "all_varchar", "comment", "compression", "dateformat", "decimal_separator", "delim", "encoding", "escape", "header",
    "ignore_errors", "names", "null_padding", "nullstr", "quote", "sample_size", "skip", "strict_mode", "thousands",
    "timestampformat", "binary_as_string", "maximum_object_size", "hive_partitioning", "max_line_size",
)  # fmt: skip
"""Options of DuckDB's readers that --read takes."""

MOST_COMPARED = 100
"""Most files with columns that are compared."""

UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
CHUNK = 1 << 20
_ALTERNATIVE = {"%d/%m/%Y": "%m/%d/%Y", "%d-%m-%Y": "%m-%d-%Y", "%d.%m.%Y": "%m.%d.%Y"}
_ALTERNATIVE |= {month: day for day, month in _ALTERNATIVE.items()}
_CONVERTED = "iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW, with the encoding that the file has"


@dataclass(frozen=True)
class Files:
    """Files of one format that become one table. options: SQL of options of DuckDB's reader. given: those of --read."""

    paths: tuple[Path, ...]
    kind: str
    options: Mapping[str, str]
    given: tuple[str, ...] = ()

    def sql(self, **more: str) -> str:
        """Returns the SQL that reads all files."""
        return self._sql_of(self.paths, more)

    def sniff_sql(self, path: Path) -> str:
        """Returns the SQL of the formats of dates by which DuckDB reads a CSV file."""
        options = "".join(f", {name} = {value}" for name, value in self.options.items())
        return f"SELECT DateFormat, TimestampFormat FROM sniff_csv({quote_text(_literal(path))}{options})"

    def each(self) -> Iterator[str]:
        """Yields the SQL that reads each file by itself."""
        yield from (self._sql_of((path,), {}) for path in self.paths)

    def _sql_of(self, paths: Sequence[Path], more: Mapping[str, str]) -> str:
        from dpduck.values.quoting import quote_text  # noqa: PLC0415

        names = ", ".join(quote_text(_literal(path)) for path in paths)
        if not self.kind:
            return f"FROM {names}"
        union = {"union_by_name": "true"} if len(paths) > 1 else {}
        options = "".join(f", {name} = {value}" for name, value in {**union, **self.options, **more}.items())
        return f"FROM read_{self.kind}([{names}]{options})"


def _literal(path: Path) -> str:
    """Returns a path in which DuckDB finds no pattern."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))


@contextmanager
def table_of_files(
    database: Path, table: str, given: Sequence[str], read: Sequence[str] = (), *, convert: bool = False
) -> Iterator[None]:
    """Makes a table of files, and prints notes for its owner. Nothing remains of the table if anything fails inside.

    given: paths, patterns and folders. read: options of DuckDB's reader, as name=value. convert: whether texts that
    have one reading as dates or numbers become dates or numbers.
    """
    if read_table_name(table).parts != (table,):
        raise Refusal(f"{table!r} is no plain name for a new table", accepted="a name without dots and quotes: visits")
    files, is_new, is_made = _files(given, read), not database.exists(), False
    if not is_new:
        _require_free(database, table)
    try:
        with open_database(database) as con:
            used = _create(con, f"CREATE TABLE {quote_identifier(table)} AS ", files)
            is_made = True
            notes = list(_notes(con, table, used, convert))
        print_notes(notes)
        yield
    except BaseException:
        if is_new:
            database.unlink(missing_ok=True)
        elif is_made:
            with suppress(duckdb.Error), open_database(database) as con:
                con.execute(f"DROP TABLE IF EXISTS {quote_identifier(table)}")
        raise


def _require_free(database: Path, table: str) -> None:
    """Refuses the name of a table or view that exists, in letters of any size."""
    with open_database(database) as con:
        tables = con.execute("SELECT table_name, table_type FROM information_schema.tables").fetchall()
    for name, kind in tables:
        if fold(name) == fold(table):
            first = f"DROP {'VIEW' if kind == 'VIEW' else 'TABLE'} {plain_name(name)}"
            accepted = f"no --from and no --convert; another name; or first, in DuckDB: {first}"
            raise Refusal(f"{database.name} has a {'view' if kind == 'VIEW' else 'table'} {name!r}", accepted=accepted)


def print_notes(notes: Sequence[str]) -> None:
    """Prints notes on standard error, each on one line."""
    for note in ["About the files, for your eyes only:", *notes] if notes else []:
        say(" ".join(note.splitlines()), err=True)


def _create(con: duckdb.DuckDBPyConnection, create: str, files: Files) -> Files:
    """Makes the table, with types from all rows if those of the first rows do not hold. Returns how it was read."""
    try:
        con.execute(create + files.sql())
        return files
    except duckdb.Error as error:
        if not isinstance(error, duckdb.ConversionException) or files.kind == "parquet":
            raise _refusal(error, files) from None
    whole = replace(files, options={**files.options, "sample_size": "-1"})
    try:
        con.execute(create + whole.sql())
    except duckdb.Error as error:
        raise _refusal(error, files) from None
    return whole


def _files(given: Sequence[str], read: Sequence[str]) -> Files:
    """Returns the files that paths, patterns and folders name, in order. Refuses different formats."""
    paths = list(dict.fromkeys(path for text in given for path in _paths(text)))
    kinds = {_kind(path) for path in paths}
    if len(kinds) > 1:
        raise Refusal(
            "these files have different formats", accepted="files of one format, as in --from 'visits/*.parquet'"
        )
    (kind,) = kinds
    if not kind and len(paths) > 1:
        kind = "csv"
    options = dict(_option(text) for text in read)
    encoding = _encoding(paths) if kind == "csv" and "encoding" not in options else {}
    if options and not kind:
        kind = "csv"
    return Files(tuple(paths), kind, {**options, **encoding}, tuple(options))


def _paths(text: str) -> Iterator[Path]:
    path, is_pattern = Path(text), any(sign in text for sign in "*?[")
    if path.is_dir():
        found = [inner for inner in sorted(path.rglob("*")) if inner.is_file() and _is_data(inner)]
        if not found:
            raise Refusal(f"the folder {path.name} has no file of data", accepted="a folder of CSV, JSON or Parquet")
        yield from found
    elif path.is_file():
        yield path
    elif path.exists():
        raise Refusal(f"{path} is no regular file", accepted="cat .. > visits.csv, and that file")
    elif is_pattern and (found := [match for match in _matches(path) if match.is_file()]):
        yield from found
    else:
        what = "no file fits" if is_pattern else "there is no file"
        raise Refusal(f"{what} {text}", accepted="a file, a folder, or a pattern in quotes: --from 'visits_*.csv'")


def _matches(path: Path) -> list[Path]:
    return sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))


def _is_data(path: Path) -> bool:
    """Tells whether a file of a folder has data. Other programs leave files beside it, as _SUCCESS."""
    ending = _endings(path)[-1:]
    return bool(ending) and ending[0] in FORMATS and not path.name.startswith((".", "_"))


def _endings(path: Path) -> list[str]:
    """Returns the ends of a file's name, without that of a compression."""
    ends = [part.lower() for part in path.name.split(".")[1:]]
    return ends[:-1] if ends and ends[-1] in PACKED else ends


def _kind(path: Path) -> str:
    """Returns the format of a file by its name. "" if the name does not say it."""
    ends = _endings(path)
    if ends and ends[-1] in ("xlsx", "xls", "ods", "zip", "sas7bdat", "sav", "dta", "xml"):
        raise Refusal(f"{path.name} is no CSV, JSON or Parquet file", accepted="a file that was saved as CSV")
    return FORMATS.get(ends[-1], "") if ends else "csv"


def _option(text: str) -> tuple[str, str]:
    """Returns the name and the SQL of an option that was typed as name=value."""
    name, sign, value = text.partition("=")
    name = name.strip().lower()
    if not sign or name not in READ:
        raise Refusal(f"--read {text[:60]!r} is no option of a file", accepted=f"name=value, of {', '.join(READ)}")
    if name == "names":
        return name, f"[{', '.join(quote_text(part.strip()) for part in value.split(','))}]"
    return name, quote_text(value.replace("\\t", "\t"))  # which DuckDB reads as a number where it wants one


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as opened:
            return opened.read(2)
    except OSError:
        raise Refusal(f"{path.name} cannot be read", accepted="a file that you may read: chmod u+r FILE") from None


def _encoding(paths: Sequence[Path]) -> dict[str, str]:
    """Returns the option of an encoding that the first bytes of the files name."""
    marks = set(map(_first_bytes, paths))
    if UTF_16[1] in marks:
        raise Refusal("a file is in UTF-16, big end first", accepted="iconv -f UTF-16 -t UTF-8 FILE > NEW")
    if UTF_16[0] not in marks:
        return {}
    if len(marks) > 1:
        raise Refusal("the files have different encodings", accepted="files that are all in UTF-8")
    return {"encoding": "'utf-16'"}


def _refusal(error: duckdb.Error, files: Files) -> Refusal:
    """Returns the message about files that cannot be read. DuckDB's own would hold lines of the file."""
    said = str(error)
    if re.search(r"not utf-8 encoded|Invalid unicode|byte sequence", said):
        name = next((path.name for path in files.paths if not _is_utf_8(path)), "a file")
        accepted = f"--read encoding=latin-1, --read encoding=utf-16, or a copy in UTF-8: {_CONVERTED}"
        return Refusal(f"{name} is not in UTF-8", accepted=accepted)
    if "encoding" in said and "encoding" in files.options:
        return Refusal("a file does not have this encoding", accepted=f"a copy in UTF-8: {_CONVERTED}")
    line = re.search(r"CSV Error on Line: (\d+)", said)
    if line is not None:
        return Refusal(
            f"line {line[1]} of a file does not fit the lines before it",
            accepted="--read strict_mode=false, null_padding=true, ignore_errors=true, delim=.., quote=.. or skip=..",
        )
    shown = ", ".join(path.name for path in files.paths[:3])
    kind = {"csv": "CSV", "json": "JSON", "parquet": "Parquet"}.get(files.kind, "data that DuckDB knows")
    if files.given and (isinstance(error, duckdb.BinderException) or "Failed to cast value" in said):
        accepted = "what DuckDB's reader of the format takes, as --read skip=2"
        return Refusal(f"an option of --read does not fit {kind}: {', '.join(files.given)}", accepted=accepted)
    read = f" with --read {', '.join(files.given)}" if files.given else ""
    accepted = "CSV, JSON or Parquet, and --read for their options"
    return Refusal(f"{shown} cannot be read as {kind}{read}", accepted=accepted)


def _is_utf_8(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with suppress(UnicodeDecodeError), path.open("rb") as opened:
        while chunk := opened.read(CHUNK):
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
        return True
    return False


def _notes(con: duckdb.DuckDBPyConnection, table: str, files: Files, convert: bool) -> Iterator[str]:
    """Yields what the owner should know about the files and the table that was made of them."""
    described = con.execute(f"DESCRIBE {quote_identifier(table)}").fetchall()
    columns = [CatalogColumn(str(row[0]), str(row[1])) for row in described]
    if len(files.paths) > 1:
        yield from _notes_of_several(con, files)
    if files.kind == "csv":
        yield from _notes_of_csv(con, table, files, columns)
    for column in columns:
        ways = readings(
            lambda sql: con.execute(sql).fetchall()[0], quote_identifier(table), column.name, column.type_name
        )
        sure = len(ways) == 1 and ways[0].is_nearly_whole
        if convert and sure:
            con.execute(ways[0].alter(quote_identifier(table)))
        for way in ways:
            yield from _reading_notes(way, len(ways), quote_identifier(table), sure, convert)


def _reading_notes(way: TextReading, number: int, table: str, sure: bool, convert: bool) -> Iterator[str]:
    """Yields a note about one of several readings of a column, and the statement that converts the column.

    sure: whether --convert takes the reading.
    """
    share = "all" if way.is_whole else f"{100 * way.read / way.values:.4g} %"
    said = f"{plain_name(way.column)}: {share} of its values are {way.how}."
    if sure and convert:
        yield f"{said} The column became {way.type_name}{'.' if way.is_whole else ', with NULL for other values.'}"
        return
    doubt = " Only you know which format is meant." if number > 1 else ""
    loss = "" if way.is_whole else ", with NULL for other values"
    yield f"{said}{doubt} In DuckDB{' now, or by --convert when a table is made' if sure else ''}{loss}:"
    statement = f"{way.alter(table)};"
    is_shown = printable(statement) == statement and len(statement.splitlines()) == 1
    yield statement if is_shown else "The statement is left out, since a line cannot show the column's name."


def _notes_of_several(con: duckdb.DuckDBPyConnection, files: Files) -> Iterator[str]:
    """Yields the number of files, and the columns that not all files have, or have with another type."""
    yield f"{len(files.paths)} files became one table."
    if len(files.paths) > MOST_COMPARED:
        return
    kinds, found = dict[str, set[str]](), dict[str, int]()
    for sql in files.each():
        for name, kind, *_ in con.execute(f"DESCRIBE {sql}").fetchall():
            kinds.setdefault(name, set()).add(kind)
            found[name] = found.get(name, 0) + 1
    missing = [name for name, number in found.items() if number < len(files.paths)]
    if missing:
        yield f"Not in every file, and NULL for the others: {_names(missing)}."
    mixed = [name for name, several in kinds.items() if len(several) > 1]
    if mixed:
        yield f"Of several types, so that one was chosen for all files: {_names(mixed)}."


def _names(names: Sequence[str]) -> str:

    return ", ".join(map(plain_name, names[:20])) + (", .." if len(names) > 20 else "")


def _notes_of_csv(
    con: duckdb.DuckDBPyConnection, table: str, files: Files, columns: Sequence[CatalogColumn]
) -> Iterator[str]:
    """Yields doubts about a header, a separator and a format of dates."""
    names = [column.name for column in columns]
    if all(re.fullmatch(r"column\d+", name) for name in names):
        yield f"The file seems to have no header. --read names={','.join(names[:3])}.. gives names to its columns."
    elif all(column.type_name == "VARCHAR" for column in columns) and "header" not in files.options:
        yield "All columns are texts. If the first line is no header, then --read header=false."
    elif changed := [name for name in names if re.fullmatch(r"column\d+", name) or _is_second(name, names)]:
        yield f"Names that were empty or there twice in the header were changed: {_names(changed)}."
    if len(names) == 1 and re.search(r"[,;|\t]", names[0]):
        yield "One column was found. If lines have several: --read delim=';', or --read strict_mode=false."
    yield from _doubts_of_dates(con, table, files, columns)


def _is_second(name: str, names: Sequence[str]) -> bool:
    """Tells whether DuckDB may have added a number to a name that was there before."""
    first, line, number = name.rpartition("_")
    return bool(line) and number.isdigit() and first.lower() in {other.lower() for other in names}


def _doubts_of_dates(
    con: duckdb.DuckDBPyConnection, table: str, files: Files, columns: Sequence[CatalogColumn]
) -> Iterator[str]:
    """Yields a note for each column of dates in which every day could be a month."""
    dated = [column for column in columns if sql_type(column.type_name).is_moment]
    if not dated or "dateformat" in files.options:
        return
    sniffed = list[tuple[str | None, ...]]()
    with suppress(duckdb.Error):  # an option that only the reader knows
        sniffed = [con.execute(files.sniff_sql(path)).fetchall()[0] for path in files.paths[:MOST_COMPARED]]
    known = {value for row in sniffed for value in row if value is not None}
    for formats in (sorted({value for value in values if value is not None}) for values in zip(*sniffed, strict=True)):
        if len(formats) > 1:
            yield f"Dates have several formats, and each file was read by its own: {', '.join(formats)}."
    for day, other in _ALTERNATIVE.items():
        if day not in known:
            continue
        for column in dated:
            name = quote_identifier(column.name)
            row = con.execute(f"SELECT max(day({name})) FROM {quote_identifier(table)}").fetchall()[0]
            if row[0] is not None and row[0] <= 12:
                yield (
                    f"{plain_name(column.name)} was read by {day}, and all its values could also be {other}. Only you "
                    f"know: --read dateformat={other}"
                )
