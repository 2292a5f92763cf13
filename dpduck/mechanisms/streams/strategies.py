"""Choice among the strategies of a stream over time, and their forecasts, from public facts alone.

An answer with weights w over time has |w|^2 times the variance of the cube's cells (streams/measurements.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from dpduck.kernel.noise.law import NoiseKind
from dpduck.mechanisms.cubes.plan import noise_of
from dpduck.mechanisms.cubes.recover import is_whole
from dpduck.mechanisms.forecast import Forecast
from dpduck.mechanisms.streams.measurements import cube_of, plan_of, plan_parts, workload_of
from dpduck.mechanisms.streams.plan import StreamRequest
from dpduck.mechanisms.streams.stream_plan import AnswerNoise, StreamPlan
from dpduck.strategies.time_axis import BRANCHINGS, PERIODS, STRATEGIES, TREE, TimeAxis, time_axis
from dpduck.strategies.time_questions import TimeQuestion, variances
from dpduck.values.arrays import FloatArray

_SHOWN = (1, 12, 36)


def plans(stream: StreamRequest) -> list[StreamPlan]:
    """Returns a plan for each strategy over time, and of trees the best. The chosen one is first, then by error."""
    ranked = []
    for name in STRATEGIES:
        axes = [time_axis(name, stream.periods, branching) for branching in (BRANCHINGS if name == TREE else (2,))]
        gaussian = noise_of(stream.request) is NoiseKind.GAUSSIAN
        axis = min(axes, key=lambda axis: _over_time(axis, stream.question, gaussian))
        plan = _plan_stream(stream, axis)
        error = float(sum(variances(axis, stream.question))) * sum(
            plan_of(entry).total_variance / entry.unit_bound**2 for entry in cube_of(stream, plan).measures
        )
        ranked.append((axis.name != stream.strategy, error, plan))
    return [plan for *_, plan in sorted(ranked, key=lambda entry: entry[:2])]


def _over_time(axis: TimeAxis, question: TimeQuestion, gaussian: bool) -> float:
    """Returns the error of a strategy over time at one price, up to a factor."""
    l1, l2_squared, _ = axis.factor.norms
    return float(variances(axis, question).sum()) * (l2_squared if gaussian else l1 * l1)


def _plan_stream(stream: StreamRequest, axis: TimeAxis) -> StreamPlan:
    plan = StreamPlan(axis, noise_of(stream.request), plan_parts(stream, axis))
    question, cube = stream.request.question, cube_of(stream, plan)
    plain = (
        len(question.aggregates) == 1
        and question.aggregates[0].operand is None
        and not question.aggregates[0].has_curved_error
    )
    if plain and len(question.grouping_sets) == 1:
        return plan
    answers = []
    for name, number in stream.shown:
        use, over_keys = cube.uses[number], plan_of(cube.measures[cube.uses[number].measure])
        size = use.size if len(question.grouping_sets) == 1 else 0.0
        answers.append(AnswerNoise(name, size * over_keys.variances[0], float(max(map(abs, use.weights), default=0))))
    return replace(plan, told=tuple(answers))


def explain_stream(stream: StreamRequest, ranked: Sequence[StreamPlan]) -> list[Forecast]:
    """Returns a forecast for each plan of a stream, the chosen plan first, with the error of each period."""
    return [_forecast(stream, plan, number == 0) for number, plan in enumerate(ranked)]


def _forecast(stream: StreamRequest, plan: StreamPlan, chosen: bool) -> Forecast:
    """Returns a strategy's forecast, with the errors of the first answer that has any, in its worst grouping set."""
    request, cube, over_time = stream.request, cube_of(stream, plan), variances(plan.axis, stream.question)
    workload = workload_of(stream)
    cells = [prod(workload.sizes[key] for key in members) for members in workload.marginals]
    total, errors = 0.0, dict[str, FloatArray]()
    for name, number in stream.shown:
        use, over_keys = cube.uses[number], plan_of(cube.measures[cube.uses[number].measure])
        total += use.size * float(over_time.sum()) * float(np.dot(over_keys.variances, cells))
        if use.weights:
            errors[name] = np.sqrt(use.size * max(over_keys.variances) * over_time)
    at = [period for period in _SHOWN if period <= stream.periods]
    first = next(iter(errors.values()), np.sqrt(plan.noise.variance * over_time))
    said = [", ".join(f"{of[period - 1]:.3g}" for period in at) for of in errors.values() or [first]]
    named = [f"{name} {text}" for name, text in zip(errors, said, strict=True)] if len(stream.shown) > 1 else said
    note = (
        f"{plan.noise.kind.value} noise; for {stream.question.text}: {'; '.join(named)} after "
        f"{', '.join(map(str, at))} periods"
    )
    measured = sum(len(x.asked) for x in plan.parts) if plan.told else 1
    further = [
        ("stderr_by_period", "DOUBLE[]", str([round(float(x), 6) for x in first])),
        ("privacy_unit", "VARCHAR", f"{request.rows.unit_text} over all periods" if chosen else None),
    ]
    groups, worst = plan.axis.factor.rows * measured, float(first.max())
    return Forecast(plan.name, chosen, stream.periods * sum(cells), groups, (note,), total, worst, 0.0, further)


def wholes(stream: StreamRequest, plan: StreamPlan) -> list[bool]:
    """Tells for each aggregate whether all of its answers are whole numbers."""
    cube = cube_of(stream, plan)
    return [plan.axis.name == PERIODS and is_whole(cube, number) for number in range(len(cube.uses))]
