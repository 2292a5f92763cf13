"""Prints how large the house is, and how its parts hang together: `python -m benchmarks.house`.

Each count has an aim. tests/test_house_counts.py has a ratchet for each, which may only fall.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import FrameType

import dpduck
from benchmarks import reading_list

PACKAGE = Path(dpduck.__file__).resolve().parent
TRUSTED = ("kernel",)
"""Folders of trusted code."""
LANGUAGE = ("language",)
"""Folders of the language."""
TIER_1 = "kernel"
"""The folder of the proof. Its own files are tier 1, without those of its subfolders."""
TIER_1_IMPORTS = ("values", "algebra", TIER_1)
"""The stations that tier 1 may import."""

READING_ALL, READING_LIVE = "lines of the reading list", "lines of it for counts over live tables"
TIER_1_LINES, TIER_1_OTHERS = "lines of tier 1", "imports of other stations by tier 1"
LANGUAGE_IMPORTS = "imports of the language by trusted code"
TEXT_CALLS, TEXT_TESTS = "calls that take SQL text apart", "regular expressions and prefix tests in trusted code"
TYPE_SETS, TYPE_SET_FILES = "hand-written sets of SQL types", "files with a hand-written set of SQL types"
UNIT_CLASSES, UNIT_WINDOWS = "classes with a field unit_sql", "windows over a unit's rows in trusted code"
VARIANTS, JOB_TESTS = "branches on variants in trusted code", "isinstance of kinds of jobs"
FUNCTIONS, MODULES, SWITCHES = (f"{what} of a plain count" for what in ("functions", "modules", "module switches"))
STORED_FUNCTIONS, STORED_MODULES = (f"{what} of a stored answer" for what in ("functions", "modules"))
PRODUCT = "lines of the product"
WHAT_IS, OF_IT, WHOSE, SEMICOLONS = (
    f"{phrase} in 10,000 words of docstrings" for phrase in ("'what is ..'", "'of it'", "'whose'", "semicolons")
)
PARTICIPLES, VAGUE_NAMES = "functions named by a participle", "variables called one or found"
SHARED_CLASSES, BANNERS = "class names in two files", "files with a second subject behind a banner"
KNOWN_STATIONS = "stations of known answers"
PROTOCOLS = "files that start processes or lay out frames"
TABLE_MAKERS = "functions called create_tables"

AIMS = {
    READING_ALL: 7300, READING_LIVE: 4800, TIER_1_LINES: 2300, TIER_1_OTHERS: 0, LANGUAGE_IMPORTS: 0, TEXT_CALLS: 0,
    TEXT_TESTS: 12, TYPE_SETS: 1, TYPE_SET_FILES: 1, UNIT_CLASSES: 0, UNIT_WINDOWS: 4, VARIANTS: 20, JOB_TESTS: 0,
    FUNCTIONS: 420, MODULES: 70, SWITCHES: 420, PRODUCT: 71_153,
    WHAT_IS: 5, OF_IT: 5, WHOSE: 5, SEMICOLONS: 30, PARTICIPLES: 30, VAGUE_NAMES: 200, SHARED_CLASSES: 0, BANNERS: 15,
    KNOWN_STATIONS: 2,
    PROTOCOLS: 2, TABLE_MAKERS: 1,
}  # fmt: skip
"""The most that each count may be."""


@dataclass(frozen=True)
class Source:
    """A file of the product. name: its path from dpduck/ on, with slashes."""

    name: str
    text: str
    tree: ast.Module

    @property
    def station(self) -> str:
        """Returns the folder in dpduck/ that the file is in."""
        return self.name.partition("/")[0]


def sources() -> list[Source]:
    """Reads every file of the product."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Source(path.relative_to(PACKAGE).as_posix(), text, ast.parse(text)))
    return found


def trusted_files(files: Iterable[Source]) -> list[Source]:
    """Keeps the files of trusted code."""
    return [file for file in files if file.station in TRUSTED]


def lines(files: Iterable[Source]) -> int:
    """Counts all lines, with docstrings and blank ones."""
    return sum(len(file.text.splitlines()) for file in files)


# Sizes.


def sizes(files: Sequence[Source]) -> dict[str, int]:
    """Counts the lines of the product, of the reading list and of tier 1."""
    listed = {f"{name}.py" for part in reading_list.PARTS.values() for name in reading_list.files_of(part)}
    kernel = lines(file for file in files if file.station == TIER_1 and file.name not in listed)
    live = list(reading_list.narrower().values())[-1]
    return {
        READING_ALL: reading_list.whole() + kernel,
        READING_LIVE: live + kernel,
        TIER_1_LINES: lines(tier_1(files)),
        PRODUCT: lines(files),
    }


def tier_1(files: Iterable[Source]) -> list[Source]:
    """Keeps the files that lie in the kernel's folder itself."""
    return [file for file in files if file.name.rpartition("/")[0] == TIER_1]


# Ties by an import, or by a test of a kind.


def stations_of(file: Source) -> list[str]:
    """Lists the stations of dpduck that a file imports, one for each statement."""
    nodes = list(ast.walk(file.tree))
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return [module.split(".")[1] for module in modules if module.startswith("dpduck.")]


def imports_of(files: Iterable[Source], stations: Sequence[str]) -> int:
    """Counts the imports of some stations."""
    return sum(station in stations for file in files for station in stations_of(file))


def other_imports(files: Iterable[Source], stations: Sequence[str]) -> int:
    """Counts the imports of all stations but these."""
    return sum(station not in stations for file in files for station in stations_of(file))


def classes_with(files: Iterable[Source], field: str) -> int:
    """Counts the classes that declare a field."""
    classes = [node for file in files for node in ast.walk(file.tree) if isinstance(node, ast.ClassDef)]
    return sum(field in fields_of(node) for node in classes)


def fields_of(node: ast.ClassDef) -> set[str]:
    """Returns the names of a class's fields."""
    fields = [statement.target for statement in node.body if isinstance(statement, ast.AnnAssign)]
    return {target.id for target in fields if isinstance(target, ast.Name)}


# SQL that is handled as text.

TAKEN_APART = {
    *("columns_of", "is_plain", "renamed", "plain_text", "plain_number", "stored_column", "is_together"),
    *("without_try", "number_sql", "computed"),
}
"""Names of functions that looked into SQL that dpduck wrote itself. Walkers of nodes bear some of them now."""
TEXT_TEST = re.compile(
    r"re\.(?:compile|sub|search|fullmatch|match|findall|finditer)\(|\.fullmatch\("
    r"|\.(?:removeprefix|removesuffix|startswith|endswith|partition)\("
)
TYPE_SET = re.compile(r'TINY\|SMALL|"TINYINT", "SMALLINT"')
WINDOW = re.compile(
    r"row_number\(\) OVER|dense_rank\(\) OVER|rank\(\) OVER|lag\(\{UNIT\}|\{name\}\(\) OVER",
)
VARIANT = re.compile(
    r"\b(?:prepared|elsewhere|lookup|source|periods|unit_sql|types|known|cut) is (?:not )?None",
)
PROTOCOL = re.compile(r"\b(?:subprocess\.Popen|struct\.pack|struct\.Struct)\(")
"""Calls that start a process, or lay out the head of a frame. A worker's end (worker.py) may import no other file."""
JOB_TEST = re.compile(r"isinstance\([^)]*\b(?:CountingJob|KeyedJob|KeyJob)")


def readers_of_text(files: Sequence[Source], names: set[str]) -> set[str]:
    """Keeps the names of functions that `reads_text` accepts, and the names that no file defines."""
    nodes = [node for file in files for node in ast.walk(file.tree) if isinstance(node, ast.FunctionDef)]
    defined = {node.name for node in nodes}
    return {name for name in names if name not in defined} | {node.name for node in nodes if reads_text(node)} & names


def reads_text(node: ast.FunctionDef) -> bool:
    """Tells whether a function makes something else than a text of its first argument, a text."""
    given = [one for one in node.args.args if one.arg != "self"][:1]
    written = node.returns is not None and ast.unparse(node.returns) == "str"
    return any(one.annotation is not None and ast.unparse(one.annotation) == "str" for one in given) and not written


def calls_of(files: Iterable[Source], names: set[str]) -> int:
    """Counts the calls of functions and methods by their names."""
    calls = [node.func for file in files for node in ast.walk(file.tree) if isinstance(node, ast.Call)]
    return sum(ast.unparse(function).split(".")[-1] in names for function in calls)


def occurrences(files: Iterable[Source], pattern: re.Pattern[str]) -> int:
    """Counts how often a pattern is in the texts of files."""
    return sum(len(pattern.findall(file.text)) for file in files)


def lines_with(files: Iterable[Source], pattern: re.Pattern[str]) -> dict[str, int]:
    """Counts the lines that have a pattern, for each file that has one."""
    by_file = {file.name: sum(bool(pattern.search(line)) for line in file.text.splitlines()) for file in files}
    return {name: count for name, count in by_file.items() if count}


def ties(files: Sequence[Source]) -> dict[str, int]:
    """Counts what ties trusted code to texts, to variants and to the language."""
    inner, type_sets = trusted_files(files), lines_with(files, TYPE_SET)
    return {
        TIER_1_OTHERS: other_imports(tier_1(files), TIER_1_IMPORTS),
        LANGUAGE_IMPORTS: imports_of(inner, LANGUAGE),
        TEXT_CALLS: calls_of(files, readers_of_text(files, TAKEN_APART)),
        TEXT_TESTS: occurrences(inner, TEXT_TEST),
        TYPE_SETS: sum(type_sets.values()),
        TYPE_SET_FILES: len(type_sets),
        UNIT_CLASSES: classes_with(files, "unit_sql"),
        UNIT_WINDOWS: occurrences(inner, WINDOW),
        VARIANTS: occurrences(inner, VARIANT),
        JOB_TESTS: occurrences(files, JOB_TEST),
        PROTOCOLS: len(lines_with(files, PROTOCOL)),
    }


# Subjects: the number of stations that hold a part of one subject.

KNOWN_CLASS = re.compile(r"_?Known[A-Z]\w*")
"""Names of classes of known answers."""


def stations_of_known(files: Iterable[Source]) -> set[str]:
    """Returns the stations with a file, a folder or a class that is named after known answers."""
    return {
        file.station
        for file in files
        if "known" in file.name
        or any(isinstance(node, ast.ClassDef) and KNOWN_CLASS.fullmatch(node.name) for node in ast.walk(file.tree))
    }


# Words: phrases that make a reader stop, and names that say nothing about the value.

PHRASES = {
    WHAT_IS: re.compile(r"\b[Ww]hat (?:is|was|are|were|it|a|an|the|they|one|each|may|can|has|have|no)\b"),
    OF_IT: re.compile(r"\bof (?:these|it|them|those)\b"),
    WHOSE: re.compile(r"\b[Ww]hose\b"),
    SEMICOLONS: re.compile(";"),
}
PARTICIPLE = re.compile(
    r"_?[a-z]+ed(?:_[a-z]+)*|_*(?:found|made|held|told|said|taken|known|given|kept|written|shown|chosen|sent|read|drawn"
    r"|begun|lent|put|cut|built)_*"
)
VAGUE = ("one", "found")
BANNER = re.compile(r"\n\n\n(?:# [^\n]*\n)(?:#[^\n]*\n)*\n")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(files: Iterable[Source]) -> list[str]:
    """Lists the docstrings of modules, classes and functions."""
    nodes = [node for file in files for node in ast.walk(file.tree) if isinstance(node, DOCUMENTED)]
    return [text for node in nodes if (text := ast.get_docstring(node)) is not None]


def words(files: Sequence[Source]) -> dict[str, int]:
    """Counts phrases of docstrings, and names."""
    texts, nodes = docstrings(files), [node for file in files for node in ast.walk(file.tree)]
    total = max(sum(len(text.split()) for text in texts), 1)
    functions = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    bound = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    bound += [node.arg for node in nodes if isinstance(node, ast.arg)]
    classes = Counter(
        name for file in files for name in {node.name for node in ast.walk(file.tree) if isinstance(node, ast.ClassDef)}
    )
    phrases = {name: sum(len(pattern.findall(text)) for text in texts) for name, pattern in PHRASES.items()}
    return {
        **{name: round(10_000 * count / total) for name, count in phrases.items()},
        PARTICIPLES: sum(PARTICIPLE.fullmatch(name) is not None for name in functions),
        VAGUE_NAMES: sum(name in VAGUE for name in bound),
        SHARED_CLASSES: sum(count > 1 for count in classes.values()),
        BANNERS: sum(BANNER.search(file.text) is not None for file in files),
        TABLE_MAKERS: functions.count("create_tables"),
    }


# The calls that one plain count makes.

POLICY = (
    "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 10), DOMAIN sex IN ('F', 'M'))"
)
COUNT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = {}) sex, count(*) AS n FROM visits GROUP BY sex"


@dataclass(frozen=True)
class Trace:
    """Counts of the calls that some work makes. switches: calls into another module than the call before."""

    functions: int
    modules: int
    switches: int


def trace(work: Callable[[], object]) -> Trace:
    """Follows the calls of dpduck's functions that a piece of work makes."""
    calls: list[tuple[str, str, int]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)) and not code.co_name.startswith("<"):
            calls.append((code.co_filename, code.co_name, code.co_firstlineno))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    modules = [file for file, _, _ in calls]
    switches = sum(before != after for before, after in pairwise(modules))
    return Trace(len(set(calls)), len(set(modules)), switches)


def paths() -> dict[str, int]:
    """Counts the calls of a plain count, first new and then from the store. An earlier count fills the caches."""
    with dpduck.connect(config={"threads": 1}) as connection:
        connection.execute(
            "CREATE TABLE visits AS SELECT range // 4 AS patient, ['F', 'M'][1 + range % 2] AS sex FROM range(400)"
        )
        connection.execute("FROM dp(?)", [POLICY]).fetchall()

        def ask(epsilon: str) -> object:
            return connection.execute("FROM dp(?)", [COUNT.format(epsilon)]).fetchall()

        ask("0.5")
        new, stored = trace(lambda: ask("1")), trace(lambda: ask("1"))
    return {
        FUNCTIONS: new.functions,
        MODULES: new.modules,
        SWITCHES: new.switches,
        STORED_FUNCTIONS: stored.functions,
        STORED_MODULES: stored.modules,
    }


def counts() -> dict[str, int]:
    """Counts everything, a plain count too."""
    files = sources()
    known = {KNOWN_STATIONS: len(stations_of_known(files))}
    return {**sizes(files), **ties(files), **known, **words(files), **paths()}


def main() -> None:
    """Prints each count with its aim, in the order of the aims."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPDUCK_STATE_DIR"] = folder
        counted = counts()
    for name in [*AIMS, *(name for name in counted if name not in AIMS)]:
        aim = f" (aim: at most {AIMS[name]:,})" if name in AIMS else ""
        print(f"{name}: {counted[name]:,}{aim}")


if __name__ == "__main__":
    main()
