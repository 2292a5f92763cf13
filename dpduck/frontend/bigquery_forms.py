"""Deprecated forms of BigQuery and GoogleSQL, recognised by their words so that the modern form can be named."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sqlglot.tokens import Token, TokenType

from dpduck.errors import Refusal
from dpduck.frontend.limits import position_in

_MODERN: Mapping[str, str] = {
    "ANON_COUNT": "COUNT(*), or COUNT(*, contribution_bounds_per_group => (low, high))",
    "ANON_SUM": "SUM(x), or SUM(x, contribution_bounds_per_group => (low, high))",
    "ANON_AVG": "AVG(x), or AVG(x, contribution_bounds_per_group => (low, high))",
    "ANON_VAR_POP": "VAR_POP(x, contribution_bounds_per_row => (low, high))",
    "ANON_STDDEV_POP": "STDDEV_POP(x, contribution_bounds_per_row => (low, high))",
    "ANON_PERCENTILE_CONT": "PERCENTILE_CONT(x, 0.5, contribution_bounds_per_row => (low, high))",
    "ANON_QUANTILES": "APPROX_QUANTILES(x, 4, contribution_bounds_per_row => (low, high))",
}
_ANON = re.compile(r"ANON_[A-Z0-9_]+")
OPTIONS: Mapping[str, str] = {
    "kappa": "max_groups_contributed",
    "k_threshold": "min_privacy_units_per_group",
    "max_contributed_groups": "max_groups_contributed",
    "uid_column": "privacy_unit_column",
}
"""Older names of options, and what they are called now."""


def refuse_deprecated(text: str, tokens: Sequence[Token]) -> None:
    """Refuses ANON_ functions, CLAMPED BETWEEN and SELECT WITH ANONYMIZATION; quoted names and texts are left alone."""
    words = [token.text.upper() if token.token_type != TokenType.STRING else "" for token in tokens]
    for number, (token, word) in enumerate(zip(tokens, words, strict=True)):
        if token.token_type == TokenType.IDENTIFIER:
            continue
        following = tokens[number + 1].token_type if number + 1 < len(tokens) else None
        if word == "ANONYMIZATION" and number and words[number - 1] == "WITH":
            raise _deprecated(text, token, "SELECT WITH ANONYMIZATION", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..)")
        if _ANON.fullmatch(word) and following == TokenType.L_PAREN:
            modern = _MODERN.get(word, f"{word.removeprefix('ANON_')}(..)")
            raise _deprecated(text, token, f"{word}(..)", modern)
        if word == "CLAMPED" and words[number + 1 : number + 2] == ["BETWEEN"]:
            raise _deprecated(text, token, "CLAMPED BETWEEN", "contribution_bounds_per_group => (low, high)")


def _deprecated(text: str, token: Token, form: str, modern: str) -> Refusal:
    return Refusal(f"{form} is deprecated and refused", accepted=modern, position=position_in(text, token.start))
