"""The papers' figures are in docs/, drawn by `make figures`: each has a caption, is small, and can be drawn anew."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import duckdb
import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from benchmarks.figures import __main__ as figures
from benchmarks.figures import mwem, prepare, sparse_data, sparse_queries
from benchmarks.figures._pictures import LARGEST_FILE, Drawn, Setup, panels, write
from benchmarks.figures.made import write_made
from benchmarks.papers._datacube_errors import read_table
from benchmarks.papers._dyadic import range_sums
from benchmarks.papers._synthetic_data import table_of
from benchmarks.papers.sparse_data import METHODS, SKEWED, county_table, histogram
from benchmarks.papers.sparse_queries import WAYS
from dpduck.algebra.dyadic import DyadicAxis

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGE = (DOCS / "papers.md").read_text(encoding="utf-8")
SHOWN = re.compile(r"^!\[[^\]]+\]\(pictures/papers/(\w+)\.png\)\n\n(.+?)(?=\n\n)", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    """Small tables that are made up, with the columns of the real ones."""
    folder = tmp_path_factory.mktemp("made")
    write_made(folder, tiny=True)
    return Setup(folder, "tiny", made=True)


def test_every_picture_is_shown_and_drawn() -> None:
    """docs/papers.md shows the pictures that there are, each is drawn by the entry point, and none is large."""
    names = [picture.name for picture in figures.PICTURES]
    assert sorted(name for name, _ in SHOWN.findall(PAGE)) == sorted(names)
    assert len(names) == len(set(names)) == 12
    assert sorted(path.stem for path in figures.OUT.iterdir()) == sorted(names)
    for name in names:
        path = figures.OUT / f"{name}.png"
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size <= LARGEST_FILE, name
        assert f"`pictures/papers/{name}.png`" in PAGE, "a line of the paper's table names it"


def test_captions_say_what_the_paper_claims() -> None:
    """A caption has two sentences or more, one about the paper and one with our figures or our data."""
    for name, caption in SHOWN.findall(PAGE):
        assert len(re.findall(r"[.:](?:\s|$)", caption)) >= 2, name
        assert "paper" in caption and re.search(r"\bours?\b|\bwe\b", caption, re.IGNORECASE), name
        assert re.search(r"\d", caption), name


@pytest.mark.parametrize("name", ["datacubes_5", "sparse_2", "mwem_2", "mwem_table_1", "sparse_queries"])
def test_a_picture_is_drawn(name: str, made: Setup, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One figure of each paper, and a table, at a tiny size from made-up data."""
    (picture,) = figures.chosen([name])
    assert figures.draw(picture, made, tmp_path)
    assert f"{name}: " in capsys.readouterr().out
    assert 3_000 < (tmp_path / f"{name}.png").stat().st_size <= LARGEST_FILE


@pytest.mark.slow
def test_all_pictures_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command draws all pictures without any data."""
    assert figures.main(["--made", "--size", "tiny", "--out", str(tmp_path)]) == 0
    assert {path.stem for path in tmp_path.glob("*.png")} == {picture.name for picture in figures.PICTURES}
    assert "skipped" not in capsys.readouterr().out


def test_without_data_a_line_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A picture without its data is skipped, and nothing is written."""
    asked = ["--only", "mwem_3", "sparse_6", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    assert figures.main(asked) == 0
    assert capsys.readouterr().out.splitlines() == [
        "skipped sparse_6: no od_us_counties.parquet in the folder of the data",
        "skipped mwem_3: no nltcs.parquet in the folder of the data",
    ]
    assert not (tmp_path / "out").exists()


def test_names_that_there_are_not() -> None:
    """A paper stands for all of its pictures. Another name is refused with the accepted ones."""
    assert [picture.name for picture in figures.chosen(["sparse"])] == [f"sparse_{n}" for n in (2, 3, 4, 5, 6)]
    with pytest.raises(SystemExit, match=r"accepted: datacubes_4, .*sparse_queries"):
        figures.chosen(["sparse_1"])


def test_the_same_figures_are_the_same_file(tmp_path: Path) -> None:
    """A picture has no date: where nothing has changed, nothing is to be committed."""
    for name in ("first", "second"):
        figure, (axes,) = panels(1)
        axes.plot([1, 2, 3], label="the same")
        write(figure, tmp_path / name / "picture.png")
    first, second = ((tmp_path / name / "picture.png").read_bytes() for name in ("first", "second"))
    assert first == second


def test_a_claim_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims are about figures: turned round, they fail, and the command ends with 1."""
    flat = {method: np.ones(9) for method in [*METHODS, sparse_data.CHOSEN]}
    assert [passed for passed, _ in sparse_data.claims_of_3([flat] * 4, 1)] == [False] * 4
    high = {label: [np.ones(2)] for label in list(mwem.LINES)[:5]}
    assert [passed for passed, _ in mwem.claims_of_2("mildew", high)] == [False]
    both = {"Barak et al., fitted": [np.ones(2)], "MWEM, 20 rounds": [np.ones(2)]}
    assert [passed for passed, _ in mwem.claims_of_3([both, both])] == [False, False]
    near, far = (dict.fromkeys(WAYS, value) for value in (1.0, 30.0))
    points = [sparse_queries.Point(errors, near, 3, None) for errors in (near, far)]
    assert [passed for passed, _ in sparse_queries.claims_of(points, points, points, 1)][:3] == [False] * 3
    wrong = replace(figures.PICTURES[0], files=(), draw=lambda setup: Drawn(panels(1)[0], [(False, "no")]))
    monkeypatch.setattr(figures, "PAPERS", {"datacubes": (wrong,)})
    monkeypatch.setattr(figures, "write", lambda figure, path: 0)
    assert figures.main([]) == 1


def test_ranges_are_sums_of_their_largest_intervals() -> None:
    """Sums a level at a time are those over the maximal intervals inside a range, whatever intervals are there."""
    rng = np.random.default_rng(3)
    for size in (1, 2, 5, 37, 64, 100):
        axis = DyadicAxis("dyadic", size)
        numbers = np.flatnonzero(rng.random(axis.nodes) < 0.7)
        values = rng.normal(size=len(numbers))
        for length in {1, size // 2 or 1, size}:
            starts = np.arange(size - length + 1)
            wanted = [maximal_sum(axis, numbers, values, low, low + length - 1) for low in starts.tolist()]
            assert range_sums(axis, numbers, values, starts, length) == pytest.approx(wanted)


def maximal_sum(axis: DyadicAxis, numbers: np.ndarray, values: np.ndarray, low: int, high: int) -> float:
    """One range, by the definition."""
    parents = import_module("dpduck.mechanisms.summaries.parents")
    levels, nodes = parents.places_of(axis, numbers)

    def within(level: np.ndarray, node: np.ndarray) -> np.ndarray:
        return np.asarray((node << level >= low) & (((node + 1) << level) - 1 <= high))

    return float(values[within(levels, nodes) & ~within(levels + 1, nodes >> 1)].sum())


def prepared(name: str, sources: Sequence[Path], to: Path) -> None:
    prepare.main([name, *(str(source) for source in sources), "--to", str(to)])


def test_files_are_prepared_from_their_sources(tmp_path: Path) -> None:
    """Downloaded files become the pictures' files: people, tables of R, arrays, and flows with their notes."""
    line = "39, State-gov, 77516, Bachelors, 13, Never-married, ?, Husband, White, Male, 2174, 0, 40, Peru, <=50K\n"
    (tmp_path / "adult.data").write_text(line * 3 + "\n")
    prepared("adult", [tmp_path / "adult.data"], tmp_path)
    assert read_table("adult", tmp_path).counts.tolist() == [[[[[[[[3]]]]]]]]
    for part, bits in (("train", "0,1" * 1), ("test", "1,1")):
        (tmp_path / f"nltcs.{part}.data").write_text(",".join([bits] * 8) + "\n")
    prepared("nltcs", sorted(tmp_path.glob("nltcs.*.data")), tmp_path)
    assert table_of(tmp_path, "nltcs").shape == (2, 1) * 8
    (tmp_path / "r.csv").write_text('"la10","locc","Freq"\n"1","1",5\n"2","1",0\n"1","2",7\n"2","2",1\n')
    prepared("mildew", [tmp_path / "r.csv"], tmp_path)
    assert table_of(tmp_path, "mildew").tolist() == [[5, 7], [0, 1]]
    np.save(tmp_path / f"{SKEWED[0]}.n4.npy", np.array([3.0, 0.0, 0.0, 9.0]))
    prepared("dpbench", [tmp_path / f"{SKEWED[0]}.n4.npy"], tmp_path)
    assert histogram(tmp_path, SKEWED[0]).tolist() == [3, 0, 0, 9]


def test_flows_are_prepared_from_the_table_of_the_census(tmp_path: Path) -> None:
    """Headers, notes, and places of work abroad are no flows between counties."""
    lines = (
        "Table 1. Residence County to Workplace County,,,,,,,,,\n"
        "State,County,Name,County,State,County,Name,County,Workers,Margin\n"
        '01,001,Alabama,Autauga,001,001,Alabama,Autauga,"8,635",341\n'
        "1,3,Alabama,Baldwin,001,001,Alabama,Autauga,6,10\n"
        "01,001,Alabama,Autauga,303,,Mexico,,4,7\n"
        "72,001,Puerto Rico,Adjuntas,072,001,Puerto Rico,Adjuntas,900,50\n"
        '"Source: the Census, 2011-2015.",,,,,,,,,\n'
    )
    (tmp_path / "table1.csv").write_text(lines)
    prepared("counties", [tmp_path / "table1.csv"], tmp_path)
    found = duckdb.sql(f"FROM '{tmp_path / 'od_us_counties.parquet'}' ORDER BY ALL").fetchall()
    assert found == [("01001", "01001", 8635), ("01003", "01001", 6), ("72001", "72001", 900)]
    whole, states = county_table(tmp_path), county_table(tmp_path, "57")
    assert whole is not None and int(whole.sum()) == 9541
    assert states is not None and states.tolist() == [8635, 6]


@pytest.mark.paper
def test_the_claims_of_the_papers_hold(
    data_file: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All pictures at a reduced size, from the papers' data where we have them. Each claim that is a gate holds."""
    data = data_file("adult.parquet").parent
    for name in {name for picture in figures.PICTURES for name in picture.files}:
        data_file(name)
    code = figures.main(["--size", "reduced", "--data", str(data), "--out", str(tmp_path)])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    claims = [line for line in lines if line.startswith(("PASS", "FAIL"))]
    assert len(claims) == 27 and [line for line in claims if not line.startswith("PASS")] == []
    assert code == 0 and len(list(tmp_path.glob("*.png"))) == len(figures.PICTURES)
