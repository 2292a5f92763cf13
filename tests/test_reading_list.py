"""The list of files that an auditor must read is complete."""

from __future__ import annotations

import pytest

from benchmarks.reading_list import (
    BY_CHOICE,
    LEFT_OUT,
    PACKAGE,
    PARTS,
    files_of,
    imports_of_planning,
    main,
    narrower,
    prices,
    sums,
    whole,
)


def test_every_trusted_file_is_in_one_part() -> None:
    """A file of kernel/ that is in no part would be read by nobody, one in two would be counted twice."""
    listed = [name for groups in PARTS.values() for name in files_of(groups)]
    assert len(listed) == len(set(listed))
    assert [name for name in listed if not (PACKAGE / f"{name}.py").is_file()] == []
    trusted = {
        str(path.relative_to(PACKAGE).with_suffix(""))
        for path in (PACKAGE / "kernel").rglob("*.py")
        if path.stem != "__init__"
    }
    assert trusted - set(listed) == set()


@pytest.mark.slow
def test_the_list_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The script prints every part with its lines. tests/test_house_counts.py says how many there may be."""
    main()
    printed = capsys.readouterr().out
    assert [part for part, lines in sums().items() if f"{part}: {lines:,} lines" not in printed] == []
    assert f"the reading list: {whole():,} " in printed


def test_what_a_narrower_reader_leaves_out_is_on_the_list() -> None:
    """Each group that may be left out is left out once, so that every narrower list is shorter."""
    assert sorted(LEFT_OUT.values()) == sorted(BY_CHOICE)
    wide = [whole(), *narrower().values()]
    assert wide == sorted(set(wide), reverse=True)


@pytest.mark.slow
def test_prices_are_computed_in_one_place() -> None:
    """kernel/price.py adds up the costs of each kind of query, and kernel/noise/law.py those of its norms."""
    kinds = ("families", "keys", "later", "quantiles", "sessions")
    assert prices() == ["kernel/noise/law.py", "kernel/price.py", *(f"kernel/queries/{kind}.py" for kind in kinds)]
    assert imports_of_planning() == []
