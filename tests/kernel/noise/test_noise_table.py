"""The cumulative tables are exact to the last bit, and a draw that they cannot settle is settled exactly."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from dpduck.kernel.noise.entropy import LazyUniform
from dpduck.kernel.noise.exponentials import DiscreteLaw
from dpduck.kernel.noise.integers import UNDECIDED, code_of, cumulative_bounds, noise_table, sample, settle

LAPLACE = DiscreteLaw(Fraction(7, 22), Fraction(0))
GAUSSIAN = DiscreteLaw(Fraction(0), Fraction(1, 2 * 9))
CASES = [
    pytest.param(DiscreteLaw(Fraction(1000), Fraction(0)), 0, id="Laplace 1/1000"),
    pytest.param(LAPLACE, 0, id="Laplace 22/7"),
    pytest.param(DiscreteLaw(Fraction(1, 16), Fraction(0)), 0, id="Laplace 16"),
    pytest.param(DiscreteLaw(Fraction(1, 1000), Fraction(0)), 6, id="Laplace 1000"),
    pytest.param(DiscreteLaw(Fraction(1, 10**9), Fraction(0)), 26, id="Laplace 1e9"),
    pytest.param(DiscreteLaw(Fraction(0), Fraction(500_000)), 0, id="Gaussian 1/1000"),
    pytest.param(GAUSSIAN, 0, id="Gaussian 3"),
    pytest.param(DiscreteLaw(Fraction(0), Fraction(1, 2 * 33**2)), 1, id="Gaussian 33"),
    pytest.param(DiscreteLaw(Fraction(0), Fraction(1, 2 * 10**18)), 25, id="Gaussian 1e9"),
]


class ScriptedEntropy:
    """Returns prepared blocks in order and checks that each is asked for with its length."""

    def __init__(self, *blocks: bytes) -> None:
        self.blocks = list(blocks)

    def bytes(self, count: int) -> bytes:
        block = self.blocks.pop(0)
        assert len(block) == count
        return block


@cache
def oracle(law: DiscreteLaw, shift: int) -> list[Decimal]:
    """F(0), F(1), ... to about 60 digits, straight from the definition of the parts."""
    with localcontext(prec=70):
        linear, quadratic = (Decimal(x.numerator) / Decimal(x.denominator) for x in (law.linear, law.quadratic))

        def weight(magnitude: int) -> Decimal:
            return (-linear * magnitude - quadratic * magnitude**2).exp()

        width, total, sums, near = 1 << shift, Decimal(0), [], 0
        while weight(near) > Decimal("1e-62"):
            for start in (near, near + 1):
                if shift:
                    sums.append(total + weight(start + width - 1))
                total += weight(start)
                sums.append(total)
            near += width
        return [value / total for value in sums]


def bits_of(value: Decimal, bits: int) -> int:
    """Returns floor(2**bits value)."""
    with localcontext(prec=150):
        return int((value * Decimal(2) ** bits).to_integral_value(rounding="ROUND_FLOOR"))


@pytest.mark.parametrize(("law", "shift"), CASES)
def test_thresholds_are_exact_floors(law: DiscreteLaw, shift: int) -> None:
    """Each threshold is floor(2**64 F), against 90-digit sums."""
    table = noise_table(law, shift)
    expected = [min(bits_of(value, 64), 2**64 - 1) for value in oracle(law, shift)[: len(table.thresholds)]]
    assert table.thresholds.tolist() == expected
    assert 2**64 - int(table.thresholds[-1]) <= 2**13  # beyond the table: at most 2**-51


@pytest.mark.parametrize(("law", "shift"), CASES)
def test_cumulative_bounds_enclose(law: DiscreteLaw, shift: int) -> None:
    """lows <= 2**precision F <= lows + error, with an error far below the 64 bits that it decides."""
    for precision in (128, 160):
        lows, error = cumulative_bounds(law, shift, precision, 60)
        assert error < 1 << precision - 80
        for low, truth in zip(lows, oracle(law, shift), strict=False):
            with localcontext(prec=70):
                scaled = truth * Decimal(2) ** precision
                assert low - 1 <= scaled <= low + error + 1  # 1: more than the oracle's own error


@pytest.mark.parametrize(("law", "shift"), CASES)
def test_guide_agrees_with_thresholds(law: DiscreteLaw, shift: int) -> None:
    """All 65,536 cells: a decided cell has the code of its first and its last 64-bit draw, and no tie inside."""
    table = noise_table(law, shift)
    first = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)
    last = first | np.uint64((1 << 48) - 1)
    left, right = (np.searchsorted(table.thresholds, draws, side="right") for draws in (first, last))
    tie_free = np.searchsorted(table.thresholds, first, side="left") == right
    settled = (left == right) & tie_free & (left < len(table.codes))
    assert np.array_equal(table.guide != UNDECIDED, settled)
    assert np.array_equal(table.guide[settled], table.codes[left[settled]])
    assert settled.mean() > 0.95
    assert np.abs(table.codes).max() < 2**15 - 1  # they fit the guide's 16 bits


@pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN])
@pytest.mark.parametrize("part", [0, 1, 2, 7, 40])
def test_a_tie_is_settled_by_further_bits(law: DiscreteLaw, part: int) -> None:
    """A draw equal to a threshold goes one way or the other with the next bits of the exact F, at 128 and 256 bits."""
    table = noise_table(law, 0)
    threshold = int(table.thresholds[part])
    further = bits_of(oracle(law, 0)[part], 128) - (threshold << 64)
    prefix = (threshold >> 48).to_bytes(2, "little")
    middle = ((threshold & (1 << 48) - 1) << 16).to_bytes(8, "little")
    for next_bits, last_bits, expected in (
        (further - 1, b"", part),
        (further + 1, b"", part + 1),
        (further, b"\x00" * 16, part),  # a tie of 128 bits too
        (further, b"\xff" * 16, part + 1),
    ):
        script = [prefix, middle, next_bits.to_bytes(8, "big"), last_bits]
        entropy = ScriptedEntropy(*[block for block in script if block])
        assert sample(table, 1, entropy).tolist() == [code_of(expected, 0)]
        assert entropy.blocks == []


def laplace_value(rest: Decimal) -> int:
    """The k of the draw U = 1 - rest for scale 22/7, inverted by hand: the blocks from distance d on weigh alpha^d."""
    with localcontext(prec=70):
        alpha = (-Decimal(7) / 22).exp()
        distance = int(rest.ln() / alpha.ln())  # alpha^(d + 1) < rest <= alpha^d
        return distance if rest > alpha**distance * 2 * alpha / (1 + alpha) else ~distance


@pytest.mark.parametrize("below", [1, 2, 1000, 10**9, 2**62 + 1, 2**63 + 12345])
def test_the_tail_is_the_exact_inverse_of_its_law(below: int) -> None:
    """A draw of 64 ones is beyond the table: U = 1 - below / 2**128 gives the right far value, on the right side."""
    entropy = ScriptedEntropy(b"\xff" * 2, b"\xff" * 8, (2**64 - below).to_bytes(8, "big"), b"\x00" * 16)
    value = int(sample(noise_table(LAPLACE, 0), 1, entropy)[0])
    assert value == laplace_value(Decimal(below) / 2**128)
    assert abs(value) > 22 / 7 * 44


def test_settle_reads_no_more_than_it_needs() -> None:
    """One extension settles a tie if its next bits are no tie."""
    entropy = ScriptedEntropy(b"\x00" * 8)
    threshold = int(noise_table(LAPLACE, 0).thresholds[3])
    assert settle(LAPLACE, 0, LazyUniform(threshold, 64, entropy)) == code_of(3, 0)


def test_settle_refuses_what_64_bits_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that int64 could not hold is an error without a value in it, never a wrapped number.

    No real draw gets there (probability below exp(-2^16)), so the limit is lowered.
    """
    monkeypatch.setattr("dpduck.kernel.noise.integers.LARGEST_BLOCK", 50)
    draw = LazyUniform((1 << 64) - 1, 64, ScriptedEntropy(b"\x80" + b"\x00" * 7))
    with pytest.raises(OverflowError, match=r"^a noise value does not fit in 64 bits$"):
        settle(LAPLACE, 0, draw)


def test_tables_are_shared_and_read_only() -> None:
    """A cached table is the same object, and nobody can write to it."""
    table = noise_table(LAPLACE, 0)
    assert noise_table(DiscreteLaw(Fraction(7, 22), Fraction(0)), 0) is table
    for array in (table.thresholds, table.codes, table.guide):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
