"""What an auditor must read is known, and does not grow."""

from __future__ import annotations

import pytest

from benchmarks.reading_list import (
    CLAIM,
    LEFT_OUT,
    PACKAGE,
    PARTS,
    ROWS,
    files_of,
    imports_of_planning,
    main,
    narrower,
    prices,
    sums,
)

CEILINGS = {"the claim": 9910, "copies": 871, "the noise library": 1146, "the rows boundary": 8119}
"""Above today's lines. The aims are 3,000 for the claim and 5,500 with the rows boundary (benchmarks/reading_list)."""


def test_every_trusted_file_is_in_one_part() -> None:
    """A file of trusted/ that is in no part, or in two, would be read by nobody, or counted twice."""
    listed = [name for groups in PARTS.values() for name in files_of(groups)]
    assert len(listed) == len(set(listed))
    assert [name for name in listed if not (PACKAGE / f"{name}.py").is_file()] == []
    trusted = {
        str(path.relative_to(PACKAGE).with_suffix(""))
        for path in (PACKAGE / "trusted").rglob("*.py")
        if path.stem != "__init__"
    }
    assert trusted - set(listed) == set()


@pytest.mark.slow
def test_the_list_does_not_grow(capsys: pytest.CaptureFixture[str]) -> None:
    """No part has more lines than its ceiling, and the script prints all of it."""
    found = sums()
    assert {part: found[part] for part, most in CEILINGS.items() if found[part] > most} == {}
    main()
    assert "with the rows boundary" in capsys.readouterr().out


def test_what_a_narrower_reader_leaves_out_is_on_the_list() -> None:
    """Each file that is left out is on the list once, so that every line of the narrower lists is shorter."""
    left_out = files_of(LEFT_OUT)
    assert len(left_out) == len(set(left_out))
    assert set(left_out) <= {*files_of(CLAIM), *files_of(ROWS)}
    wide = [both for _, both in narrower().values()]
    assert wide == sorted(set(wide), reverse=True)


@pytest.mark.slow
def test_prices_are_computed_in_one_place() -> None:
    """trusted/ask.py, from what trusted/noise/law.py says of one law for given norms."""
    assert prices() == ["trusted/ask.py", "trusted/noise/law.py"]
    assert imports_of_planning() == []
