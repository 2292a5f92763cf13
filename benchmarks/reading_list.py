"""Prints what an auditor must read to believe the claim, with line counts: `python -m benchmarks.reading_list`.

tests/test_reading_list.py holds that every file of kernel/ and trusted/ is in one part, tests/test_house_counts.py
how long the list is.
"""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "dpduck"
CLAIM = {
    "the order of a release, prices, the door": (
        "trusted/private/door trusted/ask trusted/operators trusted/noise/law trusted/private/key_delta "
        "trusted/private/answers trusted/noise/draw trusted/rows/reader mechanisms/release"
    ),
    "integers to counts": (
        "trusted/private/counting_stage trusted/private/weighing trusted/private/unit_cells "
        "trusted/private/contributions trusted/private/contribution_sql trusted/private/jobs trusted/private/counting "
        "trusted/private/key_counts trusted/private/hidden trusted/rows/crowds"
    ),
    "rows to integers, whatever one row does": (
        "trusted/rows/scan trusted/conditions trusted/rows/answered trusted/rows/workers trusted/rows/worker"
    ),
    "the same in an engine, whole units in one task": (
        "trusted/rows/elsewhere trusted/rows/orders engines/task engines/spark engines/pieces"
    ),
    "counts to noisy answers": (
        "trusted/private/measure trusted/private/keys trusted/private/sessions "
        "trusted/private/histograms trusted/private/sketches trusted/private/summaries "
        "mechanisms/sparse/ask trusted/private/streams algebra/dyadic algebra/hashing"
    ),
    "the ledger": (
        "trusted/ledger/ledger trusted/ledger/table trusted/ledger/entries trusted/ledger/budgets "
        "trusted/rows/periods values/periods values/privacy values/accounting"
    ),
}
"""What breaks the guarantee where it is wrong, apart from the noise and from what may run over a row."""

COPIES = {
    "against restored and copied stores": ("trusted/ledger/secrets trusted/ledger/copies"),
    "and against restored and copied files of streams": ("trusted/private/stream_state mechanisms/streams/store"),
}
NOISE = {
    "exact samplers, which see no data": (
        "trusted/noise/entropy trusted/noise/integers "
        "trusted/noise/coins trusted/noise/binomial trusted/noise/choice "
        "trusted/noise/layers trusted/noise/zero_cells"
    ),
}
ROWS = {
    "which label a row has": ("trusted/rows/binning trusted/rows/bins"),
    "rows that are written once": ("trusted/rows/twin_writer trusted/rows/prepared"),
    "what the database evaluates, and what a worker": (
        "kernel/expressions kernel/arithmetic kernel/stored trusted/rows/placed trusted/rows/held "
        "trusted/rows/program trusted/rows/plans trusted/rows/labels trusted/rows/clamps trusted/private/features"
    ),
    "facts of DuckDB's types": ("values/sqltypes"),
    "what may run over one row": ("trusted/rows/functions values/functions mechanisms/sparse/keys"),
    "whose row it is, and how often": (
        "kernel/relations kernel/units kernel/keys kernel/check kernel/facts frontend/rows/source "
        "frontend/rows/sql frontend/rows/tree frontend/rows/private_joins "
        "frontend/rows/relation frontend/rows/unions frontend/rows/per_unit frontend/rows/periods"
    ),
    "facts that are taken for public": (
        "database/catalog owner/policies owner/periods database/policies mechanisms/jobs engines/tables"
    ),
}
OTHERS = {
    "shown to the owner alone": ("database/check trusted/private/unit_facts"),
    "a fault is a wrong answer": (
        "trusted/private/cells frontend/select/analyse frontend/rows/scope frontend/rows/subqueries "
        "frontend/rows/features frontend/rows/compiled"
    ),
    "expressions: trusted/rows/functions refuses the rest of what runs; growth costs a worker time and room": (
        "frontend/rows/functions frontend/select/binding frontend/text/dialect frontend/rows/expressions"
    ),
    "public tables: database/catalog requires them public, trusted/private/jobs and rows bound their copies": (
        "frontend/rows/joins"
    ),
    "prices and groups: the door refuses what costs more than is charged": (
        "frontend/select/options frontend/select/private_keys"
    ),
    "never sees a private row": ("database/sandbox"),
    "what reads rows finds built-in functions alone (trusted/rows/reader)": ("database/cursors"),
}
LEFT_OUT = {
    "rows in DuckDB alone, without an engine": (
        "trusted/rows/elsewhere trusted/rows/orders engines/task engines/spark engines/pieces engines/tables"
    ),
    "and no table prepared": ("trusted/rows/twin_writer trusted/rows/prepared trusted/rows/clamps trusted/rows/labels"),
    "and cubes alone: counts, sums, averages, ranges of declared keys": (
        "trusted/private/keys trusted/private/key_delta trusted/private/key_counts "
        "trusted/private/sessions trusted/private/histograms trusted/private/sketches trusted/private/summaries "
        "mechanisms/sparse/ask mechanisms/sparse/keys trusted/private/streams algebra/dyadic algebra/hashing"
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
    stations = ("planning", "database", "mechanisms", "owner", "engine", "publish", "server", "commands")
    found = []
    for path in sorted((PACKAGE / "trusted").rglob("*.py")):
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
