"""Projections decoded by least squares over listed keys, in plain SQL: right, honest about errors, and free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import duckdb
import numpy as np
import pytest

from benchmarks.papers._no_rows import NO_ROWS
from dpduck.algebra.hashing import evaluate
from dpduck.database.macros import read_macro_files
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.law import NoiseKind
from dpduck.kernel.price import Ask, AskScan
from dpduck.kernel.queries.key_counts import KeyCounts
from dpduck.kernel.queries.projections import Projection
from dpduck.mechanisms.sparse.projection import INDEPENDENCE, ProjectionPlan, plan_projection
from dpduck.values.privacy import Charge
from tests.algebra.sign_oracle import elements_of, signs
from tests.mechanisms.sparse.sparse import fill, projection
from tests.support.clinics import Clinic

LISTED, OTHERS, ROWS, RUNS, SPARSITY = 120, 30, 250, 40, 8
NAMES = [f"K{number}" for number in range(LISTED + OTHERS)]
QUERIES = LISTED // SPARSITY
LITERALS = (True, False, None)


@pytest.fixture
def visits(open_clinic: Callable[..., Clinic]) -> Clinic:
    made = open_clinic()
    fill(made)
    return made


@pytest.fixture
def plain() -> duckdb.DuckDBPyConnection:
    """A DuckDB without dpduck: the shipped macros alone."""
    made = duckdb.connect()
    for text in read_macro_files():
        made.execute(text)
    return made


@dataclass(frozen=True)
class Released:
    """A projection's public content, and the signs of all names in its rows."""

    plan: ProjectionPlan
    coefficients: np.ndarray
    values: np.ndarray
    matrix: np.ndarray

    def put(self, con: duckdb.DuckDBPyConnection) -> None:
        """Puts it into a database as the tables p and p_seed, and all keys as the table k."""
        plan = self.plan
        con.execute(
            'CREATE OR REPLACE TABLE p AS SELECT unnest(range(len(v))) AS "row", unnest(v) AS value '
            "FROM (SELECT CAST(? AS BIGINT[]) AS v)",
            [self.values.tolist()],
        )
        con.execute(
            "CREATE OR REPLACE TABLE p_seed AS SELECT unnest(range(len(c))) AS word, unnest(c) AS coefficients, "
            "?::INTEGER AS projected_rows, ?::DOUBLE AS noise_variance, ?::DOUBLE AS noise_quantile, "
            "?::DOUBLE AS distortion_quantile FROM (SELECT CAST(? AS BIGINT[][]) AS c)",
            [plan.rows, plan.noise_variance, plan.noise_quantile, plan.distortion_quantile, self.coefficients.tolist()],
        )


def released(exact: np.ndarray, charge: Charge, rows: int) -> Released:
    """A fresh projection of these counts of NAMES, by trusted code."""
    plan = plan_projection(charge, 1, SPARSITY, QUERIES, Fraction(1, 20), 1.0, rows)
    entropy = operating_system_entropy()
    elements = elements_of(NAMES[: len(exact)])
    counts = KeyCounts(elements, elements, exact)
    query, noise = Projection(plan.rows, plan.words, INDEPENDENCE), plan.noise
    coefficients, values = query.draw(counts, Ask(AskScan(NO_ROWS, 1), query, noise), entropy, None)
    words = np.moveaxis(signs(evaluate(coefficients, elements)), 1, 2)
    return Released(plan, coefficients, values, words.reshape(-1, len(exact))[:rows].astype(float))


def ask_all(con: duckdb.DuckDBPyConnection) -> None:
    """Questions that share no key, over the first LISTED keys, which are the list k."""
    con.execute("CREATE TABLE k AS SELECT unnest(?::VARCHAR[]) AS key", [NAMES[:LISTED]])
    con.execute(f"CREATE TABLE q AS SELECT i // {SPARSITY} AS query, 'K' || i AS key, 1 AS weight "
                f"FROM range({LISTED}) AS r(i)")  # fmt: skip


def test_sql_solves_the_least_squares(plain: duckdb.DuckDBPyConnection) -> None:
    """Answers are those of numpy's least squares, and standard errors those of the residuals. Weights may be
    negative.
    """
    exact = np.random.default_rng(3).integers(0, 90, len(NAMES))
    found = released(exact, Charge.zcdp(Fraction(1, 8)), ROWS)
    found.put(plain)
    plain.execute("CREATE TABLE k AS SELECT unnest(?::VARCHAR[]) AS key", [[*NAMES[:LISTED], None, "K0"]])
    asked = "(VALUES ('a', 'K0', 1.0), ('a', 'K1', -0.5), ('b', 'K70', 2.0), ('b', 'K140', 1.0))"
    plain.execute(f"CREATE TABLE q AS SELECT * FROM {asked} AS t(query, key, weight)")
    columns = [*range(LISTED), 140]  # a key of a question is listed whether k has it or not
    design = found.matrix[:, columns]
    solution, (squares,), _, _ = np.linalg.lstsq(design, found.values.astype(float), rcond=None)
    rest = max(squares / (ROWS - len(columns)), found.plan.noise_variance)
    free = ROWS - len(columns) - 1
    answers = plain.execute("SELECT query, answer, stderr FROM dp_decode('p', 'q', 'k')").fetchall()
    at = dict(zip(columns, solution, strict=True))
    expected = [
        ("a", at[0] - at[1] / 2, (1.25 * rest / free) ** 0.5),
        ("b", 2 * at[70] + at[140], (5 * rest / free) ** 0.5),
    ]
    for (name, answer, stderr), (query, right, error) in zip(answers, expected, strict=True):
        assert name == query
        assert answer == pytest.approx(right, abs=1e-6)
        assert stderr == pytest.approx(error, rel=1e-6)


@pytest.mark.parametrize("noise", list(NoiseKind))
@pytest.mark.parametrize("unlisted", [0, OTHERS])
def test_stated_errors_are_the_measured_ones(plain: duckdb.DuckDBPyConnection, noise: NoiseKind, unlisted: int) -> None:
    """The mean square of error over stated error is 1, with all keys listed and with rows of unlisted keys. No margin
    is exceeded.

    Over 600 errors the mean square has a mean of 0.93 to 1.01 and a standard deviation of 0.055 to 0.08 (simulated).
    The bars are six deviations away: 1e-8. Without T/(T - N) it is 1.8 to 1.9, without the rows of other keys 10 or
    more. A margin is seven standard errors wide or more.
    """
    charge = Charge.zcdp(Fraction(1, 8)) if noise is NoiseKind.GAUSSIAN else Charge.pure(Fraction(4))
    exact = np.random.default_rng(5).integers(0, 90, LISTED + unlisted)
    wanted = exact[:LISTED].reshape(QUERIES, SPARSITY).sum(axis=1)
    ask_all(plain)
    shares = []
    for _ in range(RUNS):
        released(exact, charge, ROWS).put(plain)
        rows = plain.execute("SELECT answer, stderr, margin FROM dp_decode('p', 'q', 'k')").fetchall()
        for (answer, stderr, margin), right in zip(rows, wanted.tolist(), strict=True):
            assert abs(answer - right) <= margin
            shares.append((answer - right) / stderr)
    assert 0.55 < float(np.mean(np.square(shares))) < 1.5


def test_decoding_leaves_the_noise_alone(plain: duckdb.DuckDBPyConnection) -> None:
    """Heavy keys distort each other in dp_project, and not here: at least 20 times less error, stated and measured.

    The measured ratio is about 60. A ratio of 20 has a chance below 1e-8.
    """
    exact = np.random.default_rng(7).integers(0, 3000, LISTED)
    ask_all(plain)
    released(exact, Charge.zcdp(Fraction(1, 8)), ROWS).put(plain)
    wanted = exact.reshape(QUERIES, SPARSITY).sum(axis=1)
    errors, stated = {}, {}
    for name, call in (("decoded", "dp_decode('p', 'q', 'k')"), ("plain", "dp_project_all('p', 'q')")):
        held = plain.execute(f"FROM {call}").fetchnumpy()
        errors[name] = float(np.sqrt(np.mean((held["answer"] - wanted) ** 2)))
        stated[name] = float(held["stderr"].max())
    assert errors["plain"] > 20 * errors["decoded"]
    assert stated["plain"] > 20 * stated["decoded"]


def test_a_projection_without_rows_and_lists_without_keys(plain: duckdb.DuckDBPyConnection) -> None:
    """A release of zeros gives answers of 0, and a table of questions without rows gives none."""
    found = released(np.zeros(LISTED, np.int64), Charge.zcdp(Fraction(1, 8)), ROWS)
    Released(found.plan, found.coefficients, np.zeros(ROWS, np.int64), found.matrix).put(plain)
    ask_all(plain)
    assert plain.execute("SELECT DISTINCT answer FROM dp_decode('p', 'q', 'k')").fetchall() == [(0.0,)]
    plain.execute("CREATE TABLE nothing AS SELECT * FROM q WHERE false")
    assert plain.execute("FROM dp_decode('p', 'nothing', 'nothing')").fetchall() == []
    assert plain.execute("FROM dp_decode('p', 'nothing', 'k')").fetchall() == []


def test_too_many_keys_are_refused(plain: duckdb.DuckDBPyConnection) -> None:
    """As many keys as rows would leave nothing to tell the error by: the refusal says how many are accepted."""
    found = released(np.ones(LISTED, np.int64), Charge.zcdp(Fraction(1, 8)), ROWS)
    found.put(plain)
    most = ROWS - int(np.ceil(4 * found.plan.noise_quantile**2))
    for count in (most, most + 1):
        plain.execute(f"CREATE OR REPLACE TABLE k AS SELECT 1 AS query, 'K' || i AS key, 1 AS weight "
                      f"FROM range({count}) AS r(i)")  # fmt: skip
        if count == most:
            assert len(plain.execute("FROM dp_decode('p', 'k', 'k')").fetchall()) == 1
            continue
        message = f"{count} listed keys for a projection of {ROWS} rows; accepted: at most {most} keys"
        with pytest.raises(duckdb.Error, match=message):
            plain.execute("FROM dp_decode('p', 'k', 'k')").fetchall()


def test_decoding_is_free_and_changes_nothing(visits: Clinic) -> None:
    """On a connection with dpduck: nothing is charged, released rows and the answers of dp_project_all stay."""
    projection(visits, options="sparsity = 8, queries = 100, rows = 300")
    visits.con.execute("CREATE TABLE q AS SELECT DISTINCT code AS query, code AS key, 1 AS weight FROM visits")
    kept = ("FROM private.p", "FROM private.p_seed", "FROM dp_project_all('p', 'q')")
    before, charges = [visits.rows(sql) for sql in kept], visits.charges()
    decoded = visits.rows("FROM dp_decode('p', 'q', 'q')")
    assert decoded == visits.rows("FROM dp_decode('p', 'q', 'q')")
    assert len(decoded) == 7
    assert [visits.rows(sql) for sql in kept] == before
    assert visits.charges() == charges


def test_names_of_the_macro_hide_no_table(plain: duckdb.DuckDBPyConnection) -> None:
    """Questions and keys may be in tables of any name, those of the macro's own parts among them."""
    exact = np.random.default_rng(3).integers(0, 90, LISTED)
    released(exact, Charge.zcdp(Fraction(1, 8)), ROWS).put(plain)
    ask_all(plain)
    expected = plain.execute("FROM dp_decode('p', 'q', 'k')").fetchall()
    for questions, keys in (("keys", "listed"), ("words", "steps"), ("listed", "facts"), ("goal", "points")):
        sql = f"WITH {questions} AS (FROM q), {keys} AS (FROM k) FROM dp_decode('p', '{questions}', '{keys}')"
        assert plain.execute(sql).fetchall() == expected, (questions, keys)


@pytest.mark.parametrize("literals", [one for columns in (1, 2, 3) for one in product(LITERALS, repeat=columns)])
def test_disjunctions_and_parities_are_keys(
    plain: duckdb.DuckDBPyConnection, literals: tuple[bool | None, ...]
) -> None:
    """The keys of a disjunction are those in which a literal holds, of a parity those in which an odd number do."""
    expected: dict[str, list[str]] = {"dp_disjunction": [], "dp_parity": []}
    for values in product((True, False), repeat=len(literals)):
        held = sum(literal is not None and literal == value for literal, value in zip(literals, values, strict=True))
        texts = [str(value).lower() for value in values]
        key = texts[0] if len(texts) == 1 else ",".join(f"{len(text)}:{text}" for text in texts)
        expected["dp_disjunction"] += [key] * (held > 0)
        expected["dp_parity"] += [key] * (held % 2)
    for macro, keys in expected.items():
        (found,) = plain.execute(f"SELECT {macro}(?::BOOLEAN[])", [list(literals)]).fetchall()[0]
        assert sorted(found) == sorted(keys), macro


@pytest.mark.parametrize("macro", ["dp_disjunction", "dp_parity"])
def test_too_many_columns_are_refused(plain: duckdb.DuckDBPyConnection, macro: str) -> None:
    """Each column doubles the number of keys."""
    with pytest.raises(duckdb.Error, match=f"more than 20 columns in {macro}; accepted: at most 20 columns"):
        plain.execute(f"SELECT {macro}(list_transform(range(21), lambda i: true))").fetchall()


def test_all_conjunctions_at_once(visits: Clinic) -> None:
    """Every conjunction over two flags from one list of their four keys, as the page shows it.

    False alarm below 1e-9: margins hold for 10^12 questions but with one in a million, and are several errors wide.
    """
    projection(visits, options="sparsity = 4, queries = 1e12, beta = 1e-6, rows = 2000", key="smoker, senior")
    answers = visits.rows("""
        WITH literals AS (SELECT unnest([true, false, NULL]) AS literal),
        flags AS (SELECT unnest(dp_conjunction([NULL::BOOLEAN, NULL])) AS key),
        conjunctions AS (
            SELECT {'smoker': a.literal, 'senior': b.literal} AS query,
                   unnest(dp_conjunction([a.literal, b.literal])) AS key, 1 AS weight
            FROM literals AS a, literals AS b)
        SELECT query.smoker, query.senior, answer, margin FROM dp_decode('p', 'conjunctions', 'flags')""")
    assert len(answers) == 9
    for smoker, senior, answer, margin in answers:
        exact = visits.value(
            f"SELECT count(*) FROM visits WHERE coalesce(smoker = {'NULL' if smoker is None else smoker}, true) "
            f"AND coalesce(senior = {'NULL' if senior is None else senior}, true)"
        )
        assert abs(answer - exact) <= margin
