"""What differs between kinds of releases: counts by grouping sets, selected keys, noisy summaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import duckdb

from dpduck.edges.answers_sql import outer_check_sql, selected_check_sql, summary_check_sql
from dpduck.edges.cube_release import CubeRecipe, asked
from dpduck.edges.explained import candidates
from dpduck.edges.key_explain import explained_keys
from dpduck.edges.key_release import KeyRecipe
from dpduck.edges.planned import planned
from dpduck.edges.releaser import Recipe
from dpduck.edges.sandbox import Sandbox
from dpduck.edges.summary_listing import summary_listing
from dpduck.edges.summary_release import summary_recipe
from dpduck.frontend.analyse import Analysis
from dpduck.frontend.request import Request
from dpduck.trusted.ask import Ask

Recheck = Callable[[duckdb.DuckDBPyConnection, str], None]


def recipe(analysis: Analysis, recheck: Recheck, box: Sandbox) -> Recipe:
    """How the release of a request is made. recheck: takes the SQL that must bind before the charge."""
    request = analysis.request
    if request.summary is not None:
        return summary_recipe(request, lambda cursor: recheck(cursor, summary_check_sql(analysis)))
    if request.selection is not None:
        return KeyRecipe(request, lambda cursor: recheck(cursor, selected_check_sql(analysis)))
    return CubeRecipe(request, lambda cursor, found: recheck(cursor, outer_check_sql(analysis, found)), box)


def check_sql(analysis: Analysis) -> str:
    """The whole statement over a release without rows, which tells the columns of its answer."""
    if analysis.request.summary is not None:
        return summary_check_sql(analysis)
    if analysis.request.selection is not None:
        return selected_check_sql(analysis)
    return outer_check_sql(analysis, planned(analysis.request))


def explained(request: Request) -> tuple[str, Request, Sequence[Ask[Any]]]:
    """SQL with what could be released, the chosen way first; the request at its price; what the chosen way asks."""
    if request.summary is not None:
        return summary_listing(request), request, summary_recipe(request, lambda cursor: None).asks()
    if request.selection is not None:
        return explained_keys(request), request, KeyRecipe(request, lambda cursor: None).asks()
    found = planned(request)
    return candidates(found), found.request, [ask for group in asked(found) for ask in group.asks]
