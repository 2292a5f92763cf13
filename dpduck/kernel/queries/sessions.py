"""Gate of a session: compares a hypothesis with the exact answer, and measures only if the hypothesis is far off.

Two sparse vector mechanisms run side by side: for answers above the hypothesis, and for answers below it. One fires if
the noisy distance reaches its noisy threshold. Then both get fresh thresholds. Noise is one-sided (geometric): an
answer that does not fire is within threshold + threshold noise. docs/sparse_queries.md proves that one round, until one
fires, is (D/b1 + D/b2)-differentially private with D = unit_bound * UNITS and the scales b1 of thresholds and b2 of
questions.

The reason: a unit makes the distances of one side alone grow, by at most D. Moving that side's threshold by D covers
every question before the last, and the other side needs nothing there. The last question's tail moves by at most D. By
zCDP's composition all rounds together cost updates * ((D/b1 + D/b2)^2 / 2 + D^2 / (2 s)), where s is the variance of
the Gaussian measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.counting.hidden import Hidden
from dpduck.kernel.noise.draw import draw
from dpduck.kernel.noise.entropy import Entropy
from dpduck.kernel.noise.integers import discrete_laplace
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask, AskScan, Query, pure
from dpduck.kernel.queries.key_counts import KeyCounts, KeyDigests, exact_answers, keys_of
from dpduck.kernel.queries.tables import Total
from dpduck.values.errors import InternalError
from dpduck.values.privacy import Charge

UNITS = 1024
"""Weights of a session's questions are multiples of 1/UNITS, so that all compared numbers are whole."""


@dataclass(frozen=True, eq=False)
class SparseVector(Query[bytes]):
    """Rounds of a session: questions are compared with a noisy threshold, and the first one over it is measured.

    The ask's noise belongs to the thresholds, and its `times` is the number of rounds. question, measured: the noise of
    questions, and that of measurements, in units of 1/UNITS. The answer is the noise of all thresholds, for the secrets
    file alone. A round costs the epsilons of both comparisons' noise, as one pure mechanism, and the measurement's
    price.
    """

    question: Noise
    measured: Noise
    certified = ("question", "measured")

    def cost(self, ask: Ask[bytes]) -> Charge:
        if {ask.law.kind, self.question.kind} != {NoiseKind.LAPLACE}:
            raise InternalError("the comparisons of a session have one-sided geometric noise")
        step = ask.scan.l1 * UNITS
        compared = step / ask.law.parameter + step / self.question.parameter
        measured = self.measured.cost(step, step * step)
        if measured.epsilon is not None:
            return pure(compared + measured.epsilon)
        return Charge.zcdp(compared * compared / 2 + measured.rho)

    def draw(self, counts: Hidden, ask: Ask[bytes], entropy: Entropy, chosen: object) -> bytes:
        keys_of(counts)
        return one_sided(ask.law.parameter, 2 * ask.times, entropy).tobytes()  # both sides of every round


@dataclass(frozen=True)
class GateLaw:
    """Public parameters of a gate, in units of 1/UNITS of a row.

    updates: number of rounds. threshold: the allowed error of a hypothesis. threshold_scale, question_scale: scales of
    the noises. parameter: variance or scale of a measurement's noise. total_parameter: that of the number of rows.
    """

    updates: int
    unit_bound: int
    threshold: int
    threshold_scale: Fraction
    question_scale: Fraction
    noise: NoiseKind
    parameter: Fraction
    total_parameter: Fraction

    def total_ask(self, scan: AskScan) -> Ask[int]:
        return Ask(scan, Total(), Noise(self.noise, self.total_parameter))

    def gate_ask(self, scan: AskScan) -> Ask[bytes]:
        if scan.l1 != self.unit_bound:
            raise InternalError("the session and its counts disagree about the contribution bound")
        gate = SparseVector(Noise(NoiseKind.LAPLACE, self.question_scale), Noise(self.noise, self.parameter))
        return Ask(scan, gate, Noise(NoiseKind.LAPLACE, self.threshold_scale), times=self.updates)


def one_sided(scale: Fraction, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Draws integers k >= 0 with P(k) proportional to exp(-k / scale), exactly: rejects negative Laplace draws."""
    parts: list[NDArray[np.int64]] = []
    missing = count
    while missing > 0:
        drawn = discrete_laplace(scale, 2 * missing + 8, entropy)
        parts.append(drawn[drawn >= 0][:missing])
        missing -= len(parts[-1])
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


class Questions(Hidden):
    """Hidden exact answers of questions. Each question has fresh noise for one look, and noise for measurements."""

    __slots__ = ("_exact", "_looked", "_measurements", "_noise")

    def __init__(self, exact: NDArray[np.int64], noise: NDArray[np.int64], measurements: NDArray[np.int64]) -> None:
        self._exact: list[int] = exact.tolist()
        self._noise: list[int] = noise.tolist()
        self._measurements: list[int] = measurements.tolist()
        self._looked = -1


def _require_once(keys: KeyDigests, lengths: Sequence[int]) -> None:
    """Refuses a question that has a key twice. The key would count twice, and so would a unit in the answer."""
    runs = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((keys.low, keys.high, runs))
    high, low, run = keys.high[order], keys.low[order], runs[order]
    if ((high[1:] == high[:-1]) & (low[1:] == low[:-1]) & (run[1:] == run[:-1])).any():
        raise InternalError("a key stands twice in one question")


class SessionGate(Hidden):
    """Hidden exact counts and secret thresholds of a gate."""

    __slots__ = ("_counts", "_entropy", "_law", "_thresholds")

    def __init__(self, law: GateLaw, thresholds: bytes, counts: KeyCounts, entropy: Entropy) -> None:
        self._law, self._counts, self._entropy = law, counts, entropy
        self._thresholds = np.frombuffer(thresholds, dtype=np.int64)
        if len(self._thresholds) != 2 * law.updates:
            raise InternalError("the secret of a session is damaged")

    def prepare(self, keys: KeyDigests, weights: NDArray[np.int64], lengths: Sequence[int], rounds: int) -> Questions:
        """Returns exact answers of questions, in units of 1/UNITS, with fresh noise. The weights are from 0 to UNITS.

        lengths: the number of keys of each question. rounds: the number of rounds left, which bounds the measurements.
        """
        if weights.size and (weights.min() < 0 or weights.max() > UNITS):
            raise InternalError("a weight outside 0 .. 1")
        _require_once(keys, lengths)
        exact = exact_answers(self._counts, keys, weights, lengths)
        noise = one_sided(self._law.question_scale, 2 * len(lengths), self._entropy)
        measured = Noise(self._law.noise, self._law.parameter)
        return Questions(exact, noise, draw(measured, min(rounds, len(lengths)), self._entropy))

    def look(self, questions: Questions, number: int, hypothesis: int, round_number: int) -> int | None:
        """Returns None if the hypothesis (in 1/UNITS) is close enough. Otherwise a round ends with a noisy answer."""
        # each question is looked at once, in order: its noise serves one comparison
        if number <= questions._looked or not 0 <= round_number < self._law.updates:
            raise InternalError("a question was looked at twice, or after the last round")
        questions._looked = number
        gap = questions._exact[number] - hypothesis
        for side, distance in enumerate((gap, -gap)):
            noisy_threshold = self._law.threshold + int(self._thresholds[2 * round_number + side])
            if distance + questions._noise[2 * number + side] >= noisy_threshold:
                return questions._exact[number] + questions._measurements.pop()
        return None
