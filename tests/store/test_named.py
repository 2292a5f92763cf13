"""One lifecycle of names: given once, returned to the same statement, refused to others, and dropped once."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from dpduck.language.statements.kinds import HISTOGRAM, PROJECTION, SESSION, TABLE, VIEW, DropPrivate
from dpduck.store.cursors import Caller
from dpduck.store.named import PrivateNames
from dpduck.values.errors import PermissionRefusal, Refusal

ALICE, BOB, OWNER = Caller("alice", owner=False), Caller("bob", owner=False), Caller("owner", owner=True)


@dataclass(frozen=True)
class Thing:
    """A private object without contents."""

    name: str
    kind: str
    statement: str
    principal: str
    digest: str = "d"


@dataclass
class Things:
    """Names of things, as a store keeps them."""

    kept: dict[str, Thing] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = PrivateNames[Thing](
            lambda name: self.kept.get(name.lower()), lambda thing: thing.kind,
            self._remove, "dp_things()", lambda: list(self.kept),
        )  # fmt: skip

    def _remove(self, thing: Thing) -> None:
        del self.kept[thing.name.lower()]

    def create(self, name: str, text: str, caller: Caller, kind: str = SESSION) -> Thing:
        """Creates a thing, as a statement does."""

        def make() -> None:
            self.kept[name.lower()] = Thing(name, kind, text, caller.name)

        return self.names.create(name, text, caller, "d", make)

    def drop(self, name: str, caller: Caller, kind: str = SESSION, if_exists: bool = False) -> str:
        """Drops a thing by the text of a DROP."""
        return self.names.drop(DropPrivate(kind, name, if_exists), f"DROP {name}", caller)


def test_a_name_is_given_once() -> None:
    """The same statement of the same caller gets its object again. Any other statement is refused."""
    things = Things()
    made = things.create("Ages", "one", ALICE)
    assert things.create("ages", "one", ALICE) is made
    for text, caller in (("another", ALICE), ("one", BOB), ("one", OWNER)):
        with pytest.raises(Refusal, match="the name 'Ages' is taken; accepted: DROP PRIVATE SESSION, or another name"):
            things.create("AGES", text, caller)
    for name in ("release_1", "dpduck_x", "a b", "1a", "a" * 101):
        with pytest.raises(Refusal, match="accepted: up to 100 letters"):
            things.create(name, "one", ALICE)
    assert list(things.kept) == ["ages"]


def test_a_drop_is_repeated_until_its_name_is_given_again() -> None:
    """DuckDB binds a DROP more than once. Names that others get in between change nothing."""
    things = Things()
    things.create("ages", "one", ALICE)
    done = things.drop("ages", ALICE)
    assert done == "ages is dropped; its budget stays spent"
    things.create("other", "two", BOB)
    assert things.drop("ages", ALICE) == done
    with pytest.raises(Refusal, match=r"no private session 'ages'; accepted: a name of dp_things\(\), or IF EXISTS"):
        things.drop("ages", BOB)
    assert things.drop("ages", BOB, if_exists=True) == "there was no such session"
    things.create("ages", "three", ALICE)
    things.kept.clear()
    with pytest.raises(Refusal, match="there is no private session"):
        things.drop("ages", ALICE)


def test_a_drop_is_of_the_kind_that_it_names() -> None:
    """DROP of another kind than the name's is refused, also with IF EXISTS. Views, tables and projections are alike."""
    things = Things()
    for kind in (HISTOGRAM, PROJECTION, VIEW):
        things.create(kind, "one", ALICE, kind)
    for kind, name in ((SESSION, HISTOGRAM), (PROJECTION, VIEW), (VIEW, HISTOGRAM)):
        with pytest.raises(Refusal, match=f"is a private {name}; accepted: DROP PRIVATE {name.upper()}"):
            things.drop(name, ALICE, kind, if_exists=True)
    things.drop(VIEW, ALICE, TABLE)
    things.drop(PROJECTION, ALICE, VIEW)
    assert list(things.kept) == [HISTOGRAM]


def test_a_drop_is_its_makers_and_the_owners() -> None:
    """Only the maker of an object and the owner may drop it."""
    things = Things()
    things.create("ages", "one", ALICE)
    with pytest.raises(
        PermissionRefusal, match="the private session 'ages' belongs to somebody else; accepted: one of your own"
    ):
        things.drop("ages", BOB)
    assert things.drop("ages", OWNER).startswith("ages is dropped")
