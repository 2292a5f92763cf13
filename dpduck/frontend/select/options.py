"""OPTIONS (..) of the clause: BigQuery's names and ours; unknown or repeated ones are refused with the list."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from dpduck.frontend.rows.tree import RowSource
from dpduck.frontend.select.request import Treatment
from dpduck.frontend.select.summary import NAMES as SUMMARY_NAMES
from dpduck.frontend.select.summary import Summary, read_summary
from dpduck.frontend.text.friendly import OPTIONS as OLDER_OPTIONS
from dpduck.frontend.text.friendly import unknown_option
from dpduck.frontend.text.names import fold, quote_text
from dpduck.frontend.text.positions import refusal
from dpduck.frontend.text.tokens import exact_number
from dpduck.values.errors import Refusal

KNOWN = (
    "epsilon", "delta", "rho", "privacy_unit_column", "max_rows_contributed", "max_groups_contributed",
    "group_selection_strategy", "min_privacy_units_per_group", "strategy", "budgets", "consistency", "nonnegative",
    "integer", "confidence", "refresh", "weights", "planning_seconds", "target_stderr",
    "strategy_table", "aggregate_weights", "other", *SUMMARY_NAMES,
)  # fmt: skip
_NOT_FOR_SELECTED_KEYS = (
    "strategy", "budgets", "consistency", "nonnegative", "integer", "weights", "planning_seconds", "target_stderr",
    "strategy_table", "aggregate_weights",
)  # fmt: skip
STRATEGIES = (
    "auto", "I", "identity", "R", "residual", "O", "views", "Q", "marginals", "C", "clustering", "F", "fourier",
    "hierarchy", "haar", "p_identity", "gaussian_optimum",
)  # fmt: skip
_TREE = re.compile(r"hierarchy_\d+")
_FLAGS = ("nonnegative", "integer", "other")
_ONLY_FOR_SELECTED_KEYS = ("max_groups_contributed", "min_privacy_units_per_group", "other")
LARGEST_EPSILON = Fraction(100)
SMALLEST_AMOUNT = Fraction(1, 10**9)
LARGEST_DELTA = Fraction(1, 100)
LARGEST_TARGET = Fraction(10**12)
LARGEST_WEIGHT = Fraction(10**6)
SHORTEST_PLANNING, LONGEST_PLANNING = Fraction(1, 10), Fraction(60)


@dataclass(frozen=True)
class SelectionOptions:
    """How groups are selected from the data, as the statement says it; max_groups is None where it does not."""

    laplace: bool
    max_groups: int | None
    least_units: int
    other: bool


@dataclass(frozen=True)
class Options:
    """The options of one statement, checked one by one; None where absent."""

    epsilon: Fraction | None
    delta: Fraction | None
    rho: Fraction | None
    privacy_unit_column: str | None
    max_rows_contributed: int | None
    confidence: Fraction
    refresh: str
    treatment: Treatment
    target_stderr: Fraction | None = None
    selection: SelectionOptions | None = None
    summary: Summary | None = None


def read_options(expressions: Sequence[exp.Expr], place: exp.Expr) -> Options:
    """The options as written in the clause, or after the name of a private view."""
    given: dict[str, exp.Expr] = {}
    for expression in expressions:
        if not isinstance(expression, exp.EQ) or not isinstance(expression.left, exp.Column):
            flag = isinstance(expression, exp.Column) and expression.name.lower() in _FLAGS
            accepted = f"{expression.name.lower()} = TRUE" if flag else ", ".join(KNOWN)
            raise refusal(expression, "an option is written name = value", accepted)
        name = expression.left.name.lower()
        if name not in KNOWN:
            raise unknown_option(expression, name, KNOWN, older=OLDER_OPTIONS)
        if name in given:
            raise refusal(expression, f"the option {name} is given twice", "each option once")
        given[name] = expression.right
    selection = _selection(given)
    epsilon = _amount(given, "epsilon", LARGEST_EPSILON)
    delta = _amount(given, "delta", LARGEST_DELTA)
    rho = _amount(given, "rho", LARGEST_EPSILON)
    target = _amount(given, "target_stderr", LARGEST_TARGET)
    _require_one_price(given, selection is not None, place)
    return Options(
        epsilon,
        delta,
        rho,
        _name(given, "privacy_unit_column"),
        _whole(given, "max_rows_contributed"),
        _amount(given, "confidence", Fraction(999_999, 1_000_000)) or Fraction(95, 100),
        _text(given, "refresh"),
        Treatment(
            strategy=_strategy(given),
            budgets=_choice(given, "budgets", ("optimal", "uniform")),
            consistency=_choice(given, "consistency", ("l2", "l1", "linf", "none")),
            nonnegative=_flag(given, "nonnegative"),
            integer=_flag(given, "integer"),
            weights=_weights(given, "weights", "grouping set"),
            aggregate_weights=_weights(given, "aggregate_weights", "aggregate"),
            planning_seconds=_seconds(given),
            strategy_table=_text(given, "strategy_table"),
        ),
        target,
        selection,
        read_summary(given),
    )


def _require_one_price(given: dict[str, exp.Expr], selecting: bool, place: exp.Expr) -> None:
    """Refuses no price, two of them, and a delta beside what has none."""
    prices = [name for name in given if name in ("epsilon", "rho", "target_stderr")]
    if len(prices) > 1:
        raise refusal(given[prices[1]], f"{prices[0]} and {prices[1]} are two prices", "one of them")
    if "delta" in given and prices == ["rho"] and not selecting:
        raise refusal(given["delta"], "rho has no delta beside it", "rho = .. alone, or epsilon = .. and delta = ..")
    if "delta" in given and prices == ["target_stderr"]:
        raise refusal(given["delta"], "target_stderr has no delta beside it", "target_stderr = .. alone")
    if "delta" in given and not prices:
        raise refusal(given["delta"], "a delta alone is no price", "epsilon = .. and delta = ..")
    if not prices:
        raise refusal(
            place,
            "the price is missing",
            "OPTIONS (epsilon = ..), or epsilon and delta, or rho = .., or target_stderr = ..",
        )


def row_bound(options: Options, source: RowSource, place: exp.Expr) -> int:
    """The m of the statement, else that of its tables; the unit's column must be that of one of their policies."""
    columns = list(dict.fromkeys(column for relation in source.relations for column in relation.unit_columns))
    named = options.privacy_unit_column
    if named is not None and fold(named) not in map(fold, columns):
        listed = " or ".join(columns) or "no privacy_unit_column"
        raise refusal(place, "privacy_unit_column differs from the policy's unit", listed)
    asked = options.max_rows_contributed
    if asked is None:
        return source.usual_rows
    if source.first.policy.unit.column is None or asked > source.most_rows:
        raise refusal(place, "max_rows_contributed is above the policy's MAX ROWS", f"at most {source.most_rows}")
    return asked


def _selection(given: dict[str, exp.Expr]) -> SelectionOptions | None:
    """How groups are selected; None where they are public."""
    value = given.get("group_selection_strategy")
    strategy = "PUBLIC_GROUPS" if value is None else value.name.upper()
    if value is not None and strategy not in ("PUBLIC_GROUPS", "LAPLACE_THRESHOLD", "GAUSSIAN_THRESHOLD"):
        raise refusal(
            value,
            "group_selection_strategy has no such value",
            "PUBLIC_GROUPS, with a DOMAIN in the policy; LAPLACE_THRESHOLD or GAUSSIAN_THRESHOLD, with a delta",
        )
    if strategy == "PUBLIC_GROUPS":
        for name in _ONLY_FOR_SELECTED_KEYS:
            if name in given:
                raise refusal(
                    given[name],
                    f"{name} does not apply to public groups",
                    "MAX ROWS in the policy, max_rows_contributed; or group_selection_strategy = GAUSSIAN_THRESHOLD",
                )
        return None
    for name in _NOT_FOR_SELECTED_KEYS:
        if name in given:
            raise refusal(given[name], f"{name} does not apply to keys that are selected", "the statement without it")
    return SelectionOptions(
        laplace=strategy == "LAPLACE_THRESHOLD",
        max_groups=_whole(given, "max_groups_contributed"),
        least_units=_whole(given, "min_privacy_units_per_group") or 1,
        other=_flag(given, "other"),
    )


def _amount(given: dict[str, exp.Expr], name: str, largest: Fraction) -> Fraction | None:
    node = given.get(name)
    if node is None:
        return None
    least = "above 0" if name == "delta" else f"from {0.5 if name == 'confidence' else float(SMALLEST_AMOUNT):g}"
    wanted = f"{name} {least} to {float(largest):.6g}"
    if not isinstance(node, exp.Literal) or node.is_string:
        raise refusal(node, f"{name} is not a positive number", wanted)
    try:
        value = exact_number(node.name)
    except (ValueError, ZeroDivisionError):
        raise refusal(node, f"{name} is not a plain number of at most 40 digits", wanted) from None
    smallest = Fraction(0) if name == "delta" else SMALLEST_AMOUNT
    if not smallest <= value <= largest or value == 0:
        raise refusal(node, f"{name} is out of range", wanted)
    return value


def _weights(given: dict[str, exp.Expr], name: str, what: str) -> tuple[Fraction, ...]:
    node = given.get(name)
    if node is None:
        return ()
    wanted = f"{name} = (1, 2, 0.5): one number for each {what}, above 0 and at most {int(LARGEST_WEIGHT)}"
    listed = node.expressions if isinstance(node, exp.Tuple) else [node.unnest()]
    return tuple(_number(item, "a weight", SMALLEST_AMOUNT, LARGEST_WEIGHT, wanted) for item in listed)


def _seconds(given: dict[str, exp.Expr]) -> Fraction:
    node = given.get("planning_seconds")
    if node is None:
        return Treatment.planning_seconds
    wanted = f"planning_seconds from {float(SHORTEST_PLANNING)} to {int(LONGEST_PLANNING)}"
    return _number(node, "planning_seconds", SHORTEST_PLANNING, LONGEST_PLANNING, wanted)


def _number(node: exp.Expr, what: str, smallest: Fraction, largest: Fraction, wanted: str) -> Fraction:
    if not isinstance(node, exp.Literal) or node.is_string:
        raise refusal(node, f"{what} is not a positive number", wanted)
    try:
        value = exact_number(node.name)
    except (ValueError, ZeroDivisionError):
        raise refusal(node, f"{what} is not a plain number of at most 40 digits", wanted) from None
    if not smallest <= value <= largest:
        raise refusal(node, f"{what} is out of range", wanted)
    return value


def _whole(given: dict[str, exp.Expr], name: str) -> int | None:
    node = given.get(name)
    if node is None:
        return None
    if not isinstance(node, exp.Literal) or not node.is_int or not 1 <= int(node.name[:12]) <= 10**9:
        raise refusal(node, f"{name} is out of range", "a whole number above 0")
    return int(node.name[:12])


def _name(given: dict[str, exp.Expr], name: str) -> str | None:
    node = given.get(name)
    if node is None:
        return None
    if not isinstance(node, (exp.Column, exp.Literal)):
        raise refusal(node, f"{name} is not a name", "a column")
    return str(node.name)


def _text(given: dict[str, exp.Expr], name: str) -> str:
    node = given.get(name)
    if node is None:
        return ""
    if not isinstance(node, exp.Literal) or not node.is_string or not 1 <= len(node.name) <= 100:
        raise refusal(node, f"{name} is not a tag", "a quoted text of at most 100 characters")
    return str(node.name)


def _strategy(given: dict[str, exp.Expr]) -> str:
    """The name of a strategy, with a + for optimal budgets; which of them can serve is for the planner to say."""
    named = _text(given, "strategy") or "auto"
    if not _TREE.fullmatch(named) and named.casefold().removesuffix("+") not in map(str.casefold, STRATEGIES):
        accepted = f"one of {', '.join(STRATEGIES)}; with a + for optimal budgets, as in Q+"
        raise refusal(given["strategy"], f"strategy = {quote_text(named[:60])} is not known", accepted)
    return named


def _choice(given: dict[str, exp.Expr], name: str, allowed: tuple[str, ...]) -> str:
    node = given.get(name)
    if node is None:
        return allowed[0]
    value = str(node.name).lower() if isinstance(node, (exp.Literal, exp.Column)) else ""
    if value not in allowed:
        raise refusal(node, f"{name} has no such value", ", ".join(repr(choice) for choice in allowed))
    return value


def _flag(given: dict[str, exp.Expr], name: str) -> bool:
    node = given.get(name)
    if node is None:
        return False
    if not isinstance(node, exp.Boolean):
        raise refusal(node, f"{name} is TRUE or FALSE", "TRUE or FALSE")
    return bool(node.this)


def require_confidence(options: Options) -> Fraction:
    """The confidence of intervals, at least one half."""
    if options.confidence < Fraction(1, 2):
        raise Refusal("confidence is below one half", accepted="confidence from 0.5 to 0.999999")
    return options.confidence
