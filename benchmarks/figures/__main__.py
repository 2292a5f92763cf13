"""Draws the figures and tables of the four papers with ours: `make figures`, or `python -m benchmarks.figures`.

Data are in the folder that --data or $DPDUCK_DATA names; docs/papers.md says how to get them. A picture without its
data is skipped, and a line says so. --made draws all pictures from made-up tables of the same shape. Prints each claim
of a paper beside our figure. Exit status 1 where a claim that is a gate does not hold.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter

from benchmarks.figures import datacubes, mwem, sparse_data, sparse_queries
from benchmarks.figures._pictures import SIZES, Picture, Setup, write
from benchmarks.figures.made import write_made
from benchmarks.papers._synthetic_data import data_folder

OUT = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "papers"
PAPERS: Mapping[str, tuple[Picture, ...]] = {
    "datacubes": datacubes.PICTURES,
    "sparse": sparse_data.PICTURES,
    "mwem": mwem.PICTURES,
    "sparse_queries": sparse_queries.PICTURES,
}
PICTURES = tuple(picture for pictures in PAPERS.values() for picture in pictures)

VERDICTS = {True: "PASS", False: "FAIL", None: "informs"}


def draw(picture: Picture, setup: Setup, out: Path) -> bool:
    """Draws one picture and prints its claims. Returns whether they hold."""
    if missing := picture.missing(setup):
        print(f"skipped {picture.name}: no {' and no '.join(missing)} in the folder of the data", flush=True)
        return True
    start = perf_counter()
    drawn = picture.draw(setup)
    size = write(drawn.figure, out / f"{picture.name}.png")
    print(f"{picture.name}: {size:,} bytes, {perf_counter() - start:.0f} s", flush=True)
    claims = [(None if setup.made else passed, text) for passed, text in drawn.claims]  # they are about the real data
    for passed, text in claims:
        print(f"  {VERDICTS[passed]} {text}", flush=True)
    return all(passed is not False for passed, _ in claims)


def chosen(names: Sequence[str]) -> list[Picture]:
    """Returns the named pictures, or all pictures of the named papers. Without names it returns all."""
    found = [
        picture
        for paper, pictures in PAPERS.items()
        for picture in pictures
        if not names or {picture.name, paper} & set(names)
    ]
    if not found:
        raise SystemExit(f"no such picture; accepted: {', '.join(picture.name for picture in PICTURES)}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], help="pictures such as sparse_2, or papers such as sparse")
    parser.add_argument("--out", type=Path, default=OUT, help="the folder of the pictures")
    parser.add_argument("--data", help="the folder of the data; else $DPDUCK_DATA")
    parser.add_argument("--size", choices=SIZES, default="full", help="reduced: fewer runs; tiny: for a test")
    parser.add_argument("--made", action="store_true", help="tables that are made up, where the data are not there")
    options = parser.parse_args(arguments)
    pictures = chosen(options.only)
    if not options.made:
        setup = Setup(data_folder(options.data), options.size)
        held = [draw(picture, setup, options.out) for picture in pictures]
        return 0 if all(held) else 1
    with tempfile.TemporaryDirectory() as folder:
        setup = Setup(Path(folder), options.size, made=True)
        write_made(setup.data, tiny=options.size == "tiny")
        held = [draw(picture, setup, options.out) for picture in pictures]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
