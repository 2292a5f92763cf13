"""Every benchmark runs, at a tiny size: none raises, and each prints as many gates as it has.

Whether a gate is met says nothing at such sizes. What takes longer than some seconds belongs to `make audit`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from benchmarks import draft_shares, pictures, private_drafts, screenshots
from benchmarks.papers import replay
from benchmarks.peers import _several_data, _wide_page, several_rows
from benchmarks.speed import prepared
from dpduck.algebra.ranges import all_ranges
from tests.support.browser import needs_chromium

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
KINDS = ("speed", "papers", "peers")
VERDICT = re.compile(r"PASS|FAIL|MISSED|\(gate|gate:|bar \d")


@dataclass(frozen=True)
class Tiny:
    """How a benchmark is made small: constants of its module or of a helper beside it, words on its command line.

    gates: lines with a verdict. needs: packages without which it cannot run. says: words of its output, at any size.
    long: belongs to the audit.
    """

    gates: int
    words: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    says: str = ""
    long: bool = False


ONE = {"one": (["u0"], None, 1.0)}
TINY = {
    "peers.table": Tiny(0, ("--rows", "1000"), says="# Comparison with other tools", long=True),
    "papers.people": Tiny(4, ("--tables", "1"), {"DRAWS": 1, "ROWS": (1, 10), "NORMS": (1, 2, 8), "SUM_NORMS": (1,)}),
    "papers.pivots": Tiny(16),
    "papers.child_tables": Tiny(6, (), {"CUSTOMERS": 300}),
    "speed.counting": Tiny(3, ("5000",), {"ROUNDS": 1, "UNITS": 1000, "TIMES": ONE, "MEMORY": {
        "memory": (["ours", "0", "u0"], ["duckdb", "4", "u0"], 1.0)}}),
    "speed.cube": Tiny(3, ("--rows", "2000"), {"ROUNDS": 1, "PURE": "epsilon = 1, planning_seconds = 0.1"}),
    "speed.engines": Tiny(3, ("2000", "--without-growth"), {"ROUNDS": 1}, ("pysail", "pyspark"), long=True),
    "speed.first_answer": Tiny(1, ("300",), says="300 rows of 25 columns", long=True),
    "speed.flight_sql": Tiny(1, (), {"ROWS": 1000, "READS": 1}, ("adbc_driver_flightsql", "adbc_driver_manager")),
    "speed.known": Tiny(3, (), {"COLUMNS": 3, "VALUES": 9, "ROUNDS": 1}),
    "speed.norms": Tiny(6, ("4000",), {"ROUNDS": 1}),
    "speed.prepared": Tiny(5, ("2000",), {"ROUNDS": 1, "SIZES": (2,) * 8, "CASES": {
        "one": prepared.grouped(("s0",), 1.0), "two": prepared.grouped(("s1", "s2"), 1.0, "crowds")}, "PEAKS": {}}),
    "speed.server_load": Tiny(6, ("--seconds", "1", "--clients", "2"), {"VISITS": 1000, "BIG": 1000, "SEEN": 5,
        "NEW": 5}, ("duckdb_extension_quack",), "errors 0 (gate: 0)", long=True),
    "speed.server_start": Tiny(4, ("--rounds", "1", "--clients", "2"), {"SETTLED": 0.1}, ("duckdb_extension_quack",),
        "s (most", long=True),
    "speed.sparse": Tiny(6, (), {"ROUNDS": 1, "OCCUPIED": 100, "MOST_OCCUPIED": 1000, "SIZE": 100,
        "DENSITY_CELLS": 10**5, "COUNTY_ROWS": 4, "BLOCK": 10**4}),
    "speed.sparse_queries": Tiny(4, (), {"KEYS": 500, "ROWS": 64, "QUERIES": 5, "SPARSITY": 4, "QUESTIONS": 10,
        "UNIVERSE_ROWS": 1000, "REPEATS": 1}),
    "speed.start": Tiny(5, (), {"ROUNDS": 1}, says="import duckdb, the unit"),
    "speed.statement_latency": Tiny(7, (), {"ROUNDS": 1, "STATEMENTS": 3, "SETTLING": 0}),
    "speed.streams": Tiny(1, ("300",), {"MONTHS": 3}),
    "speed.synthetic_seconds": Tiny(0, ("400",), {"STATEMENTS": (
        ("rho = 0.5", 3, 2, "cube"),)}, says="SAMPLE 1000000"),
    "speed.tpch": Tiny(0, ("0.01",), {"ROUNDS": 1}, ("duckdb_extension_tpch",)),
    "papers.datacubes": Tiny(6, ("--data", "{data}", "--epsilons", "1", "--repetitions", "2", "--planning-seconds",
        "0.1", "--figures", "{data}"), {"_datacube_errors.TABLES": {
        "adult": ("workclass", "education", "race"), "nltcs": ("y1", "y2", "y3")}, "REDUCTIONS": (
        ("adult Q1*", "Q+", "Q", 0.2, 2), ("nltcs Q2*", "C+", "C", 0.0, 2))}, ("matplotlib",)),
    "papers.key_selection": Tiny(6, (), {"GROUPS": (1, 8)}),
    "papers.mwem": Tiny(6, ("--data", "{data}", "--runs", "1", "--cube-runs", "1", "--epsilons", "1",
        "--cube-epsilons", "0.1", "1", "--rounds", "2")),
    "papers.own_strategies": Tiny(12, (), {"BINS": 8}),
    "papers.prior_weight": Tiny(0, ("MWEM",), {"MADE": {"MWEM": (((2, 2, 2, 2), 50),)}, "WEIGHTS": {
        "MWEM": (0.25, 0.5, 1.0)}, "EPSILONS": {"MWEM": ("1",)}}),
    "papers.ranges_in_cubes": Tiny(24),
    "papers.range_strategies": Tiny(32, (), {"WORKLOADS": (("ranges", all_ranges, 8),) * 4}),
    "papers.replay": Tiny(2, ("--statements", "4", "--tables", "made"), {"TABLES": {"made": replay.Table(
        "made", "SELECT i % 3 AS a, i % 4 AS b FROM range(500) AS r(i)", (("a", 3, False), ("b", 4, True)))}}),
    "papers.small_prices": Tiny(1, ("--data", "{data}", "--runs", "1", "--tables", "2"), {"PRICES": ("0.5",)}),
    "papers.sparse_data": Tiny(4, ("--repetitions", "2", "--no-counties", "--figures", "{data}"), {"CELLS": 20_000,
        "SIZES": (10, 100, 1_000), "GATE_REPETITIONS": 2, "RANGES": 10}, ("matplotlib",)),
    "papers.sparse_queries": Tiny(8, (), {"KEYS": 100, "TOTAL": 1000, "QUERIES": 3, "ROWS": 64}),
    "papers.streams": Tiny(2, (), {"SIZES": (8,)}),
    "papers.streams_taxi": Tiny(5, ("--data", "{data}"), {"DAYS": 8, "ZONES": 3}),
    "papers.synthetic_choice": Tiny(1, ("--tables", "3"), {"ROWS": (1_000,), "SIZES": ((2, 3),)}),
    "papers.view_search": Tiny(1, ("--seconds", "0.1", "--independent", "0.1"), {"BEST_KNOWN": [
        ("three", (2, 2, 2), (2,), 1.0)]}),
    "peers.keys": Tiny(2, (), {"KEYS": 2000, "SAMPLE": 500}, ("opendp",)),
    "peers.noise": Tiny(3, (), {"SCALES": [Fraction(1)], "REPEATS": 1, "THEIR_DRAWS": 50, "OUR_DRAWS": 100},
        ("opendp",)),
    "peers.quantiles": Tiny(2, ("--runs", "2"), {"ROWS": 400, "DESIGNS": ((0.5,), (0.25, 0.5))}),
    "peers.several_rows": Tiny(0, ("--tables", "1"), {"REPEATS": 1, "OWN_ROWS": (10,), "OWN_NORMS": (8,),
        "FEW_NORMS": (8,), "SUM_NORMS": (10,)}, says="* Where a peer is better: nowhere",
        long=True),
    "peers.synthetic": Tiny(5, ("--data", "{data}", "--runs", "1"), {"ROUNDS": 2}),
    "peers.synthetic_wide": Tiny(3, ("--tables", "made14", "--epsilons", "5", "--rows", "2000"), {"MARGINS": 20,
        "DESIGN": [(4, 2000, "5")]}),
}  # fmt: skip


def made_data(folder: Path) -> None:
    """Tables in the form of the real ones, few rows and most columns constant."""
    bits = ", ".join(f"{f'i // {1 << bit} % 2' if bit < 4 else 0} AS y{bit + 1}" for bit in range(16))
    names = ("workclass", "education", "marital_status", "occupation", "relationship", "race", "sex", "salary")
    columns = ", ".join(f"{f'i * 7 // {2 + place} % 3' if place < 6 else 0} AS {n}" for place, n in enumerate(names))
    for name, listed in (("nltcs", bits), ("adult", columns)):
        duckdb.execute(f"COPY (SELECT {listed} FROM range(4096) AS r(i)) TO '{folder / name}.parquet'")
    for name in ("mildew", "rochdale", "czech"):
        duckdb.execute(
            f"COPY (SELECT i % 2 AS a, i // 2 % 2 AS b, i // 4 % 2 AS c, i + 1 AS n FROM range(8) AS r(i)) "
            f"TO '{folder / name}.csv'"
        )
    duckdb.execute(
        "COPY (SELECT i // 3 AS home_county, i % 3 AS work_county, i AS workers FROM range(1, 9) AS r(i)) "
        f"TO '{folder / 'od_us_counties.parquet'}'"
    )
    duckdb.execute(
        "COPY (SELECT TIMESTAMP '2025-11-01' + INTERVAL (i) HOUR AS lpep_pickup_datetime, i % 3 + 1 AS PULocationID "
        f"FROM range(200) AS r(i)) TO '{folder / 'nyc_green_taxi_2025_11.parquet'}'"
    )
    duckdb.execute(f"COPY (SELECT range AS county FROM range(3)) TO '{folder / 'od_us_counties_nodes.parquet'}'")


MADE_FROM = ("papers.covering_designs", "papers.joint_threshold")
"""Constructions, which time nothing: tests/strategies runs them."""


def names() -> list[str]:
    """The benchmarks that there are, without their helpers."""
    found = [path.relative_to(BENCHMARKS) for kind in KINDS for path in (BENCHMARKS / kind).glob("[a-z]*.py")]
    return sorted(".".join(path.with_suffix("").parts) for path in found)


def test_every_benchmark_is_tried() -> None:
    """Every benchmark belongs to one of three kinds, and is tried here."""
    assert sorted([*TINY, *MADE_FROM]) == names()
    drafts = {"private_drafts.py", "draft_shares.py"}
    pages = {"choosing.py", "odds.py", "pictures.py", "screenshots.py", "tutorial.py"}
    beside = {"reading_list.py", "house.py"} | pages | drafts
    assert {path.name for path in BENCHMARKS.glob("*.py")} == beside, "none of these times anything"


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of peers
@pytest.mark.filterwarnings("ignore:Arrow output on a DB-API result")  # of DuckDB 2.0, about speed
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.audit) if tiny.long else name for name, tiny in TINY.items()]
)
def test_a_benchmark_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends as a benchmark does, with 0 or 1, and has printed all of its gates."""
    tiny = TINY[name]
    if missing := [package for package in tiny.needs if find_spec(package) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    made_data(tmp_path)
    module = import_module(f"benchmarks.{name}")
    for constant, value in tiny.constants.items():
        helper, _, of_helper = constant.rpartition(".")
        owner = import_module(f"benchmarks.{name.partition('.')[0]}.{helper}") if helper else module
        monkeypatch.setattr(owner, of_helper, value)
    if hasattr(module, "DATA"):
        monkeypatch.setattr(module, "DATA", tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *(word.format(data=tmp_path) for word in tiny.words)])
    assert module.main() in (0, 1, None)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 0 and tiny.says in "\n".join(lines)
    assert sum(bool(VERDICT.search(line)) for line in lines) >= tiny.gates, lines


@pytest.mark.slow
@pytest.mark.parametrize("table", ["commuting", "transfusion"])
def test_private_drafts_are_compared(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The benchmark of private drafts runs, too, and prints a line for a table, of a column's units and of rows."""
    made_data(tmp_path)
    rows = "SELECT i % 90 AS months, i % 2 AS gave FROM range(50) AS r(i)"
    duckdb.execute(f"COPY ({rows}) TO '{tmp_path / 'transfusion.csv'}'")
    monkeypatch.setenv("DPDUCK_DATA", str(tmp_path))
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "argv", ["private_drafts", "--tables", table, "--prices", "0.5"])
    private_drafts.main()
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"| {table} ")


@pytest.mark.slow
def test_shares_of_drafts_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The benchmark of drafts' omissions runs, and says that a missing table is skipped."""
    monkeypatch.setenv("DPDUCK_DATA", str(tmp_path))
    words = ["--tables", "adult", "made: planes", "--prices", "2", "--drafts", "2"]
    monkeypatch.setattr(sys, "argv", ["draft_shares", *words])
    draft_shares.main()
    lines = capsys.readouterr().out.splitlines()
    assert "skipped" in lines[2] and lines[3].startswith("| made: planes | 2 | MAX ROWS |")


@pytest.mark.audit
@needs_chromium
def test_screenshots_are_taken(tmp_path: Path) -> None:
    """Five pages in three sizes, those of docs among them."""
    screenshots.main(["--to", str(tmp_path)])
    names = {path.stem for path in tmp_path.glob("*.png")}
    assert len(names) == 60 and set(screenshots.DOCS) <= names
    assert all((screenshots.FOLDER / f"{name}.png").is_file() for name in screenshots.DOCS.values())


def test_pictures_of_strategies_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One for each strategy of docs/strategies.md, the same for the same plan, and a release for the README."""
    pictures.main(["--to", str(tmp_path)])
    drawn = {path.name for path in tmp_path.glob("*.svg")}
    assert drawn == {path.name for path in pictures.FOLDER.glob("*.svg")}
    page = (pictures.FOLDER.parent / "strategies.md").read_text(encoding="utf-8")
    assert all(f"(pictures/{name})" in page for name in drawn - {"first_counts.svg"})
    assert (tmp_path / "identity.svg").read_bytes() == (pictures.FOLDER / "identity.svg").read_bytes()
    assert len(capsys.readouterr().out.splitlines()) == len(drawn) - 1


def test_a_page_tells_where_a_peer_is_better(tmp_path: Path) -> None:
    """Records become lines of docs/peers.md, the last of a kind, with the peer's better figures in bold and counted. A
    stopped run has its seconds. Text above the part stays."""
    page, record = tmp_path / "page.md", tmp_path / "record.jsonl"
    page.write_text("# Above\n\nkept\n\n## Synthetic data of wide tables\n\nolder\n")
    own = (0.05, 0.06, 2.0, 2.0**28)
    better, stopped = (0.04, 0.07, 15.0, 2.0**30), None
    for epsilon, theirs in (("1", stopped), ("1", better), ("5", stopped)):
        _wide_page.keep(record, _wide_page.Compared("t", 9, 1000, 9.5, epsilon, 0.2, "MST", own, theirs, 300.0))
    _wide_page.put(page, _wide_page.kept(record))
    text = page.read_text()
    assert text.startswith("# Above\n\nkept\n\n## Synthetic") and "older" not in text
    assert (
        "| t (9, 1,000, 10^9.5) | 1 | 0.2000 | 0.0500 / 0.0600 | 2.0 | 256 | MST **0.0400** / 0.0700 | 15.0 |" in text
    )
    assert (
        "MST *stopped* after 300" in text and "* model: OpenDP is better in 1 of 1 that ended: t at epsilon 1" in text
    )
    assert "Ours takes a tenth of its time, or less, in 1 of 2, not: t at epsilon 1 (MST)." in text


@pytest.fixture
def few_rows(tmp_path: Path) -> _several_data.Rows:
    """Forty people in five groups. The first person has 200 rows."""
    duckdb.execute(
        "COPY (SELECT (CASE WHEN i < 200 THEN 0 ELSE i % 40 END)::INTEGER AS id, (hash(i) % 5)::INTEGER AS g, "
        f"(i % 9)::INTEGER AS value FROM range(600) AS r(i)) TO '{tmp_path / 'few.parquet'}'"
    )
    question = _several_data.Question("few", "counts", ("g",), ((0, 5),), 4, 8)
    return _several_data.Rows(question, tmp_path)


@pytest.mark.parametrize("order", ["random", "first", "last", "rows", "all"])
def test_bounds_of_peers_are_kept(order: str, few_rows: _several_data.Rows) -> None:
    """No person has more rows in a group, groups or rows in all than the bounds that peers are given."""
    draw = _several_data.Draw(few_rows, np.random.default_rng(1))
    bounds = _several_data.Bounds(order, 3, 2)
    pairs = draw.by_pair(draw.kept(bounds))
    groups, rows = (np.bincount(few_rows.pair_id, of) for of in (pairs > 0, pairs))
    assert groups.max() <= 3 and rows.max() == {"random": 6, "first": 4, "last": 4}.get(order, 3)
    assert order == "all" or pairs.max() <= 2


def test_bounds_of_peers_are_chosen_by_their_error(few_rows: _several_data.Rows) -> None:
    """Bounds that leave nothing out are taken where there is no noise, and their error is 0."""
    grid = [_several_data.Bounds("random", groups, 200) for groups in (1, 2, 5)]
    assert _several_data.best(few_rows, grid, _several_data.counted, 0.0) == (grid[2], 0.0)
    assert few_rows.error({(group,): 0.0 for group in range(5)}) == 1.0


def test_a_part_of_the_page_has_peers_in_bold(tmp_path: Path) -> None:
    """A peer with less error is in bold, its gate is missed, and a second part takes the place of the first."""
    question = _several_data.Question("few", "counts", ("g",), ((0, 5),), 4, 8)
    line: dict[str, float | str] = {"bounds": "bounds", "sure": 0.01, "repeats": 6}
    found = {
        "dpduck": {**line, "error": 0.3},
        "dpduck, best norm": {**line, "error": 0.1},
        "OpenDP 0.16, Laplace": {**line, "error": 0.2, "simulated": 0.05},
    }
    part = "\n".join(several_rows.lines_of([question], {question.name: found}, "commit abc"))
    assert "| few: counts by g | OpenDP 0.16, Laplace | answered, bounds | **0.2** ± 1 % |" in part
    assert "* Where a peer is better: few: counts by g, 1 of 1 (best OpenDP 0.16, Laplace: 0.2, ours 0.3)." in part
    assert "ours is 1.50 times the best peer's error" in part and "at most 1.3, missed." in part
    assert "Unlike their simulation: few: counts by g, OpenDP 0.16, Laplace: 0.2, simulated 0.05." in part
    page = tmp_path / "page.md"
    page.write_text("# Above\n\nkept\n\n## Quantiles beside OpenDP\n\nafter\n")
    several_rows.put(page, f"{_wide_page.SEVERAL}\n\nolder")
    several_rows.put(page, part)
    text = page.read_text()
    assert text.startswith(f"# Above\n\nkept\n\n{_wide_page.SEVERAL}\n\nMade by") and "older" not in text
    assert text.endswith("\n\n## Quantiles beside OpenDP\n\nafter\n")
    assert _wide_page.part_of(page).startswith(_wide_page.SEVERAL)
