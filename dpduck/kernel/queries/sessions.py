"""The gate of a session: does the hypothesis miss the exact answer by much? A measurement follows only where it does.

Two sparse vectors run side by side, one for answers above the hypothesis and one for answers below it, each with a
noisy threshold; when either fires, both get fresh thresholds. Noise is one-sided (geometric): an answer that does not
fire is within threshold + threshold noise, whatever the noise of the question was. docs/sparse_queries.md proves:

    one round, until it fires, is (D/b1 + D/b2)-differentially private, D = unit_bound * UNITS,
    b1 the scale of the thresholds' noise, b2 that of the questions' noise

because moving the one threshold whose side grows by D covers every question before the last, the other side needs
nothing there, and the last question's tail moves by at most D. By zCDP's composition all rounds together cost
updates * ((D/b1 + D/b2)^2 / 2 + D^2 / (2 s)), with s the variance of the Gaussian measurement.
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
from dpduck.kernel.price import Ask, Query, Scan, pure
from dpduck.kernel.queries.key_counts import KeyCounts, KeyDigests, exact_answers, keys_of
from dpduck.kernel.queries.tables import Total
from dpduck.values.errors import InternalError
from dpduck.values.privacy import Charge

UNITS = 1024
"""Weights of a session's questions are multiples of 1/UNITS, so that all that is compared is whole."""


@dataclass(frozen=True, eq=False)
class SparseVector(Query[bytes]):
    """A round of a session: questions are compared with a noisy threshold until one fires, which is measured.

    The ask's noise is that of the thresholds, its times are the rounds. question, measured: noise of the questions
    and of what fires, in units of 1/UNITS. Answer: the noise of all thresholds, for the secrets file alone. The price
    of a round are both scales' parts of epsilon, as one pure mechanism, and the measurement.
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
        return Charge.concentrated(compared * compared / 2 + measured.rho)

    def draw(self, counts: Hidden, ask: Ask[bytes], entropy: Entropy, chosen: object) -> bytes:
        keys_of(counts)
        return one_sided(ask.law.parameter, 2 * ask.times, entropy).tobytes()  # of both sides for every round


@dataclass(frozen=True)
class GateLaw:
    """Everything about a gate that is public, in units of 1/UNITS of a row.

    updates: rounds. threshold: what the hypothesis may miss. threshold_scale, question_scale: b1, b2.
    parameter: variance or scale of a measurement. total_parameter: of the noisy number of rows, in rows.
    """

    updates: int
    unit_bound: int
    threshold: int
    threshold_scale: Fraction
    question_scale: Fraction
    noise: NoiseKind
    parameter: Fraction
    total_parameter: Fraction

    def total_ask(self, scan: Scan) -> Ask[int]:
        """Returns the noisy number of rows, the first thing that a session measures."""
        return Ask(scan, Total(), Noise(self.noise, self.total_parameter))

    def gate_ask(self, scan: Scan) -> Ask[bytes]:
        """Returns all rounds with their measurements."""
        if scan.l1 != self.unit_bound:
            raise InternalError("the session and its counts disagree about the contribution bound")
        gate = SparseVector(Noise(NoiseKind.LAPLACE, self.question_scale), Noise(self.noise, self.parameter))
        return Ask(scan, gate, Noise(NoiseKind.LAPLACE, self.threshold_scale), times=self.updates)


def one_sided(scale: Fraction, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Returns independent integers k >= 0 with P(k) proportional to exp(-k / scale), exactly; shape (count,).

    Discrete Laplace draws that are not negative: given that, they have this law.
    """
    kept: list[NDArray[np.int64]] = []
    missing = count
    while missing > 0:
        drawn = discrete_laplace(scale, 2 * missing + 8, entropy)
        kept.append(drawn[drawn >= 0][:missing])
        missing -= len(kept[-1])
    return np.concatenate(kept) if kept else np.empty(0, dtype=np.int64)


class Questions(Hidden):
    """Exact answers of some questions and their fresh noise, each good for one look; hidden.

    measurements: noise of the answers that will be measured, drawn beforehand: a look only compares and adds.
    """

    __slots__ = ("_exact", "_looked", "_measurements", "_noise")

    def __init__(self, exact: NDArray[np.int64], noise: NDArray[np.int64], measurements: NDArray[np.int64]) -> None:
        self._exact: list[int] = exact.tolist()
        self._noise: list[int] = noise.tolist()
        self._measurements: list[int] = measurements.tolist()
        self._looked = -1


def _require_once(keys: KeyDigests, lengths: Sequence[int]) -> None:
    """Refuses a key that comes twice in a question: it would weigh 2, and a unit move the answer twice as far."""
    runs = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((keys.low, keys.high, runs))
    high, low, run = keys.high[order], keys.low[order], runs[order]
    if ((high[1:] == high[:-1]) & (low[1:] == low[:-1]) & (run[1:] == run[:-1])).any():
        raise InternalError("a key stands twice in one question")


class SessionGate(Hidden):
    """Exact counts and secret thresholds behind a gate; hidden."""

    __slots__ = ("_counts", "_entropy", "_law", "_thresholds")

    def __init__(self, law: GateLaw, thresholds: bytes, counts: KeyCounts, entropy: Entropy) -> None:
        self._law, self._counts, self._entropy = law, counts, entropy
        self._thresholds = np.frombuffer(thresholds, dtype=np.int64)
        if len(self._thresholds) != 2 * law.updates:
            raise InternalError("the secret of a session is damaged")

    def prepare(self, keys: KeyDigests, weights: NDArray[np.int64], lengths: Sequence[int], rounds: int) -> Questions:
        """Returns exact answers, in units, of questions with these runs of keys and weights from 0 to UNITS.

        rounds: how many are left, the most of these questions that can be measured.
        """
        if weights.size and (weights.min() < 0 or weights.max() > UNITS):
            raise InternalError("a weight outside 0 .. 1")
        _require_once(keys, lengths)
        exact = exact_answers(self._counts, keys, weights, lengths)
        noise = one_sided(self._law.question_scale, 2 * len(lengths), self._entropy)
        measured = Noise(self._law.noise, self._law.parameter)
        return Questions(exact, noise, draw(measured, min(rounds, len(lengths)), self._entropy))

    def look(self, questions: Questions, number: int, hypothesis: int, round_number: int) -> int | None:
        """Returns None where the hypothesis (in units) is close enough; else a noisy answer, which ends the round.

        Questions are looked at in order, each once: its noise is not for two comparisons.
        """
        if number <= questions._looked or not 0 <= round_number < self._law.updates:
            raise InternalError("a question was looked at twice, or after the last round")
        questions._looked = number
        gap = questions._exact[number] - hypothesis
        for side, distance in enumerate((gap, -gap)):
            noisy_threshold = self._law.threshold + int(self._thresholds[2 * round_number + side])
            if distance + questions._noise[2 * number + side] >= noisy_threshold:
                return questions._exact[number] + questions._measurements.pop()
        return None
