"""The installed files are the intended ones: the wheel, its dependencies, the lock files."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("runtime", "build", "development", "duckdb2", "dbt")
RUNTIME_DEPENDENCIES = {"duckdb", "numpy", "scipy", "pyarrow", "sqlglot", "threadpoolctl", "click"}


def pins(lock: str) -> dict[str, str]:
    """The pinned versions of one lock file."""
    text = (ROOT / "requirements" / f"{lock}.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)(?:\[[a-z]+\])?==([^\s;]+)", text, flags=re.MULTILINE))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built with the pinned backend."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_product_and_its_sql(wheel: Path) -> None:
    """Modules, SQL, the served page, macros of dbt, tables of designs, the mark of types and the licence: no tests."""
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        info = {name.split(".dist-info/")[1] for name in archive.namelist() if ".dist-info/" in name}
        entry_points = archive.read(next(n for n in archive.namelist() if n.endswith("entry_points.txt"))).decode()
    product = {str(path.relative_to(ROOT)) for path in (ROOT / "dpduck").rglob("*.py")}
    sql = {f"dpduck/{path.relative_to(ROOT)}" for path in (ROOT / "sql").rglob("*") if path.is_file()}
    assert "dpduck/sql/README.md" in held
    page = {f"dpduck/server/web/{name}" for name in ("page.css", "page.js", "icon.svg")}
    dbt = {str(path.relative_to(ROOT)) for path in (ROOT / "dpduck" / "dbt" / "package").rglob("*") if path.is_file()}
    assert "dpduck/dbt/package/macros/private_view.sql" in held
    assert held == product | sql | page | dbt | {"dpduck/py.typed", "dpduck/strategies/views/designs.npz"}
    assert "licenses/LICENSE" in info
    assert "dpduck = dpduck.commands.command_line:run" in entry_points


def test_the_wheel_depends_on_what_earned_its_place(wheel: Path) -> None:
    """A further run-time dependency must earn its place, and then it is added here."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    listed = metadata.get_all("Requires-Dist", [])
    required = {re.split(r"[^A-Za-z0-9._-]", line)[0] for line in listed if "extra ==" not in line}
    assert required == RUNTIME_DEPENDENCIES
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_file_pins_with_hashes_and_names_no_place(lock: str) -> None:
    """Each line is one pin or one hash. No index, host or path, so the file means the same everywhere."""
    lines = (ROOT / "requirements" / f"{lock}.lock").read_text(encoding="utf-8").splitlines()
    pin = re.compile(r"[a-z0-9-]+(\[[a-z]+\])?==[0-9][0-9a-z.]*( ; [^/:@\\]+)? \\")
    digest = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")
    assert [line for line in lines if not pin.fullmatch(line) and not digest.fullmatch(line)] == []
    hashed = [following.startswith("    --hash=") for line, following in pairwise(lines) if "==" in line]
    assert hashed and all(hashed)


def test_the_lock_files_agree() -> None:
    """One version of everything in every environment, but for the DuckDB under test."""
    development = pins("development")
    assert set(pins("runtime")) == RUNTIME_DEPENDENCIES
    assert pins("runtime").items() | pins("build").items() <= development.items()
    second = pins("duckdb2")
    assert (development["duckdb"], second.pop("duckdb")) == ("1.5.5", "2.0.1")
    assert second.items() <= development.items()


def test_the_lock_files_answer_to_the_project() -> None:
    """Whatever pyproject.toml names is pinned, and exact versions there are the ones pinned."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    spark = pins("spark")
    assert all(spark[re.split(r"[\[=<>]", entry)[0]] for entry in groups.pop("spark") if isinstance(entry, str))
    assert all(pins("rehearsal")[entry] for entry in groups.pop("rehearsal"))
    extras_of = project["project"]["optional-dependencies"]
    assert {re.split("[<>=]", entry)[0] for entry in extras_of.pop("dbt")} <= set(pins("dbt"))
    groups.pop("dbt")
    named = [entry for group in groups.values() for entry in group if isinstance(entry, str)]
    development = pins("development")
    extras = [entry for extra in extras_of.values() for entry in extra]
    for requirement in [*named, *extras, *project["project"]["dependencies"]]:
        name, _, exact = requirement.partition("==")
        name = re.split(r"[<>=\[]", name)[0].replace("_", "-")
        assert name in development
        assert not exact or development[name] == exact


def test_two_builds_have_one_hash(tmp_path: Path) -> None:
    """A wheel and an sdist are functions of the sources and SOURCE_DATE_EPOCH: anybody can build them again."""
    hashes = []
    for name in ("first", "second"):
        copied = tmp_path / name
        for part in ("dpduck", "sql"):
            shutil.copytree(ROOT / part, copied / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / part, copied / part)
        command = [sys.executable, "-m", "hatchling", "build", "--directory", str(tmp_path / f"{name}_dist")]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
        subprocess.run(command, cwd=copied, check=True, capture_output=True, stdin=subprocess.DEVNULL, env=environment)
        built = sorted((tmp_path / f"{name}_dist").iterdir())
        hashes.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in built})
    assert [name.rpartition(".")[2] for name in hashes[0]] == ["whl", "gz"]
    assert hashes[0] == hashes[1]


def test_what_is_supported_is_bounded() -> None:
    """DuckDB 3 is not accepted before it was tried, and the hosted CI runs what everybody runs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "duckdb>=1.5.5,<3" in project["dependencies"]
    assert "run: .ci/run" in (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")


def test_extras_are_installed_from_a_clone() -> None:
    """No registry of packages has dpduck, so "pip install 'dpduck[..]'" would find nothing."""
    texts = [path for folder in ("dpduck", "docs", "sql", "site") for path in (ROOT / folder).rglob("*")]
    texts = [path for path in (*texts, ROOT / "README.md") if path.suffix in (".py", ".md", ".sql")]
    assert len(texts) > 300
    assert [path.name for path in texts if re.search(r"dpduck\[\w+\]'", path.read_text("utf-8"))] == []
