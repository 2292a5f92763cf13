"""Prints what an auditor must read to believe the claim, with line counts: `python -m benchmarks.reading_list`.

tests/test_reading_list.py holds that every file of kernel/ is in one part, tests/test_house_counts.py
how long the list is.
"""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "dpduck"
CLAIM = {
    "the order of a release, prices, the door": (
        "kernel/door kernel/price kernel/queries/operators kernel/noise/law "
        "kernel/noise/draw kernel/rows/reader mechanisms/release"
    ),
    "integers to counts": (
        "kernel/stage kernel/loss kernel/counting/unit_cells "
        "kernel/contributions kernel/counting/contribution_sql kernel/counting/jobs kernel/counting/exact "
        "kernel/queries/key_counts kernel/counting/hidden kernel/rows/crowds"
    ),
    "rows to integers, whatever one row does": (
        "kernel/rows/scan kernel/columns/conditions kernel/worker/answered kernel/worker/workers kernel/worker/worker"
    ),
    "the same in an engine, whole units in one task": (
        "kernel/places/engine kernel/places/orders engines/task engines/spark engines/pieces"
    ),
    "counts to noisy answers, a file for each kind": (
        "kernel/queries/marginals kernel/queries/tables kernel/queries/quantiles kernel/queries/families "
        "kernel/queries/later kernel/queries/keys kernel/queries/sessions kernel/queries/projections "
        "kernel/queries/histograms kernel/queries/sketches kernel/queries/summaries "
        "mechanisms/sparse/ask kernel/queries/streams algebra/dyadic algebra/hashing"
    ),
    "the ledger": (
        "kernel/ledger/ledger kernel/ledger/table kernel/ledger/entries kernel/ledger/budgets "
        "kernel/rows/periods values/periods values/privacy values/accounting"
    ),
}
"""What breaks the guarantee where it is wrong, apart from the noise and from what may run over a row."""

COPIES = {
    "against restored and copied stores": ("kernel/ledger/secrets kernel/ledger/copies"),
    "and against restored and copied files of streams": ("kernel/queries/stream_state mechanisms/streams/store"),
}
NOISE = {
    "exact samplers, which see no data": (
        "kernel/noise/entropy kernel/noise/integers "
        "kernel/noise/coins kernel/noise/binomial kernel/noise/choice "
        "kernel/noise/layers kernel/noise/zero_cells"
    ),
}
ROWS = {
    "which label a row has": ("kernel/rows/binning kernel/rows/bins"),
    "where rows lie": ("kernel/places/place kernel/places/live kernel/places/rows"),
    "rows that are written once": ("kernel/places/twin_writer kernel/places/prepared"),
    "what the database evaluates, and what a worker": (
        "kernel/columns/expressions kernel/columns/arithmetic kernel/columns/stored kernel/rows/placed "
        "kernel/rows/held kernel/worker/program kernel/rows/plans kernel/places/labels "
        "kernel/places/clamps kernel/rows/features"
    ),
    "facts of DuckDB's types": ("values/sqltypes"),
    "what may run over one row": ("kernel/worker/functions values/functions mechanisms/sparse/keys"),
    "whose row it is, and how often": (
        "kernel/relations kernel/units kernel/columns/keys kernel/check kernel/facts language/rows/source "
        "language/rows/sql language/rows/tree language/rows/private_joins "
        "language/rows/relation language/rows/unions language/rows/per_unit language/rows/periods"
    ),
    "facts that are taken for public": (
        "store/catalog owner/policies owner/periods store/policies mechanisms/jobs engines/tables"
    ),
}
OTHERS = {
    "shown to the owner alone": ("store/check kernel/counting/unit_facts"),
    "a fault is a wrong answer": (
        "kernel/queries/cells language/select/analyse language/rows/scope language/rows/subqueries "
        "language/rows/features language/rows/compiled"
    ),
    "expressions: kernel/worker/functions refuses the rest of what runs; growth costs a worker time and room": (
        "language/rows/functions language/select/binding language/text/dialect language/rows/expressions"
    ),
    "public tables: store/catalog requires them public, kernel/counting/jobs and rows bound their copies": (
        "language/rows/joins"
    ),
    "prices and groups: the door refuses what costs more than is charged": (
        "language/select/options language/select/private_keys"
    ),
    "never sees a private row": ("store/sandbox"),
    "what reads rows finds built-in functions alone (kernel/rows/reader)": ("store/cursors"),
}
LEFT_OUT = {
    "rows in DuckDB alone, without an engine": (
        "kernel/places/engine kernel/places/orders engines/task engines/spark engines/pieces engines/tables"
    ),
    "and no table prepared": (
        "kernel/places/twin_writer kernel/places/prepared kernel/places/clamps kernel/places/labels"
    ),
    "and cubes alone: counts, sums, averages, ranges of declared keys": (
        "kernel/queries/keys kernel/queries/key_counts kernel/queries/families "
        "kernel/queries/sessions kernel/queries/projections kernel/queries/histograms kernel/queries/sketches "
        "kernel/queries/summaries "
        "mechanisms/sparse/ask mechanisms/sparse/keys kernel/queries/streams algebra/dyadic algebra/hashing"
    ),
}
"""What a referee need not read who believes less: each line leaves out its files and those of the lines before."""

PARTS = {
    "the claim": CLAIM,
    "copies": COPIES,
    "the noise library": NOISE,
    "the rows boundary": ROWS,
    "not needed": OTHERS,
}
AIMS = {"the claim": 3000, "the claim and the rows boundary": 5500}


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


def narrower() -> dict[str, tuple[int, int]]:
    """Lines of the claim alone, and with the rows boundary, for each line of LEFT_OUT."""
    gone: set[str] = set()
    found = {}
    for readers, names in LEFT_OUT.items():
        gone |= set(names.split())
        claim, rows = (sum(lines(name) for name in files_of(part) if name not in gone) for part in (CLAIM, ROWS))
        found[readers] = (claim, claim + rows)
    return found


def imports_of_planning() -> list[str]:
    """Trusted files that import a station after their own."""
    stations = ("language", "strategies", "store", "mechanisms", "owner", "engine", "publish", "server", "commands")
    found = []
    for path in sorted((PACKAGE / "kernel").rglob("*.py")):
        nodes = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
        if any((node.module or "").split(".")[1:2] == [station] for node in nodes for station in stations):
            found.append(path.stem)
    return found


def prices() -> list[str]:
    """Modules with a function that says what something costs, by its name and by what it returns."""
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
    total = sums()
    print(f"\nthe claim: {total['the claim']:,} (aim {AIMS['the claim']:,})")
    both = total["the claim"] + total["the rows boundary"]
    print(f"with the rows boundary: {both:,} (aim {AIMS['the claim and the rows boundary']:,})")
    for readers, (claim, wide) in narrower().items():
        print(f"  {readers}: {claim:,}, with the rows boundary {wide:,}")
    print(f"trusted files that import later stations: {', '.join(imports_of_planning()) or 'none'}")
    print(f"where a price of what leaves is computed: {', '.join(prices())}")


if __name__ == "__main__":
    main()
