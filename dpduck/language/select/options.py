"""Options of SELECT WITH DIFFERENTIAL_PRIVACY, some with BigQuery's names. Options and policy give the price."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from dpduck.language.rows.facts import Policy
from dpduck.language.rows.tree import RowSource
from dpduck.language.select.request import (
    AUTO,
    CHOICE,
    SUMMARY_OPTIONS,
    TREE,
    VARIANCES,
    KeySelection,
    Price,
    Question,
    SelectRequest,
    Summary,
    Target,
    Treatment,
    read_summary,
)
from dpduck.language.text.options import CAPTIONS, PRICE_OPTIONS, Option, StatementOptions, Value, read_given
from dpduck.language.text.positions import OPTIONS as OLDER_OPTIONS
from dpduck.language.text.positions import refusal
from dpduck.values.accounting import rho_of, rho_of_pure
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Charge
from dpduck.values.quoting import fold, quote_text

LARGEST_EPSILON = Fraction(100)
PRIVATE = "private"
_COUNT = "a whole number above 0"
_WEIGHTS = "{} = (1, 2, 0.5): one number for each {}, above 0 and at most 1000000"
TABLE = (
    *PRICE_OPTIONS[:5],
    Option("max_groups_contributed", "whole", "groups of one unit", Fraction(1), accepted=_COUNT),
    Option(
        "group_selection_strategy", "choice", "how keys without a domain are published",
        choices=("public_groups", "laplace_threshold", "gaussian_threshold"),
        accepted="PUBLIC_GROUPS, with a DOMAIN in the policy; LAPLACE_THRESHOLD or GAUSSIAN_THRESHOLD, with a delta",
    ),
    Option("min_privacy_units_per_group", "whole", "units that a group must have", Fraction(1), accepted=_COUNT),
    Option("strategy", "text", "how it is measured"),
    Option("budgets", "choice", "how the price is shared out", choices=("optimal", "uniform")),
    Option("consistency", "choice", "how answers are made to agree", choices=("l2", "l1", "linf", "none")),
    Option("nonnegative", "flag", "answers of at least 0, after the noise"),
    Option("integer", "flag", "whole answers, after the noise"),
    Option("confidence", "number", "of intervals", most=Fraction(999_999, 1_000_000),
           accepted="confidence from 0.5 to 0.999999"),
    PRICE_OPTIONS[5],
    Option("weights", "numbers", "how much each grouping set matters", most=Fraction(10**6), what="a weight",
           accepted=_WEIGHTS.format("weights", "grouping set")),
    Option("planning_seconds", "number", "seconds that searches may take, 0.1 to 60", Fraction(1, 10), Fraction(60),
           accepted="planning_seconds from 0.1 to 60"),
    Option("target_stderr", "number", "a standard error in place of a price", most=Fraction(10**12)),
    Option("strategy_table", "text", "a declared public table with a matrix of one's own"),
    Option("aggregate_weights", "numbers", "how much each aggregate matters", most=Fraction(10**6), what="a weight",
           accepted=_WEIGHTS.format("aggregate_weights", "aggregate")),
    Option("quantiles", "choice", "how quantiles are measured", choices=(AUTO, TREE, CHOICE)),
    Option("quantile_intervals", "flag", "FALSE: chosen quantiles have all of the price, and no intervals"),
    Option("max_norm_contributed", "number", "a unit with a larger L2 norm of counts counts less", Fraction(1),
           Fraction(10**9), choices=(PRIVATE,),
           accepted="max_norm_contributed = 30: rows, up to MAX ROWS; or 'private'"),
    Option("max_sum_norm_contributed", "numbers", "the same of sums", most=Fraction(10**15), what="a norm",
           accepted="max_sum_norm_contributed = (1000, 50): one number for each summed column, in its units"),
    Option("left_out", "flag", "upper ends of intervals hold what MAX ROWS and the norm of a unit are known to allow"),
    Option("total", "flag", "cells are brought to a noisy total, which has a norm of its own"),
    Option("centers", "numbers", "what averages are measured about", -Fraction(10**15), Fraction(10**15),
           what="a center", accepted="centers = (10, 0): one number for each summed column, between its bounds"),
    Option("form", "choice", "rows by grouping set, or one for each cell of all columns", choices=("sets", "cells")),
    Option("reuse", "flag", "combined with all that is known of the same rows"),
    Option("ahead", "number", "how many times its price a target with reuse may pay, for later statements", Fraction(1),
           Fraction(100)),
    Option("other", "flag", "a row for what the threshold has dropped"),
    Option("public_totals", "text", "a declared public table with totals that the answers must have"),
    *SUMMARY_OPTIONS,
    *CAPTIONS,
)  # fmt: skip
_NOT_FOR_SELECTED_KEYS = (
    "strategy", "budgets", "consistency", "nonnegative", "integer", "weights", "planning_seconds", "target_stderr",
    "strategy_table", "aggregate_weights", "quantiles", "quantile_intervals", "form", "reuse", "ahead",
    "left_out", "total", "public_totals",
)  # fmt: skip
STRATEGIES = (
    "auto", "I", "identity", "R", "residual", "O", "views", "Q", "marginals", "C", "clustering", "F", "fourier",
    "hierarchy", "haar", "p_identity", "gaussian_optimum",
)  # fmt: skip
_TREE = re.compile(r"hierarchy_\d+")
_ONLY_FOR_SELECTED_KEYS = ("min_privacy_units_per_group", "other")


@dataclass(frozen=True)
class Caption:
    """Texts for the readers of a private view."""

    title: str = ""
    description: str = ""
    units: tuple[str, ...] = ()  # units of the answers, in the order of the answers

    @property
    def text(self) -> str:
        """Returns the lines that follow the comment on the table of the view: a title and a description."""
        return f"{self.title}\n{self.description}".rstrip("\n")


@dataclass(frozen=True)
class Options:
    """Options of one statement, checked one by one. None stands for an absent option."""

    epsilon: Fraction | None
    delta: Fraction | None
    rho: Fraction | None
    privacy_unit_column: str | None
    max_rows_contributed: int | None
    confidence: Fraction
    refresh: str
    treatment: Treatment
    target_stderr: Fraction | None = None
    selection: KeySelection | None = None  # with 0 groups if the statement gives no number of groups
    summary: Summary | None = None
    own: tuple[tuple[str, Value], ...] = ()  # options of other mechanisms
    form: str = "sets"
    reuse: bool = False
    ahead: Fraction = Fraction(1)
    caption: Caption = Caption()


def read_options(expressions: Sequence[exp.Expr], place: exp.Expr, more: Sequence[Option] = ()) -> Options:
    """Reads the options in the clause, or after the name of a private view. more: options of other mechanisms."""
    given = read_given(expressions, (*TABLE, *more), older=OLDER_OPTIONS)
    selection = _selection(given)
    epsilon, delta, rho = given.number("epsilon"), given.number("delta"), given.number("rho")
    target = given.number("target_stderr")
    _require_one_price(given, selection is not None, place)
    return Options(
        epsilon,
        delta,
        rho,
        given.text("privacy_unit_column") or None,
        given.whole("max_rows_contributed"),
        given.number("confidence") or Fraction(95, 100),
        given.text("refresh"),
        Treatment(
            strategy=_strategy(given),
            budgets=given.choice("budgets"),
            consistency=given.choice("consistency"),
            nonnegative=given.flag("nonnegative"),
            integer=given.flag("integer"),
            weights=given.numbers("weights"),
            aggregate_weights=given.numbers("aggregate_weights"),
            planning_seconds=given.number("planning_seconds") or Treatment.planning_seconds,
            strategy_table=given.text("strategy_table"),
            quantiles=given.choice("quantiles"),
            quantile_intervals="quantile_intervals" not in given or given.flag("quantile_intervals"),
            norm=given.number("max_norm_contributed"),
            finds_norm=given.value("max_norm_contributed") == PRIVATE,
            sum_norms=given.numbers("max_sum_norm_contributed"),
            centers=given.numbers("centers"),
            groups=(given.whole("max_groups_contributed") or 0) if selection is None else 0,
            left_out=given.flag("left_out"),
            total=given.flag("total"),
            public_totals=given.text("public_totals"),
        ),
        target,
        selection,
        read_summary(given),
        tuple((option.name, given.value(option.name)) for option in more if option.name in given),
        given.choice("form"),
        given.flag("reuse"),
        given.number("ahead") or Fraction(1),
        _caption(given) if any(option.name in given.nodes for option in CAPTIONS) else Caption(),
    )


def _caption(given: StatementOptions) -> Caption:
    title, description = (next(iter(given.words(name)), "") for name in ("title", "description"))
    return Caption(title, description, given.words("answer_units"))


def require_caption(caption: Caption, shown: Sequence[tuple[str, int]], is_view: bool, place: exp.Expr) -> None:
    """Refuses a caption if the statement makes no private view, or has fewer answers than the caption has `units`."""
    if not is_view:
        what = "a title, a description and units are for the readers of a private view"
        raise refusal(place, what, "CREATE PRIVATE VIEW name OPTIONS (title = '..', ..) AS SELECT ..")
    if len(caption.units) > len(shown):
        wanted = f"answer_units = '..', or a text for each of {', '.join(name for name, _ in shown)[:200]}"
        raise refusal(place, "answer_units has more units than the SELECT has answers", wanted)


def _require_one_price(given: StatementOptions, selecting: bool, place: exp.Expr) -> None:
    """Refuses a missing price, two prices, a delta that fits no price, and `ahead` without a target and reuse."""
    prices = [name for name in given.nodes if name in ("epsilon", "rho", "target_stderr")]
    if len(prices) > 1:
        raise refusal(given[prices[1]], f"{prices[0]} and {prices[1]} are two prices", "one of them")
    if "ahead" in given and not (given.flag("reuse") and "target_stderr" in given):
        raise refusal(given["ahead"], "ahead goes with a target", "target_stderr = .., reuse = TRUE, ahead = 4")
    if "delta" in given and prices == ["rho"] and not selecting:
        raise refusal(given["delta"], "rho takes no delta", "rho = .. alone, or epsilon = .. and delta = ..")
    if "delta" in given and prices == ["target_stderr"]:
        raise refusal(given["delta"], "target_stderr takes no delta", "target_stderr = .. alone")
    if "delta" in given and not prices:
        raise refusal(given["delta"], "a delta alone is no price", "epsilon = .. and delta = ..")
    if not prices:
        raise refusal(
            place,
            "the price is missing",
            "OPTIONS (epsilon = ..), or epsilon and delta, or rho = .., or target_stderr = ..",
        )


def row_bound(options: Options, source: RowSource, place: exp.Expr) -> int:
    """Returns the statement's bound on a unit's rows, or the default bound of its tables.

    Refuses a bound above MAX ROWS, and a unit column that is not the unit of any policy here.
    """
    columns = list(dict.fromkeys(source.unit_columns))
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


def require_norm(options: Options, request: SelectRequest, place: exp.Expr) -> None:
    """Refuses a bound on the norm of a unit's counts unless cells are measured one by one with Gaussian noise."""
    norm, treatment, price = options.treatment.norm, options.treatment, request.price
    if norm is None and not treatment.finds_norm:
        if treatment.sum_norms or treatment.centers or treatment.total or treatment.left_out:
            what = "max_sum_norm_contributed, centers, left_out and total go with a norm of rows"
            raise refusal(place, what, "max_norm_contributed = 30 or 'private' beside them")
        return
    selection = request.question.selection
    if selection is not None and (treatment.finds_norm or selection.other):
        what = "a norm of selected keys is a number, and bounds no row for all other groups"
        raise refusal(place, what, "max_norm_contributed = 30, without other = TRUE")
    if treatment.finds_norm and (treatment.sum_norms or price.target is not None):
        what = "a norm that is found in the statement goes with no other norm and no target"
        raise refusal(place, what, "epsilon and delta, or rho; max_norm_contributed = 30 beside a target")
    if treatment.widens:
        _require_totals(request, place)
    if request.rows.unit_sql is None or (norm or 1) > request.rows.max_rows:
        raise refusal(place, "max_norm_contributed is above the rows of a unit", f"at most {request.rows.max_rows}")
    pure = price.target.pure if price.target is not None else price.charge.epsilon is not None
    if pure:
        what = "a norm bounds Gaussian noise, and Laplace noise goes by rows"
        raise refusal(place, what, "a price with a delta or in rho, or the statement without max_norm_contributed")
    if treatment.strategy.casefold() not in ("auto", "i", "identity") or request.question.has_ranges:
        what = "with max_norm_contributed each cell of all keys is measured"
        raise refusal(place, what, "GROUP BY of columns, with strategy = 'identity' or none")
    if options.reuse or treatment.moves or treatment.integer or options.form != "sets":
        what = "reuse, nonnegative, integer, form = 'cells' and linear programs do not go with max_norm_contributed"
        raise refusal(place, what, "the statement without them; greatest(n, 0) or round(s) in the select list")


def require_groups(options: Options, request: SelectRequest, place: exp.Expr) -> None:
    """Refuses a bound on a unit's groups if the statement has no groups, or cannot keep to the bound."""
    treatment, question = options.treatment, request.question
    if request.rows.unit_sql is None:
        what = "max_groups_contributed bounds the groups of a unit with several rows"
        raise refusal(place, what, "PRIVACY UNIT column MAX ROWS m in the policy, or the statement without it")
    if not question.keys or question.has_ranges or treatment.strategy_table:
        what = "max_groups_contributed is of groups, and a group is one value of each key"
        raise refusal(place, what, "GROUP BY of columns, without PREFIXES, RANGES and strategy tables")
    if not question.tells_keys_apart:
        what = "max_groups_contributed is of groups, and a key of this statement puts several values into one"
        raise refusal(place, what, "GROUP BY columns that have a DOMAIN, or the statement without it")
    if any(aggregate.function in ("quantile", "distinct") for aggregate in question.aggregates):
        what = "max_groups_contributed is of counts, sums, averages and variances"
        raise refusal(place, what, "quantiles and count(DISTINCT column) in a statement without it")
    if treatment.norm is not None or treatment.finds_norm or options.reuse or options.form != "sets":
        what = "max_norm_contributed, reuse and form = 'cells' do not go with max_groups_contributed"
        raise refusal(place, what, "one of them")


def can_widen(question: Question) -> bool:
    """Tells whether left_out and total have a count or sum to correct, and every sum can have a noisy total.

    An average or a variance is not corrected. A sum of the same column is computed from it, and so has no total.
    """
    averaged = [aggregate.operand for aggregate in question.aggregates if aggregate.function in ("avg", *VARIANCES)]
    added = [aggregate for aggregate in question.aggregates if aggregate.function in ("count", "sum")]
    sums = [aggregate.operand for aggregate in added if aggregate.function == "sum" and aggregate.operand is not None]
    return bool(added) and all(operand.low >= 0 and operand not in averaged for operand in sums)


def _require_totals(request: SelectRequest, place: exp.Expr) -> None:
    """Refuses left_out and total with a target, averages alone, possibly negative sums, or keys that drop rows."""
    question = request.question
    if request.price.target is not None:
        raise refusal(place, "left_out and total have a part of a price", "epsilon and delta, or rho")
    if not can_widen(question):
        what = "left_out and total are of counts, and of sums of numbers that are not negative"
        raise refusal(
            place, what, "count(*), count(DISTINCT unit), sum(x) with CLAMP x BETWEEN 0 AND ..; avg beside them"
        )
    if any(code < 0 for key in question.keys for code in key.codes):
        raise refusal(place, "a key of this statement drops some values of its columns", "the columns themselves")


def _selection(given: StatementOptions) -> KeySelection | None:
    """Returns the selection of groups. None if the groups are public."""
    strategy = given.choice("group_selection_strategy")
    if strategy == "public_groups":
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
    return KeySelection(
        laplace=strategy == "laplace_threshold",
        groups=given.whole("max_groups_contributed") or 0,
        least_units=given.whole("min_privacy_units_per_group") or 1,
        other=given.flag("other"),
    )


def _strategy(given: StatementOptions) -> str:
    """Returns a strategy's name, with a + for optimal budgets. The planner decides whether it fits."""
    named = given.text("strategy") or "auto"
    if not _TREE.fullmatch(named) and named.casefold().removesuffix("+") not in map(str.casefold, STRATEGIES):
        accepted = f"one of {', '.join(STRATEGIES)}; with a + for optimal budgets, as in Q+"
        raise refusal(given["strategy"], f"strategy = {quote_text(named[:60])} is not known", accepted)
    return named


def require_confidence(options: Options) -> Fraction:
    """Returns the confidence of intervals, at least one half."""
    if options.confidence < Fraction(1, 2):
        raise Refusal("confidence is below one half", accepted="confidence from 0.5 to 0.999999")
    return options.confidence


def confidence_from(value: object) -> Fraction:
    """Reads the confidence argument of a function, which must be at least one half."""
    if not isinstance(value, (int, float)) or not 0.5 <= value <= 0.999999:
        raise Refusal("confidence is out of range", accepted="confidence from 0.5 to 0.999999")
    return Fraction(str(value))


# The price of a statement by its options and the policy. A kind of price that the budget does not take is refused.


def price_of(options: Options, policy: Policy, place: exp.Expr) -> Price:
    """Returns the price of a statement from its options and the policy. place: for refusals."""
    return Price(
        charge_of(options, policy, place),
        options.epsilon,
        options.delta,
        options.refresh,
        target_of(options, policy, place),
        Fraction(0) if policy.min_epsilon is None else least_rho(policy.min_epsilon),
    )


SMALLEST_DELTA = Fraction(1, 10**30)
WITH_KEYS = "BUDGET (epsilon = .., delta = .., delta_keys = ..)"


def charge_of(options: Options, policy: Policy, place: exp.Expr) -> Charge:
    """Returns the charge of the whole statement. Epsilon and delta become rho, and a target has no charge yet."""
    if options.target_stderr is not None:
        return Charge.pure(Fraction(0)) if policy.budget.pure else Charge.zcdp(Fraction(0))
    if options.selection is not None:
        charge = charge_of_keys(options, options.selection, policy, place)
    elif options.rho is not None:
        charge = Charge.zcdp(options.rho)
    elif options.epsilon is not None and options.delta is not None:
        charge = Charge.zcdp(_rho(options.epsilon, options.delta, place))
    else:
        charge = Charge.pure(options.epsilon or Fraction(0))
    if policy.budget.pure and charge.epsilon is None:
        raise refusal(place, "this table's budget is pure epsilon", "epsilon = .. without delta or rho")
    _require_most(options, policy, charge, place)
    if charge.rho <= 0:
        raise refusal(place, "this epsilon and delta allow no noise scale", "a larger epsilon or delta")
    _require_least(options, policy, charge, place)
    return charge


def least_rho(epsilon: Fraction) -> Fraction:
    """Returns the smallest price in rho under a MIN EPSILON: the most rho that a pure price of this epsilon costs."""
    return epsilon * epsilon / 2


def most_rho(policy: Policy) -> Fraction | None:
    """Returns the largest price in rho under a MAX EPSILON: the rho of this epsilon, with the budget's delta if any."""
    limit, budget = policy.max_epsilon, policy.budget
    if limit is None or budget.pure:
        return None
    try:
        return rho_of(limit, budget.delta) if budget.delta > 0 else rho_of_pure(limit)
    except ValueError:
        return Fraction(0)


def _require_most(options: Options, policy: Policy, charge: Charge, place: exp.Expr) -> None:
    limit, most = policy.max_epsilon, most_rho(policy)
    if limit is None:
        return
    accepted = f"epsilon of at most {float(limit):g}"
    if most:
        with_delta = f" with delta = {float(policy.budget.delta):g}" if policy.budget.delta else ""
        accepted = f"{accepted}{with_delta}, or rho of at most {float(most) * (1 - 1e-6):.6g}"
    if (options.epsilon or 0) > limit or (charge.epsilon is None and most is not None and charge.rho > most):
        raise refusal(place, "the price of one statement is limited", accepted)


def _require_least(options: Options, policy: Policy, charge: Charge, place: exp.Expr) -> None:
    """Refuses a price below MIN EPSILON: otherwise a statement that tells one bit would cost next to nothing."""
    least = policy.min_epsilon
    if least is None:
        return
    if options.epsilon is not None and options.epsilon < least:
        raise refusal(place, "one statement has a smallest price", f"epsilon of at least {float(least):g}")
    if options.epsilon is None and charge.rho < least_rho(least):
        raise refusal(place, "one statement has a smallest price", f"rho of at least {float(least_rho(least)):g}")


def target_of(options: Options, policy: Policy, place: exp.Expr) -> Target | None:
    """Returns the requested standard error as a target, with a price between MIN EPSILON and MAX EPSILON."""
    if options.target_stderr is None:
        return None
    pure, least = policy.budget.pure, policy.min_epsilon or Fraction(0)
    limit = policy.max_epsilon if pure else most_rho(policy)
    return Target(
        options.target_stderr, pure, LARGEST_EPSILON if limit is None else limit, least if pure else least_rho(least)
    )


def charge_of_keys(options: Options, selection: KeySelection, policy: Policy, place: exp.Expr) -> Charge:
    """Prices selected keys: rho or epsilon, and a delta from the budget's delta for keys.

    With Laplace noise, or with a rho, the whole delta is for keys. With Gaussian noise and an epsilon, keys get the
    same share of the delta as in the budget. So one statement can spend the whole budget.
    """
    budget = policy.budget
    if budget.pure:
        raise refusal(
            place,
            "selected keys cost a delta, and this table's budget is pure epsilon",
            f"a DOMAIN for the keys, or {WITH_KEYS} in the policy",
        )
    if budget.delta_keys <= 0:
        raise refusal(place, "this table's budget keeps no delta for selected keys", f"{WITH_KEYS} in the policy")
    if options.delta is None:
        raise refusal(place, "selected keys cost a delta", "epsilon = .. and delta = ..")
    if selection.laplace and options.epsilon is None:
        raise refusal(place, "LAPLACE_THRESHOLD is paid with an epsilon", "epsilon = .. and delta = ..")
    delta = options.delta
    if selection.laplace or options.epsilon is None:
        charge = (
            Charge(options.epsilon, options.epsilon**2 / 2, delta)
            if options.epsilon is not None
            else Charge.zcdp(options.rho or Fraction(0), delta)
        )
    else:
        delta = delta * budget.delta_keys / budget.delta
        charge = Charge.zcdp(_rho(options.epsilon, options.delta - delta, place), delta)
    if delta < SMALLEST_DELTA:
        raise refusal(
            place, "this delta is too small for selected keys", f"a delta of at least {float(SMALLEST_DELTA):g}"
        )
    return charge


def _rho(epsilon: Fraction, delta: Fraction, place: exp.Expr) -> Fraction:
    try:
        return rho_of(epsilon, delta)
    except ValueError:
        raise refusal(place, "this epsilon and delta allow no noise scale", "a larger epsilon or delta") from None
