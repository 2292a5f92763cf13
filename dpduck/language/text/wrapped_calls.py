"""Refusal of calls of dpduck's functions in place of a statement: dp() inside dp(), or on the command line."""

from __future__ import annotations

import re
from itertools import pairwise

from sqlglot.tokens import TokenType

from dpduck.language.text.dialect import TokenReader

_OURS = re.compile(r"dp(_\w+)?", re.IGNORECASE)
_TAKES_STATEMENTS = ("dp", "dp_explain", "dp_errors")


def refuse_wrapped(reader: TokenReader) -> None:
    """Refuses FROM dp(..) and FROM dp_budget() as a statement, and names the form to write."""
    tokens = reader.tokens
    for index, (token, following) in enumerate(pairwise(tokens)):
        if token.text.upper() == "DIFFERENTIAL_PRIVACY":
            return
        called = following.token_type == TokenType.L_PAREN and token.token_type != TokenType.STRING
        if not called or not _OURS.fullmatch(token.text):
            continue
        if index and tokens[index - 1].text.upper() not in ("FROM", "CALL"):
            continue
        reader.index = index
        name = token.text.lower()
        if name not in _TAKES_STATEMENTS:
            raise reader.refuse(f"{name}(..) is no statement of dp()", f"FROM {name}(..) by itself, outside dp(..)")
        alone = f"the statement alone, without FROM {name}(..) around it"
        if index + 2 < len(tokens) and tokens[index + 2].token_type == TokenType.NUMBER:
            raise reader.refuse(
                f"{name}( is followed by a number: in double quotes a shell puts its process id in the place of $$",
                f"{alone}; or between single quotes",
            )
        raise reader.refuse(f"{name}(..) is written inside a statement of dp()", alone)
