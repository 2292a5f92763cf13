"""What differs between kinds of releases: counts by grouping sets, selected keys, noisy summaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import duckdb

from dpduck.database.sandbox import Sandbox
from dpduck.frontend.select.analyse import Analysis
from dpduck.frontend.select.request import Request
from dpduck.mechanisms.answers_sql import outer_check_sql, selected_check_sql, summary_check_sql
from dpduck.mechanisms.cubes.describe import candidates
from dpduck.mechanisms.cubes.measure import CubeRecipe, asked
from dpduck.mechanisms.cubes.plan import planned
from dpduck.mechanisms.keys.describe import explained_keys
from dpduck.mechanisms.keys.measure import KeyRecipe
from dpduck.mechanisms.release import Recipe
from dpduck.mechanisms.summaries.describe import summary_listing
from dpduck.mechanisms.summaries.measure import summary_recipe
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
