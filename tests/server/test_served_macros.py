"""The macros for analysts in the public database, through the gate."""

from __future__ import annotations

import pytest

from dpduck.server import syntax
from tests.server.served import Served
from tests.support.clinics import macro_names


@pytest.mark.slow
def test_the_public_database_has_every_macro(served: Served) -> None:
    """The macros are present in the public database. Each passes the gate and answers."""
    assert macro_names() == syntax.ANALYST_MACROS | {syntax.MARGIN}
    one = served.rows(
        "bob", "SELECT dp_sum_interval(n, 2.0, weight := 3, independent := true).high > sum(3 * n) FROM ages"
    )
    assert one == [(True,)]
    whole = served.rows("bob", "SELECT dp_subset_estimate(n), dp_range_estimate(age, n, 0, 100, width := 10) FROM ages")
    assert whole[0][0] == whole[0][1]
    assert served.rows("bob", "SELECT dp_range_share(0, 10, 5, 10), dp_grouping_id(['a', 'b'], ['a'])") == [(0.5, 1)]
    margin = "SELECT ward, n FROM dp_margin('ward_cube', ['ward'], ['sex']) ORDER BY ward"
    assert served.rows("bob", margin) == served.rows(
        "bob", "SELECT ward, n FROM ward_cube WHERE sex IS NULL AND ward IS NOT NULL ORDER BY ward"
    )
    joined = "SELECT count(*) FROM dp_margin('Ward_Cube', ['ward'], ['sex']) AS m JOIN private.ages ON m.ward = 'w1'"
    assert served.rows("bob", joined) == [(10,)]


def test_a_margin_names_nothing_but_private_views(served: Served) -> None:
    """The text of dp_margin is a name that the gate sees: no catalog, no answers of others, no files."""
    wrong = "these are no arguments of dp_margin; accepted: dp_margin('name_of_view', ['kept'], ['rolled_up'])"
    for cube in ("duckdb_tables", "duckdb_secrets", "pg_class", "secret", "visits"):
        told = served.refused("bob", f"FROM dp_margin('{cube}', ['ward'], ['sex'])")
        assert told == f"there is no private view '{cube}'; accepted: a name of dp_releases()"
    for cube in (
        "information_schema.tables", "answers.main.x", "memory.main.ward_cube", "/etc/passwd", "ward_cube; SELECT 1",
        '"ward_cube"', "",
    ):  # fmt: skip
        assert served.refused("bob", f"FROM dp_margin('{cube}', ['ward'], ['sex'])") == wrong, cube
    for arguments in ("'ward_cube'", "NULL, [], []", "'ward_' || 'cube', [], []", "'ward_' || 'cube', [], [], 1"):
        assert served.refused("bob", f"FROM dp_margin({arguments})") == wrong, arguments
    computed = served.refused("bob", "FROM dp_margin((SELECT 'ward_cube'), [], [])")
    assert computed == "an argument of dp_margin is no constant; accepted: texts and numbers"
    scalar = served.refused("bob", "SELECT dp_margin('ward_cube', [], [])")
    assert scalar.startswith("the function 'dp_margin' is not on the list; accepted: ")
    elsewhere = served.refused("bob", "FROM other.dp_margin('ward_cube', [], [])")
    assert elsewhere.startswith("the table function 'dp_margin' is not served; accepted: ")
