"""Prints what an auditor must read to believe the claim, with line counts: `python -m benchmarks.reading_list`.

tests/test_reading_list.py holds it: every file of trusted/ is in one part, and no part grows.
"""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "dpduck"
CLAIM = {
    "the order of a release, prices, the door": (
        "trusted/door trusted/ask trusted/operators trusted/noise trusted/key_delta trusted/answers trusted/draw "
        "trusted/reader edges/releaser"
    ),
    "integers to counts": (
        "trusted/counting_stage trusted/bounding_sql trusted/contribution trusted/contribution_sql "
        "trusted/counting_job trusted/counting trusted/key_counting trusted/key_counts "
        "trusted/exact_counts"
    ),
    "rows to integers, whatever one row does": "trusted/scan trusted/workers trusted/worker trusted/memory_limit",
    "counts to noisy answers": (
        "trusted/measure trusted/distinct trusted/publish_keys trusted/interrogation trusted/session_gate "
        "trusted/lazy_histogram trusted/keyed_noise trusted/projection trusted/count_sketch trusted/summary_sampler "
        "trusted/range_nodes edges/sessions "
        "workload/families workload/dyadic workload/sign_hash"
    ),
    "the ledger": (
        "trusted/ledger trusted/ledger_chain trusted/ledger_schema trusted/ledger_values trusted/budget_rules "
        "trusted/hash_chain privacy accounting"
    ),
}
"""What breaks the guarantee where it is wrong, apart from the noise and from what may run over a row."""

COPIES = {"against restored and copied stores": "trusted/secrets_file trusted/outside_counters trusted/witness"}
NOISE = {
    "exact samplers, which see no data": (
        "trusted/entropy trusted/discrete_laplace trusted/discrete_gaussian trusted/block_sampler trusted/noise_table "
        "trusted/exact_exponential trusted/exact_bernoulli trusted/exact_binomial trusted/exact_choice "
        "trusted/upgraded_counts trusted/summary_law trusted/zero_cells"
    )
}
ROWS = {
    "which label a row has": "trusted/binning_sql trusted/range_bins",
    "what the database evaluates, and what a worker": (
        "trusted/rows trusted/row_program trusted/plain trusted/plain_plans trusted/try_results"
    ),
    "what may run over one row": "trusted/row_functions frontend/sparse_keys",
    "whose row it is, and how often": (
        "frontend/row_source frontend/row_sql frontend/row_tree frontend/private_join frontend/private_relation "
        "frontend/union_all frontend/per_unit frontend/row_parts frontend/unit_lookup"
    ),
    "facts that are taken for public": (
        "edges/catalog edges/stored_tables edges/policy_changes edges/policy_store edges/counting_jobs"
    ),
}
OTHERS = {
    "shown to the owner alone": "trusted/owner_check",
    "a fault is a wrong answer": (
        "trusted/mixed_radix frontend/analyse frontend/scope frontend/common_tables frontend/public_subqueries"
    ),
    "expressions: refuses early what trusted/row_functions refuses of the text that runs": (
        "frontend/allowlist frontend/argument_rules frontend/plain_atoms frontend/binding frontend/computed_types "
        "frontend/limits frontend/conditions edges/duckdb_tree"
    ),
    "public tables: edges/catalog requires them public, trusted/counting_job and rows bound their copies": (
        "frontend/join frontend/public_table"
    ),
    "prices and groups: the door refuses what costs more than is charged": "frontend/price frontend/private_keys",
    "never sees a private row": "edges/sandbox",
    "what reads rows finds built-in functions alone (trusted/reader)": "edges/shadows edges/roots",
}
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


def imports_of_planning() -> list[str]:
    """Trusted files that import a station after their own."""
    stations = ("planning", "recovery", "summaries", "synthetic", "sparsequeries", "edges", "server", "strategies")
    found = []
    for path in sorted((PACKAGE / "trusted").glob("*.py")):
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
    print(f"trusted files that import later stations: {', '.join(imports_of_planning()) or 'none'}")
    print(f"where a price of what leaves is computed: {', '.join(prices())}")


if __name__ == "__main__":
    main()
