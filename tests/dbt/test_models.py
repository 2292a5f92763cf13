"""Statements of models, and names of private tables in SQL."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dpduck.dbt.models import answer_macro, view_statement
from dpduck.language.statements.kinds import AskStatement
from dpduck.language.statements.parse import parse_statement
from dpduck.values.errors import Refusal

SELECT = "SELECT ward, count(*) AS n FROM visits GROUP BY ward"


@pytest.mark.parametrize(("config", "options"), [
    ({"epsilon": "0.5", "delta": "1e-7"}, "epsilon = 0.5, delta = 1e-7"),
    ({"rho": 1, "tags": [], "schema": None}, "rho = 1"),
    ({"rho": "1e-07", "options": {"form": "cells", "integer": True}}, "rho = 1e-07, integer = TRUE, form = 'cells'"),
    ({"target_stderr": 5, "refresh": "2026"}, "refresh = '2026', target_stderr = 5"),
    ({"epsilon": 1, "weights": [1, "2.5"], "title": "a 'b'"}, "epsilon = 1, weights = (1, 2.5), title = 'a ''b'''"),
    ({"epsilon": "1; DROP", "options": None}, "epsilon = '1; DROP'"),
])  # fmt: skip
def test_the_config_becomes_options(config: dict[str, Any], options: str) -> None:
    """Numbers may come as texts, as YAML reads 1e-7. All other texts are quoted."""
    assert view_statement("v", config, f"\n{SELECT};\n") == (
        f'CREATE OR REPLACE PRIVATE VIEW "v" OPTIONS ({options}) AS {SELECT}'
    )
    statement = parse_statement(view_statement("v", config, SELECT))
    assert isinstance(statement, AskStatement)


@pytest.mark.parametrize(("name", "config", "message"), [
    ("v", {}, "the model v has no price; accepted: config(materialized='private_view', epsilon=0.5), or rho, .."),
    ("v", {"delta": "1e-7"}, "the model v has no price; accepted: "),
    ('v" AS SELECT 1', {"epsilon": 1}, "a private view cannot have the name "),
    ("v", {"options": {"epsilonn": 1}}, "the option 'epsilonn' is unknown; accepted: epsilon (did you mean that?)"),
    ("v", {"epsilon": 1, "options": {"epsilon": 2}}, "epsilon stands in the config and in its options"),
    ("v", {"options": "form"}, "options is not a mapping; accepted: options={'form': 'cells'}"),
    ("v", {"epsilon": {"a": 1}}, "epsilon is not a number, a text, a flag or a list of these"),
])  # fmt: skip
def test_what_is_refused(name: str, config: dict[str, Any], message: str) -> None:
    """A refusal is one line, and the macros receive it as JSON."""
    with pytest.raises(Refusal) as refused:
        view_statement(name, config, SELECT)
    assert str(refused.value).startswith(message)
    said = answer_macro("statement", json.dumps({"name": name, "config": config, "sql": SELECT}))
    assert said is not None and json.loads(said) == {"refused": str(refused.value)}


def test_names_of_private_tables_are_told() -> None:
    """The macros hand over policies and views, and receive names."""
    given = {"sql": "FROM old", "policies": ["c.main.visits"], "views": [["old", "CREATE VIEW old AS FROM visits"]]}
    said = answer_macro("private_names", json.dumps(given))
    assert said is not None and json.loads(said) == {"answer": ["old"]}


def test_nothing_is_answered_without_a_question() -> None:
    """NULL is the call by which the plugin looks whether the function is there."""
    assert answer_macro(None, None) is None and answer_macro("statement", None) is None
