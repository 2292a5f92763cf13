"""Projections in trusted code: what they count, how far one unit moves them, and their noise."""

from fractions import Fraction

import duckdb
import numpy as np
import pytest

from dpduck.algebra.hashing import PRIME
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.queries.key_counts import KeyCounts, KeyDigests, count_keys, exact_answers, find
from dpduck.kernel.queries.projections import Projection, draw_coefficients
from dpduck.values.errors import InternalError
from tests.kernel.doors import drawn, price_of
from tests.support.nodes import by_digest, counts, is_program, own

ENTROPY = operating_system_entropy()


class Ones:
    """Entropy with a first block of one bits alone, which is no element of the field."""

    def __init__(self) -> None:
        self.calls = 0

    def bytes(self, count: int) -> bytes:
        self.calls += 1
        return (b"\xff" if self.calls == 1 else b"\x10") * count


def counted(con: duckdb.DuckDBPyConnection, unit: str | None = None, most: int = 1) -> KeyCounts:
    rows = counts('t AS "r0"', (), unit, most, ('"r0"."k"', '"r0"."u"'), (), (), ())
    job = by_digest(rows, own('"r0"."k"'))
    return count_keys(con, job, b"key")


def digests(con: duckdb.DuckDBPyConnection, keys: list[str]) -> KeyDigests:
    rows = con.execute(
        "SELECT (md5_number(k) >> 64)::UBIGINT AS h, (md5_number(k) & 18446744073709551615)::UBIGINT AS l "
        "FROM (SELECT unnest(?::VARCHAR[]) AS k)", [keys],
    ).fetchnumpy()  # fmt: skip
    return KeyDigests(np.ma.getdata(rows["h"]), np.ma.getdata(rows["l"]))


@pytest.fixture
def con() -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    made.execute(
        "CREATE TABLE t AS SELECT CASE WHEN i % 10 < 9 THEN 'k' || (i % 10) END AS k, i // 7 AS u FROM range(1000) r(i)"
    )
    return made


def test_keys_are_counted_exactly(con: duckdb.DuckDBPyConnection) -> None:
    """Counts by key equal DuckDB's own. Absent keys count 0, rows without a key nowhere, and no repr shows a count."""
    counts = counted(con)
    keys = digests(con, ["k0", "k8", "absent", ""])
    assert exact_answers(counts, keys, np.array([1, 1, 1, 1]), [1, 1, 1, 1]).tolist() == [100, 100, 0, 0]
    assert exact_answers(counts, keys, np.array([2, 3, 1, 1]), [2, 0, 2]).tolist() == [500, 0, 0]
    assert "100" not in repr(counts)
    with pytest.raises(InternalError):
        counts.__reduce_ex__(2)


def test_units_are_bounded_over_all_keys(con: duckdb.DuckDBPyConnection) -> None:
    """MAX ROWS bounds a unit over the whole universe, and not for each key."""
    counts = counted(con, '"r0"."u"', 2)
    assert counts._exact_counts.sum() == 2 * 143
    con.execute("DELETE FROM t WHERE u = 5")
    assert counted(con, '"r0"."u"', 2)._exact_counts.sum() == 2 * 142


@pytest.mark.parametrize("unit", [None, '"r0"."u"'])
def test_digests_of_rows_that_a_worker_decides_about_keep_their_bits(
    con: duckdb.DuckDBPyConnection, unit: str | None
) -> None:
    """Rows travel to a worker and back with both halves of the digest: 128 bits at once would be a double."""
    types = {'"r0"."k"': "VARCHAR", '"r0"."u"': "BIGINT"}
    condition = "length(replace(\"r0\".\"k\", '1', '11')) < 3"
    rows = counts('t AS "r0"', (condition,), unit, 1000, ('"r0"."k"', '"r0"."u"'), (), (), (), types)
    assert is_program(rows.filters[0])
    found = count_keys(con, by_digest(rows, own('"r0"."k"')), b"key")
    keys = digests(con, [f"k{number}" for number in range(9)])
    assert exact_answers(found, keys, np.ones(9, np.int64), [1] * 9).tolist() == [100, 0, *[100] * 7]


def test_digests_that_share_a_half_are_told_apart() -> None:
    """Look-ups compare all 128 bits."""
    high, low = np.array([1, 1, 1, 7], np.uint64), np.array([3, 5, 9, 2], np.uint64)
    keys = KeyDigests(np.array([1, 1, 1, 7, 7, 2], np.uint64), np.array([5, 4, 9, 2, 3, 5], np.uint64))
    assert find(high, low, keys).tolist() == [1, -1, 2, 3, -1, -1]
    assert find(high[:0], low[:0], keys).tolist() == [-1] * 6


def test_sensitivity_is_the_square_root_of_the_rows(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row moves every projected row by exactly one, so L2 is sqrt(T) and L1 is T, for any T."""
    coefficients = draw_coefficients(2, 32, ENTROPY)
    tiny = Fraction(1, 10**4)  # noise that is 0, so that the exact change shows
    monkeypatch.setattr("dpduck.kernel.queries.projections.draw_coefficients", lambda *_: coefficients)
    _, before = drawn(Projection(100, 2, 32), counted(con), Noise(NoiseKind.LAPLACE, tiny))
    con.execute("INSERT INTO t VALUES ('new', 10000)")
    _, after = drawn(Projection(100, 2, 32), counted(con), Noise(NoiseKind.LAPLACE, tiny))
    assert np.abs(after - before).tolist() == [1] * 100
    assert price_of(Projection(100, 2, 32), Noise(NoiseKind.GAUSSIAN, Fraction(900)), 3).rho == Fraction(1, 2)
    assert price_of(Projection(100, 2, 32), Noise(NoiseKind.LAPLACE, Fraction(600)), 3).epsilon == Fraction(1, 2)
    with pytest.raises(InternalError):
        price_of(Projection(100, 2, 32), Noise(NoiseKind.LAPLACE, Fraction(0)), 3)


@pytest.mark.parametrize("noise", list(NoiseKind))
def test_noise_has_its_scale(noise: NoiseKind) -> None:
    """20,000 rows of noise alone: the variance is within 15 %, where 2/3 and 3/2 of the scale are 50 % off.

    False alarm below 1e-9: the relative standard error is 0.01 (Gaussian), 0.016 (Laplace).
    """
    nothing = KeyCounts(np.array([], np.uint64), np.array([], np.uint64), np.array([], np.int64))
    rows, parameter = 20_000, Fraction(50 if noise is NoiseKind.LAPLACE else 2500)
    _, values = drawn(Projection(rows, 334, 2), nothing, Noise(noise, parameter))
    expected = 2 * 50**2 if noise is NoiseKind.LAPLACE else 2500
    assert 0.85 * expected < np.mean(values.astype(float) ** 2) < 1.15 * expected


def test_coefficients_are_elements_of_the_field() -> None:
    """A draw of 61 one bits is not below the prime and is drawn again. Every smaller draw is accepted."""
    source = Ones()
    found = draw_coefficients(2, 3, source)
    assert found.shape == (2, 3)
    assert source.calls == 2
    assert (found < PRIME).all()
