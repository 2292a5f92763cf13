"""Options of CREATE PRIVATE TABLE. Options of the price and of the privacy unit are read as in every statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from dpduck.language.text.options import PRICE_OPTIONS, Option, read_given
from dpduck.language.text.positions import refusal

MECHANISMS = ("auto", "mwem", "aim", "cube", "barak")
_SHARE = (Fraction(1, 100), Fraction(9, 10))
SHARED_OPTIONS = (*PRICE_OPTIONS, Option("planning_seconds", "number", "time for searches"))
SHARED = tuple(option.name for option in SHARED_OPTIONS)
"""Names of the options that a private table shares with other statements (select/options.py)."""

OWN_OPTIONS = (
    Option("mechanism", "choice", "how the table is made", choices=MECHANISMS),
    Option("rows", "whole", "of the table; free", Fraction(1), Fraction(10**7)),
    Option("weights", "flag", "a second table with the probability of every cell; free"),
    Option("bins", "whole", "of a RANGE column, at most: neighbours are one", Fraction(1), Fraction(10**6)),
    Option("inside", "flag", "values are drawn inside bins, not their lower edges; free"),
    Option("key", "name", "a column of this name numbers the rows from 1; free"),
    Option("rounds", "whole", "how often MWEM asks", Fraction(1), Fraction(10**4)),
    Option("ask", "choice", "what a round asks", choices=("", "marginals", "queries")),
    Option("update", "choice", "what follows a round", choices=("fit", "paper")),
    Option("replays", "whole", "passes of the paper's update over all answers so far", Fraction(1), Fraction(1000)),
    Option("keep", "choice", "which distribution is the answer", choices=("last", "average")),
    Option("first", "choice", "asked before the rounds", choices=("", "nothing", "marginals", "histogram")),
    Option("first_share", "number", "of the price, for those", *_SHARE),
    Option("choice_share", "number", "of a round's price, for the choice of what to ask", *_SHARE),
    Option("adaptive", "flag", "a round's price doubles where noise drowns what was learnt"),
)
OWN = tuple(option.name for option in OWN_OPTIONS)


@dataclass(frozen=True)
class SyntheticOptions:
    """Options of a private table. None or '' leaves a choice to dpduck."""

    mechanism: str = "auto"
    rows: int | None = None  # None for the noisy number of records
    weights: bool = False  # whether there is a table of probabilities as well
    bins: int = 0  # the most bins of a RANGE column, 0 for all
    inside: bool = False  # whether values lie inside bins, not at their lower edges
    rounds: int | None = None
    ask: str = ""  # whether a round measures 'marginals' or 'queries'
    update: str = "fit"  # 'fit' fits a model to all answers, 'paper' is the update of the MWEM paper
    replays: int = 20  # how often the paper's update is repeated
    keep: str = "last"  # the 'last' distribution, or the 'average' of all
    first: str = ""  # the measurement before the rounds: 'nothing', 'marginals' (1-way) or 'histogram'
    first_share: Fraction = Fraction(1, 5)  # of the price, for the measurement before the rounds
    choice_share: Fraction | None = None  # of a round's price, for the choice of what to ask
    adaptive: bool = False  # whether prices double if noise drowns an answer
    key: str = ""  # a column that numbers the rows, "" for none


def split_options(expressions: Sequence[exp.Expr]) -> tuple[SyntheticOptions, tuple[exp.Expr, ...]]:
    """Reads the options that only a private table has. Returns the result, and the other options unread."""
    given = read_given(expressions, (*SHARED_OPTIONS, *OWN_OPTIONS), " for a private table")
    default = SyntheticOptions()
    if "key" in given and not given.text("key"):
        raise refusal(given["key"], "a column of no name", "key = id, or the statement without it")
    options = SyntheticOptions(
        mechanism=given.choice("mechanism"),
        rows=given.whole("rows"),
        weights=given.flag("weights"),
        bins=given.whole("bins") or 0,
        inside=given.flag("inside"),
        rounds=given.whole("rounds"),
        ask=given.choice("ask"),
        update=given.choice("update"),
        replays=given.whole("replays") or default.replays,
        keep=given.choice("keep"),
        first=given.choice("first"),
        first_share=given.number("first_share") or default.first_share,
        choice_share=given.number("choice_share"),
        adaptive=given.flag("adaptive"),
        key=given.text("key"),
    )
    return options, tuple(expression for expression in expressions if expression.this.name.lower() in SHARED)
