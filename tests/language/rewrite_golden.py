"""Writes the outcomes of golden statements into their files: `python -m tests.language.rewrite_golden`, then look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from unittest.mock import patch

from dpduck.database import database
from dpduck.language.rows.facts import PublicFacts
from dpduck.language.select.analyse import Analysis, analyse
from dpduck.language.statements.kinds import AskStatement
from dpduck.language.text.options import Option
from tests.language.clinic import ask, open_clinic, told, without_duckdb
from tests.language.full_clinic import open_full_clinic
from tests.language.golden_files import FOLDER, Golden, read_golden
from tests.language.test_same_as_duckdb import parts, shape


def main() -> None:
    """Rewrites every golden file."""
    with open_clinic() as clinic:
        refused = [_refused(golden, told(clinic, golden.statement)) for golden in read_golden("refused_*.sql")]
    accepted = _accepted(read_golden("accepted_*.sql"))
    for file, blocks in groupby([*refused, *accepted], key=lambda golden: golden.file):
        (FOLDER / file).write_text("\n".join(golden.text for golden in blocks), encoding="utf-8")


def _refused(golden: Golden, message: str) -> Golden:
    if golden.before:
        with open_clinic(golden.before) as connection:
            message = told(connection, golden.statement)
    return replace(golden, expected=(("refused", without_duckdb(message)),))


def _accepted(goldens: list[Golden]) -> list[Golden]:
    seen: list[Analysis] = []

    def watched(statement: AskStatement, facts: PublicFacts, more: Sequence[Option] = ()) -> Analysis:
        seen.append(analyse(statement, facts, more))
        return seen[-1]

    rewritten = []
    with open_full_clinic() as clinic, patch.object(database, "analyse", watched):
        for golden in goldens:
            columns = shape(ask(clinic, golden.statement), seen[-1])
            kept = [line for line in golden.expected if line[0] == "plain"]
            rewritten.append(replace(golden, expected=(*parts(seen[-1]).items(), ("columns", columns), *kept)))
    return rewritten


if __name__ == "__main__":
    main()
