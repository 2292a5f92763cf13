"""The paragraph on methods: sentences and references for each kind of store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.support.documented import KINDS, refused, written


def test_a_paragraph_says_how_the_numbers_were_made(stores: Mapping[str, Path]) -> None:
    """Kind, unit, bound of rows, noise, price, budget and odds, with what only the owner can say."""
    said, _, references = written(stores["pure"], "methods").partition("\n\n")
    for told in (
        "The numbers in the tables `cube` and `total` were released with pure differential privacy [1] by dpduck",
        "two databases are neighbours if they differ in one such unit",
        "At most 3 rows of one patient are counted in visits. Further rows are left out.",
        "Mechanisms: discrete Laplace noise [2].",
        "All 2 releases about these units together cost at most epsilon = 1.3.",
        "This is 13 % of a budget of epsilon = 10.",
        "is right at most 79 of 100 times with all answers, and 50 of 100 times without them.",
        "TODO: how the unit",
    ):
        assert told in said, told
    assert "\n" not in said and references.startswith("[1] C. Dwork")


def test_every_reference_is_cited_once_listed(stores: Mapping[str, Path]) -> None:
    """The numbers in the text are those of the list, in order, for every kind of store."""
    for kind in KINDS:
        said, _, references = written(stores[kind], "methods").partition("\n\n")
        cited = sorted(set(re.findall(r"\[(\d)\]", said)))
        assert cited == re.findall(r"^\[(\d)\] ", references, re.MULTILINE), kind


def test_kinds_of_privacy_and_noise_have_their_references(stores: Mapping[str, Path]) -> None:
    """zCDP and discrete Gaussian noise, beside discrete Laplace noise."""
    approximate, made_up = (written(stores[kind], "methods") for kind in ("approximate", "synthetic"))
    assert "zero-concentrated differential privacy (zCDP) [1]" in approximate and "Concentrated" in approximate
    assert "discrete Gaussian noise; discrete Laplace noise [2], [3]" in approximate
    assert "which implies epsilon = " in approximate and "Synthetic rows were drawn" in made_up
    assert "The release cost epsilon = 1." in made_up


def test_a_paragraph_is_markdown(stores: Mapping[str, Path], tmp_path: Path) -> None:
    """Another ending is refused."""
    assert "would be a text in Markdown" in refused(stores["pure"], "methods", "--to", str(tmp_path / "methods.txt"))
    assert "fill in each TODO" in written(stores["pure"], "methods", "--to", str(tmp_path / "methods.md"))
