"""Conditions over columns with a public domain, as sets of codes. A code is a label's position in the domain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.facts import PublicFacts, SourceColumn
from dpduck.language.rows.tree import RowSource
from dpduck.language.select.keys import KeyBuilder
from dpduck.language.select.label_spans import label_reader
from dpduck.language.statements.parse import parse_expression
from dpduck.values.domain import Domain, RangeDomain
from dpduck.values.sqltypes import sql_type


@dataclass(frozen=True, eq=False)
class CodeCondition:
    """Combinations of codes that meet a condition."""

    columns: tuple[str, ...]
    met: NDArray[np.bool_]  # whether codes meet the condition, with an axis for each column
    outside: bool  # whether a row with a value that has no code may meet the condition


def read_condition(
    text: str, source: RowSource, facts: PublicFacts, collated: bool, partial: Callable[[str], bool]
) -> CodeCondition | None:
    """Reads a condition over codes. Refuses columns without a domain.

    Returns None if a code stands for some values that meet the condition and some that do not.
    partial: tells whether rows may have a value of a column that has no code.
    """
    builder, node = KeyBuilder(source, facts), parse_expression(text)
    if isinstance(node, exp.Column):
        node = exp.EQ(this=node, expression=exp.Boolean(this=True))
    key = builder.build(sql_of(node), node)
    sizes = [column.domain.size for column in builder.sources]
    if "true" not in key.labels and not {"false", None} >= set(key.labels):
        return None
    met = np.array(key.codes, np.int64).reshape([sizes[source] for source in key.sources])
    true = key.labels.index("true") if "true" in key.labels else len(key.labels)
    columns = tuple(builder.sources[source].sql for source in key.sources)
    holds = met == true
    domains = [builder.sources[source].domain for source in key.sources]
    if any(any(_stand_for_several(domain)) for domain in domains):
        if len(domains) > 1:
            return None  # bins and OTHER are decided for conditions on one column alone
        several = np.array(_stand_for_several(domains[0]))
        reader = label_reader(domains[0], collated, closely=True)
        if reader is None:
            return None
        may_hold, may_fail = reader.read_condition(node), reader.read_condition(node, False)
        if (several & (may_hold == may_fail)).any():
            return None
        holds = np.where(several, may_hold, holds)
    outside = any(map(partial, columns))
    if outside and len(columns) == 1:
        reader = label_reader(domains[0], collated, closely=True, outside=True)
        outside = reader is None or bool(reader.read_condition(node).any())
    return CodeCondition(columns, holds, outside)


def _stand_for_several(domain: Domain) -> list[bool]:
    """Tells for each code of a domain whether it stands for several values: a bin, values beyond all edges, OTHER."""
    if not isinstance(domain, RangeDomain):
        return [False] * (domain.size - (domain.other is not None)) + [True] * (domain.other is not None)
    several = [not (sql_type(domain.type_name).is_integer and domain.step == "1")] * len(domain.edges)
    if domain.with_edges:
        several[0] = several[-1] = True
    return several + [False] * domain.with_null


def has_other_values(column: SourceColumn, source: RowSource) -> bool:
    """Tells whether rows may have values of this column for which its domain has no code."""
    node = parse_expression(column.sql)
    public = isinstance(node, exp.Column) and source.relation(node.table) is None
    return not public and is_partial(column.domain)


def is_partial(domain: Domain) -> bool:
    """Tells whether a private column may have values without a code, such as NULL or a DOUBLE's NaN."""
    if isinstance(domain, RangeDomain):
        return not (domain.with_null and domain.with_edges) or sql_type(domain.type_name).is_float
    whole = domain.other is not None or (domain.type_name == "BOOLEAN" and len(domain.values) == 2)
    return not (domain.with_null and whole)


def without_try(node: exp.Expr) -> exp.Expr:
    """Removes TRY around a condition. A row for which TRY gives NULL does not meet the condition anyway."""
    node = node.unnest()
    while isinstance(node, exp.Try) or (isinstance(node, exp.Anonymous) and str(node.this).lower() == "try"):
        node = (node.this if isinstance(node, exp.Try) else node.expressions[0]).unnest()
    return node


def conjuncts(text: str) -> Iterator[str]:
    """Yields the parts of a condition that AND joins, except TRUE."""
    if not text:
        return
    pending = [parse_expression(text)]
    while pending:
        node = without_try(pending.pop())
        if isinstance(node, exp.And):
            pending += [node.left, node.right]
        elif not (isinstance(node, exp.Boolean) and node.this):
            yield sql_of(node)
