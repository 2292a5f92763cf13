"""The house's rules of size and place, so that every file can be read in one sitting."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "dpduck"
SOURCES = sorted(path for folder in ("dpduck", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
LONG_FILE = 900
LONGEST_FUNCTION = 50
LARGEST_FOLDER = 24
REASONS: dict[str, str] = {}
"""Why a file of more than 900 lines is one subject, for each such file."""
_ARTICLES = "The A An One Every All Each Both Its Any Nothing Another Two No"
NO_VERBS = frozenset(
    f"{_ARTICLES} Whether What How Which Who Where Whose Of With Without As In FALSE NULL Rows Smaller".split()
)
"""First words that are no verb, of docstrings of functions."""


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def long_functions(source: str) -> list[str]:
    """The functions that reach the limit, from `def` to their last line."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, functions)]
    return [node.name for node in nodes if (node.end_lineno or 0) - node.lineno + 1 >= LONGEST_FUNCTION]


def test_long_files_state_their_reason() -> None:
    """A file has one subject. A file of more than 900 lines says in REASONS why it is not two."""
    lengths = {named(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {name for name, length in lengths.items() if length > LONG_FILE} == set(REASONS)


def test_functions_stay_short() -> None:
    """Every function stays under 50 lines."""
    found = {named(path): long_functions(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {name: functions for name, functions in found.items() if functions} == {}


def test_the_limit_of_functions_is_counted() -> None:
    """A function of 49 lines passes, one of 50 does not, nested ones and methods included."""
    body = "    x = 1\n"
    assert long_functions("def short():\n" + body * (LONGEST_FUNCTION - 2)) == []
    assert long_functions("def long():\n" + body * (LONGEST_FUNCTION - 1)) == ["long"]
    method = "class A:\n    async def long(self):\n" + ("    " + body) * (LONGEST_FUNCTION - 1)
    assert long_functions(method) == ["long"]


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    """A function's docstring begins with a verb: "Returns ..", "Tells whether ..", "Refuses .."."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for path in PACKAGE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    firsts = [(ast.get_docstring(node) or "x").split()[0] for node in nodes if isinstance(node, functions)]
    assert len(firsts) > 2000
    assert [word for word in firsts if word.rstrip(",:;") in NO_VERBS] == []


def test_the_tree_is_three_levels_deep() -> None:
    """A file of the product lies in dpduck/, in one of its stations or in a folder of one, no deeper."""
    deep = [named(path) for path in PACKAGE.rglob("*.py") if len(path.relative_to(PACKAGE).parts) > 3]
    assert deep == []
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [named(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_folders_stay_small() -> None:
    """No folder of the product has more than 24 files."""
    modules = [path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"]
    sizes = Counter(named(path.parent) for path in modules)
    assert {folder: size for folder, size in sizes.items() if size > LARGEST_FOLDER} == {}


def test_tests_mirror_the_product() -> None:
    """Every station that has code has tests in the folder of the same name. Folders of tests are folders of dpduck."""
    stations = {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.glob("*/**/*.py") if path.name != "__init__.py"}
    tests = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")]
    assert stations - {path.parts[0] for path in tests} == set()
    folders = {str(path.parent) for path in tests if len(path.parts) > 1}
    assert {folder for folder in folders if not (PACKAGE / folder / "__init__.py").is_file()} == set()


DRAFTS = {
    *(
        f"dpduck/owner/draft{part}.py"
        for part in ("", "_declaration_items", "_open_items", "_remarks", "_shapes", "_unit")
    ),
    *("dpduck/owner/policy_text.py", "dpduck/commands/policy.py", "docs/start.md"),
    *("dpduck/owner/private_draft.py", "dpduck/owner/suggestions.py", "tests/owner/test_private_draft.py"),
    "benchmarks/private_drafts.py",
    *(f"dpduck/{part}.py" for part in ("commands/documents", "documents/record", "documents/sentences")),
    *(f"tests/documents/test_{part}.py" for part in ("label", "methods", "record")),
    *("docs/how_to/documents.md", "docs/how_to/release.md", "docs/how_to/parquet_to_folder.md", "tests/test_how_to.py"),
    *("tests/owner/test_draft_shapes.py", "tests/commands/test_importing.py", "tests/commands/test_owner_reads.py"),
    *("tests/owner/test_draft.py", "tests/commands/test_policy.py", "docs/reference.md", "tests/test_guides.py"),
}
"""What is about drafts of policies and about documents, which say with that word what is left to an owner."""


def test_nothing_cites_a_document_that_is_not_here() -> None:
    """A reader can look up everything that a comment names: papers by author and year, and files of this repository."""
    texts = [*SOURCES, *(ROOT / "sql").rglob("*.sql"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    cited = re.compile(r"\bDESIGN(?:\.md)? (?:\d|section|trap)|\b[Ii]ssue \d")
    found = [named(path) for path in texts if cited.search(path.read_text(encoding="utf-8"))]
    assert found == []


def test_nothing_is_left_for_later() -> None:
    """Open tasks stand in an issue, not in a remark."""
    remarks = ("TO" + "DO", "FIX" + "ME", "XX" + "X")
    texts = [*SOURCES, *(ROOT / "sql").rglob("*.sql"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    texts += [ROOT / "Makefile", ROOT / "pyproject.toml"]
    texts = [path for path in texts if named(path) not in DRAFTS]
    found = [named(path) for path in texts if any(remark in path.read_text(encoding="utf-8") for remark in remarks)]
    assert found == []


SLOW = {"subprocess", "signal", "operating_system_entropy", "serving", "served"}
"""What tests that kill, serve or draw noise in large numbers import."""


def listed(variable: str) -> str:
    """The value of a variable of the Makefile, as it is written there."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", "")
    (line,) = [line for line in makefile.splitlines() if line.startswith(f"{variable} :=")]
    return line.partition(":=")[2]


def files_of(paths: list[Path]) -> list[Path]:
    """Returns the Python files among these paths, or in these folders."""
    assert all(path.exists() for path in paths), paths
    return [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))]


def quick_files() -> list[Path]:
    """The tests of `make quick`."""
    return files_of([ROOT / name for name in listed("QUICK").split()])


def once_files() -> list[Path]:
    """The tests that `make test-duckdb2` leaves out because they never see DuckDB."""
    folders = [ROOT / "tests" / name for name in listed("NEVER").split()]
    patterns = re.findall(r"patsubst %,([\w/]+)%,([\w\s]+)\)", listed("ALONE"))
    return files_of(
        folders + [ROOT / "tests" / f"{start}{name}.py" for start, names in patterns for name in names.split()]
    )


def test_what_is_tested_once_never_sees_duckdb() -> None:
    """Tests that `make test-duckdb2` leaves out open no database: no version of DuckDB can change their result."""
    sees = re.compile(r"\b(duckdb|clinics?|cursor|dpduck\.connect|served)\b")
    found = {named(path): set(sees.findall(path.read_text(encoding="utf-8"))) for path in once_files()}
    assert len(found) > 60
    assert {name: words for name, words in found.items() if words} == {}
    assert sees.findall("def test(clinic: Clinic) -> None: duckdb.connect()") == ["clinic", "duckdb"]


def slow_imports(source: str) -> set[str]:
    """The imports of a test that tell that it is not quick."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = [part for node in nodes if isinstance(node, ast.ImportFrom) for part in (node.module or "").split(".")]
    return SLOW & {*modules, *(alias.name for node in nodes for alias in node.names)}


def test_quick_tests_are_quick() -> None:
    """`make quick` kills nothing, starts no server and holds no statistics."""
    found = {named(path): slow_imports(path.read_text(encoding="utf-8")) for path in quick_files()}
    assert len(found) > 20
    assert {name: imports for name, imports in found.items() if imports} == {}
    assert slow_imports("from tests.server.served import count\nimport subprocess") == {"served", "subprocess"}


READS_ITS_OWN_TABLES = ("table.py", "secrets.py", "facts.py", "plans.py", "worker.py", "functions.py")
"""Files of the kernel that read the store, secrets, the catalog or settings, or that have no database of rows."""
READS = {"execute", "executemany", "sql", "query", "table", "from_arrow", "fetchall", "fetchone", "fetchnumpy", "arrow"}
ONLY_THE_DOOR = {
    *("count_exactly", "count_keys", "KeyStream", "ExactCounts", "KeyCounts", "SparseCounts", "Hidden"),
    *("cells_of", "keys_of", "exact_marginals", "exact_sketch", "sparse_counts", "present", "family_answers"),
    *("draw", "draw_together", "with_noise", "draw_summary", "one_sided", "discrete_laplace", "discrete_gaussian"),
    *("exact", "hidden", "key_counting", "key_counts", "marginals", "tables", "quantiles", "families", "keys"),
    *("projections", "histograms", "sessions", "sketches", "summaries"),
}
"""What counts rows or turns exact counts into numbers: nobody outside of kernel/ has it."""
DRAWS = {"draw", "draw_together"}
"""Methods of a query, which take exact counts: nobody outside of kernel/ names them."""


def readings(source: str) -> list[str]:
    """Calls of methods by which rows can be read."""
    calls = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [call.attr for call in calls if isinstance(call, ast.Attribute) and call.attr in READS]


def taken_from_kernel(source: str) -> set[str]:
    """Returns a file's imports from the kernel, its private attributes of exact counts, and its draws of queries."""
    nodes = list(ast.walk(ast.parse(source)))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    trusted = [node for node in imports if (node.module or "").startswith("dpduck.kernel")]
    attributes = [node.attr for node in nodes if isinstance(node, ast.Attribute)]
    whole = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names = {alias.name for node in trusted for alias in node.names}
    names |= {one for one in attributes if "_exact" in one or one in DRAWS}
    return names | {name.rpartition(".")[2] for name in whole if name.startswith("dpduck.kernel")}


def test_one_reader_of_private_rows() -> None:
    """Trusted code reads private rows through kernel/rows/reader.py alone."""
    trusted = sorted((PACKAGE / "kernel").rglob("*.py"))
    found = {path.name: readings(path.read_text(encoding="utf-8")) for path in trusted}
    assert found.pop("reader.py") != []
    assert {name: calls for name, calls in found.items() if calls and name not in READS_ITS_OWN_TABLES} == {}


def test_one_door() -> None:
    """No module outside of kernel/ can count private rows, or turn exact counts into numbers, but by a door."""
    outside = [path for path in PACKAGE.rglob("*.py") if "kernel" not in path.parts]
    taken = {named(path): taken_from_kernel(path.read_text(encoding="utf-8")) for path in outside}
    assert {name: names & ONLY_THE_DOOR for name, names in taken.items() if names & ONLY_THE_DOOR} == {}
    assert {name for name, names in taken.items() if any(one.startswith("_exact") for one in names)} == set()


def test_other_readings_are_found() -> None:
    """The checks check something."""
    assert readings("def f(cursor):\n    return cursor.execute('SELECT 1').fetchall()") == ["fetchall", "execute"]
    assert readings("def f(reader, cursor):\n    return reader.columns(cursor, 'SELECT 1', {})") == []
    for line in (
        "from dpduck.kernel.counting.exact import count_exactly",
        "import dpduck.kernel.counting.exact as c",
    ):
        assert taken_from_kernel(line) & ONLY_THE_DOOR
    assert taken_from_kernel("def f(counts):\n    return counts._exact_counts") == {"_exact_counts"}
    assert taken_from_kernel("def f(ask):\n    return ask.query.draw(1, ask, 2, 3)") & ONLY_THE_DOOR == {"draw"}
