"""The value that a program computes for a row does not depend on the other rows of its batch.

Random expressions of the allowlist run over rows of extreme values, many of which raise: in batches of several of
DuckDB's vectors, in many small batches, and each row by itself. Many are conditions with a guard before something that
raises: there DuckDB once let earlier rows decide what is evaluated.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import cycle

import duckdb
import pyarrow as pa
import pytest
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from dpduck.kernel.rows.reader import LAZY
from dpduck.kernel.worker import program as programs
from dpduck.kernel.worker.answered import chosen_inputs
from dpduck.kernel.worker.program import Division, Output
from dpduck.kernel.worker.worker import evaluate, open_database
from dpduck.kernel.worker.workers import Runner, WorkerProgram, Workers
from dpduck.language.rows.compiled import program_of
from dpduck.language.rows.expressions import safe_sql, sql_of
from dpduck.language.rows.functions import check_row_local, temporal_arguments
from dpduck.language.text.dialect import PrivateDuckDB
from dpduck.values.errors import DpduckError, Refusal
from tests.language.nasty_rows import COMPARISONS, TYPES, VALUES, Writer
from tests.support.nodes import columns_of

VECTOR = 2048
ROWS = 24
BARE = "bare"
"""What is computed without TRY: a row that raises fails its batch."""

ODD = ("z", "x")
"""Columns of types over which expressions are refused."""

RAISING = (
    "gcd(b, {i})", "lcm(b, {i})", "abs(b)", "-b", "b + {i}", "i * b", "b // {i}", "t + t", "ut - 4::UTINYINT",
    "substring(s, b, 1)", "substring(s, {i}, b)", "left(s, b)", "right(s, b)", "split_part(s, 'a', b)",
    "regexp_full_match(s, 'a+')", "regexp_replace(s, 'a', 'b')", "regexp_extract(s, '(a)(b)?', 2)", "s SIMILAR TO 'a+'",
    "regexp_replace(s, '.', '')", "regexp_extract(s, '[^a]')", "strip_accents(s)", "reverse(s)",
    "date_diff('day', d, DATE '2020-01-01')", "date_diff('microsecond', k, TIMESTAMP '2020-01-01 00:00:00')",
    "last_day(d)", "date_trunc('month', k)", "date_part('epoch', d)", "strftime(k, '%Y-%j %f')", "make_date(b, i, t)",
    "date_add(d, INTERVAL '2147483647' MONTH)", "monthname(d)", "dayname(k)",
    "CAST(d AS TIMESTAMP)", "CAST(k AS DATE)", "CAST(b AS DECIMAL(5,2))", "CAST(h AS UBIGINT)", "CAST(h AS DOUBLE)",
    "CAST(e AS BIGINT)", "CAST(f AS HUGEINT)", "CAST(m AS DECIMAL(10,2))", "CAST(s AS INTEGER)", "CAST(s AS DOUBLE)",
    "CAST(s AS DATE)", "CAST(s AS BOOLEAN)", "CAST(s AS TIME)", "CAST(s AS INTERVAL)", "CAST(n AS TINYINT)",
    "CAST(k AS VARCHAR)", "CAST(d AS VARCHAR)", "CAST(g AS INTEGER)", "CAST(u AS VARCHAR)", "k + v", "d + v", "v + v",
    "ln(e)", "sqrt(e)", "acos(e)", "log(e, f)", "pow(e, f)", "exp(e)", "round(m, 3)", "round(e, {i})", "ceil(f)",
    "upper(s)", "unicode(s)", "strpos(s, 'a')", "concat(s, 'b')", "greatest(b, h)", "nullif(b, h)", "e % f", "b % {i}",
    "try_strptime(s, '%Y-%m-%d')", "try_strptime(left(s, b), '%H:%M')",
)  # fmt: skip
"""Expressions that raise, or are odd, for one of the values; {i}: a literal or an integer column."""


SHAPES = (
    "CASE WHEN {g} AND {t} THEN o ELSE TRUE END",
    "CASE WHEN NOT {g} OR {t} THEN TRUE ELSE o END",
    "IF({g} AND {t}, o, TRUE)",
    "CASE ({g} AND {t}) WHEN TRUE THEN o WHEN FALSE THEN TRUE END",
    "CASE WHEN {g} THEN o WHEN o OR {t} THEN TRUE ELSE NOT o END",
    "CASE WHEN CASE WHEN {g} AND {t} THEN TRUE ELSE FALSE END THEN o ELSE TRUE END",
    "CASE WHEN coalesce({g} AND {t}, FALSE) THEN o ELSE TRUE END",
    "CASE WHEN ({g} AND {t}) IS TRUE THEN o ELSE TRUE END",
    "CASE WHEN NOT ({g} AND {t}) THEN TRUE ELSE o END",
    "CASE WHEN ({g} AND {t}) BETWEEN TRUE AND TRUE THEN o ELSE TRUE END",
    "CASE WHEN ({g} AND {t}) IN (TRUE, NULL) THEN o ELSE TRUE END",
    "nullif({g} AND {t}, o) IS NULL",
    "coalesce(CASE WHEN {g} THEN {t} END, TRUE)",
    "coalesce(nullif({r}, {r}) IS NULL, {g})",
    "{t} OR {g}",
    "CAST({r} AS VARCHAR) IN ('0', '1', '2', '3', '4', '5', s)",
    "CAST({r} AS VARCHAR) BETWEEN '0' AND '5'",
    "CASE WHEN CAST({r} AS VARCHAR) BETWEEN '0' AND s THEN TRUE ELSE o END",
    "coalesce(xor(CASE WHEN o THEN NULL ELSE 1 END, CAST({t} AS INTEGER)), 1) = 1",
    "coalesce(concat(s, CAST({r} AS VARCHAR)), s) = s",
)
"""Where an expression that raises, {r}, and a condition about it, {t}, may stand beside a guard, {g}."""

TUPLES = (
    "CASE WHEN {g} AND ({t}, t) = (TRUE, t) THEN o ELSE TRUE END",
    "CASE WHEN ({g}, TRUE) IN ((TRUE, {t}), (FALSE, NULL)) THEN o ELSE TRUE END",
    "CASE ({r}, o) IS DISTINCT FROM (NULL, TRUE) WHEN {t} THEN {g} END",
    "(CAST({r} AS VARCHAR), o) BETWEEN ('0', NULL) AND (s, TRUE)",
    "({r}, o, s) <= ({r}, NULL, 'a') OR {g}",
    "(o, coalesce(CAST({r} AS VARCHAR), s)) < (TRUE, 'b')",
    "coalesce((s, {r}) = ('a', {r}), {g})",
)
"""The same inside of tuples."""


class Guarding(Writer):
    """Writes more conditions that have a guard before something that raises."""

    def value(self, depth: int) -> str:
        if depth > 0 and self.source.randrange(3) == 0:
            text = self.source.choice(RAISING)
            return f"({text.format(i=self.source.choice(('t', 'i', '0', '1', '-1')))})"
        if depth > 0 and self.source.randrange(4) == 0:
            one, two = self.value(depth - 1), self.value(depth - 1)
            guarded = f"{self.condition(0)} {self.source.choice(('AND', 'OR'))} {self.comparison(depth - 1)}"
            return self.source.choice(
                (
                    f"CASE WHEN {guarded} THEN {one} ELSE {two} END",
                    f"IF({guarded}, {one}, {two})",
                    f"CASE ({guarded}) WHEN {self.comparison(0)} THEN {one} WHEN FALSE THEN {two} END",
                    f"nullif({guarded}, {self.comparison(0)})",
                    f"coalesce({one}, {two}, {self.literal()})",
                    f"{one} IN ({two}, {self.literal()}, {self.column()})",
                    f"({one} BETWEEN {two} AND {self.literal()})",
                )
            )
        return super().value(depth)

    def condition(self, depth: int) -> str:
        return self.tuples(depth - 1) if depth > 1 and self.source.randrange(2) else super().condition(depth)

    def tuples(self, depth: int) -> str:
        """A comparison of tuples. Any part may be NULL, raise, or be of another type."""
        names, choose = [self.column() for _ in range(self.source.randrange(2, 4))], self.source.choice
        one, two, three = (f"({', '.join(self.part(name, depth) for name in names)})" for _ in range(3))
        compared = (*(f"{one} {sign} {two}" for sign in COMPARISONS), f"{one} IN ({two}, {three}, {one})")
        return f"({choose((*compared, f'{one} NOT IN ({two})', f'{one} BETWEEN {two} AND {three}'))})"

    def part(self, name: str, depth: int) -> str:
        """Mostly a column, else a column of another type, a literal, or an expression."""
        kind = self.source.randrange(9)
        return name if kind < 5 else (self.literal(), "NULL", self.column(), self.value(depth))[kind - 5]

    def comparison(self, depth: int) -> str:
        """Returns a condition about an expression that may raise."""
        value = self.value(max(1, depth))
        kinds = ("{} IS NOT NULL", "CAST({} AS VARCHAR) <> '1'", "{} = {}", "NOT ({} IS NULL)", "{} IN ({}, {})")
        return "(" + self.source.choice(kinds).replace("{}", value) + ")"

    def column(self) -> str:
        return self.source.choice([column for column in TYPES if column not in ODD])


COLUMN_TYPES = {f'"r0"."{name}"': type_name for name, type_name in TYPES.items()}
COLUMNS = columns_of(COLUMN_TYPES)


def output(kind: str, text: str, then_sql: str = "") -> Output:
    """Returns a worker's output for a text."""
    return Output(kind, program_of(text, COLUMNS), then_sql)


def division(writer: Writer) -> Division | None:
    """Returns a worker's questions about a random condition, value, text and step. None: they are refused."""
    source = writer.source
    try:
        condition, kept, value, text = map(
            _parsed, (writer.condition(3), writer.condition(3), writer.value(3), writer.value(3))
        )
        number = f"try(CAST(({sql_of(value)}) AS DOUBLE))"
        outputs = {
            "flag": output("flag", safe_sql(condition, COLUMN_TYPES)),
            "number": output("DOUBLE", number),
            "steps": output("integer", number, "TRY_CAST({} AS BIGINT)"),
            "text": output("bytes", f"try(CAST(({sql_of(text)}) AS VARCHAR))"),
            BARE: output("bytes", f"CAST(({sql_of(text)}) AS VARCHAR)"),
        }
        chosen = {name: outputs[name] for name in source.sample(sorted(outputs), 2)}
        asked = program_of(safe_sql(kept, COLUMN_TYPES), COLUMNS)
        return Division(chosen, (asked,) * (source.randrange(3) == 0))
    except (SqlglotError, DpduckError):
        return None


def swept(raising: str) -> Division:
    """Returns one expression in every shape."""
    outputs: dict[str, Output] = {}
    for guard, shape in zip(cycle(("o", "t < 5")), (*SHAPES, *TUPLES), strict=False):
        text = shape.format(g=guard, t=f"(({raising}) IS NOT NULL)", r=f"({raising})")
        outputs[f"y{len(outputs)}"] = output("flag", safe_sql(_parsed(text), COLUMN_TYPES))
    return Division(outputs, ())


def _parsed(text: str) -> exp.Expr:
    found = parse_one(text, dialect=PrivateDuckDB)
    check_row_local(found)
    for column in found.find_all(exp.Column):
        column.set("table", exp.to_identifier("r0", quoted=True))
    for part in temporal_arguments(found):
        if isinstance(part, exp.Column) and TYPES[part.name] in ("TIME", "INTERVAL"):
            raise SqlglotError("refused")
    return found


def table_of(connection: duckdb.DuckDBPyConnection, source: random.Random) -> None:
    """Makes rows of random extreme values. Every seventh value is NULL."""
    texts = [[None if source.randrange(7) == 0 else source.choice(VALUES[name]) for name in TYPES] for _ in range(ROWS)]
    columns = ", ".join(f"{name} {type_name}" for name, type_name in TYPES.items())
    connection.execute(f"CREATE OR REPLACE TABLE t ({columns})")
    for row in texts:
        connection.execute(f"INSERT INTO t VALUES ({', '.join('?' * len(TYPES))})", row)


def rows_of(connection: duckdb.DuckDBPyConnection, asked: Division) -> pa.Table:
    """The rows as the database would send them."""
    listed = ", ".join(f"{sql} AS {name}" for name, sql in asked.inputs().items()) or "1 AS x"
    table: pa.Table = connection.sql(f'SELECT {listed} FROM t AS "r0"').to_arrow_table()
    return chosen_inputs(table, tuple(asked.inputs()))


def answers(runner: Runner, rows: pa.Table) -> list[tuple[object, ...]]:
    found = runner.compute(rows)
    return list(zip(*(map(repr, column.to_pylist()) for column in found.columns), strict=True))


def differences(count: int, seed: int, pool: Workers) -> list[str]:
    """Lists the programs, among `count`, for which a row of a batch gets another value than alone."""
    source = random.Random(seed)  # noqa: S311
    writer, found, run = Guarding(source), list[str](), 0
    with duckdb.connect() as connection, open_database(1, 1 << 29) as binder:
        while run < count:
            if run % 10 == 0:
                table_of(connection, source)
            asked = division(writer)
            if asked is None:
                continue
            try:
                program, rows = asked.program(), rows_of(connection, asked)
                evaluate(binder, program.sql, {}, rows.slice(0, 0))
            except (Refusal, duckdb.Error):
                continue  # a rehearsal would notice it
            run += 1
            found += [program.sql] * (
                not alike(pool, program, rows, source, FEW if BARE in program.schema.names else MANY)
            )
    return found


Batches = Sequence[tuple[int, int]]
MANY: Batches = ((3 * VECTOR + 1, 1), (60, 5))
FEW: Batches = ((200, 1), (60, 1))
"""How many rows a batch has, and how often there is one."""


def alike(pool: Workers, program: WorkerProgram, rows: pa.Table, source: random.Random, batches: Batches) -> bool:
    """Tells whether rows get the same values in batches as alone."""
    with pool.runner(program) as runner:
        alone, places = [], []
        for place in range(ROWS):
            alone.append(answers(runner, rows.slice(place, 1))[0])
            if runner._worker is not None:  # a row that ends the process would end it at each halving of a batch
                places.append(place)
        for size, times in batches if places else ():
            for _ in range(times):
                chosen = [source.choice(places) for _ in range(size)]
                if answers(runner, rows.take(chosen)) != [alone[place] for place in chosen]:
                    return False
    return True


def swept_differences(pool: Workers, listed: Sequence[str]) -> list[str]:
    """Lists expressions that get another value beside other rows, in some shape. Every expression has to bind."""
    source, found = random.Random(5), []  # noqa: S311
    with duckdb.connect() as connection:
        table_of(connection, source)
        for raising in listed:
            asked = swept(raising)
            rows = rows_of(connection, asked)
            program = asked.program()
            with pool.runner(program) as runner:
                runner.check(rows.slice(0, 0))
            found += [raising] * (not alike(pool, program, rows, source, FEW))
    return found


@pytest.fixture(scope="module")
def pool() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.close()


SWEPT = [one.format(i=i) for one in RAISING for i in (("t", "1") if "{i}" in one else ("",))]


@pytest.mark.slow
def test_what_raises_changes_no_other_row(pool: Workers) -> None:
    """Every expression that is known to raise, in every shape and beside guards against it, changes no other row."""
    assert swept_differences(pool, SWEPT[::4]) == []


@pytest.mark.skipif(not LAZY, reason="of these three DuckDB 2.0 knows that they raise, and keeps their order")
@pytest.mark.parametrize("shapes", [SHAPES, ()], ids=["all", "tuples"])
def test_the_sweep_sees_rows_that_change_an_order(
    pool: Workers, shapes: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep notices that a row that raises changes others where DuckDB may reorder conditions, also in tuples."""
    monkeypatch.setattr(programs, "with_whole_conditions", lambda sql: sql)
    monkeypatch.setattr("tests.kernel.rows.test_row_alone.SHAPES", shapes)
    assert swept_differences(pool, ["gcd(b, t)", "substring(s, b, 1)", "CAST(d AS TIMESTAMP)"]) != []


@pytest.mark.slow
def test_random_rows_are_what_they_are_alone(pool: Workers) -> None:
    """Random expressions of the allowlist give rows of every type the same values in batches as alone."""
    assert differences(12, 21, pool) == []


PARTS = (
    r"CASE WHEN {s} = 'q' THEN CAST(CAST({s} AS INTEGER) AS VARCHAR) ELSE regexp_replace({s}, '\C', 'b') END",
    r"regexp_matches({s}, 'a\C')",
    r"{s} SIMILAR TO '\C'",
    r"regexp_extract({s}, '(\C)', 1)",
)


def test_no_part_of_a_character_is_computed(pool: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a character is refused, since it is no text. DuckDB 1.5 makes it NULL only beside a row that raises."""
    for text in PARTS:
        with pytest.raises(Refusal, match="takes characters apart"):
            _parsed(text.format(s="s"))
        with pytest.raises(Refusal, match="this regular expression"):
            asked_for(text).program()
    monkeypatch.setattr(programs, "require_row_local", lambda sql, columns: None)
    texts = ["\u00e4", "\u00e9", "a"]
    found = [
        computed(pool, PARTS[0], pa.table({"dpduck_x_0": pa.array(rows, pa.large_string())}))[:3]
        for rows in (texts, [*texts, "q"])
    ]
    assert (found[0] == found[1]) is (not LAZY)  # DuckDB 2.0 raises for it


def asked_for(text: str) -> Division:
    """A text over columns, as bytes."""
    return Division({"y": output("bytes", text.format(s='"r0"."s"', b='"r0"."b"'))}, ())


def computed(pool: Workers, text: str, rows: pa.Table) -> list[object]:
    with pool.runner(asked_for(text).program()) as runner:
        return list(runner.compute(rows)["y"].to_pylist())


def test_no_row_is_a_vector_by_itself(pool: Workers) -> None:
    """No row is computed in a vector by itself, where DuckDB 2.0 leaves out an error beside a COALESCE that is NULL."""
    text = "CAST(coalesce(strpos(coalesce({s}, {s}), CAST(CAST({b} AS TINYINT) AS VARCHAR)), 5) AS VARCHAR)"
    for before in (0, 1, VECTOR, 30_720, 30_720 + VECTOR):
        texts = pa.array([*["a"] * before, None], pa.large_string())
        rows = pa.table({"dpduck_x_0": texts, "dpduck_x_1": pa.array([*[1] * before, 300], pa.int64())})
        assert computed(pool, text, rows)[-2:] == [*[b"0"] * min(before, 1), None]


def test_what_will_run_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewriting that makes another expression is refused."""
    monkeypatch.setattr(programs, "with_whole_conditions", lambda sql: sql.replace("upper", "max"))
    with pytest.raises(Refusal, match="DuckDB reads max"):
        asked_for("upper({s})").program()


@pytest.mark.audit
def test_everything_that_raises_changes_no_other_row(pool: Workers) -> None:
    """The sweep over the whole list of functions changes no other row."""
    assert swept_differences(pool, SWEPT) == []


@pytest.mark.audit
@pytest.mark.parametrize("seed", range(8))
def test_very_many_random_rows_are_what_they_are_alone(pool: Workers, seed: int) -> None:
    """Many more random expressions give the same values in batches as alone."""
    assert differences(200, 300 + seed, pool) == []
