"""Names mean the same as in DuckDB, or are refused."""

from __future__ import annotations

from typing import Any

import pytest
from sqlglot import exp

from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.scope import MAX_SUBSTITUTED, Relation, Scope, base_column, resolve
from dpduck.language.text.dialect import PrivateDuckDB
from dpduck.values.errors import Refusal


def columns(alias: str, *names: str) -> tuple[tuple[str, exp.Expr], ...]:
    return tuple((name, base_column(alias, name)) for name in names)


VISITS = Relation("v", columns("r0", "sex", "Age", "Straße"))
WARDS = Relation("w", columns("p1", "ward", "sex"), frozenset(("sex",)))
SCOPE = Scope((VISITS, WARDS))


def parsed(text: str) -> Any:
    query = PrivateDuckDB().parse(f"SELECT {text}")[0]
    assert query is not None
    return query.expressions[0]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("age", '"r0"."Age"'),
        ("V.AGE", '"r0"."Age"'),
        ('"straße"', '"r0"."Straße"'),
        ("ward || age", '"p1"."ward" || "r0"."Age"'),
        ("sex", '"r0"."sex"'),
        ("w.sex", '"p1"."sex"'),
        ("upper(sex) = w.sex", 'upper("r0"."sex") = "p1"."sex"'),
    ],
)
def test_names_are_resolved(text: str, meant: str) -> None:
    """Capitals of ASCII do not matter, USING merges columns, and a table's name chooses one of two columns."""
    assert sql_of(resolve(parsed(text), SCOPE)) == meant


@pytest.mark.parametrize("text", ["colour", "x.sex", "v.ward", "rowid", '"STRASSE"', "ag\u0435", "a.v.sex", "v.rowid"])
def test_other_names_are_refused(text: str) -> None:
    """An unknown name is refused with the names that are there. Letters that only look alike make other names."""
    with pytest.raises(Refusal, match=r"accepted: (\w+ \(did you mean that\?\); all are )?sex, Age, Straße, ward$"):
        resolve(parsed(text), SCOPE)


def test_ambiguous_names_are_refused() -> None:
    """A name that is in two tables, or twice in one subquery, is refused. With the name of its table it is accepted."""
    both = Scope((VISITS, Relation("w", columns("p1", "sex"))))
    twice = Scope((Relation("v", (("a", base_column("r0", "x")), ("A", base_column("r0", "y")))),))
    for scope, text in ((both, "sex"), (twice, "a"), (twice, "v.a")):
        with pytest.raises(Refusal, match="in more than one place"):
            resolve(parsed(text), scope)
    assert sql_of(resolve(parsed("w.sex"), both)) == '"p1"."sex"'


def test_kelvin_is_no_k() -> None:
    """Python folds the Kelvin sign to k and DuckDB does not, so the two are different names."""
    scope = Scope((Relation("v", columns("r0", "\u212a", "k")),))
    assert sql_of(resolve(parsed("K"), scope)) == '"r0"."k"'
    assert sql_of(resolve(parsed('"\u212a"'), scope)) == '"r0"."\u212a"'


def test_expressions_do_not_explode() -> None:
    """Subqueries that double an expression level by level are refused before they are written out."""
    relation = Relation("v", columns("r0", "x"))
    with pytest.raises(Refusal, match="too long"):
        for _ in range(60):
            doubled = resolve(parsed("x + x"), Scope((relation,)))
            relation = Relation("v", (("x", doubled),))
    assert sum(1 for _ in relation.columns[0][1].walk()) <= 3 * MAX_SUBSTITUTED


def test_precedence_survives_substitution() -> None:
    """An expression from a subquery stays in brackets where it is used."""
    scope = Scope((Relation("v", (("x", parsed("1 + 2")),)),))
    assert sql_of(resolve(parsed("x * 3"), scope)) == "(1 + 2) * 3"


def test_stars_list_merged_columns_once() -> None:
    """SELECT * after USING has the shared column once, table.* has the table's own."""
    assert [name for name, _ in SCOPE.columns()] == ["sex", "Age", "Straße", "ward"]
    assert [name for name, _ in SCOPE.columns("W")] == ["ward", "sex"]
