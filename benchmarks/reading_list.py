"""Prints what an auditor must read to believe the claim, with line counts: `python -m benchmarks.reading_list`.

tests/test_reading_list.py checks that every file of kernel/ is in one part. tests/test_house_counts.py checks the
length of the list.
"""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "dpduck"
TIER_1 = {
    "rows carry their unit": (
        "kernel/relations kernel/units kernel/facts kernel/check kernel/columns/periods values/periods"
    ),
    "integers to counts": (
        "kernel/stage kernel/contributions kernel/rows/bounding kernel/loss kernel/counting/contribution_sql "
        "kernel/counting/jobs kernel/counting/hidden"
    ),
    "prices, the door, and the order of a release": (
        "kernel/price kernel/door mechanisms/release kernel/queries/operators kernel/queries/tables "
        "kernel/queries/marginals kernel/noise/law kernel/noise/draw values/privacy values/accounting"
    ),
}
"""How far one unit moves what is counted, and what that costs."""

TIER_2 = {
    "what the database evaluates": (
        "kernel/columns/expressions kernel/columns/comparisons kernel/columns/arithmetic kernel/columns/whole_numbers "
        "kernel/columns/stored kernel/columns/conditions kernel/columns/keys values/sqltypes"
    ),
    "rows to integers": (
        "kernel/rows/scan kernel/rows/placed kernel/rows/held kernel/rows/features kernel/rows/binning "
        "kernel/rows/bins kernel/rows/plans kernel/rows/reader kernel/rows/stand_ins kernel/counting/exact "
        "kernel/counting/unit_cells"
    ),
    "what a worker evaluates": (
        "kernel/worker/program kernel/worker/added_calls kernel/worker/answered kernel/worker/workers "
        "kernel/worker/worker kernel/worker/functions values/functions values/child_process"
    ),
}
"""No row decides whether a statement fails."""

TIER_3 = {
    "the ledger": (
        "kernel/ledger/ledger kernel/ledger/chain kernel/ledger/table kernel/ledger/entries kernel/ledger/budgets "
        "kernel/ledger/shares"
    ),
}
"""Nothing leaves that was not paid for."""

TIER_4 = {
    "policies as they are stored, and public tables": ("store/policies store/catalog values/records"),
    "where rows lie": ("kernel/places/place kernel/places/live kernel/places/rows"),
}
"""Facts that the others take from outside."""

BY_CHOICE = {
    "prepared tables": (
        "kernel/places/prepared_writer kernel/places/prepared kernel/places/labels kernel/places/clamps"
    ),
    "an engine, whole units in one task": (
        "kernel/places/engine kernel/places/orders engines/task engines/spark engines/pieces engines/tables"
    ),
    "other kinds of queries": (
        "kernel/queries/quantiles kernel/queries/families kernel/queries/later kernel/queries/keys "
        "kernel/queries/key_counts kernel/queries/sessions kernel/queries/projections kernel/queries/histograms "
        "kernel/queries/sketches kernel/queries/summaries kernel/queries/sparse_counts mechanisms/sparse/ask "
        "mechanisms/sparse/keys kernel/queries/streams algebra/dyadic algebra/hashing"
    ),
}
"""What you need not read if you do not use it."""

COPIES = {
    "against restored and copied stores": ("kernel/ledger/secrets kernel/ledger/copies kernel/ledger/witness"),
    "and against restored and copied files of streams": ("kernel/queries/stream_state mechanisms/streams/store"),
}
NOISE = {
    "exact samplers, which see no data": (
        "kernel/noise/entropy kernel/noise/integers "
        "kernel/noise/exponentials kernel/noise/coins kernel/noise/binomial kernel/noise/choice "
        "kernel/noise/layers kernel/noise/zero_cells"
    ),
}
OTHERS = {
    "shown to the owner alone": ("store/check kernel/counting/unit_facts kernel/queries/trials"),
    "rows: the kernel asks for their unit itself, and refuses another (tests/kernel/test_language_not_believed.py)": (
        "language/rows/source language/rows/sql language/rows/tree language/rows/private_joins language/rows/relation "
        "language/rows/unions language/rows/per_unit language/rows/periods language/rows/moments language/rows/joins"
    ),
    "jobs: the door prices what they say, and compares it with facts": ("mechanisms/jobs"),
    "a fault is a wrong answer": (
        "kernel/queries/cells language/select/analyse language/rows/scope language/rows/subqueries "
        "language/rows/common_tables language/rows/public_tables language/rows/features language/rows/compiled"
    ),
    "expressions: kernel/worker/functions refuses the rest of what runs; growth costs a worker time and room": (
        "language/rows/functions language/select/binding language/select/checked_types language/text/dialect "
        "language/rows/expressions language/rows/copied_words"
    ),
    "prices and groups: the door refuses what costs more than is charged": (
        "language/select/options language/select/private_keys"
    ),
    "what an owner typed: dp_policies() and the answer show what was stored, which the kernel reads": (
        "owner/policies owner/changes owner/periods"
    ),
    "never sees a private row": ("store/sandbox store/parse_tree"),
    "what reads rows finds built-in functions alone (kernel/rows/reader)": ("store/cursors"),
}
LEFT_OUT = {
    "rows in DuckDB alone, without an engine": "an engine, whole units in one task",
    "and no table prepared": "prepared tables",
    "and cubes alone: counts, sums, averages, ranges of declared keys": "other kinds of queries",
}
"""What a referee need not read who believes less: each line leaves out a group of BY_CHOICE, and those before."""

TIERS = {
    "tier 1, sensitivity and price": TIER_1,
    "tier 2, no row decides whether a statement fails": TIER_2,
    "tier 3, nothing leaves unpaid": TIER_3,
    "tier 4, facts": TIER_4,
    "by choice": BY_CHOICE,
}
"""The reading list."""

PARTS = {**TIERS, "copies": COPIES, "the noise library": NOISE, "not needed": OTHERS}
AIM, AIM_LIVE = 7300, 4800


def files_of(part: dict[str, str]) -> list[str]:
    """The files of a part."""
    return [name for names in part.values() for name in names.split()]


def lines(name: str) -> int:
    """The lines of a file, docstrings and blank lines included."""
    return len((PACKAGE / f"{name}.py").read_text(encoding="utf-8").splitlines())


def code(name: str) -> int:
    """The lines of a file without blank ones, comments and docstrings."""
    text = (PACKAGE / f"{name}.py").read_text(encoding="utf-8")
    kept = {number for number, line in enumerate(text.splitlines(), 1) if line.strip() and line.strip()[0] != "#"}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            kept -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(kept)


def sums() -> dict[str, int]:
    """Lines of each part."""
    return {part: sum(map(lines, files_of(groups))) for part, groups in PARTS.items()}


def whole() -> int:
    """Lines of the reading list."""
    return sum(sums()[tier] for tier in TIERS)


def narrower() -> dict[str, int]:
    """Lines of the reading list for each line of LEFT_OUT."""
    left, found = whole(), {}
    for readers, group in LEFT_OUT.items():
        left -= sum(map(lines, BY_CHOICE[group].split()))
        found[readers] = left
    return found


def imports_of_planning() -> list[str]:
    """Trusted files that import a station after their own."""
    stations = ("language", "strategies", "store", "mechanisms", "owner", "database", "publish", "server", "commands")
    found = []
    for path in sorted((PACKAGE / "kernel").rglob("*.py")):
        nodes = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
        if any((node.module or "").split(".")[1:2] == [station] for node in nodes for station in stations):
            found.append(path.stem)
    return found


def prices() -> list[str]:
    """Modules with a function that returns a price, judged by its name and its return type."""
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        functions = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)]
        for node in functions:
            returned = "" if node.returns is None else ast.unparse(node.returns)
            if ("cost" in node.name or node.name == "price") and ("Charge" in returned or "Fraction" in returned):
                found.add(str(path.relative_to(PACKAGE)))
    return sorted(found)


def main() -> None:
    """Prints the list."""
    for part, groups in PARTS.items():
        print(f"{part}: {sums()[part]:,} lines, {sum(map(code, files_of(groups))):,} of them code")
        for group, names in groups.items():
            files = names.split()
            print(f"  {group}: {sum(map(lines, files)):,}")
            print("    " + ", ".join(f"{name} {lines(name)}" for name in files))
    print(f"\nthe reading list: {whole():,} (aim {AIM:,})")
    for readers, left in narrower().items():
        print(f"  {readers}: {left:,}")
    print(f"  of which the aim is {AIM_LIVE:,}")
    print(f"trusted files that import later stations: {', '.join(imports_of_planning()) or 'none'}")
    print(f"where a price of what leaves is computed: {', '.join(prices())}")


if __name__ == "__main__":
    main()
