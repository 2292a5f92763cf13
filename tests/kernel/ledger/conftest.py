"""A store on disk that tests of the ledger open, close, copy and restore."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

from dpduck.kernel.ledger.ledger import Ledger
from dpduck.values.privacy import ZERO, Budget, Charge


class StorePlace:
    """A directory with a store, its secrets file, and a state directory that it may share with copies."""

    unit = "main.patients.id"
    pure = Budget(epsilon=Fraction(3), delta=ZERO, delta_keys=ZERO, rho=None)

    def __init__(self, directory: Path, state: Path) -> None:
        self.directory = directory
        self.state = state
        self.connection: duckdb.DuckDBPyConnection | None = None
        directory.mkdir(exist_ok=True)

    @property
    def secrets(self) -> Path:
        return self.directory / "clinic_secrets"

    @property
    def witness(self) -> Path:
        return next(self.state.glob("*.witness"))

    def attach(self) -> duckdb.DuckDBPyConnection:
        """Attaches the store to a new instance of DuckDB, and closes the instance before."""
        self.close()
        self.connection = duckdb.connect()
        self.connection.execute(f"ATTACH '{self.directory}/clinic_private.duckdb' AS private")
        return self.connection

    def open(
        self,
        *,
        steps: Callable[[str], None] = lambda name: None,
        witness: bool = True,
    ) -> Ledger:
        """Attaches the store and opens its ledger."""
        return Ledger.open(
            self.attach().cursor,
            "private",
            secrets_path=self.secrets,
            witness_directory=self.state if witness else None,
            steps=steps,
        )

    def adopt(self) -> Ledger:
        return Ledger.adopt(
            self.attach().cursor,
            "private",
            secrets_path=self.secrets,
            witness_directory=self.state,
            principal="owner",
            statement="restored from a backup",
        )

    def begin(self, charges: int = 3) -> Ledger:
        """Opens a ledger with a pure budget of 3 and some charges of 1/10 by alice."""
        ledger = self.open()
        ledger.declare_budget(self.unit, "visits", self.pure, "owner", "CREATE PRIVACY POLICY ON visits")
        for number in range(charges):
            self.charge(ledger, statement=f"statement {number}")
        return ledger

    def charge(self, ledger: Ledger, epsilon: Fraction = Fraction(1, 10), statement: str = "statement") -> int:
        return ledger.charge(self.unit, "visits", Charge.pure(epsilon), "alice", statement, "discrete Laplace")

    def sql(self, text: str) -> None:
        """Changes the closed store behind the ledger's back."""
        self.attach().execute(text)
        self.close()

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def files(self) -> list[Path]:
        return sorted(self.directory.glob("clinic_*"))

    def copy_to(self, directory: Path) -> StorePlace:
        """Copies the closed store with its secrets to another folder on the same machine."""
        self.close()
        other = StorePlace(directory, self.state)
        for path in self.files():
            shutil.copy2(path, directory / path.name)
        return other

    def restore_from(self, other: StorePlace, *, store: bool = True, secrets: bool = True) -> None:
        """Puts the files of another copy in place of its own."""
        self.close()
        other.close()
        for path in self.files() + other.files():
            if (path.name.startswith("clinic_secrets") and secrets) or ("private" in path.name and store):
                (self.directory / path.name).unlink(missing_ok=True)
        for path in other.files():
            if (path.name.startswith("clinic_secrets") and secrets) or ("private" in path.name and store):
                shutil.copy2(path, self.directory / path.name)


@pytest.fixture(scope="module")
def template_place(tmp_path_factory: pytest.TempPathFactory) -> StorePlace:
    """A closed store with a budget and four charges, to be copied by tests."""
    directory = tmp_path_factory.mktemp("template")
    place = StorePlace(directory / "clinic", directory / "state")
    place.begin(charges=4)
    place.close()
    return place


@pytest.fixture
def begun_place(template_place: StorePlace, tmp_path: Path) -> Iterator[StorePlace]:
    """A copied store with a budget and four charges, and with a witness of the copy alone."""
    shutil.copytree(template_place.directory, tmp_path / "clinic")
    shutil.copytree(template_place.state, tmp_path / "state")
    place = StorePlace(tmp_path / "clinic", tmp_path / "state")
    yield place
    place.close()


@pytest.fixture
def store_place(tmp_path: Path) -> Iterator[StorePlace]:
    """A place for a store that does not exist yet."""
    place = StorePlace(tmp_path / "clinic", tmp_path / "state")
    yield place
    place.close()
