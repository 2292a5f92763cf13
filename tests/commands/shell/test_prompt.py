"""The history of the owner's shell, and when it is asked for names again."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from dpduck.commands.owner_session import OwnerSession
from dpduck.commands.shell.loop import OwnerShell
from dpduck.commands.shell.prompt import HISTORY, completer, open_history

pytest.importorskip("prompt_toolkit", reason="prompt_toolkit is not installed")


def test_the_history_is_its_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is for one account, even if it was open before. It has the typed lines, and nothing else."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path))
    (tmp_path / HISTORY).touch(0o644)
    open_history().store_string("FROM ages;")
    assert stat.S_IMODE((tmp_path / HISTORY).stat().st_mode) == 0o600
    assert [line for line in (tmp_path / HISTORY).read_text("utf-8").splitlines() if line[:1] not in ("", "#")] == [
        "+FROM ages;"
    ]


def test_a_history_that_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A link to another file is not followed, and DPDUCK_STATE_DIR=none keeps no file."""
    other = tmp_path / "other"
    other.write_text("mine", "utf-8")
    (tmp_path / HISTORY).symlink_to(other)
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path))
    open_history().store_string("FROM ages;")
    assert capsys.readouterr().err == "the history is not kept: OSError in the state directory\n"
    assert other.read_text("utf-8") == "mine"
    monkeypatch.setenv("DPDUCK_STATE_DIR", "none")
    open_history().store_string("FROM ages;")
    assert capsys.readouterr().err == "" and other.read_text("utf-8") == "mine"


def test_names_are_read_again_after_a_change(clinic: Path) -> None:
    """A view that was just made is completed. Queries read no names again."""
    from prompt_toolkit.document import Document  # noqa: PLC0415

    asked = list[str]()
    with OwnerSession(clinic, None) as session:
        shell = OwnerShell(session, "csv")
        ask = session.ask

        def counting(function: str, argument: str | None) -> Any:
            asked.append(function)
            return ask(function, argument)

        session.ask = counting  # type: ignore[method-assign]
        offers = completer(shell)

        def offered(text: str) -> list[str]:
            return [found.text for found in offers.get_completions(Document(text), None)]

        assert offered("FROM ma") == [] and offered("FROM ag") == ["ages"]
        shell.execute("SELECT 1;")
        assert offered("FROM ag") == ["ages"] and asked.count("dp_columns") == 1
        made = "CREATE PRIVATE VIEW made OPTIONS (epsilon = 0.1) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex;"
        shell.execute(made)
        assert offered("FROM ma") == ["made"] and asked.count("dp_columns") == 2
