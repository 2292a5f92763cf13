"""Options of CREATE PRIVATE TABLE; those of the price and of the privacy unit are read as everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from dpduck.frontend.option_names import unknown_option
from dpduck.frontend.positions import refusal
from dpduck.frontend.token_reader import exact_number

MECHANISMS = ("auto", "mwem", "cube", "barak")
SHARED = ("epsilon", "delta", "rho", "privacy_unit_column", "max_rows_contributed", "refresh", "planning_seconds")
OWN = (
    "mechanism", "rows", "weights", "rounds", "ask", "update", "replays", "keep", "first", "first_share",
    "choice_share", "adaptive",
)  # fmt: skip
LARGEST_ROWS = 10_000_000
LARGEST_ROUNDS = 10_000


@dataclass(frozen=True)
class SyntheticOptions:
    """rows: of the table, None for the noisy number of records. weights: also the table of probabilities.

    rounds, ask: None and '' for the rule. ask: 'marginals' as a whole or single 'queries'. update: 'fit' or 'paper'.
    first: what is asked before the rounds, 'nothing', 'marginals' (1-way) or 'histogram', for first_share of the price.
    keep: the 'last' distribution or the 'average'. adaptive: rounds whose price doubles when noise drowns an answer.
    """

    mechanism: str = "auto"
    rows: int | None = None
    weights: bool = False
    rounds: int | None = None
    ask: str = ""
    update: str = "fit"
    replays: int = 20
    keep: str = "last"
    first: str = "nothing"
    first_share: Fraction = Fraction(1, 5)
    choice_share: Fraction | None = None
    adaptive: bool = False


def split_options(expressions: Sequence[exp.Expr]) -> tuple[SyntheticOptions, tuple[exp.Expr, ...]]:
    """Our options, and those that every statement has."""
    known = (*SHARED, *OWN)
    given: dict[str, exp.Expr] = {}
    shared: list[exp.Expr] = []
    for expression in expressions:
        if not isinstance(expression, exp.EQ) or not isinstance(expression.left, exp.Column):
            raise refusal(expression, "an option is written name = value", ", ".join(known))
        name = expression.left.name.lower()
        if name in SHARED:
            shared.append(expression)
        elif name not in OWN:
            raise unknown_option(expression, name, known, " for a private table")
        elif name in given:
            raise refusal(expression, f"the option {name} is given twice", "each option once")
        else:
            given[name] = expression.right
    default = SyntheticOptions()
    options = SyntheticOptions(
        mechanism=_choice(given, "mechanism", MECHANISMS),
        rows=_whole(given, "rows", LARGEST_ROWS),
        weights=_flag(given, "weights"),
        rounds=_whole(given, "rounds", LARGEST_ROUNDS),
        ask=_choice(given, "ask", ("", "marginals", "queries")),
        update=_choice(given, "update", ("fit", "paper")),
        replays=_whole(given, "replays", 1000) or default.replays,
        keep=_choice(given, "keep", ("last", "average")),
        first=_choice(given, "first", ("nothing", "marginals", "histogram")),
        first_share=_share(given, "first_share") or default.first_share,
        choice_share=_share(given, "choice_share"),
        adaptive=_flag(given, "adaptive"),
    )
    return options, tuple(shared)


def _whole(given: dict[str, exp.Expr], name: str, largest: int) -> int | None:
    node = given.get(name)
    if node is None:
        return None
    if not isinstance(node, exp.Literal) or not node.is_int or not 1 <= int(node.name[:12]) <= largest:
        raise refusal(node, f"{name} is out of range", f"a whole number from 1 to {largest}")
    return int(node.name)


def _share(given: dict[str, exp.Expr], name: str) -> Fraction | None:
    node = given.get(name)
    if node is None:
        return None
    wanted = f"{name} from 0.01 to 0.9"
    if not isinstance(node, exp.Literal) or node.is_string:
        raise refusal(node, f"{name} is not a number", wanted)
    try:
        value = exact_number(node.name)
    except (ValueError, ZeroDivisionError):
        raise refusal(node, f"{name} is not a plain number", wanted) from None
    if not Fraction(1, 100) <= value <= Fraction(9, 10):
        raise refusal(node, f"{name} is out of range", wanted)
    return value


def _choice(given: dict[str, exp.Expr], name: str, allowed: tuple[str, ...]) -> str:
    node = given.get(name)
    if node is None:
        return allowed[0]
    value = str(node.name).lower() if isinstance(node, (exp.Literal, exp.Column)) else ""
    if not value or value not in allowed:
        raise refusal(node, f"{name} has no such value", ", ".join(repr(choice) for choice in allowed if choice))
    return value


def _flag(given: dict[str, exp.Expr], name: str) -> bool:
    node = given.get(name)
    if node is None:
        return False
    if not isinstance(node, exp.Boolean):
        raise refusal(node, f"{name} is TRUE or FALSE", "TRUE or FALSE")
    return bool(node.this)
