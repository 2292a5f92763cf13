"""Every interval holds what it says, through SQL: each aggregate under each option, both noises, three prices.

At 95 % no design covers less than 94 % of any class of groups. If intervals hold just 94 %, a false alarm has a chance
of 1e-9 for each of some 600 classes. None covers more than 99.5 %, by the same test, without a reason beside its
design. One run at the middle price belongs to the default suite: 750 intervals of groups of 1 to 3 rows tell 88 % from
94 %. `make audit` has one at every price, where 2,250 tell 90 %, and then 30 more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

import dpduck
from tests.mechanisms.cubes.coverage_designs import DESIGNS, PRICES, SIZES, Design, Tally, fill, tallies
from tests.support.clinics import Clinic

RUNS, FEW = 30, 1
COMBINED, FEW_COMBINED = 8, 4
"""Releases whose cells are combined: 20 differences and ratios of each."""
MIDDLE = 1
"""The price, of three, at which combinations are looked at by default."""
NOISES = pytest.mark.parametrize("noise", list(PRICES))


@pytest.fixture(scope="module")
def clinics() -> Iterator[dict[str, Clinic]]:
    """A clinic for each kind of noise, in memory, so that nothing is left behind."""
    made = {noise: Clinic(dpduck.connect(":memory:")) for noise in PRICES}
    for noise, clinic in made.items():
        fill(clinic, noise)
    yield made
    for clinic in made.values():
        clinic.con.close()


def require(name: str, tally: Tally, wide: str) -> None:
    """The gate."""
    told = f"{name}: {tally.held} of {tally.looked} hold, {tally.share:.4f}"
    assert not tally.too_few, told
    assert wide or not tally.too_many, f"{told}, and no reason is given"


def check(clinic: Clinic, prices: Sequence[str], design: Design, runs: range) -> int:
    """Requires that every class is covered, at each price and at all together. Returns how many intervals it saw."""
    together: dict[str, Tally] = {}
    for price in prices:
        for rows, tally in tallies(clinic, design, price, runs).items():
            require(f"{design.name}, {price}, {rows}", tally, design.wide)
            before = together.get(rows, Tally())
            together[rows] = Tally(before.looked + tally.looked, before.held + tally.held, tally.alike)
    for rows, tally in together.items():
        require(f"{design.name}, every price, {rows}", tally, design.wide)
    return sum(tally.looked for tally in together.values())


@pytest.mark.sampled
@NOISES
@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.name)
def test_intervals_cover(clinics: dict[str, Clinic], noise: str, design: Design) -> None:
    """One run of the audit below, at one price."""
    assert check(clinics[noise], PRICES[noise][MIDDLE : MIDDLE + 1], design, range(FEW)) > 50


@pytest.mark.audit
@NOISES
@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.name)
def test_intervals_cover_at_every_price(clinics: dict[str, Clinic], noise: str, design: Design) -> None:
    """One run of the audit below."""
    assert check(clinics[noise], PRICES[noise], design, range(FEW, FEW + 1)) > 150


@pytest.mark.audit
@NOISES
@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.name)
def test_intervals_cover_in_many_runs(clinics: dict[str, Clinic], noise: str, design: Design) -> None:
    """Some 20,000 intervals of each class, a tenth as many of quantiles and linear programs."""
    assert check(clinics[noise], PRICES[noise], design, range(FEW + 1, FEW + 1 + RUNS)) > 150 * RUNS


def combined(clinic: Clinic, price: str, tag: str, differences: Tally, ratios: Tally) -> None:
    """Differences of two groups, and the share of a group in eight, from one release of counts."""
    clinic.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}, refresh = '{tag}') g, count(*) FROM few GROUP BY g")
    name = clinic.value("SELECT name FROM dp_releases() ORDER BY ledger_id DESC")
    for first in range(0, 160, 8):
        place = int(tag) % 8
        one, other = SIZES[place], SIZES[place - 1]
        weight = f"CASE g WHEN {first + place} THEN 1 WHEN {first + (place - 1) % 8} THEN -1 ELSE 0 END"
        low, high = clinic.rows(f"SELECT interval_low, interval_high FROM dp_stderr_of('{name}', '{weight}')")[0]
        differences.add(low <= one - other <= high)
        part, whole = f"CAST(g = {first + place} AS INTEGER)", f"CAST(g // 8 = {first // 8} AS INTEGER)"
        found = clinic.rows(f"SELECT interval_low, interval_high FROM dp_ratio_of('{name}', '{part}', '{whole}')")[0]
        ratios.add(found[0] <= one / sum(SIZES) <= found[1])


@pytest.mark.slow
@NOISES
@pytest.mark.parametrize(
    ("place", "runs"),
    [(MIDDLE, FEW_COMBINED), *(pytest.param(place, COMBINED, marks=pytest.mark.audit) for place in range(3))],
)
def test_combinations_cover(clinics: dict[str, Clinic], noise: str, place: int, runs: int) -> None:
    """Differences and ratios of released cells, dp_stderr_of and dp_ratio_of."""
    price, differences, ratios = PRICES[noise][place], Tally(), Tally()
    for run in range(runs):
        combined(clinics[noise], price, str(run), differences, ratios)
    require(f"differences, {price}", differences, "noise is whole numbers")
    require(f"ratios, {price}", ratios, "noise is whole numbers")
    assert differences.looked > 0 and ratios.looked > 0


def test_wrong_margins_are_noticed() -> None:
    """The gate tells 88 % from 94 % where a class has 750 intervals, 90 % where it has 2,250, 93 % where 20,000."""
    assert Tally(750, int(750 * 0.88)).too_few and Tally(2_250, int(2_250 * 0.9)).too_few
    assert Tally(1_500, int(1_500 * 0.89)).too_few and not Tally(1_500, int(1_500 * 0.93)).too_few
    assert Tally(4_500, int(4_500 * 0.91)).too_few
    assert not Tally(4_500, int(4_500 * 0.935)).too_few
    assert Tally(20_000, int(20_000 * 0.929)).too_few
    assert Tally(20_000, 20_000).too_many and not Tally(20_000, int(20_000 * 0.995)).too_many
