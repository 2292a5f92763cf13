"""The gate of sessions: exact one-sided noise, a price for the worst pair of databases, one look for each question."""

from fractions import Fraction
from itertools import product
from math import exp

import numpy as np
import pytest

from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import price
from dpduck.kernel.queries.key_counts import KeyCounts, KeyDigests
from dpduck.kernel.queries.sessions import UNITS, GateLaw, Questions, SessionGate, one_sided
from dpduck.kernel.queries.tables import Total
from dpduck.values.errors import InternalError
from dpduck.values.privacy import Charge
from tests.kernel.doors import drawn as answer_of
from tests.kernel.doors import scan_of
from tests.kernel.noise.noise_sizes import has_scale

ENTROPY = operating_system_entropy()
KEYS = KeyDigests(np.arange(5, dtype=np.uint64), np.arange(5, dtype=np.uint64))


def law(noise: NoiseKind = NoiseKind.GAUSSIAN, threshold: int = 100 * UNITS, updates: int = 3) -> GateLaw:
    return GateLaw(
        updates, 1, threshold, Fraction(UNITS, 4), Fraction(UNITS, 4), noise, Fraction(UNITS), Fraction(1, 100)
    )


def thresholds_of(of: GateLaw) -> bytes:
    """The secret thresholds of a session, as its ask answers."""
    ask = of.gate_ask(scan_of(1))
    return ask.query.draw(KeyCounts(KEYS.high, KEYS.low, np.zeros(5, np.int64)), ask, ENTROPY, None)


def gate(values: list[int], of: GateLaw) -> SessionGate:
    counts = KeyCounts(KEYS.high[: len(values)], KEYS.low[: len(values)], np.array(values))
    return SessionGate(of, thresholds_of(of), counts, ENTROPY)


def test_one_sided_noise_is_geometric() -> None:
    """Of 20,000 draws at scale 3 each of the first probabilities is within 6.5 standard errors, and none is negative.

    False alarm below 1e-9 in all. A scale of 2 or 4.5 would be 20 standard errors off at k = 0.
    """
    drawn = one_sided(Fraction(3), 20_000, ENTROPY)
    assert drawn.shape == (20_000,)
    assert drawn.min() == 0
    ratio = exp(-1 / 3)
    for value in range(6):
        expected = (1 - ratio) * ratio**value
        assert abs((drawn == value).mean() - expected) < 6.5 * (expected / 20_000) ** 0.5
    assert one_sided(Fraction(3), 0, ENTROPY).tolist() == []


@pytest.mark.parametrize("noise", list(NoiseKind))
def test_all_noise_of_a_session_has_the_scale_that_was_paid_for(noise: NoiseKind) -> None:
    """Thresholds, questions, measurements and the number of rows reject 2/3 and 3/2 of their scales.

    False alarm 4e-11 each, see noise_sizes.
    """
    of = GateLaw(2_000, 1, 0, Fraction(9), Fraction(14), noise, Fraction(30), Fraction(12))
    made = gate([5], of)
    keys = KeyDigests(np.zeros(2_500, dtype=np.uint64), np.zeros(2_500, dtype=np.uint64))
    questions = made.prepare(keys, np.full(2_500, UNITS), [1] * 2_500, 2_000)
    assert (len(questions._noise), len(questions._measurements)) == (5_000, 2_000)
    assert questions._exact == [5 * UNITS] * 2_500
    assert has_scale(made._thresholds, None, of.threshold_scale)
    assert has_scale(questions._noise, None, of.question_scale)
    assert has_scale(questions._measurements, noise, of.parameter)
    totals = [answer_of(Total(), made._counts, Noise(of.noise, of.total_parameter)) - 5 for _ in range(2_000)]
    assert has_scale(totals, noise, of.total_parameter)


def outcome_probabilities(gaps: tuple[int, ...], threshold: int, scales: tuple[float, float]) -> np.ndarray:
    """P(the first side of the first question fires), .., P(nothing fires): sums over the noise of both thresholds.

    Question i has distances (gaps[i], -gaps[i]) from the hypothesis, in steps in which a unit moves them by 1.
    """
    first, second = scales
    values = np.arange(400)
    weight = (1 - exp(-1 / first)) * np.exp(-values / first)
    found = []
    quiet = {side: np.ones(len(values)) for side in (0, 1)}
    for gap in gaps:
        for side, distance in ((0, gap), (1, -gap)):
            least = np.maximum(threshold + values - distance, 0)
            fires = np.exp(-least / second)
            other = float(weight @ quiet[1 - side])
            found.append(float(weight @ (quiet[side] * fires)) * other)
            quiet[side] = quiet[side] * (1 - fires)
    return np.array([*found, float(weight @ quiet[0]) * float(weight @ quiet[1])])


def worst_ratio(scales: tuple[float, float]) -> float:
    """The largest log ratio of an outcome's probability, over many pairs of sequences one unit apart."""
    worst = 0.0
    for gaps in product((-9, -3, 0, 4, 9), repeat=3):
        for change in product((0, 1), repeat=3):
            before = outcome_probabilities(gaps, 6, scales)
            after = outcome_probabilities(tuple(g + c for g, c in zip(gaps, change, strict=True)), 6, scales)
            assert abs(before.sum() - 1) < 1e-9
            worst = max(worst, float(np.abs(np.log(before) - np.log(after)).max()))
    return worst


@pytest.mark.parametrize("scales", [(2.0, 3.0), (4.0, 1.5)])
def test_a_round_costs_what_is_charged_and_hardly_less(scales: tuple[float, float]) -> None:
    """The bound D/b1 + D/b2 holds for exact probabilities of outcomes, and is nearly reached: it is not loose."""
    bound = 1 / scales[0] + 1 / scales[1]
    assert worst_ratio(scales) <= bound + 1e-9
    assert worst_ratio(scales) > 0.8 * bound
    assert worst_ratio(scales) > max(1 / scales[0], 1 / scales[1])


def price_of_gate(of: GateLaw) -> Charge:
    """The price of the noisy number of rows and all rounds."""
    scan = scan_of(of.unit_bound)
    return price([of.total_ask(scan), of.gate_ask(scan)])


def test_the_price_adds_all_rounds() -> None:
    """Rounds add up: epsilon in a pure session, and else epsilon^2/2 a round and D^2/(2 s) a measurement."""
    pure = price_of_gate(law(NoiseKind.LAPLACE))
    assert pure.epsilon == 3 * (4 + 4 + 1) + 100
    assert price_of_gate(law()).rho == 3 * (Fraction(64, 2) + Fraction(UNITS, 2)) + 50
    with pytest.raises(InternalError, match="without noise"):
        price_of_gate(GateLaw(1, 1, 5, Fraction(0), Fraction(1), NoiseKind.LAPLACE, Fraction(1), Fraction(1)))


@pytest.mark.parametrize("noise", list(NoiseKind))
def test_far_answers_fire_and_near_ones_do_not(noise: NoiseKind) -> None:
    """Far beyond the threshold, on either side, a measurement comes, and far below it none. False alarm 1e-20."""
    of = law(noise)
    made = gate([1000, 0, 7], of)
    questions = made.prepare(
        KeyDigests(KEYS.high[[0, 1, 2]], KEYS.low[[0, 1, 2]]), np.array([UNITS, UNITS, UNITS // 2]), [1, 1, 1], 3
    )
    above = made.look(questions, 0, 0, 0)
    assert above is not None
    assert abs(above / UNITS - 1000) < 50
    below = made.look(questions, 1, 5000 * UNITS, 1)
    assert below is not None
    assert abs(below / UNITS) < 50
    assert made.look(questions, 2, 3 * UNITS, 2) is None
    assert "1000" not in repr(made) + repr(questions)
    assert abs(answer_of(Total(), made._counts, Noise(of.noise, of.total_parameter)) - 1007) < 60


@pytest.mark.parametrize("side", [0, 1])
def test_each_side_has_noise_and_a_threshold_of_its_own(side: int) -> None:
    """An answer above the hypothesis uses the first of its two draws, and one below uses the second.

    docs/sparse_queries.md proves the price for two sparse vectors of independent noise.
    """
    of = law(threshold=100, updates=2)
    for place in range(4):
        thresholds = np.zeros(4, dtype=np.int64)
        thresholds[place] = 1000
        counts = KeyCounts(KEYS.high[:1], KEYS.low[:1], np.array([1]))
        made = SessionGate(of, thresholds.tobytes(), counts, ENTROPY)
        hypothesis = -90 if side == 0 else 90  # 10 below the threshold on this side, 190 on the other
        for draw in range(4):
            noise = np.zeros(4, dtype=np.int64)
            noise[draw] = 20
            questions = Questions(np.zeros(2, dtype=np.int64), noise, np.array([7], dtype=np.int64))
            for number, round_number in ((0, 0), (1, 1)):
                fires = draw == 2 * number + side and place != 2 * round_number + side
                expected = 7 if fires else None
                assert made.look(questions, number, hypothesis, round_number) == expected


def test_noise_is_used_once() -> None:
    """A question is asked once, in order, and not after the last round. Weights are between 0 and 1."""
    made = gate([10], law())
    questions = made.prepare(KeyDigests(KEYS.high[[0, 0]], KEYS.low[[0, 0]]), np.array([UNITS, UNITS]), [1, 1], 3)
    made.look(questions, 1, 0, 0)
    for number, used in ((1, 0), (0, 0)):
        with pytest.raises(InternalError, match="a question was looked at twice, or after the last round"):
            made.look(questions, number, 0, used)
    fresh = made.prepare(KeyDigests(KEYS.high[[0]], KEYS.low[[0]]), np.array([UNITS]), [1], 3)
    with pytest.raises(InternalError, match="a question was looked at twice, or after the last round"):
        made.look(fresh, 0, 0, 3)
    with pytest.raises(InternalError, match="a weight outside 0"):
        made.prepare(KeyDigests(KEYS.high[[0]], KEYS.low[[0]]), np.array([UNITS + 1]), [1], 3)
    with pytest.raises(InternalError, match="the secret of a session is damaged"):
        SessionGate(law(updates=4), thresholds_of(law()), made._counts, ENTROPY)


@pytest.mark.parametrize("places", [[0, 0], [0, 1, 0]])
def test_a_key_stands_once_in_a_question(places: list[int]) -> None:
    """A question with a repeated key is refused, since the answer could move by more than was paid for."""
    made = gate([5, 6], law())
    weights = np.full(len(places), UNITS)
    with pytest.raises(InternalError, match="twice in one question"):
        made.prepare(KeyDigests(KEYS.high[places], KEYS.low[places]), weights, [len(places)], 3)
