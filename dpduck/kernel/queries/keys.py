"""Selection of groups by private keys: a group with enough units is published if its noisy number of units is large.

Nothing about other groups leaves. Delta is the chance that a new group is published, a tail of the noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fractions import Fraction
from math import erfc, exp, expm1, fsum, log1p, sqrt

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpduck.kernel.counting.contribution_sql import tables_from
from dpduck.kernel.counting.exact import GROUP, counting_cells, read_job
from dpduck.kernel.counting.hidden import Hidden
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.noise.draw import draw
from dpduck.kernel.noise.entropy import Entropy
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask, Query, by_noise, together
from dpduck.kernel.queries.operators import Norms
from dpduck.kernel.rows import reader
from dpduck.kernel.stage import UNITS
from dpduck.kernel.worker.program import BATCH_TEXTS
from dpduck.kernel.worker.workers import Workers
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError
from dpduck.values.privacy import Charge

TABLE = "dpduck_table_"
"""Prefix of the columns with an aggregate's table: one integer per group."""


class KeyStream(Hidden):
    """Hidden stream of groups, which are counted only when they are read."""

    __slots__ = ("_bounding_key", "_cursor", "_job", "_workers")

    def __init__(
        self, cursor: duckdb.DuckDBPyConnection, job: CountingJob, bounding_key: bytes, workers: Workers | None = None
    ) -> None:
        self._cursor, self._job, self._bounding_key, self._workers = cursor, job, bounding_key, workers

    def read_all(self) -> None:
        with read_groups(self._cursor, self._job, self._bounding_key, self._workers) as batches:
            for _ in batches:
                pass


SUMMED = 9e6
"""The largest sigma^2 at which a tail is summed term by term."""


@dataclass(frozen=True)
class GroupBounds:
    """Bounds of one privacy unit. groups: C, the most groups with its rows. rows: the most rows.

    per_group: k, the most that it changes one group's number of units. total: the most that it changes all these
    numbers.
    """

    groups: int
    per_group: int
    total: int
    rows: int

    @property
    def l1(self) -> int:
        return min(self.groups * self.per_group, self.total)

    @property
    def l2_squared(self) -> int:
        """Returns the squared L2 sensitivity of these counts. The worst case puts the total into the fewest groups."""
        return min(self.groups * self.per_group**2, self.total * self.per_group)


@dataclass(frozen=True)
class PublishedKeys:
    """Published groups, sorted by their keys. keys: one array per key, codes of public domains before texts.

    answers: for each aggregate, one noisy integer per group. other: for each aggregate, the suppressed groups' total.
    """

    keys: tuple[pa.Array, ...]
    answers: tuple[IntegerArray, ...]
    other: tuple[int, ...] | None


@dataclass(frozen=True, eq=False)
class Beside:
    """Noise of one aggregate of published groups, and the sensitivity of its table to one unit."""

    noise: Noise
    norms: Norms


@dataclass(frozen=True, eq=False)
class Threshold(Query[PublishedKeys]):
    """Groups with at least `least` units and a noisy count above least - 1 + k + excess, and their answers.

    The ask's noise is added to each group's number of units, which selects groups (the selecting count). bounds: the
    scan's bounds. answers: the noise of the other answers. aggregates: the number of aggregates. reused: numbers of
    aggregates that the selecting count answers. other: whether each aggregate has a total of the suppressed groups.
    beside: one entry per aggregate. It is empty if all aggregates are counts of rows, which have the noise `answers`.

    The price is the sum of the costs of the selecting count and of the answers, by their norms. The delta is the chance
    that new groups of one unit are published (key_delta).
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
        if self.least < 1:
            raise InternalError("groups of no privacy unit")

    def of_aggregate(self, number: int) -> Beside:
        rows = self.bounds.rows
        return self.beside[number] if self.beside else Beside(self.answers, (rows, rows * rows, rows))

    @property
    def paid(self) -> tuple[int, ...]:
        return tuple(number for number in range(self.aggregates) if self.other or number not in self.reused)

    @property
    def above(self) -> int:
        """Returns the threshold: the noisy count of a published group is above it."""
        return self.least - 1 + self.bounds.per_group + self.excess

    def norms_by_noise(self) -> list[tuple[Noise, Norms]]:
        """Returns each noise of the other answers, with the summed norms of all answers that share this noise."""
        return by_noise((answer.noise, answer.norms) for answer in map(self.of_aggregate, self.paid))

    def cost(self, ask: Ask[PublishedKeys]) -> Charge:
        bounds, noise = self.bounds, ask.law
        if any(law.kind is not noise.kind for law in (self.answers, *(answer.noise for answer in self.beside))):
            raise InternalError("a release has either Laplace or Gaussian noise")
        costs = [noise.cost(bounds.l1, bounds.l2_squared, bounds.per_group)]
        costs += [law.cost(*norms) for law, norms in self.norms_by_noise()]
        return together(costs, key_delta(noise, self.excess, bounds.groups))

    def require(self, job: CountingJob) -> None:
        if not job.selected or bounds_of(job) != self.bounds:
            raise InternalError("the plan and the counts disagree about the contribution bounds")
        moved = [self.of_aggregate(number).norms for number in range(self.aggregates)]
        if moved != list(job.norms_beside(self.other)):
            raise InternalError("the plan and the counts disagree about what a unit adds to a group")

    def draw(self, counts: Hidden, ask: Ask[PublishedKeys], entropy: Entropy, chosen: object) -> PublishedKeys:
        """Reads the groups once, selects some by noisy counts, and adds noise to the answers of the selected groups."""
        if not isinstance(counts, KeyStream):
            raise InternalError("a query of other counts")
        job = counts._job
        self.require(job)
        published, suppressed = _select_groups(counts, self, ask.law, entropy)
        names = key_names(job)
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
        if self.beside:  # answers beside the selection are listed as measurements
            return {**counts, "answered": 0}
        return {**counts, "answered": len(self.paid), "answers": self.answers}

    def measurements(self) -> list[tuple[Noise, Norms]]:
        return self.norms_by_noise() if self.beside else []


def key_delta(noise: Noise, excess: int, groups: int) -> Fraction:
    """Returns 1 - P(noise <= excess)^groups, rounded up: the chance to publish any new group. 1 if excess is negative.

    Let f(n) = exp(-n^2 / (2 sigma^2)). The Gaussian tail is the sum of f from excess + 1 on, divided by the sum of all
    f(n). For large sigma, f is convex in the tail. So each term is at most the integral over the unit interval around
    it. The sum of all f(n) is at least sqrt(2 pi) sigma, since Poisson's formula has positive terms only.
    """
    first, scale = excess + 1, float(noise.parameter)
    if noise.kind is NoiseKind.LAPLACE:
        tail = exp(-first / scale) / (1 + exp(-1 / scale))
    elif scale > SUMMED:
        tail = erfc((first - 0.5) / sqrt(2 * scale)) / 2 if (first - 0.5) ** 2 > scale else 1.0
    else:
        last = int(sqrt(first * first + 90 * scale)) + 2
        terms = fsum(exp(-n * n / (2 * scale)) for n in range(first, last))
        tail = terms / (1 + 2 * fsum(exp(-n * n / (2 * scale)) for n in range(1, int(9 * sqrt(scale)) + 2)))
    tail *= 1 + 1e-10
    share = 1.0 if tail >= 0.5 else -expm1(groups * log1p(-tail))
    return min(Fraction(share) * (1 + Fraction(1, 10**10)) + Fraction(1, 10**290), Fraction(1))


def _select_groups(
    stream: KeyStream, query: Threshold, noise: Noise, entropy: Entropy
) -> tuple[pa.Table, IntegerArray]:
    """Returns the published groups, with noisy numbers of units, and the exact sums of all other groups."""
    suppressed, published = np.zeros(query.aggregates, np.int64), []
    with read_groups(stream._cursor, stream._job, stream._bounding_key, stream._workers) as batches:
        for groups in batches:
            units = groups.column(UNITS).to_numpy()
            noisy = units + draw(noise, len(units), entropy)
            chosen = (units >= query.least) & (noisy > query.above)
            tables = _tables(groups, stream._job)
            for number, table in enumerate(tables):
                suppressed[number : number + 1] += table[~chosen].sum()
            columns = {name: groups.column(name) for name in key_names(stream._job)} | {UNITS: pa.array(noisy)}
            columns |= {f"{TABLE}{number}": pa.array(table) for number, table in enumerate(tables)}
            published.append(pa.Table.from_pydict(columns).filter(pa.array(chosen)))
    return pa.concat_tables(published), suppressed


def key_names(job: CountingJob) -> list[str]:
    """Returns the names of the key columns of groups. These columns come first."""
    return [f"{GROUP}{number}" for number in range(len(job.attributes) + len(job.texts))]


def _tables(groups: pa.Table, job: CountingJob) -> list[IntegerArray]:
    """Returns the exact tables of all aggregates, one integer per group, from the columns between keys and units."""
    columns = groups.columns[len(key_names(job)) : -1]
    return tables_from(job.aggregates, [column.to_numpy() for column in columns])


def bounds_of(job: CountingJob) -> GroupBounds:
    """Returns the bounds of one unit that the SQL of a job enforces."""
    if job.unit is None:
        return GroupBounds(job.copies, job.copies, job.copies, job.copies)
    return GroupBounds(job.group_bound, 1, job.group_bound, job.max_rows)


@contextmanager
def read_groups(
    cursor: duckdb.DuckDBPyConnection, job: CountingJob, bounding_key: bytes, workers: Workers | None
) -> Iterator[Iterator[pa.Table]]:
    """Yields the occupied groups in batches, one row each: its keys, its aggregates and its number of units."""
    with counting_cells(cursor, read_job(job), bounding_key, workers) as (counts, second, given):
        yield reader.text_batches(second, counts, given, BATCH_TEXTS)
