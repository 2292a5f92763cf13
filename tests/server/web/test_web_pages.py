"""The page's content: views with pictures, prices before they are paid, shares. The command that serves it."""

from __future__ import annotations

import html
import http.client
import json
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest

from dpduck.publish.pictures import PictureKey, Shape
from dpduck.server.clients import desk
from dpduck.server.clients.desk import PageAnswer
from dpduck.server.limits import Limits
from dpduck.server.web import drawing, markup
from dpduck.server.web.asking import answer_shape
from dpduck.server.web.drawing import Artist
from dpduck.server.web.listener import WebListener
from tests.server.served import WRONG_CASTS, Served, add_principals, certificate, make_clinic, serving_flight
from tests.server.web.client import Browser
from tests.support.clinics import by
from tests.support.ports import free_port


@pytest.mark.slow
def test_private_views_are_browsed(alice: Browser) -> None:
    """The list describes each view. A view has its price, its rows, its columns, its promise, and its picture."""
    home = alice.get("/")
    assert 'href="/view/ages"' in home.body and "n by age." in home.words
    assert "all rows of one patient: epsilon = 10" in home.words and "your share of 50%" in home.words
    view = alice.get("/view/ages")
    for words in ("It cost  epsilon = 1", "a key, whose values are public", "n_stderr", "neighbours",
                  "standard error of n", "With this view alone, a guess is right at most 74 of 100 times"):  # fmt: skip
        assert words in view.words
    pytest.importorskip("vl_convert", reason="vl-convert is not installed")
    assert 'role="img" aria-label="n by age, and 2 standard errors to each side"' in view.body


def test_every_statement_passes_the_gate_and_is_noted(served: Served, alice: Browser) -> None:
    """A page's reads are asked as its principal, by the gate, as any client's statement: the audit log has them all."""
    before = len(served.audited())
    alice.get("/view/ages")
    noted = [line for line in served.audited()[before:] if line["event"] == "answered"]
    assert {line["principal"] for line in noted} == {"alice"}
    assert 'FROM "ages"' in [line["statement"] for line in noted]
    priced = alice.ask(by("age", "0.013"))
    alice.pay(priced)
    assert [line["principal"] for line in served.audited() if line["event"] == "charged"][-1] == "alice"


def test_the_price_names_errors_and_what_is_left(served: Served, alice: Browser) -> None:
    """For a SELECT, a view, a statement paid before, one without room, and one that drops a view."""
    spent = served.spent()
    first = alice.ask(f"{by('ward', '0.25')};")
    assert "(epsilon = 0.25) , and " in first.words and " % of your budget will remain" in first.words
    assert "typical standard error" in first.words and "Pay 5 % of your budget (epsilon = 0.25), and run" in first.words
    assert "within 45.2 of the truth" in first.words, "two standard errors of Laplace noise at 4 rows a patient"
    made = alice.ask(
        "CREATE PRIVATE VIEW mine OPTIONS (epsilon = 0.3) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex"
    )
    assert "% of your budget (epsilon = 0.3), and run" in made.words and served.spent() == spent
    link = 'href="/view/mine"'
    assert link not in alice.get("/").body
    assert "The answer" in alice.pay(made).words and link in alice.get("/").body
    again = alice.ask(
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.3) sex, count(*) AS n FROM visits GROUP BY sex"
    )
    assert "free: it is paid for already" in again.words and "Run: nothing is charged" in again.words
    dear = alice.ask(by("ward", "4.99"))
    assert "more than is left to you" in dear.words and 'class="pay"' not in dear.body
    gone = alice.ask("DROP PRIVATE VIEW mine")
    assert "The answer" in alice.pay(gone).words and link not in alice.get("/").body


def test_what_is_free_is_answered_at_once(served: Served, alice: Browser) -> None:
    """Views, budgets, known answers, DESCRIBE: no button. A dp() inside a SELECT is priced as it is by itself."""
    spent = served.spent()
    for text, words in (
        ("SELECT ward, n FROM ward_cube WHERE sex = 0", "w0"), ("FROM dp_budget()", "visits"),
        ("SELECT age, count(*) AS n FROM visits GROUP BY age", "known_from"), ("DESCRIBE visits", "column_name"),
    ):  # fmt: skip
        answer = alice.ask(text)
        assert "The answer" in answer.words and words in answer.words and 'class="pay"' not in answer.body
    inside = alice.ask(f"SELECT max(n) FROM dp($$ {by('sex', '0.017')} $$)")
    assert "% of your budget (epsilon = 0.017), and run" in inside.words and served.spent() == spent


def test_principals_see_what_is_theirs(served: Served, port: int) -> None:
    """Carol may ask about another table: no budget, no policy and no column of visits is on her pages."""
    carol = Browser(port)
    carol.login(served.tokens["carol"])
    page, ask = carol.get("/"), carol.get("/ask")
    assert "of 5 spent" not in page.words and "Nothing yet." in page.words
    assert 'value="patient"' not in ask.body and 'value="region"' in ask.body
    refused, same = carol.ask(by("sex")).words, served.refused("carol", f"FROM dp($$ {by('sex')} $$)")
    assert same.partition("; accepted")[0][1:] in refused


def test_large_answers_are_cut(alice: Browser) -> None:
    """So many rows, columns and letters on a page, and it says so."""
    letters = "x" * 5_000
    columns = ", ".join(f"{one} AS c{one}" for one in range(100))
    wide = alice.ask(f"SELECT {columns}, n FROM ages")
    assert "41 more columns are not shown" in wide.words
    assert 'class="number">c59<' in wide.body and ">c60<" not in wide.body
    long = alice.ask(f"SELECT '{letters}' AS z FROM ages")
    assert f"<td>{letters[:1_000]}</td>" in long.body
    assert "The first 300 of 3,000 rows" in alice.ask("FROM range(3000)").words
    many = alice.ask("SELECT a.n FROM ages a, ages b, ages c, ages d")
    assert "The first 300 of more than 5,000 rows" in many.words and len(many.body) < 100_000


def test_no_value_is_large_before_it_is_pythons(alice: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists, structs, maps, bytes and texts come as a thousand letters of text. Rows stop at so many bytes."""
    taken: list[int] = []
    values = desk._values

    def watched(column: pa.Array, kind: str) -> list[Any]:
        assert not pa.types.is_nested(column.type) and not pa.types.is_binary(column.type), column.type
        taken.append(column.nbytes)
        return values(column, kind)

    monkeypatch.setattr(desk, "_values", watched)
    nested = "SELECT list({'a': 1::TINYINT}) AS x, [true] AS y, MAP {'a': 1} AS m, 'x'::BLOB AS b FROM range(50000)"
    answer = alice.ask(nested)
    assert "<td>[{'a': 1}, {'a': 1}, " in html.unescape(answer.body) and len(answer.body) < 20_000
    assert max(taken) < 5_000, "what came was cut already"
    taken.clear()
    wide = ", ".join(f"'{str(one % 10) * 900}' AS c{one}" for one in range(20))
    assert "of more than" in alice.ask(f"SELECT {wide} FROM range(3000)").words
    assert sum(taken) < 2 * desk.MOST_BYTES
    assert "The answer" in alice.ask("SELECT {'a': n, 'b': [n]} AS s, n::VARCHAR AS t FROM ages").words, "a stream, too"


def test_odd_values_are_shown_as_text(alice: Browser) -> None:
    """Days beyond Python's, infinity, 39 digits, moments of every kind: as DuckDB writes them."""
    odd = (
        "SELECT DATE '290000-01-01' AS a, TIMESTAMP 'infinity' AS b, DATE '2026-01-02' AS c, 1e308 AS i, NULL AS j, "
        "170141183460469231731687303715884105727::HUGEINT AS d, TIMESTAMP_NS '2026-01-02 03:04:05.123456789' AS e, "
        "TIMESTAMP '2026-01-02 03:04:05.5' AS f, INTERVAL 1000000000 MONTH AS g, TIME '10:00' AS h, [1, 2] AS k"
    )
    body = alice.ask(odd).body
    for cell in ("290000-01-01", "infinity", "2026-01-02", "2026-01-02 03:04:05.123456789", "10:00:00", "[1, 2]"):
        assert f"<td>{cell}</td>" in body, (cell, body[-2000:])
    assert "170,141,183,460,469,231,731,687,303,715,884,105,727" in body


def test_names_are_written_as_a_statement_has_them(served: Served, port: int, alice: Browser) -> None:
    """Plain names as they are, others in quotes."""
    assert '<option value="patient">BIGINT of visits</option>' in alice.get("/ask").body
    listener = WebListener(f"127.0.0.1:{free_port()}", served.service, Limits())
    written = [listener._pages._quote_name(name) for name in ("n", "select", "two words", 'a"b')]
    listener.close()
    assert written == ["n", '"select"', '"two words"', '"a""b"']


@pytest.mark.parametrize(
    ("columns", "types", "shape"),
    [
        (("sex", "n"), ("VARCHAR", "BIGINT"), (("sex",), (("n", None),))),
        (("age", "n", "n_stderr"), ("BIGINT", "BIGINT", "DOUBLE"), (("age",), (("n", "n_stderr"),))),
        (("age", "n", "dp_stderr(n)"), ("BIGINT", "HUGEINT", "DOUBLE"), (("age",), (("n", "dp_stderr(n)"),))),
        (("sex", "n", "stderr", "interval_low", "known_from"), ("VARCHAR", "DOUBLE", "DOUBLE", "DOUBLE", "VARCHAR"),
         (("sex",), (("n", "stderr"),))),
        (("sex",), ("VARCHAR",), ((), ())), ((), (), ((), ())),
    ],
)  # fmt: skip
def test_answers_are_told_from_keys(columns: tuple[str, ...], types: tuple[str, ...], shape: tuple[Any, Any]) -> None:
    """By the names that views, dp_stderr and dp_known give to errors, whatever the types of keys."""
    found = answer_shape(PageAnswer(columns, types, ()))
    assert (found.names, found.answers) == shape


# Pictures come from a process that may be ended.


def test_pictures_have_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture that takes too long is dropped, its process ends, and the next one is drawn."""
    pytest.importorskip("vl_convert", reason="vl-convert is not installed")
    artist = Artist()
    point: Mapping[str, Any] = {"mark": "point", "data": {"values": [{"a": 1}]}, "encoding": {"x": {"field": "a"}}}
    assert "<svg" in (artist.picture("alice", point) or "")
    assert artist.picture("alice", {"mark": "nonsense"}) is None
    monkeypatch.setattr(drawing, "_CHILD", "import time; time.sleep(100)")
    monkeypatch.setattr(drawing, "SECONDS", 0.2)
    assert artist._process is not None
    artist._process.process.kill()
    assert artist.picture("bob", point) is None and "<svg" in (artist.picture("alice", point) or ""), "what is known"
    monkeypatch.undo()
    assert artist.picture("bob", point) is None, "what failed is not tried again"
    assert "<svg" in (artist.picture("carol", point) or "")
    artist.close()
    assert artist.picture("dora", point) is None


def test_the_process_that_draws_may_do_little(tmp_path: Path) -> None:
    """No file is written, few are open, no core is left. References of a picture to other places are not fetched."""
    pytest.importorskip("vl_convert", reason="vl-convert is not installed")
    artist, port = Artist(), free_port()
    point: dict[str, Any] = {"mark": "point", "data": {"values": [{"a": 1}]}, "encoding": {"x": {"field": "a"}}}
    assert "<svg" in (artist.picture("alice", point) or "") and artist._process is not None
    for limit, most in (
        (resource.RLIMIT_NOFILE, drawing.OPEN_FILES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        assert resource.prlimit(artist._process.process.pid, limit) == (most, most)
    with socket.create_server(("127.0.0.1", port)) as elsewhere:
        assert artist.picture("alice", point | {"data": {"url": f"http://127.0.0.1:{port}/x.json"}}) is None
        elsewhere.setblocking(False)
        with pytest.raises(BlockingIOError):
            elsewhere.accept()
    assert "<svg" in (artist.picture("bob", point) or "")
    artist.close()


class Watched(Artist):
    """Draws nothing, and records the requests."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._able = True

    def _draw(self, line: str) -> str | None:
        self.lines.append(line)
        return None


def test_pictures_are_few_and_short_and_failures_are_remembered() -> None:
    """Six a page, labels cut but not mixed up, none after the page's time, and no second try of a failed one."""
    columns = ("key", *(f"{'n' * 1_000}{one}" for one in range(20)))
    rows = tuple((f"{'x' * 1_000}{row}", *range(20)) for row in range(5))
    answer = PageAnswer(columns, ("VARCHAR", *["BIGINT"] * 20), rows)
    artist, shape = Watched(), Shape((PictureKey("key"),), tuple((name, None) for name in columns[1:]))
    for _ in range(2):
        markup.render_answer(answer, shape, "it", artist, "alice")
    assert len(artist.lines) == markup.MOST_PICTURES
    spec = json.loads(artist.lines[0])
    keys = {point["key"] for point in spec["data"]["values"]}
    assert len(keys) == 5 and max(map(len, keys)) <= markup.MOST_LABEL and len(artist.lines[0]) < 8_000
    assert artist.picture("alice", {"mark": "new"}, time.monotonic() - 1) is None
    assert len(artist.lines) == markup.MOST_PICTURES and all(len(digest) == 32 for _, digest in artist._remembered)


def test_a_browser_that_is_gone_ends_its_statement(served: Served, port: int, alice: Browser) -> None:
    """As over the other protocols: what runs over released tables ends, its place is free again."""
    text = "SELECT count(*) FROM ages a, ages b, ages c, ages d, ages e, ages f, ages g, ages h, ages i, ages j"
    form = alice.form(alice.get("/ask"), statement=text)
    worker = threading.Thread(target=lambda: _abandoned(alice, form), daemon=True)
    worker.start()
    worker.join(20)
    start = time.monotonic()
    while "the client gave the statement up" not in served.log.read_text(encoding="utf-8"):
        assert time.monotonic() - start < 20
        time.sleep(0.1)


def _abandoned(browser: Browser, form: Mapping[str, str]) -> None:
    """Sends a form, and hangs up before it is answered."""
    host = f"127.0.0.1:{browser.port}"
    client = http.client.HTTPConnection(host, timeout=60)
    kind = "application/x-www-form-urlencoded"
    headers = {"Origin": f"http://{host}", "Cookie": browser.cookie, "Content-Type": kind}
    client.request("POST", "/ask", urlencode(form), headers)
    time.sleep(1.0)
    client.close()


# The command.


@pytest.mark.slow
def test_the_command_serves_the_page_over_tls(tmp_path: Path, own_state: Path) -> None:
    """dpduck serve --web prints the address. Over TLS the cookie is Secure. A stop ends all, page included."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    database, port = make_clinic(tmp_path), free_port()
    token = add_principals(database)["alice"]
    public, private = certificate(tmp_path)
    words = ("--web", f"localhost:{port}", "--tls-certificate", str(public), "--tls-key", str(private))
    with serving_flight(database, *words) as address:
        assert address == f"https://localhost:{port}"
        context = ssl.create_default_context(cafile=str(public))
        client = http.client.HTTPSConnection(f"localhost:{port}", timeout=60, context=context)
        form = {"Origin": address, "Content-Type": "application/x-www-form-urlencoded"}
        client.request("POST", "/login", urlencode({"token": token}), form)
        kept = client.getresponse().headers["Set-Cookie"]
        assert kept.startswith(f"__Host-dpduck_{port}=") and "; Secure" in kept
        client.request("GET", "/", headers={"Cookie": kept.partition(";")[0]})
        page = client.getresponse().read().decode()
        client.close()
        assert "Private views" in page and token not in page
    log = tmp_path / "clinic_private_audit.jsonl"
    assert json.loads(log.read_text(encoding="utf-8").splitlines()[0])["event"] == "connected"


def test_the_command_refuses_to_be_heard_elsewhere(tmp_path: Path, own_state: Path) -> None:
    """In one line, with what to type instead."""
    command = [
        sys.executable,
        "-m",
        "dpduck.commands.command_line",
        "serve",
        str(make_clinic(tmp_path)),
        "--listen",
        "none",
    ]
    done = subprocess.run([*command, "--web", "0.0.0.0:8080"], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 1 and done.stderr == (
        "Error: tokens would travel in the clear; accepted: 127.0.0.1, --tls-certificate with --tls-key, or behind a "
        "proxy --web-origin https://NAME\n"
    )


@pytest.mark.parametrize("sql", WRONG_CASTS)
def test_wrong_casts_are_refused_in_one_line(alice: Browser, sql: str) -> None:
    """The page shows no text of DuckDB with several lines, which would mark a place in the statement."""
    words = alice.ask(sql).words
    said = words[words.index("what is free is answered at once.") : words.index("Examples")]
    assert "Accepted:" in said and "LINE 1" not in said and "^" not in said and "Conversion Error" not in said
