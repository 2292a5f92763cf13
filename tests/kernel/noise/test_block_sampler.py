"""Vectorised draws are as exact as the tables: floats decide within proven bounds, and integers decide the rest."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from dpduck.kernel.noise import integers as block_sampler
from dpduck.kernel.noise.entropy import LazyUniform, operating_system_entropy
from dpduck.kernel.noise.exponentials import DiscreteLaw
from dpduck.kernel.noise.integers import CHUNK, SLACK, accept_exactly, noise_table, sample

LAPLACE = DiscreteLaw(Fraction(1, 1000), Fraction(0))
GAUSSIAN = DiscreteLaw(Fraction(0), Fraction(1, 2 * 10**18))
WIDE = [pytest.param(LAPLACE, 6, id="Laplace 1000"), pytest.param(GAUSSIAN, 25, id="Gaussian 1e9")]


class ScriptedEntropy:
    """Returns prepared blocks in order and checks that each is asked for with its length."""

    def __init__(self, *blocks: bytes) -> None:
        self.blocks = list(blocks)

    def bytes(self, count: int) -> bytes:
        block = self.blocks.pop(0)
        assert len(block) == count
        return block


def ends_of(block: int, shift: int) -> tuple[int, int]:
    """Smallest and largest magnitude in a block, by looking at its two ends."""
    first, last = block << shift, (block << shift) + (1 << shift) - 1
    return min(abs(first), abs(last)), max(abs(first), abs(last))


def acceptance(law: DiscreteLaw, near: int, magnitude: int, far: int) -> Decimal:
    """(g(k) - g(far)) / (g(near) - g(far)) to about 60 digits."""
    with localcontext(prec=80):

        def relative(distance: int) -> Decimal:
            exponent = law.exponent(distance) - law.exponent(near)
            return (-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()

        return (relative(magnitude) - relative(far)) / (1 - relative(far))


def doubtful_cases(law: DiscreteLaw, shift: int) -> list[tuple[int, int, int, int, Decimal]]:
    """(block, near, magnitude, far, probability) with probabilities strictly between 0 and 1."""
    cases = []
    for block in (0, 1, -1, -2, 17, -40):
        near, far = ends_of(block, shift)
        quarter = (far - near) // 4
        for magnitude in (near + quarter, near + 2 * quarter, far - quarter):
            cases.append((block, near, magnitude, far, acceptance(law, near, magnitude, far)))
    return cases


@pytest.mark.parametrize(("law", "shift"), WIDE)
def test_float_acceptance_is_within_its_enclosure(law: DiscreteLaw, shift: int) -> None:
    """Wherever a table can reach, the error is below 2**-46, sixty times less than the slack."""
    codes = noise_table(law, shift).codes
    blocks = np.unique(codes >> 1)
    low_bits = np.linspace(0, (1 << shift) - 1, 7).astype(np.int64)
    values = ((blocks << shift)[:, None] + low_bits).ravel()
    ends = np.array([ends_of(int(value) >> shift, shift) for value in values])
    computed, proven = block_sampler._acceptance(law, ends[:, 0], np.abs(values), ends[:, 1])
    assert proven.all()
    for near, far, value, probability in zip(*ends.T, values, computed, strict=True):
        error = abs(Decimal(float(probability)) - acceptance(law, int(near), abs(int(value)), int(far)))
        assert error < Decimal(2) ** -46 < Decimal(SLACK) / 60


@pytest.mark.parametrize(("law", "shift"), WIDE)
def test_an_undecided_wedge_goes_to_integers(law: DiscreteLaw, shift: int) -> None:
    """A uniform that agrees with the probability in 64 bits is decided correctly by its further bits."""
    table = noise_table(law, shift)
    for block, _, magnitude, _, probability in doubtful_cases(law, shift):
        with localcontext(prec=80):
            known, further = divmod(int(probability * Decimal(2) ** 128), 1 << 64)
        value = magnitude if block >= 0 else -magnitude
        for next_bits, expected in ((further - 1, True), (further + 1, False)):
            entropy = ScriptedEntropy(known.to_bytes(8, "little"), next_bits.to_bytes(8, "big"))
            blocks, values = np.array([block]), np.array([value])
            assert block_sampler._accept_wedges(table, blocks, values, entropy).tolist() == [expected]
            assert entropy.blocks == []


@pytest.mark.parametrize(("law", "shift"), WIDE)
def test_a_decided_wedge_draws_nothing_more(law: DiscreteLaw, shift: int) -> None:
    """Just outside the slack the float decides, as the exact rule does, and draws no more bits."""
    table = noise_table(law, shift)
    for block, near, magnitude, far, probability in doubtful_cases(law, shift):
        for offset in (Decimal(-1), Decimal(1)):
            uniform = int((probability + offset * Decimal(2) ** -38) * 2**64)
            value = magnitude if block >= 0 else -magnitude
            entropy = ScriptedEntropy(uniform.to_bytes(8, "little"))
            got = block_sampler._accept_wedges(table, np.array([block]), np.array([value]), entropy).tolist()
            exact = accept_exactly(law, near, magnitude, far, LazyUniform(uniform, 64, ScriptedEntropy()))
            assert got == [exact] == [offset < 0]


def test_the_ends_of_a_wedge_are_certain() -> None:
    """The near end is always accepted and the far end never, in exact arithmetic too."""
    for value in (1, 2**63, 2**64 - 2):
        assert accept_exactly(LAPLACE, 64, 64, 127, LazyUniform(value, 64, ScriptedEntropy()))
        assert not accept_exactly(LAPLACE, 64, 127, 127, LazyUniform(value, 64, ScriptedEntropy()))


def test_blocks_beyond_the_proof_go_to_integers() -> None:
    """Where the enclosure is not proven (a steep block, a value beyond 2**52), every wedge is decided exactly."""
    steep = DiscreteLaw(Fraction(0), Fraction(1, 2 * 64**2))
    computed, proven = block_sampler._acceptance(
        steep, np.array([640, 64, 1 << 52]), np.array([650, 70, 1 << 52]), np.array([703, 127, (1 << 52) + 63])
    )
    assert computed.shape == (3,)
    assert proven.tolist() == [False, False, False]
    table = noise_table(steep, 6)
    exact = acceptance(steep, 640, 650, 703)
    for offset, expected in ((-1, True), (1, False)):
        uniform = int(exact * 2**64) + offset
        entropy = ScriptedEntropy(uniform.to_bytes(8, "little"), b"\x00" * 8)
        assert block_sampler._accept_wedges(table, np.array([10]), np.array([650]), entropy).tolist() == [expected]


@pytest.mark.parametrize(("law", "shift"), WIDE)
def test_parts_and_acceptance_add_up_to_the_law(law: DiscreteLaw, shift: int) -> None:
    """Sure part + wedge times acceptance is proportional to g(k): exact masses from the table's own codes."""
    table = noise_table(law, shift)
    masses = np.diff(np.concatenate(([0.0], table.thresholds.astype(np.float64)))) / 2.0**64
    by_code = dict(zip(table.codes.tolist(), masses.tolist(), strict=True))
    ratios = []
    for block, near, magnitude, far, probability in doubtful_cases(law, shift):
        if block > 5 or block < -5:
            continue  # their masses are differences of nearby floats
        assert (near, far) == ends_of(block, shift)
        weight = by_code[2 * block] + by_code[2 * block + 1] * float(probability)
        ratios.append(weight / float(np.exp(-float(law.exponent(magnitude)))))
    assert np.allclose(ratios, ratios[0], rtol=1e-11)


@pytest.mark.parametrize("count", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 7])
@pytest.mark.parametrize(("law", "shift"), [*WIDE, pytest.param(DiscreteLaw(Fraction(1), Fraction(0)), 0, id="1")])
def test_counts_around_a_chunk(law: DiscreteLaw, shift: int, count: int) -> None:
    """Every position is filled, in a fresh writeable array, with values that differ between the chunks."""
    table = noise_table(law, shift)
    draws = sample(table, count, operating_system_entropy())
    assert draws.shape == (count,) and draws.dtype == np.int64
    assert draws.flags.writeable and draws.flags.owndata
    if count > CHUNK + 7:
        assert not np.array_equal(draws[:7], draws[CHUNK : CHUNK + 7]) or shift == 0


HUGE = pytest.param(DiscreteLaw(Fraction(1, 1 << 40), Fraction(0)), 36, id="Laplace 2^40")


@pytest.mark.parametrize(("law", "shift"), [*WIDE, HUGE])
def test_every_bit_of_a_wide_draw_is_random(law: DiscreteLaw, shift: int) -> None:
    """Each bit within a block, of words of 16, 32 and 64 bits, is balanced in 2^18 draws within 7.5 deviations.

    False alarm below 5e-12. Noise that is always even would tell the parity of the number below it.
    """
    draws = sample(noise_table(law, shift), 1 << 18, operating_system_entropy())
    for bit in range(shift):
        ones = int((draws >> bit & 1).sum())
        assert abs(ones - (1 << 17)) < 7.5 * (1 << 18) ** 0.5 / 2, bit


def test_neighbouring_draws_are_independent() -> None:
    """Signs of neighbours, of places a chunk apart and of two calls are independent. False alarm below 1e-10 each."""
    table = noise_table(LAPLACE, 6)
    source = operating_system_entropy()
    first, second = (np.sign(sample(table, 4 * CHUNK, source) * 2 + 1) for _ in range(2))
    for left, right in ((first[1:], first[:-1]), (first[CHUNK:], first[:-CHUNK]), (first, second)):
        assert abs(int((left * right).sum())) < 6.6 * len(left) ** 0.5
