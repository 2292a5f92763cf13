"""OPTIONS (summary = ..): noisy summaries of huge domains, read and checked from public facts alone."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpduck.frontend.text.options import Given, Option
from dpduck.frontend.text.positions import refusal

METHODS = (
    "auto", "filter", "filter_one_sided", "threshold", "priority", "filter_threshold", "filter_priority", "sketch",
    "geometric",
)  # fmt: skip
SHAPES = ("dyadic", "haar")
DEFAULT_SIZE = 100_000
LARGEST_SIZE = 20_000_000
LARGEST_DOMAIN = 10**30
LARGEST_THRESHOLD = 10**12
SMALLEST_TOTAL_EPSILON, LARGEST_TOTAL_EPSILON = Fraction(1, 10**9), 100
MOST_SKETCH_ROWS = 99
"""Rows of a sketch: each multiplies the sensitivity."""

SUMMARY_OPTIONS = (
    Option("summary", "choice", "a summary of bounded size in place of every cell", choices=METHODS, quoted=True),
    Option("summary_size", "whole", "about how many cells it has", Fraction(1), Fraction(LARGEST_SIZE)),
    Option("theta", "whole", "a filter passes noisy counts from here on", Fraction(1), Fraction(LARGEST_THRESHOLD)),
    Option("tau", "number", "of threshold sampling", Fraction(1, 1000), Fraction(LARGEST_THRESHOLD)),
    Option("total_epsilon", "number", "the part of the price for a noisy number of rows", SMALLEST_TOTAL_EPSILON,
           Fraction(LARGEST_TOTAL_EPSILON)),
    Option("range_summary", "choice", "what takes the place of RANGES(column)", choices=SHAPES, quoted=True),
    Option("sketch_rows", "whole", "rows of a sketch", Fraction(1), Fraction(MOST_SKETCH_ROWS)),
)  # fmt: skip
NAMES = tuple(option.name for option in SUMMARY_OPTIONS)

_FILTERED = ("filter", "filter_one_sided", "filter_threshold", "filter_priority")
_OF_OTHERS = (
    "strategy", "budgets", "nonnegative", "integer", "weights", "planning_seconds", "strategy_table", "target_stderr",
    "aggregate_weights", "quantiles",
)  # fmt: skip
_THRESHOLDED = ("threshold", "filter_threshold")
_ONLY_OF = {
    "theta": _FILTERED,
    "tau": _THRESHOLDED,
    "total_epsilon": ("threshold", *_FILTERED),
    "sketch_rows": ("sketch",),
    "range_summary": tuple(method for method in METHODS if method != "sketch"),
    "summary_size": tuple(method for method in METHODS if method != "geometric"),
}
_SIZED_BY = {
    "filter": ("theta",),
    "filter_one_sided": ("theta",),
    "threshold": ("tau",),
    "filter_threshold": ("theta", "tau"),
}


@dataclass(frozen=True)
class Summary:
    """A noisy summary that is asked for. theta: of the filter, tau: of threshold sampling, where they are given.

    shape: what takes the place of RANGES(column), dyadic intervals or Haar coefficients. consistent: intervals without
    their parents are dropped. expect_rows: the public guess of the policy, which choices may use.
    stated: whether the size was written, and must be of this very summary. total_epsilon: the part of the price for a
    noisy number of rows: tau follows from it in place of the guess, and what a filter has lost. ranged: whether the
    shape was written.
    """

    method: str
    size: int
    theta: int | None = None
    tau: Fraction | None = None
    shape: str = "dyadic"
    sketch_rows: int = 5
    consistent: bool = True
    expect_rows: int | None = None
    stated: bool = False
    total_epsilon: Fraction | None = None
    ranged: bool = False


def read_summary(given: Given) -> Summary | None:
    """Returns the options of a summary, None where none is asked for."""
    stated = [name for name in NAMES if name in given]
    if "summary" not in given:
        if stated:
            accepted = f"summary = {_ONLY_OF[stated[0]][0]!r} beside it"
            raise refusal(given[stated[0]], f"{stated[0]} is of a summary", accepted)
        return None
    require_plain_treatment(given)
    method = given.choice("summary")
    theta = given.whole("theta")
    tau = given.number("tau")
    total = given.number("total_epsilon")
    for name, methods in _ONLY_OF.items():
        if name in given and method not in methods:
            accepted = f"one of {_quoted(methods)}" if len(methods) > 1 else f"summary = {_quoted(methods)}"
            raise refusal(given[name], f"{name} is not of summary = {method!r}", accepted)
    shape = given.choice("range_summary")
    if (method, shape) == ("filter_one_sided", "haar"):
        # The paper's one-sided filter is for counts: half of all coefficients are negative, and would be lost.
        what = "filter_one_sided is not of Haar coefficients, which have either sign"
        raise refusal(given["range_summary"], what, "summary = 'filter', or range_summary = 'dyadic'")
    size = given.whole("summary_size")
    rows = given.whole("sketch_rows")
    _require_one_say(given, method)
    return Summary(
        method,
        size or DEFAULT_SIZE,
        theta,
        tau,
        shape,
        rows or 5,
        consistent="consistency" not in given or given["consistency"].name.lower() != "none",
        stated=size is not None and method != "auto",
        total_epsilon=total,
        ranged="range_summary" in given,
    )


def _require_one_say(given: Given, method: str) -> None:
    """Refuses options that decide the same thing twice."""
    if "tau" in given and "total_epsilon" in given:
        raise refusal(given["total_epsilon"], "tau is given, and no total is needed for it", "one of the two")
    parameters = _SIZED_BY.get(method, ())
    if "summary_size" in given and parameters and all(name in given for name in parameters):
        listed = " and ".join(parameters)
        what = f"summary_size says nothing beside {listed} of summary = {method!r}"
        raise refusal(given["summary_size"], what, f"summary_size, or {listed}")


def _quoted(names: tuple[str, ...]) -> str:
    return ", ".join(repr(name) for name in names)


def require_plain_treatment(given: Given) -> None:
    """Options of the other kinds of release say nothing about a summary."""
    for name in _OF_OTHERS:
        if name in given:
            raise refusal(given[name], f"{name} is not of a summary", f"{', '.join(NAMES)}, consistency = 'none'")
    if "consistency" in given and str(given["consistency"]) not in ("l2", "'l2'", "'none'", "none"):
        raise refusal(given["consistency"], "consistency of a summary has no such value", "'none', or without it")
