"""A mechanism for a test: one count of all rows, rounded to a multiple. CONTRIBUTING.md shows it."""

from dataclasses import dataclass
from fractions import Fraction

import pyarrow as pa

from dpduck.kernel.contributions import Contribution
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask, AskScan
from dpduck.kernel.queries.tables import Total
from dpduck.language.select.request import SelectRequest
from dpduck.language.text.names import GROUPING_ID, GROUPING_SET, answer_column, stderr_column
from dpduck.language.text.options import Option
from dpduck.mechanisms.forecast import Forecast
from dpduck.mechanisms.jobs import counting_job
from dpduck.mechanisms.mechanism import Columns, Mechanism, Tools
from dpduck.mechanisms.release import ReleasedTable, ReleaseHeader
from dpduck.strategies.recovery.intervals import ErrorLaw
from dpduck.values.errors import Refusal

ROUND_TO = Option("round_to", "whole", "counts are rounded to a multiple of it", Fraction(1), Fraction(1000))


@dataclass(frozen=True)
class Rounded:
    """The plan: the request and its ask, and the multiple to which the answer is rounded."""

    request: SelectRequest
    ask: Ask[int]
    to: int

    @property
    def variance(self) -> float:
        """Returns the variance of noise and rounding together."""
        noise = self.ask.noise
        return (0.0 if noise is None else noise.variance) + self.to**2 / 12


def plan(request: SelectRequest) -> Rounded:
    """Plans Laplace noise for the whole price. Refuses requests other than one count of all rows."""
    epsilon = request.price.charge.epsilon
    if request.question.keys or [one.text for one in request.question.aggregates] != ["count(*)"] or not epsilon:
        raise Refusal(
            "round_to is for one count, at an epsilon", accepted="OPTIONS (epsilon = 1, round_to = 9) count(*)"
        )
    scan = AskScan(counting_job(request, [Contribution()]), request.rows.unit_bound)
    noise = Noise(NoiseKind.LAPLACE, request.rows.unit_bound / epsilon)
    return Rounded(request, Ask(scan, Total(), noise), int(str(dict(request.question.own)["round_to"])))


def columns(proposal: Rounded) -> Columns:
    """Names the columns of one answer."""
    answer = [(answer_column(0), "BIGINT"), (stderr_column(0), "DOUBLE")]
    return [(GROUPING_ID, "BIGINT"), (GROUPING_SET, "INTEGER"), *answer]


def recover(proposal: Rounded, noisy: int, tools: Tools) -> ReleasedTable:
    """Rounds the noisy count."""
    rounded, stderr = proposal.to * round(noisy / proposal.to), proposal.variance**0.5
    values = ([0], [0], [rounded], [stderr])
    return ReleasedTable(
        columns(proposal), pa.table({name: of for (name, _), of in zip(columns(proposal), values, strict=True)})
    )


def describe(request: SelectRequest, proposal: Rounded) -> list[Forecast]:
    """Forecasts the only way to answer."""
    variance = proposal.variance
    return [Forecast("rounded", True, 1, 1, (f"to {proposal.to}",), variance, variance**0.5, seconds=0.0)]


ROUNDED = Mechanism[SelectRequest, Rounded, int](
    name="rounded",
    options=(ROUND_TO,),
    serves=lambda request: isinstance(request, SelectRequest) and "round_to" in dict(request.question.own),
    plan=plan,
    asks=lambda proposal: [proposal.ask],
    header=lambda proposal: ReleaseHeader(
        proposal.request, "rounded count", "rounded", ((ErrorLaw(NoiseKind.LAPLACE, None, proposal.variance),),)
    ),
    measure=lambda proposal, door, tools: door.answer(proposal.ask),
    recover=recover,
    describe=describe,
    columns=columns,
)
