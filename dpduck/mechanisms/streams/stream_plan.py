"""Plan of a stream, as the store keeps it: the strategy over time, and the queries of each measure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.strategies.time_axis import TREE, TimeAxis, time_axis
from dpduck.values.errors import StoreError
from dpduck.values.records import as_array, read_record

CELLS = "I"
"""Strategy over other keys for one grouping set: it measures every cell."""

Asked = tuple[tuple[int, ...] | None, str, Fraction]


@dataclass(frozen=True)
class Part:
    """Queries of one measure (cubes/measures.py) at each row of the strategy over time.

    strategy: the strategy over the other keys.
    asked: for each query its keys without the periods (None for every cell), a letter for the factor along each key,
        and the parameter of its noise.
    """

    form: str
    strategy: str
    asked: tuple[Asked, ...]


@dataclass(frozen=True)
class AnswerNoise:
    """Error of a published answer. variance: for a cell of one measured period, 0 if it differs between cells.

    step: the largest change of a cell when one integer of noise changes by one.
    """

    name: str
    variance: float
    step: float


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """Strategy over time, with the queries of each measure. told: the answers' errors, empty for a plain count."""

    axis: TimeAxis
    kind: NoiseKind
    parts: tuple[Part, ...]
    told: tuple[AnswerNoise, ...] = ()

    @property
    def noise(self) -> Noise:
        return Noise(self.kind, self.parts[0].asked[0][2])

    @property
    def name(self) -> str:
        time = f"{TREE}_{self.axis.branching}" if self.axis.branching else self.axis.name
        others = dict.fromkeys(part.strategy for part in self.parts if part.asked[0][0] is not None)
        return f"{time} x {', '.join(others)}" if others else time

    @cached_property
    def matrix_digest(self) -> str:
        return hashlib.sha256(np.ascontiguousarray(self.axis.matrix).tobytes()).hexdigest()

    def to_facts(self) -> str:
        """Writes the plan for the store. A plain count needs no parts, only its noise."""
        axis = self.axis
        facts = [axis.name, axis.periods, axis.branching, self.kind, self.noise.parameter, self.matrix_digest]
        return json.dumps([*facts, self.parts, self.told] if self.told else facts, default=as_array)


def plan_from_facts(text: str) -> StreamPlan:
    """Reads the plan of a stream that to_facts wrote."""
    name, periods, branching, kind, parameter, digest, *more = json.loads(text)
    stored = more or [[["", CELLS, [[None, "", parameter]]]], []]
    parts, told = read_record(tuple[tuple[Part, ...], tuple[AnswerNoise, ...]], stored)
    plan = StreamPlan(time_axis(name, periods, branching), NoiseKind[kind], parts, told)
    if plan.matrix_digest != digest:
        raise other_version("matrix of the stream's strategy")
    return plan


def other_version(what: str) -> StoreError:
    """Returns the error about a stream that an older or newer dpduck made in another way."""
    return StoreError(f"this dpduck has another {what}; accepted: the version that made it")
