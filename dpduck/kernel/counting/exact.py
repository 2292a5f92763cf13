"""One scan over private rows: from a counting job to exact counts, in two stages.

The first stage turns rows into integers. The database computes codes, flags and steps from stored columns, and a worker
process computes an analyst's expressions over a row (worker/program.py). A cell consists of codes, which are packed
keys or attributes, or of bytes, which no collation compares. The second stage turns integers into counts (stage.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.columns.arithmetic import Double
from dpduck.kernel.columns.conditions import where_sql
from dpduck.kernel.columns.expressions import Expression, Own
from dpduck.kernel.columns.expressions import RelationColumn as StoredColumn
from dpduck.kernel.columns.keys import KeyText
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.contribution_sql import flag, row_columns, steps, steps_sql, tables_from, value
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.counting.jobs import Attribute, CountingJob, GroupKey
from dpduck.kernel.loss import light_rows
from dpduck.kernel.places.engine import EngineRows, Parts, count_in_engine
from dpduck.kernel.places.rows import LIVE
from dpduck.kernel.relations import Grouped, Source, Stored, most_copies
from dpduck.kernel.rows import binning, bounding, reader
from dpduck.kernel.rows.binning import KeyReading, ParameterValue, code_reading, key_reading
from dpduck.kernel.rows.bounding import KEY, UNIT_HASH, BoundingFacts, Crowds, key_integer, unit_hash_sql
from dpduck.kernel.rows.scan import JobScan, is_row_by_row, rows_sql, scan_of
from dpduck.kernel.stage import cells_sql, cut_sql, stage_sql
from dpduck.kernel.units import ROWS, Referenced, period_of
from dpduck.kernel.worker.answered import Asking, answer_rows
from dpduck.kernel.worker.program import LONGEST_REPEATED, Division, Output, stage_question
from dpduck.kernel.worker.workers import Workers
from dpduck.values.domain import ValueDomain
from dpduck.values.errors import InternalError
from dpduck.values.sqltypes import sql_type

GROUP = "dpduck_group_"
"""Prefix of the column names of attributes and private texts."""

DIGEST = ("dpduck_high", "dpduck_low")
"""The halves of a key's digest (MD5)."""

LOW = "18446744073709551615"
_KEY, _GROUPS = "dpduck_key", "dpduck_groups"

FEW_GROUPS = 1 << 17  # below this, groups outside the domain cost less than filtering every row exactly
LARGEST_WORD = 1 << 62  # bound of a packed integer, with room for rows that the filters will drop

Column = NDArray[np.integer]


@dataclass(frozen=True)
class JobReading:
    """Plan to read a job: its scan, the worker's outputs, and the reading of each key as a code.

    here: for each key, whether the database computes its code. division: outputs that the worker computes. packed:
    whether keys are packed into integers. labels: for keys that a subquery looks up, SQL of a short text, by position.
    """

    job: CountingJob
    scan: JobScan
    keys: tuple[KeyReading, ...]
    here: tuple[bool, ...]
    division: Division
    packed: bool
    labels: Mapping[int, str] = field(default_factory=dict, repr=False)

    @property
    def parameters(self) -> dict[str, ParameterValue]:
        """Returns the SQL parameters with labels and edges of the keys that the database codes."""
        read = [key for key, here in zip(self.keys, self.here, strict=True) if here]
        return {name: value for key in read for name, value in key.parameters.items()}


def count_exactly(
    cursor: duckdb.DuckDBPyConnection, job: CountingJob, bounding_key: bytes, workers: Workers | None = None
) -> ExactCounts:
    """Returns exact counts of `job`. Its only error has one fixed text. workers: None starts new processes."""
    grouped = group_first(job)
    reading = read_job(grouped or job)
    if grouped is not None:
        return counts_of(reading, reader.columns(cursor, group_first_sql(reading), reading.parameters))
    with counting_cells(cursor, reading, bounding_key, workers) as (sql, second, parameters):
        return counts_of(reading, reader.columns(second, sql, parameters))


@contextmanager
def counting_cells(
    cursor: duckdb.DuckDBPyConnection, reading: JobReading, bounding_key: bytes, workers: Workers | None
) -> Iterator[tuple[str, duckdb.DuckDBPyConnection, Mapping[str, object]]]:
    """Yields SQL of one row per occupied cell, the cursor that reads it, and its parameters."""
    job = reading.job
    bounded = job.unit is not None and 0 < job.groups < job.max_rows
    group_key = {KEY: key_integer(bounding_key)} if bounded else {}
    if isinstance(job.place, EngineRows):
        with _read_in_engine(cursor, job.place, reading, bounding_key, workers, group_key) as (added, second):
            yield added, second, {}
        return
    with read_rows(cursor, reading, bounding_key, workers) as (rows, second, row_parameters):
        parameters = {**row_parameters, **group_key}
        heavy_units = None if reading.division.has_work else _find_crowds(second, reading, parameters)
        try:
            yield _stage(reading, cell_rows(reading, rows), heavy_units), second, parameters
        finally:
            if heavy_units is not None and heavy_units.table:
                second.unregister(heavy_units.table)


@contextmanager
def read_rows(
    cursor: duckdb.DuckDBPyConnection, reading: JobReading, bounding_key: bytes, workers: Workers | None
) -> Iterator[tuple[str, duckdb.DuckDBPyConnection, Mapping[str, object]]]:
    """Yields SQL that reads a job's rows as integers, the cursor that runs this SQL, and the SQL's parameters."""
    with (
        _askings(reading, bounding_key, workers) as (stages, asking, own_workers),
        answer_rows(cursor, stages, asking, own_workers) as (second, parameters),
    ):
        yield asking.rows_with_answers, second, parameters


@contextmanager
def _read_in_engine(
    cursor: duckdb.DuckDBPyConnection,
    engine: EngineRows,
    reading: JobReading,
    bounding_key: bytes,
    workers: Workers | None,
    parameters: Mapping[str, object],
) -> Iterator[tuple[str, duckdb.DuckDBPyConnection]]:
    job = reading.job

    def stage(rows: str) -> str:
        return _stage(reading, cell_rows(reading, rows))

    def cut_part(rows: str) -> tuple[str, str]:
        most = job.max_rows, job.groups or None, _group_codes(reading)
        return cut_sql(rows, cells_of(reading), job.aggregates, *most)

    by_parts = job.unit is not None and is_row_by_row(job, engine.private)
    parts = Parts(partial(cell_rows, reading), cut_part, partial(_stage, reading)) if by_parts else None
    key = None if by_parts or job.unit is None else key_integer(bounding_key)
    with (
        _askings(reading, bounding_key, workers) as (stages, asking, own_workers),
        count_in_engine(cursor, engine, stages, asking, stage, parameters, own_workers, parts, key) as query,
    ):
        yield query


@contextmanager
def _askings(
    reading: JobReading, bounding_key: bytes, workers: Workers | None
) -> Iterator[tuple[list[Asking], Asking, Workers]]:
    """Yields the worker's tasks for single tables, its task for the job's rows, and the workers."""
    job, scan = reading.job, reading.scan
    rows, parameters = rows_of(reading), dict[str, object](reading.parameters)
    if job.unit is not None and not job.place.is_numbered:
        parameters[KEY] = key_integer(bounding_key)
    longer = bool(job.texts) or (job.unit is not None and not sql_type(job.unit_type).has_fixed_size)
    with nullcontext(workers) if workers is not None else closing(Workers()) as own:
        stages = [stage_question(stage, own, scan.longest_lookup) for stage in scan.stages]
        yield stages, reading.division.asking(rows, parameters, longer), own


def _find_crowds(
    cursor: duckdb.DuckDBPyConnection, reading: JobReading, parameters: Mapping[str, object]
) -> Crowds | None:
    """Lists the units that may need a rank or a weight. None: the count needs no such list."""
    # a list is made only if all rows come from one table, which can be read twice
    job, scan, source, unit = reading.job, reading.scan, reading.job.source, reading.scan.unit
    weighed = any(aggregate.norm for aggregate in job.aggregates)
    if job.levels or (job.selected and (weighed or job.groups < job.max_rows)):
        return None
    few = min([job.max_rows, *([job.groups] if job.groups else [light_rows(job.aggregates)] if weighed else [])])
    joined = source.joins or isinstance(unit, Referenced) or scan.stages or job.place != LIVE
    if not few or unit is None or joined or period_of(job.unit) is not None:
        return None
    if not sql_type(job.unit_type).has_one_hash or not isinstance(source.first, Stored):
        return None
    stored, count = source.first, bounding.rows_of(cursor, source.first.sql)
    if not count:
        return None
    if scan.where:
        first = replace(stored, table=bounding.sample_sql(stored.table, count))
        sampled = scan_of(replace(job, source=replace(source, first=first)))
        if not bounding.are_many(cursor, sampled.units_sql, count, parameters):
            return None
    crowded = bounding.put_crowds(cursor, scan.units_sql, count, few, parameters)
    if not crowded:
        return None if crowded is None else Crowds()
    crowded_sql = f"{scan.from_sql} SEMI JOIN {bounding.CROWDS} ON {unit_hash_sql(unit.sql)} = {UNIT_HASH}"
    rows = rows_of(replace(reading, scan=replace(scan, from_sql=crowded_sql)))
    return Crowds(bounding.CROWDS, cell_rows(reading, rows))


def counts_of(reading: JobReading, columns: Sequence[Column]) -> ExactCounts:
    """Builds exact counts from the columns of the stage (stage.py)."""
    job = reading.job
    if job.levels:
        levels, units = (np.ma.getdata(column).astype(np.int64) for column in columns)
        return ExactCounts((levels,), units[None, :], (job.levels + 1,), job.unit_bounds)
    first = 0 if job.together else len(cells_of(reading))
    tables = np.array(tables_from(job.aggregates, columns[first:]), np.int64)
    if job.together or job.merges:
        coordinates = tuple(np.ma.getdata(column).astype(np.int64) for column in columns[:first])
        return ExactCounts(coordinates, tables, tuple(attribute.size for attribute in job.attributes), job.unit_bounds)
    if reading.packed:
        return _exact_counts(job, _unpack(reading, columns), tables)
    codes = [_codes(key, column) for key, column in zip(reading.keys, columns, strict=False)]
    return _exact_counts(job, codes, tables)


def key_slot_sql(reading: JobReading, position: int) -> str:
    """Writes the slot of one key: the number of the key's value, unpacked from the integer that holds it."""
    word = next(positions for positions in _words(reading) if position in positions)
    weight = _weights(reading.keys, word)[word.index(position)]
    return f"({_cell(word[0])} // {weight}) % {reading.keys[position].slots}"


def read_job(job: CountingJob, *, packed: bool = False) -> JobReading:
    """Divides a job between the database and a worker. packed: True packs keys even if that saves no time."""
    scan = scan_of(job)
    here = tuple(_is_read(key) for key in job.keys)
    outputs = worker_outputs(job, scan)
    outputs |= {name: Output("bytes", text) for name, text in text_names(job).items() if not text.plain}
    alone = all(here) and not outputs and not scan.moved
    written = job.place.codes if alone else frozenset[Expression]()
    is_grouped = isinstance(job.source.first, Grouped)  # its texts are short already
    read = [is_own and not is_grouped and key.value not in written for is_own, key in zip(here, job.keys, strict=True)]
    listed = [at for at, key in enumerate(job.keys) if read[at] and binning.is_long_list(key)]
    labels = {at: binning.short_label(job.keys[at]) for at in listed}
    named = [
        replace(key, value=Own((binning.label_name(at),))) if at in labels else key for at, key in enumerate(job.keys)
    ]
    keys = tuple(
        code_reading(key) if key.value in written else key_reading(key, position) for position, key in enumerate(named)
    )
    parameters: dict[str, object] = {}
    for position, key in enumerate(job.keys):
        if not here[position]:
            computed = key_reading(GroupKey(Own(("{}",)), key.domain), position)
            inside = " AND ".join(f"({condition})" for condition in (*computed.filters, computed.guard) if condition)
            slot = computed.slot_sql("BIGINT")
            outputs[_cell(position)] = Output(
                "integer", key.value, f"CASE WHEN {inside} THEN {slot} END" if inside else slot
            )
            parameters.update(computed.parameters)
    division = Division(outputs, scan.moved, parameters, most_copies(job.source), len(job.texts))
    packed = packed or job.selected or job.digest is not None or job.unit is not None
    packed = packed or division.has_work or job.place.in_engine
    return JobReading(job, scan, keys, here, division, packed, labels)


def worker_outputs(job: CountingJob, scan: JobScan) -> dict[str, Output]:
    """Returns the flags and steps of aggregates that the database does not compute itself."""
    outputs: dict[str, Output] = {}
    for number, aggregate in enumerate(job.aggregates):
        if aggregate.condition is not None and not aggregate.condition.plain:
            outputs[flag(number)] = Output("flag", aggregate.condition)
        if aggregate.value is not None and scan.number(aggregate.value) is None:
            outputs[value(number)] = Output("integer", aggregate.value, steps(aggregate, "{}"))
    return outputs


def _is_read(key: GroupKey) -> bool:
    """Tells whether the database reads a key itself: a plain value, or a column that it casts directly to DOUBLE."""
    return key.value.is_narrow if isinstance(key.value, Double) else key.value.plain


def job_sql(job: CountingJob) -> str:
    """Writes the one query that runs over private rows if no worker is needed."""
    reading = read_job(job)
    return _stage(reading, rows_of(reading))


def group_first(job: CountingJob) -> CountingJob | None:
    """Rewrites a count by long lists of labels as a job over DuckDB's groups. None if it is another kind of job.

    Labels are then looked up once for each group, not for each row. Without this, 144 million rows by two lists of
    3,220 labels took three times as long as DuckDB's GROUP BY. Values outside the lists make groups too.
    """
    plain = job.unit is None and job.aggregates == (Contribution(),) and not (job.selected or job.place.in_engine)
    domains = [key.domain for key in job.keys]
    long = (isinstance(domain, ValueDomain) and len(domain.values) > binning.MOST_POSITIONS for domain in domains)
    if not (plain and domains and all(long)):
        return None
    scan = scan_of(job)
    if scan.moved or scan.stages or not all(map(_is_read, job.keys)):
        return None
    names = [f"{GROUP}{number}" for number in range(len(job.keys))]
    columns = ", ".join(f"{_by_bytes(key)} AS {name}" for key, name in zip(job.keys, names, strict=True))
    rows = (
        f"SELECT {columns}, count(*) AS {ROWS} FROM {scan.from_sql}{where_sql(scan.where)} GROUP BY {', '.join(names)}"
    )
    keys = tuple(replace(key, value=Own((f"{_GROUPS}.{name}",))) for key, name in zip(job.keys, names, strict=True))
    source = Source(Grouped(f"({rows}) AS {_GROUPS}"))
    return replace(job, source=source, filters=(), keys=keys, periods=None)


def _by_bytes(key: GroupKey) -> str:
    """Writes a key so that it groups by bytes. Under a collation, one row would decide how equal texts are spelled."""
    if binning.is_long_list(key):  # else each group would hold a whole text, which may be no label
        return f'({binning.short_label(key)}) COLLATE "binary"'
    type_name = key.value.type_name if isinstance(key.value, StoredColumn) else key.domain.type_name
    return f'{key.value.sql} COLLATE "binary"' if type_name == "VARCHAR" else key.value.sql


def group_first_sql(reading: JobReading) -> str:
    """Writes one row per occupied cell for a job of group_first, from groups with their numbers of rows."""
    groups = ", ".join(f"{key.group_sql} AS {_cell(number)}" for number, key in enumerate(reading.keys))
    rows = f"{reading.scan.from_sql}{where_sql(_inside(reading.keys, True))}"
    coded_rows = f"SELECT {groups}, {_GROUPS}.{ROWS} AS {ROWS} FROM {rows}"
    return f"SELECT * EXCLUDE ({ROWS}), CAST(sum({ROWS}) AS BIGINT) FROM ({coded_rows}) GROUP BY ALL"


def _stage(reading: JobReading, rows: str, crowds: Crowds | None = None) -> str:
    job, cells = reading.job, cells_of(reading)
    if job.unit is None and any(aggregate.per_group for aggregate in job.aggregates):
        raise InternalError("contributions by group need a privacy unit")
    if not reading.packed:
        return cells_sql(rows, list(cells), job.aggregates)
    most, facts = None if job.unit is None else job.max_rows, unit_facts(reading)
    levels = (job.levels, job.spread) if job.levels else None
    groups, codes = job.groups or None, _group_codes(reading)
    return stage_sql(rows, cells, job.aggregates, most, groups, facts, crowds, levels, codes, job.together)


def unit_facts(reading: JobReading) -> BoundingFacts:
    """Returns facts about the units of a job's rows. They are weaker if rows are left out or a key has no code."""
    job, scan, worker = reading.job, reading.scan, reading.division.has_work
    joined, coded = bool(job.source.joins), not job.selected and job.digest is None
    # conditions are expected to leave few of many rows, and holding these is faster than a second join
    once = worker or (joined and bool(scan.where))
    free = coded and not (scan.where or scan.moved or scan.stages or joined or worker)
    return job.place.bounding_facts(once, [key.value for key in job.keys] if free else None)


def cells_of(reading: JobReading) -> dict[str, int | None]:
    """Returns the columns of a cell with their capacities, None for any integer or bytes."""
    job = reading.job
    if job.digest is not None:
        return dict.fromkeys(DIGEST)
    if job.selected or job.merges:
        return attribute_cells(job) | dict.fromkeys(text_names(job))
    return word_cells(reading) if reading.packed else dict.fromkeys(map(_cell, range(len(reading.keys))))


def cell_rows(reading: JobReading, rows: str) -> str:
    """Writes rows with the columns of cells_of in place of packed keys."""
    return merge_rows(reading, rows) if reading.job.selected or reading.job.merges else rows


def merge_rows(reading: JobReading, rows: str) -> str:
    """Writes rows with the codes of attributes in place of packed keys. A row without a code has NULL or -1."""
    cells = word_cells(reading)
    if not cells:
        return rows
    inside = " AND ".join(f"{cell} BETWEEN 0 AND {int(size or 0) - 1}" for cell, size in cells.items())
    columns = [
        f"CASE WHEN {inside} THEN {_attribute_sql(reading, attribute)} END AS {GROUP}{number}"
        for number, attribute in enumerate(reading.job.attributes)
    ]
    return f"SELECT {', '.join(columns)}, * EXCLUDE ({', '.join(cells)}) FROM ({rows})"


def _attribute_sql(reading: JobReading, attribute: Attribute) -> str:
    sources = [f"({_code_sql(reading, position)})" for position in attribute.sources]
    if len(sources) == 1 and np.array_equal(attribute.codes, np.arange(attribute.size)):
        return sources[0]
    place = "0"
    for source, size in zip(sources, attribute.codes.shape, strict=True):
        place = f"({place} * {size} + {source})"
    within = zip(sources, attribute.codes.shape, strict=True)
    inside = " AND ".join(f"{source} BETWEEN 0 AND {size - 1}" for source, size in within)
    codes = ", ".join(map(str, attribute.codes.ravel().tolist()))
    return f"CASE WHEN {inside} THEN list_extract(CAST([{codes}] AS BIGINT[]), {place} + 1) END"


def attribute_cells(job: CountingJob) -> dict[str, int | None]:
    """Returns the name of each attribute's column of codes, with the number of its codes."""
    return {f"{GROUP}{number}": attribute.size for number, attribute in enumerate(job.attributes)}


def text_names(job: CountingJob) -> dict[str, Expression]:
    """Returns the private texts of selected groups, by column names that continue those of the attributes."""
    return {f"{GROUP}{number}": text for number, text in enumerate(job.texts, start=len(job.attributes))}


def _group_codes(reading: JobReading) -> list[str] | None:
    """Writes each key's code, by which a unit's groups are ordered. None if the cells themselves give the order."""
    # codes are equal for rows from a prepared table, from a worker and as stored, so the same groups are kept
    if reading.job.selected or not reading.job.groups:
        return None
    return [_code_sql(reading, position) for position in range(len(reading.keys))]


def _code_sql(reading: JobReading, position: int) -> str:
    key, slot = reading.keys[position], f"CAST({key_slot_sql(reading, position)} AS BIGINT)"
    codes = [*key.codes.tolist(), key.null_code]
    if codes[:-1] == list(range(len(codes) - 1)) and key.null_code in (-1, len(codes) - 1):
        return slot
    return f"list_extract(CAST([{', '.join(map(str, codes))}] AS BIGINT[]), {slot} + 1)"


def word_cells(reading: JobReading) -> dict[str, int | None]:
    """Returns the columns of packed keys, with their capacities."""
    return {_cell(word[0]): prod(reading.keys[position].slots for position in word) for word in _words(reading)}


def rows_of(reading: JobReading) -> str:
    """Writes rows of integers. If a worker computes a column, the rows have the inputs of that column in its place.

    Packed keys make rows narrow, which saves time if rows are sorted or sent. Rows outside a domain are then dropped
    before bounding. Without bounding, packing several keys would be slower than DuckDB's own GROUP BY.
    """
    job, scan, division = reading.job, reading.scan, reading.division
    cells = {_cell(number): key.group_sql for number, key in enumerate(reading.keys)}
    if reading.packed:
        words = [word for word in _words(reading) if reading.here[word[0]]]
        cells = {_cell(word[0]): _word_sql(reading.keys, word) for word in words}
    exactly = reading.packed or prod(key.slots for key in reading.keys) > FEW_GROUPS
    own, private = own_aggregates(job, scan, division), _private_keys(reading)
    columns, late = {**row_columns(own), **private}, [_cell(position) for position in reading.labels]
    here = [position for position, read in enumerate(reading.here) if read and position not in reading.labels]
    conditions = [*_inside([reading.keys[position] for position in here], exactly), *_short_texts(reading)]
    early = {name: sql for name, sql in cells.items() if name not in late}
    short = {binning.label_name(position): text for position, text in reading.labels.items()}
    rows = rows_sql(scan, {**early, **short, **columns}, conditions, division)
    travelling = [*scan.bounding, *division.inputs()]
    if late:  # a second SELECT, since these codes are looked up from the short texts of the first
        listed = ", ".join([*(f"{cells[name]} AS {name}" for name in late), *early, *columns, *travelling])
        inside = _inside([reading.keys[position] for position in reading.labels], exactly)
        rows = f"SELECT {listed} FROM ({rows}){where_sql(inside)}"
    if job.digest is not None:  # before rows are sent, since 128 bits would become a double
        high, low = DIGEST
        halves = f"CAST({_KEY} >> 64 AS UBIGINT) AS {high}, CAST({_KEY} & {LOW} AS UBIGINT) AS {low}"
        rows = f"SELECT {halves}, * EXCLUDE ({_KEY}) FROM ({rows}){where_sql([f'{_KEY} IS NOT NULL'])}"
        private = dict.fromkeys(DIGEST, "")
    return steps_sql(own, rows, [*cells, *private, *travelling])


def _private_keys(reading: JobReading) -> dict[str, str]:
    """Writes a row's private texts as bytes, or its digest, if the database computes them."""
    # under a collation, a key that several people spell differently would show one person's spelling
    if reading.job.digest is not None:
        return {_KEY: f"md5_number({_short_key(reading.job.digest, reading.scan)})"}
    texts = text_names(reading.job).items()
    return {name: f"encode({text.sql})" for name, text in texts if name not in reading.division.outputs}


def _short_texts(reading: JobReading) -> list[str]:
    """Lists conditions that leave out rows with private texts so long that a group could not hold them."""
    longest = min(reading.division.longest_read, reading.scan.longest_key)
    texts = (text.sql for name, text in text_names(reading.job).items() if name not in reading.division.outputs)
    return [f"{text} IS NULL OR strlen({text}) <= {longest}" for text in texts]


def _short_key(key: KeyText | Own, scan: JobScan) -> str:
    """Writes SQL for the key of a digest. The key is NULL if its texts are too long."""
    # DuckDB concatenates texts for some thousand rows at a time, which may all be one person's rows
    parts = Counter(part.column for part in key.parts) if isinstance(key, KeyText) else Counter[StoredColumn]()
    texts = {column.quoted_name: times for column, times in parts.items() if column.type_name == "VARCHAR"}
    if not texts:
        return key.sql
    longest = max(LONGEST_REPEATED, scan.longest_key // sum(parts.values()))
    length = " + ".join(f"ifnull(strlen({name}), 0) * {times}" for name, times in texts.items())
    return f"CASE WHEN {length} <= {longest} THEN {key.sql} END"


def own_aggregates(job: CountingJob, scan: JobScan, division: Division) -> list[Contribution]:
    """Returns the aggregates without the parts that the worker computes, with values as the database computes them."""
    outputs = division.outputs
    own = [
        Contribution(aggregate.condition) if value(number) in outputs else _own(aggregate, scan)
        for number, aggregate in enumerate(job.aggregates)
    ]
    return [replace(part, condition=None) if flag(number) in outputs else part for number, part in enumerate(own)]


def _own(aggregate: Contribution, scan: JobScan) -> Contribution:
    if aggregate.value is None:
        return aggregate
    number, column = scan.number(aggregate.value), scan.steps(aggregate)
    if number is None:
        raise InternalError("a value that a worker computes")
    if column:
        return replace(aggregate, value=Own((column,)), stepped=True)
    return replace(aggregate, value=Own((number.sql,)), reach=None if scan.unit is None else number.reach)


def _cell(number: int) -> str:
    return f"dpduck_cell_{number}"


def _inside(readings: Sequence[KeyReading], exactly: bool) -> list[str]:
    """Lists conditions of rows inside the domains. Unless `exactly`, other rows may pass: their groups are dropped."""
    conditions = [condition for reading in readings for condition in reading.filters]
    return [*conditions, *(reading.guard for reading in readings if reading.guard)] if exactly else conditions


def _words(reading: JobReading) -> list[list[int]]:
    """Lists words: positions of keys that share one 64-bit integer in mixed radix. The first key varies slowest."""
    # a key that a worker computes has its own word, as has each code of prepared rows, of which few are ranked
    words: list[list[int]] = []
    alone = reading.job.place.is_numbered and not reading.division.has_work
    for position, here in enumerate(reading.here):
        joined = words and here and reading.here[words[-1][0]] and not alone
        joined = joined and not {words[-1][0], position} & set(reading.labels)  # labels are coded later
        longer = [*words[-1], position] if joined else []
        if longer and _farthest(reading.keys, longer) < LARGEST_WORD:
            words[-1] = longer
        else:
            words.append([position])
    return words


def _weights(readings: Sequence[KeyReading], word: Sequence[int]) -> list[int]:
    return [prod(readings[later].slots for later in word[rank + 1 :]) for rank in range(len(word))]


def _farthest(readings: Sequence[KeyReading], word: Sequence[int]) -> int:
    """Bounds the absolute value of a packed integer, for rows inside and outside the domains."""
    reaches = (max(readings[position].reach, readings[position].slots) for position in word)
    return sum(reach * weight for reach, weight in zip(reaches, _weights(readings, word), strict=True))


def _word_sql(readings: Sequence[KeyReading], word: Sequence[int]) -> str:
    """Writes the integer that packs a word's keys, in 32 bits if possible, which sort faster than 64 bits."""
    if len(word) == 1 and readings[word[0]].as_it_is:
        return readings[word[0]].packed_sql
    type_name = "INTEGER" if _farthest(readings, word) < 1 << 31 else "BIGINT"
    slots = (readings[position].slot_sql(type_name) for position in word)
    return " + ".join(f"{slot} * {weight}" for slot, weight in zip(slots, _weights(readings, word), strict=True))


def _unpack(reading: JobReading, columns: Sequence[Column]) -> list[Column]:
    codes: list[Column] = []
    for word, column in zip(_words(reading), columns, strict=False):
        slots = np.unravel_index(np.ma.getdata(column), [reading.keys[position].slots for position in word])
        codes += [reading.keys[position].decode(slot) for position, slot in zip(word, slots, strict=True)]
    return codes


def _codes(reading: KeyReading, column: Column) -> Column:
    """Decodes the grouped values of a key to domain codes, in an array type that depends on no row."""
    values, missing = np.ma.getdata(column), np.ma.getmask(column)
    if not np.any(missing) and reading.first == 0 and np.array_equal(reading.codes, np.arange(len(reading.codes))):
        return values.astype(np.int64)
    slots = values.astype(np.int64) - reading.first
    slots[missing] = len(reading.codes)
    return reading.decode(slots)


def _exact_counts(job: CountingJob, keys: Sequence[Column], counts: NDArray[np.int64]) -> ExactCounts:
    """Turns key codes into codes of released attributes, and drops combinations outside a domain or an attribute."""
    inside = _all_inside(keys)
    if inside is not None:
        keys, counts = [codes[inside] for codes in keys], counts[:, inside]
    coordinates = [_attribute_codes(attribute, keys).astype(np.int64, copy=False) for attribute in job.attributes]
    mask = _all_inside(coordinates)
    if mask is not None:
        coordinates, counts = [codes[mask] for codes in coordinates], counts[:, mask]
    sizes = tuple(attribute.size for attribute in job.attributes)
    bounds = zip(job.aggregates, job.unit_bounds, strict=True)
    return ExactCounts(
        tuple(coordinates), counts, sizes, tuple(bound for aggregate, bound in bounds for _ in range(aggregate.tables))
    )


def _all_inside(columns: Sequence[Column]) -> NDArray[np.bool_] | None:
    """Marks the combinations that are kept: those without a negative code. None: all combinations are kept."""
    dropping = [codes < 0 for codes in columns if codes.dtype.kind == "i" and codes.size and codes.min() < 0]
    return ~np.logical_or.reduce(dropping) if dropping else None


def _attribute_codes(attribute: Attribute, keys: Sequence[Column]) -> Column:
    sources = tuple(keys[source] for source in attribute.sources)
    plain = len(sources) == 1 and np.array_equal(attribute.codes, np.arange(attribute.size))
    return sources[0] if plain else attribute.codes[sources]
