"""Private tables: rows drawn from a released distribution or cube. They are post-processing, free of charge."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.noise.entropy import words64
from dpduck.language.select.request import Key, SelectRequest
from dpduck.language.statements.synthetic import CreateSynthetic, SampleRelease
from dpduck.language.text.names import GROUPING_ID, GROUPING_SET, answer_column
from dpduck.mechanisms.cubes.combine import base_release
from dpduck.mechanisms.forecast import Forecast, explain_sql
from dpduck.mechanisms.known.margins import KnownMargins
from dpduck.mechanisms.parts import DatabaseParts
from dpduck.mechanisms.prices import describe_entry, price_of_view
from dpduck.mechanisms.released_rows import label_array
from dpduck.mechanisms.synthetic.children import Parents, child_codes, has_parents, parents_of
from dpduck.mechanisms.synthetic.cliques import LARGEST_TABLE, cells_for_fit, cliques_of
from dpduck.mechanisms.synthetic.inside import bins_of, drawn_inside
from dpduck.mechanisms.synthetic.measure import Model, model_of
from dpduck.mechanisms.synthetic.observations import Observation
from dpduck.mechanisms.synthetic.request import SyntheticRequest, analyse_synthetic
from dpduck.mechanisms.synthetic.sample import sample_codes
from dpduck.mechanisms.synthetic.seconds import drawing_seconds, observation_seconds
from dpduck.mechanisms.synthetic.table_fit import fit_tables
from dpduck.store.cursors import Caller, is_ctrl_c
from dpduck.store.releases import StoredRelease
from dpduck.store.sandbox import sandbox
from dpduck.values.errors import InternalError, Interrupted, Refusal
from dpduck.values.quoting import quote_identifier

WEIGHTS = "_weights"
LARGEST_SAMPLE = 10_000_000
Columns = Sequence[tuple[str, str, pa.Array]]


@dataclass(frozen=True, eq=False)
class Fitting:
    """Input of a sample: its columns, and the observations that its rows are fitted to."""

    columns: Columns
    sizes: tuple[int, ...]
    observations: tuple[Observation, ...]

    def seconds(self, rows: int) -> float:
        cliques = cliques_of(self.sizes, [observation.attributes for observation in self.observations])
        drawing = drawing_seconds(rows, len(self.sizes), len(cliques))
        return observation_seconds(self.sizes, self.observations) + drawing


class SyntheticTables:
    """Tables of CREATE PRIVATE TABLE and of samples, drawn under their names."""

    def __init__(
        self,
        parts: DatabaseParts,
        margins_of: Callable[[SampleRelease, Caller], KnownMargins],
        expect: Callable[[float], None],
    ) -> None:
        """Takes parts of a database. margins_of: reads known margins. expect: gets the seconds that are left."""
        self._parts, self._releases, self._views = parts, parts.releases, parts.views
        self._entropy, self._steps = parts.entropy, parts.steps
        self._known, self._expect = margins_of, expect

    def analyse(self, statement: CreateSynthetic, caller: Caller) -> SyntheticRequest:
        return self._parts.analyse(statement, analyse_synthetic, caller=caller)

    def create(self, statement: CreateSynthetic, text: str, caller: Caller) -> str:
        """Creates the tables of a statement: rows of a distribution that is stored, or released and charged now."""
        request = self.analyse(statement, caller)
        caller.require_tables(request.base.asked_tables)
        if self._is_ready(statement, text, caller, request):
            return self._views.ready(statement.name)
        release = self._parts.release(request, request.base, request.digest(), caller, text)
        with _free_again(release, self._parts.ledger):
            return self._store_rows(statement, text, caller, request, release)

    def _is_ready(self, statement: CreateSynthetic, text: str, caller: Caller, request: SyntheticRequest) -> bool:
        """Tells whether this very statement made its tables already, even if a parent was dropped since.

        All refusals come before the charge: of taken names, of too many weights, and of rows without room.
        """
        cells = prod(request.base.question.sizes)
        if request.options.weights and cells > LARGEST_TABLE:
            raise Refusal(
                f"the table of weights would have {cells} cells",
                accepted=f"at most {LARGEST_TABLE}, or the same statement without weights = TRUE",
            )
        names = [statement.name, *([statement.name + WEIGHTS] if request.options.weights else [])]
        if self._stand(names, statement, text, caller, request):
            return True
        parents = self._parents(statement, request)
        digest = _table_digest(request, parents)
        ready = [self._views.is_made(name, statement.replace, text, caller, digest) for name in names]
        wanted = request.options.rows if parents is None else parents.children
        if wanted is not None and not all(ready):
            _require_room(caller, wanted, _key_labels(request.base.question.keys))
        return all(ready)

    def _stand(
        self, names: Sequence[str], statement: CreateSynthetic, text: str, caller: Caller, request: SyntheticRequest
    ) -> bool:
        """Tells whether this statement made its tables from this distribution, for parents that have been dropped."""
        if statement.for_each is None or has_parents(self._releases, statement.for_each):
            return False
        release, views = self._releases.by_digest(request.digest()), [self._releases.view(name) for name in names]
        return release is not None and all(
            view is not None
            and (view.statement, view.principal, view.ledger_id) == (text, caller.name, release.ledger_id)
            and self._releases.is_taken(view.name)
            for view in views
        )

    def _parents(self, statement: CreateSynthetic, request: SyntheticRequest) -> Parents | None:
        return None if statement.for_each is None else parents_of(self._releases, statement.for_each, request)

    def _store_rows(
        self, statement: CreateSynthetic, text: str, caller: Caller, request: SyntheticRequest, release: StoredRelease
    ) -> str:
        """Stores rows of a released distribution, and the table of weights if the statement wants it."""
        description = self._releases.covariances(release.digest)
        if description is None:
            raise InternalError("a distribution without its description")
        model = model_of(description, self._releases.rows(release.name))
        columns, parents = _key_labels(request.base.question.keys), self._parents(statement, request)
        wanted = request.options.rows or min(LARGEST_SAMPLE, max(1, round(model.records)))
        wanted = wanted if parents is None else parents.children
        _require_room(caller, wanted, columns)
        # before the lock: others need not wait for the draw
        if statement.for_each is None or parents is None:
            drawn = self._rows(columns, model, wanted, request)
        else:
            drawn = self._children(statement.for_each.column, parents, columns, model, request)
        tables = {statement.name: _number_rows(drawn, request.options.key, wanted)}
        if request.options.weights:
            tables = {statement.name + WEIGHTS: _weights(columns, model), **tables}
        price = price_of_view(release, request.base, self._parts.ledger.budget(request.base.rows.unit_key))
        release = replace(release, digest=_table_digest(request, parents), price=price)
        return self._store(statement, text, caller, release, tables)

    def sample(self, statement: SampleRelease, text: str, caller: Caller) -> str:
        """Stores rows drawn from a distribution that is fitted to a released cube, or to all known margins."""
        base, fitted_to = self._source(statement, caller)
        if self._views.is_made(statement.name, statement.replace, text, caller, base.digest):
            return self._views.ready(statement.name)
        fitting = fitted_to()
        columns = fitting.columns
        _require_room(caller, statement.rows, columns)
        self._expect(fitting.seconds(statement.rows))
        self._steps("fitting")
        rows = self._rows(columns, Model(*fit_tables(fitting.sizes, fitting.observations)), statement.rows)
        return self._store(statement, text, caller, base, {statement.name: rows})

    def explain(self, statement: SampleRelease, caller: Caller) -> str:
        """Returns SQL of dp_explain for a sample: its expected time, and a price of 0."""
        base, fitted_to = self._source(statement, caller)
        fitting, note = fitted_to(), f"free of charge: fitted to what {base.name} says"
        if statement.columns:
            note = "free of charge: fitted to all that is known of these columns"
        cells, tables = sum(observation.value.size for observation in fitting.observations), len(fitting.observations)
        seconds, free, words = fitting.seconds(statement.rows), Fraction(0), "nothing: it reads released tables alone"
        way = Forecast("sample", True, cells, tables, (note,), seconds=seconds)
        return explain_sql([replace(way, epsilon=free, delta=free, rho=free, price=words)])

    def _source(self, statement: SampleRelease, caller: Caller) -> tuple[StoredRelease, Callable[[], Fitting]]:
        """Returns a released cube, or all known margins as one release, and a function that reads the margins."""
        self._steps("reading releases")
        if statement.columns:
            margins = self._known(statement, caller)
            return margins.release, lambda: _of_margins(margins)
        name = statement.source.table
        base = base_release(self._releases, name, caller)

        def cube() -> Fitting:
            if base.laws:
                return _of_cube(self._releases.rows(base.name), base, name)
            raise Refusal(
                f"{name!r} is a synthetic table already",
                accepted="the statement that made it, with another number of rows, which is free",
            )

        return base, cube

    def _store(
        self, statement: CreateSynthetic | SampleRelease, text: str, caller: Caller, release: StoredRelease,
        tables: Mapping[str, Columns],
    ) -> str:  # fmt: skip
        """Stores tables under their names, except those that this very statement made meanwhile."""
        with self._views.naming():
            for name, columns in tables.items():
                if not self._views.is_made(name, statement.replace, text, caller, release.digest):
                    view = replace(release, name=name, statement=text, principal=caller.name, kind="view")
                    types = [(column, type_name) for column, type_name, _ in columns]
                    table = pa.table({column: values for column, _, values in columns})
                    self._releases.put_rows(view, types, table, statement.replace)
        return self._views.ready(statement.name)

    def _rows(self, columns: Columns, model: Model, rows: int, request: SyntheticRequest | None = None) -> Columns:
        self._steps("drawing rows")
        codes = sample_codes(model.distribution, rows, lambda count: words64(self._entropy, count))
        taken = _decode(columns, codes)
        return taken if request is None or not request.options.inside else self._inside(taken, codes, request.base)

    def _children(
        self, column: str, parents: Parents, columns: Columns, model: Model, request: SyntheticRequest
    ) -> Columns:
        """Draws children with a column of their parents' keys, and without the columns that parents have."""
        self._steps("drawing rows")
        own = [place for place in range(len(columns)) if place not in parents.given]
        all_codes = child_codes(
            model.distribution, parents.times, parents.given, lambda count: words64(self._entropy, count), request.zeros
        )
        codes = [all_codes[place] for place in own]
        taken = _decode([columns[place] for place in own], codes)
        if request.options.inside:
            keys = tuple(request.base.question.keys[place] for place in own)
            question = replace(request.base.question, keys=keys)
            taken = self._inside(taken, codes, replace(request.base, question=question))
        owners = parents.keys.take(pa.array(np.repeat(np.arange(len(parents.times)), parents.times)))
        return [(column, "BIGINT", owners), *taken]

    def _inside(self, taken: Columns, codes: Sequence[np.ndarray], base: SelectRequest) -> Columns:
        columns = []
        with sandbox() as connection:
            for (name, type_name, edges), key, code in zip(taken, base.question.keys, codes, strict=True):
                bins, values = bins_of(base, key), None
                if bins is not None:
                    uniform = (words64(self._entropy, len(code)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
                    values = drawn_inside(connection, type_name, bins, code, uniform)
                columns.append((name, type_name, edges if values is None else values))
        return columns


@contextmanager
def _free_again(release: StoredRelease, ledger: Ledger) -> Iterator[None]:
    """Turns Ctrl-C into Interrupted while a table is drawn from a stored release. The release stays paid."""
    try:
        yield
        return
    except (KeyboardInterrupt, RuntimeError) as error:
        if not is_ctrl_c(error):
            raise
    paid = describe_entry(ledger.entry(release.ledger_id))  # outside the handler: the error could quote data
    raise Interrupted(f"interrupted; {paid} stays charged; what it paid for is stored: asking again is free")


def _table_digest(request: SyntheticRequest, parents: Parents | None) -> str:
    digest = request.digest()
    return digest if parents is None else hashlib.sha256(f"{digest} {parents.identity}".encode()).hexdigest()


def _number_rows(columns: Columns, key: str, rows: int) -> Columns:
    """Adds a first column `key` that numbers the rows, if `key` is not empty."""
    return [(key, "BIGINT", pa.array(np.arange(1, rows + 1))), *columns] if key else columns


def _key_labels(keys: Sequence[Key]) -> Columns:
    with sandbox() as connection:
        return [(key.name, key.type_name, label_array(connection, key.labels, key.type_name)) for key in keys]


def _of_margins(margins: KnownMargins) -> Fitting:
    """Returns known margins as the input of a sample. Refuses margins that need too large tables."""
    sizes = [len(key.labels) for key in margins.keys]
    needed = cells_for_fit(sizes, [observation.attributes for observation in margins.observations])
    if needed > LARGEST_TABLE:
        raise Refusal(
            f"what is known connects these columns in {needed} cells",
            accepted=f"fewer columns: at most {LARGEST_TABLE} cells",
        )
    return Fitting(_key_labels(margins.keys), tuple(sizes), margins.observations)


def _require_room(caller: Caller, rows: int, columns: Columns) -> None:
    left = rows if caller.room is None else caller.room(None)
    if rows > left:
        raise Refusal(
            f"{rows} rows have no room in the store", accepted=f"at most {left}; DROP PRIVATE VIEW makes room"
        )
    texts = [labels for _, _, labels in columns if pa.types.is_string(labels.type)]
    caller.require_texts(rows, sum(pc.max(pc.utf8_length(labels)).as_py() or 0 for labels in texts))


def _decode(columns: Columns, codes: Sequence[np.ndarray]) -> Columns:
    return [
        (name, type_name, labels.take(pa.array(code)))
        for (name, type_name, labels), code in zip(columns, codes, strict=True)
    ]


def _weights(columns: Columns, model: Model) -> Columns:
    joined, place = model.distribution.join(range(len(columns)))
    table = joined.components[place].table
    cells = _decode(columns, np.unravel_index(np.arange(table.size), table.shape))
    probability = _free_name("probability", [name for name, _, _ in columns])
    return [*cells, (probability, "DOUBLE", pa.array(table.reshape(-1)))]


def _free_name(wanted: str, taken: Sequence[str]) -> str:
    return wanted if wanted not in [name.lower() for name in taken] else _free_name(f"dp_{wanted}", taken)


def _of_cube(rows: pa.Table, release: StoredRelease, name: str) -> Fitting:
    """Returns the released marginals of the first aggregate over the cube's columns, as the input of a sample."""
    if GROUPING_ID not in rows.column_names:
        raise Refusal(f"{name!r} is no cube", accepted="a release of counts by grouping sets")
    keys = rows.column_names[: rows.column_names.index(GROUPING_ID)]
    rolled_up = rows[GROUPING_ID].to_numpy()
    numbers, answers = rows[GROUPING_SET].to_numpy(), rows[answer_column(0)].to_numpy().astype(np.float64)
    labels, codes = [], []
    for place, key in enumerate(keys):
        shown = rows[key].filter(pa.array(rolled_up >> place & 1 == 0))
        distinct = pc.unique(shown)
        labels.append(distinct)
        codes.append(pc.index_in(rows[key], value_set=distinct, skip_nulls=False).fill_null(0).to_numpy())
    if not keys or any(len(distinct) == 0 for distinct in labels):
        raise Refusal(f"{name!r} has no columns to draw", accepted="a cube whose columns are all in some grouping set")
    sizes = tuple(len(distinct) for distinct in labels)
    observations = []
    for number in np.unique(numbers):
        chosen = numbers == number
        members = tuple(place for place in range(len(keys)) if not int(rolled_up[chosen][0]) >> place & 1)
        shape = tuple(sizes[member] for member in members)
        if int(chosen.sum()) != int(np.prod(shape, dtype=np.int64)):
            raise Refusal(f"{name!r} is no cube over all its values", accepted="counts by plain columns")
        table = np.zeros(shape)
        places = tuple(codes[member][chosen] for member in members)
        table.reshape(-1)[np.ravel_multi_index(places, shape) if members else [0]] = answers[chosen]
        observations.append(Observation(members, table, max(release.laws[0][int(number)].variance, 1e-9)))
    if cells_for_fit(sizes, [observation.attributes for observation in observations]) > LARGEST_TABLE:
        raise Refusal(f"{name!r} connects more cells than one table holds", accepted=f"at most {LARGEST_TABLE} cells")
    columns = [(key, _type_of(rows, key), distinct) for key, distinct in zip(keys, labels, strict=True)]
    return Fitting(columns, sizes, tuple(observations))


def _type_of(rows: pa.Table, key: str) -> str:
    with sandbox() as connection:
        connection.register("released_rows", rows.select([key]).slice(0, 0))
        described = connection.execute(f"DESCRIBE SELECT {quote_identifier(key)} FROM released_rows").fetchone()
    if described is None:
        raise InternalError("a column without a type")
    return str(described[1])
