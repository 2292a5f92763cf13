"""The statements of docs/strategies.md run as they stand, and give the page's figures."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import comb
from pathlib import Path

import pytest

from tests.support.clinics import Clinic

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "strategies.md").read_text(encoding="utf-8")
STATEMENT = re.compile(r"(.*?);[^\n]*\n(?:-- gives: ([^\n]*)\n)?", re.DOTALL)


def test_the_statements_give_what_the_page_says(open_clinic: Callable[..., Clinic]) -> None:
    """Every statement of the page in turn. Its figures are compared with the line below."""
    clinic, told = open_clinic(), list[str]()
    for block in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL):
        for statement, gives in STATEMENT.findall(block):
            rows = clinic.rows(statement)
            if gives:
                told.append(gives)
                assert ", ".join(map(str, rows[0])) == gives, statement
    assert len(told) == 10


@pytest.mark.parametrize(("order", "lemma", "theorem"), [(1, 1000.0, 18.0), (2, 49755.28, 104.65)])
def test_the_formulas_give_the_figures_of_the_page(order: int, lemma: float, theorem: float) -> None:
    """The sum in the proof of Lemma 4.2, and half of the bound of Theorem B.1, for eight columns."""
    summed = sum(comb(8, j) * (comb(8 - j, order - j) * 2.0**-order) ** (1 / 3) for j in range(order + 1))
    assert 2 * summed**3 == pytest.approx(lemma, rel=1e-6)
    assert sum(comb(8, j) for j in range(order + 1)) * 2 ** ((order + 1) / 2) == pytest.approx(theorem, abs=0.01)
