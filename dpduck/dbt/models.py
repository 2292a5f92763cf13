"""From a dbt model to a statement: its config becomes OPTIONS, and its SQL the SELECT of a private view.

The macros of the package hand texts over as JSON, because a macro of dbt can call nothing but SQL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from dpduck.language.select.options import TABLE
from dpduck.language.text.options import Option
from dpduck.language.text.unknown_options import nearest
from dpduck.mechanisms.registry import own_options
from dpduck.owner.private_names import private_names
from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_identifier, quote_text

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_PRICES = ("epsilon", "rho", "target_stderr")
_NUMBERS = ("number", "whole", "numbers")


def answer_macro(action: str | None, argument: str | None) -> str | None:
    """Answers a call of the package: JSON with the answer, or with the text of a refusal."""
    if action is None or argument is None:
        return None
    try:
        given = json.loads(argument, parse_float=str)
        answer: Any
        if action == "statement":
            answer = view_statement(given["name"], given["config"], given["sql"])
        else:
            answer = private_names(given["sql"], given["policies"], dict(given["views"]))
    except Refusal as refusal:
        return json.dumps({"refused": str(refusal)})
    return json.dumps({"answer": answer})


def view_statement(name: str, config: Mapping[str, Any], sql: str) -> str:
    """Returns the statement that releases a model as a private view.

    name: the model's alias. config: the model's config, in which dbt keeps options beside its own.

    >>> view_statement("all", {"epsilon": "0.5", "tags": []}, "SELECT count(*) AS n FROM visits;")
    'CREATE OR REPLACE PRIVATE VIEW "all" OPTIONS (epsilon = 0.5) AS SELECT count(*) AS n FROM visits'
    """
    if not _NAME.fullmatch(name):
        raise Refusal(f"a private view cannot have the name {name[:80]!r}", accepted="letters, digits and _, as alias")
    options = _options_of(config)
    if not any(price in options for price in _PRICES):
        raise Refusal(
            f"the model {name} has no price", accepted="config(materialized='private_view', epsilon=0.5), or rho, .."
        )
    table = {option.name: option for option in (*TABLE, *own_options())}
    listed = ", ".join(f"{option} = {_write_value(table[option], value)}" for option, value in options.items())
    select = sql.strip().rstrip(";").rstrip()
    return f"CREATE OR REPLACE PRIVATE VIEW {quote_identifier(name)} OPTIONS ({listed}) AS {select}"


def _options_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a model: those of the config itself, and those under `options`."""
    names = [option.name for option in (*TABLE, *own_options())]
    own = config.get("options") or {}
    if not isinstance(own, Mapping):
        raise Refusal("options is not a mapping", accepted="options={'form': 'cells'}")
    for name in own:
        if name not in names:
            raise Refusal(f"the option {name!r} is unknown", accepted=nearest(str(name), names))
    beside = {name: config[name] for name in names if config.get(name) is not None}
    twice = sorted(beside.keys() & own.keys())
    if twice:
        raise Refusal(f"{twice[0]} stands in the config and in its options", accepted="one of the two")
    return {**beside, **{name: own[name] for name in names if own.get(name) is not None}}


def _write_value(option: Option, value: Any) -> str:
    """Writes an option's value as SQL. YAML reads 1e-7 as a text, so a number may come as one."""
    if isinstance(value, list):
        return f"({', '.join(_write_value(option, item) for item in value)})"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int) or (option.kind in _NUMBERS and _NUMBER.fullmatch(str(value))):
        return str(value)
    if not isinstance(value, str):
        raise Refusal(f"{option.name} is not a number, a text, a flag or a list of these", accepted=option.says)
    return quote_text(value)
