"""Counts groups by private keys, and decides by noisy counts alone which of them are published; nothing else of a
group leaves before that. What publishing one that was not there may cost is a tail of the noise, computed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from math import erfc, exp, expm1, fsum, log1p, sqrt

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpduck.kernel.columns.expressions import Own
from dpduck.kernel.contributions import KEY, Contribution, Crowds, key_integer
from dpduck.kernel.counting.contribution_sql import row_columns, steps_sql, tables_from
from dpduck.kernel.counting.exact import own_aggregates, worker_outputs
from dpduck.kernel.counting.hidden import Hidden
from dpduck.kernel.counting.jobs import Attribute, CountingJob, KeyedJob
from dpduck.kernel.noise.draw import draw
from dpduck.kernel.noise.entropy import Entropy
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask, Query, by_noise, together
from dpduck.kernel.queries.operators import Norms
from dpduck.kernel.rows import reader
from dpduck.kernel.rows.binning import code_expression, is_long_list, label_name, short_label
from dpduck.kernel.rows.bins import texts_parameter, texts_sql
from dpduck.kernel.rows.scan import Ranked, Scan, counted, rows_sql, scan_of
from dpduck.kernel.stage import UNITS, cut_sql, stage_sql
from dpduck.kernel.worker.program import BATCH_TEXTS, Division, Output
from dpduck.kernel.worker.workers import Workers
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError
from dpduck.values.privacy import Charge


class KeyStream(Hidden):
    """Groups that are not counted before they are looked at; hidden."""

    __slots__ = ("_bounding_key", "_cursor", "_job", "_workers")

    def __init__(
        self, cursor: duckdb.DuckDBPyConnection, job: KeyedJob, bounding_key: bytes, workers: Workers | None = None
    ) -> None:
        self._cursor, self._job, self._bounding_key, self._workers = cursor, job, bounding_key, workers

    def read(self) -> None:
        """Reads every group and lets it go."""
        with read_groups(self._cursor, self._job, self._bounding_key, self._workers) as batches:
            for _ in batches:
                pass


SUMMED = 9e6
"""Up to this sigma^2 a tail is summed term by term."""


@dataclass(frozen=True)
class GroupBounds:
    """What one privacy unit changes at most.

    groups: C, counts that it is in. per_group: k, each of them. total: their sum. rows: of an answer, all in one cell.
    """

    groups: int
    per_group: int
    total: int
    rows: int

    @property
    def l1(self) -> int:
        """Returns the L1 norm of what a unit changes in the counts that keys are selected by."""
        return min(self.groups * self.per_group, self.total)

    @property
    def l2_squared(self) -> int:
        """Returns its squared L2 norm: the total in as few groups as hold it."""
        return min(self.groups * self.per_group**2, self.total * self.per_group)


@dataclass(frozen=True)
class PublishedKeys:
    """What is published. keys: an array per key, codes of public domains before texts, in an order of their own.

    answers: for each aggregate, one noisy integer per group. other: for each, what was suppressed in all, noisy.
    """

    keys: tuple[pa.Array, ...]
    answers: tuple[IntegerArray, ...]
    other: tuple[int, ...] | None


@dataclass(frozen=True, eq=False)
class Beside:
    """An aggregate of published groups: its noise, and how far one unit moves its table by group."""

    noise: Noise
    norms: Norms


@dataclass(frozen=True, eq=False)
class Threshold(Query[PublishedKeys]):
    """Groups of at least `least` units whose noisy count is above least - 1 + k + excess, and their answers.

    The ask's noise is that of the selecting count. bounds: of the scan. answers: noise of the other answers.
    aggregates: how many there are; reused: those that the selecting count answers. other: whether what was suppressed
    is counted, for each aggregate. beside: one for each aggregate, where any is no count. It is empty for counts of
    rows, which have the noise `answers`.

    The price is that of the selecting count and of the answers, by their norms, and the delta of groups of one unit
    (key_delta).
    """

    bounds: GroupBounds
    least: int
    excess: int
    answers: Noise
    aggregates: int
    reused: tuple[int, ...]
    other: bool
    beside: tuple[Beside, ...] = ()

    def __post_init__(self) -> None:
        if self.beside and len(self.beside) != self.aggregates:
            raise InternalError("aggregates without their noise")

    def of_aggregate(self, number: int) -> Beside:
        """Returns the noise and the norms of one aggregate of the job."""
        rows = self.bounds.rows
        return self.beside[number] if self.beside else Beside(self.answers, (rows, rows * rows, rows))

    @property
    def paid(self) -> tuple[int, ...]:
        """Returns the aggregates that are answered beside the selecting count."""
        return tuple(number for number in range(self.aggregates) if self.other or number not in self.reused)

    @property
    def above(self) -> int:
        """Published is what has a noisy count above it."""
        return self.least - 1 + self.bounds.per_group + self.excess

    def moved(self) -> list[tuple[Noise, Norms]]:
        """Returns each noise of the answers beside the selecting count, and how far a unit moves all that have it."""
        return by_noise((one.noise, one.norms) for one in map(self.of_aggregate, self.paid))

    def cost(self, ask: Ask[PublishedKeys]) -> Charge:
        bounds, noise = self.bounds, ask.law
        if any(law.kind is not noise.kind for law in (self.answers, *(one.noise for one in self.beside))):
            raise InternalError("a release has either Laplace or Gaussian noise")
        costs = [noise.cost(bounds.l1, bounds.l2_squared, bounds.per_group)]
        costs += [law.cost(*norms) for law, norms in self.moved()]
        return together(costs, key_delta(noise, self.excess, bounds.groups))

    def require(self, job: object) -> None:
        if not isinstance(job, KeyedJob) or bounds_of(job) != self.bounds:
            raise InternalError("the plan and the counts disagree about the contribution bounds")
        moved = [self.of_aggregate(number).norms for number in range(self.aggregates)]
        if moved != list(job.norms_beside(self.other)):
            raise InternalError("the plan and the counts disagree about what a unit adds to a group")

    def draw(self, counts: Hidden, ask: Ask[PublishedKeys], entropy: Entropy, chosen: object) -> PublishedKeys:
        """Counts, adds noise, compares and answers, group by group as they are counted."""
        if not isinstance(counts, KeyStream):
            raise InternalError("a query of other counts")
        job = counts._job
        self.require(job)
        published, suppressed = _selected(counts, self, ask.law, entropy)
        names = [group_name(number) for number in range(len(job.rows.attributes) + len(job.texts))]
        published = published.take(pc.sort_indices(published, sort_keys=[(name, "ascending") for name in names]))
        answers = []
        for number in range(self.aggregates):
            exact = published.column(UNITS if number in self.reused else f"{TABLE}{number}").to_numpy()
            if number not in self.reused:
                exact = exact + draw(self.of_aggregate(number).noise, len(exact), entropy)  # modulo 2^64
            answers.append(exact)
        other = None
        if self.other:  # modulo 2^64, as all tables are
            noise = [draw(self.of_aggregate(number).noise, 1, entropy)[0] for number in range(self.aggregates)]
            other = tuple((suppressed + np.array(noise)).tolist())
        return PublishedKeys(tuple(published.column(name).combine_chunks() for name in names), tuple(answers), other)

    def certificate(self) -> Mapping[str, object]:
        counts = {**asdict(self.bounds), "excess": self.excess}
        if self.beside:  # what is answered beside the selection is written as other measurements are
            return {**counts, "answered": 0}
        return {**counts, "answered": len(self.paid), "answers": self.answers}

    def measurements(self) -> list[tuple[Noise, Norms]]:
        return self.moved() if self.beside else []


def key_delta(noise: Noise, excess: int, groups: int) -> Fraction:
    """1 - P(noise <= excess)^groups, rounded up: that a group is published which was not there. 1 below 0.

    Gaussian, f(n) = exp(-n^2 / (2 sigma^2)): the sum of f from excess + 1 on over that of all; for large sigma f is
    convex there, so each term is at most the integral over the unit around it, and the sum of all is at least
    sqrt(2 pi) sigma (Poisson's formula has positive terms only).
    """
    first, scale = excess + 1, float(noise.parameter)
    if noise.kind is NoiseKind.LAPLACE:
        one = exp(-first / scale) / (1 + exp(-1 / scale))
    elif scale > SUMMED:
        one = erfc((first - 0.5) / sqrt(2 * scale)) / 2 if (first - 0.5) ** 2 > scale else 1.0
    else:
        last = int(sqrt(first * first + 90 * scale)) + 2
        terms = fsum(exp(-n * n / (2 * scale)) for n in range(first, last))
        one = terms / (1 + 2 * fsum(exp(-n * n / (2 * scale)) for n in range(1, int(9 * sqrt(scale)) + 2)))
    one *= 1 + 1e-10
    share = 1.0 if one >= 0.5 else -expm1(groups * log1p(-one))
    return min(Fraction(share) * (1 + Fraction(1, 10**10)) + Fraction(1, 10**290), Fraction(1))


def _selected(stream: KeyStream, query: Threshold, noise: Noise, entropy: Entropy) -> tuple[pa.Table, IntegerArray]:
    """Returns the published groups, their units noisy, and the exact sums of all others."""
    suppressed, kept = np.zeros(query.aggregates, np.int64), []
    with read_groups(stream._cursor, stream._job, stream._bounding_key, stream._workers) as batches:
        for groups in batches:
            units = groups.column(UNITS).to_numpy()
            noisy = units + draw(noise, len(units), entropy)
            chosen = (units >= query.least) & (noisy > query.above)
            tables = _tables(groups, stream._job.rows.aggregates)
            for number, table in enumerate(tables):
                suppressed[number : number + 1] += table[~chosen].sum()
            names = [name for name in groups.column_names if name.startswith(GROUP)]
            columns = {name: groups.column(name) for name in names} | {UNITS: pa.array(noisy)}
            columns |= {f"{TABLE}{number}": pa.array(table) for number, table in enumerate(tables)}
            kept.append(pa.Table.from_pydict(columns).filter(pa.array(chosen)))
    return pa.concat_tables(kept), suppressed


def _tables(groups: pa.Table, aggregates: Sequence[Contribution]) -> list[IntegerArray]:
    """Returns the exact tables of all aggregates, one integer a group each."""
    names = [name for name in groups.column_names if not name.startswith(GROUP) and name != UNITS]
    return tables_from(aggregates, [groups.column(name).to_numpy() for name in names])


def bounds_of(job: KeyedJob) -> GroupBounds:
    """C, k, the total and the rows of one unit, as the SQL that will run bounds them."""
    if job.rows.unit is None:
        copies = job.rows.copies
        return GroupBounds(copies, copies, copies, copies)
    return GroupBounds(job.group_bound, 1, job.group_bound, job.rows.max_rows)


# Reads exact counts of privacy units and rows by groups of which some keys are private, C groups of each unit at most.
#
# Texts are grouped by their bytes: a collation would show one person's spelling of a key that others wrote otherwise.


GROUP, TABLE = "dpduck_group_", "dpduck_table_"  # columns of keys, and of an aggregate's table, one integer a group


def group_name(number: int) -> str:
    """Returns the column of a group's key: first the attributes as codes, then the texts as bytes."""
    return f"{GROUP}{number}"


@contextmanager
def read_groups(
    cursor: duckdb.DuckDBPyConnection, job: KeyedJob, bounding_key: bytes, workers: Workers | None
) -> Iterator[Iterator[pa.Table]]:
    """Lends one row per occupied group, in batches: its keys, its aggregates, and how many units it has."""
    rows, scan = job.rows, scan_of(job.rows, job.texts)
    outputs = worker_outputs(rows, scan)
    for number, text in enumerate(job.texts, start=len(rows.attributes)):
        if not text.plain:
            outputs[group_name(number)] = Output("bytes", text)
    division = Division(outputs, scan.moved, copies=scan.copies, keys=len(job.texts))
    sql, parameters = _rows(job, scan, division)
    m, ordered = None, dict[str, object]()
    if rows.unit is not None:
        m = rows.max_rows
        ordered = {KEY: key_integer(bounding_key)}
    cells: dict[str, int | None] = {group_name(number): one.size for number, one in enumerate(rows.attributes)}
    cells |= {group_name(number): None for number in range(len(cells), len(cells) + len(job.texts))}
    hashed = {} if rows.prepared is not None else ordered
    again, known = ordered if m is not None and job.groups < m else {}, scan.known(None, division.needed)

    def stage(found: str, crowds: Crowds | None) -> str:
        return stage_sql(found, cells, rows.aggregates, m, job.groups, known, crowds)

    def cut(found: str) -> tuple[str, str]:
        return cut_sql(found, cells, rows.aggregates, rows.max_rows, job.groups)

    named = parameters | hashed
    whole = any(one.norm for one in rows.aggregates)  # units are weighed, and none of them is told apart before
    ranked = None if again or whole else Ranked(rows, lambda other: _rows(job, other, division)[0])
    with counted(
        cursor, scan, sql, named, division, workers, stage, again, cut, texts=True, ranked=ranked
    ) as found:  # fmt: skip
        counts, second, given = found
        yield reader.text_batches(second, counts, given, BATCH_TEXTS)


def _rows(job: KeyedJob, scan: Scan, division: Division) -> tuple[str, dict[str, object]]:
    """Returns rows with the columns of their group, flags, unit and order, but for what a worker computes; with
    parameters.
    """
    rows, parameters = job.rows, dict[str, object]()
    codes, labels, late = dict[str, str](), dict[str, str](), list[str]()
    for position, key in enumerate(rows.keys):
        if is_long_list(key):  # looked up of what is short by then
            labels[label_name(position)] = short_label(key)
            late.append(f"dpduck_code_{position}")
        read_as = replace(key, value=Own((label_name(position),))) if label_name(position) in labels else key
        code = code_expression(read_as, position)
        parameters.update(code.parameters)
        codes[f"dpduck_code_{position}"] = code.sql
    named = {group_name(number): text for number, text in enumerate(job.texts, start=len(rows.attributes))}
    texts = {name: text.sql for name, text in named.items() if name not in division.outputs}
    encoded = {name: f"encode({text})" for name, text in texts.items()}
    own = own_aggregates(rows, scan, division)
    flags = row_columns(own)
    longest = min(division.longest_read, scan.longest_key)
    short = [f"{text} IS NULL OR strlen({text}) <= {longest}" for text in texts.values()]
    inner = {name: sql for name, sql in (*codes.items(), *labels.items()) if name not in late}
    read = rows_sql(scan, {**inner, **encoded, **flags}, short, division)
    if late:
        kept = [*(name for name in inner if name not in labels), *texts, *flags, *scan.bounding, *division.inputs()]
        read = f"SELECT {', '.join([*(f'{codes[name]} AS {name}' for name in late), *kept])} FROM ({read})"
    if not rows.attributes:
        return steps_sql(own, read, [*texts, *scan.bounding, *division.inputs()]), parameters
    attributes = [
        f"{_attribute_sql(rows, attribute, number, parameters)} AS {group_name(number)}"
        for number, attribute in enumerate(rows.attributes)
    ]
    kept = [*texts, *flags, *scan.bounding, *division.inputs()]
    found = f"SELECT {', '.join([*attributes, *kept])} FROM ({read})"
    grouped = [group_name(number) for number in range(len(attributes))]
    return steps_sql(own, found, [*grouped, *texts, *scan.bounding, *division.inputs()]), parameters


def _attribute_sql(rows: CountingJob, attribute: Attribute, number: int, parameters: dict[str, object]) -> str:
    """Returns the attribute's code, NULL or -1 where a row is outside: for a plain key its own, else looked up."""
    codes = [f"CAST(dpduck_code_{source} AS BIGINT)" for source in attribute.sources]
    if len(codes) == 1 and np.array_equal(attribute.codes, np.arange(attribute.size)):
        return codes[0]
    name = f"dpduck_image_{number}"
    parameters[name] = texts_parameter(str(code) for code in attribute.codes.reshape(-1).tolist())
    place = codes[0]
    for code, source in zip(codes[1:], attribute.sources[1:], strict=True):
        place = f"({place} * {rows.keys[source].domain.size} + {code})"
    return f"list_extract({texts_sql(name, 'BIGINT')}, {place} + 1)"
