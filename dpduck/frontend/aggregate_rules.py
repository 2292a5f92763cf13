"""Which options go with which aggregates; refused before the charge, from the statement alone."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpduck.frontend.options import Options
from dpduck.frontend.positions import refusal
from dpduck.frontend.private_keys import COUNTED
from dpduck.frontend.request import Aggregate, Key


def check_groups(
    aggregates: Sequence[Aggregate], keys: Sequence[Key], sets: Sequence[tuple[int, ...]], place: exp.Expr
) -> None:
    """What a unit adds once to each group holds for groups that are released as they are counted, one by one."""
    by_group = [one for one in aggregates if one.operand is not None and one.operand.per_group]
    if by_group and (len(sets) != 1 or not all(_one_to_one(key) for key in keys)):
        raise refusal(
            place,
            f"{by_group[0].text[:60]} bounds what a unit adds to a group, and these groups overlap",
            "one plain GROUP BY of columns",
        )


def _one_to_one(key: Key) -> bool:
    kept = [code for code in key.codes if code >= 0]
    return len(key.sources) == 1 and len(set(kept)) == len(kept) and not key.shape


def check_treatment(options: Options, aggregates: Sequence[Aggregate], keys: Sequence[Key], place: exp.Expr) -> None:
    """Options that hold for counts alone, keys that hold for sums alone, and one weight for each aggregate."""
    treatment = options.treatment
    others = [one for one in aggregates if one.function != "count"]
    if others and (treatment.integer or treatment.nonnegative):
        raise refusal(
            place,
            f"nonnegative and integer are for counts, and {others[0].text[:60]} is none",
            "round(..) or greatest(.., 0) in the select list",
        )
    if options.selection is not None and others:
        raise refusal(place, *COUNTED)
    if options.target_stderr is not None and any(one.function != "count" or one.operand for one in aggregates):
        raise refusal(place, "target_stderr is for counts of rows", "epsilon = .. or rho = ..")
    if treatment.aggregate_weights and options.target_stderr is not None:
        raise refusal(place, "target_stderr leaves nothing to share out", "target_stderr without aggregate_weights")
    if treatment.aggregate_weights and len(treatment.aggregate_weights) != len(aggregates):
        raise refusal(
            place,
            f"{len(treatment.aggregate_weights)} aggregate_weights for {len(aggregates)} aggregates",
            f"one weight for each of {', '.join(one.text[:40] for one in aggregates[:6])}",
        )
    alone = [one for one in aggregates if one.function in ("quantile", "distinct")]
    if alone and (any(key.shape for key in keys) or treatment.strategy_table):
        raise refusal(
            place, f"{alone[0].text[:60]} is not answered for PREFIXES or RANGES", "GROUP BY the column itself"
        )
