"""Pages for logged-in principals: private views, and questions with their price and errors before any payment.

Only a form reaches a page that charges. The form works once, for the session that was shown the price of exactly this
statement, and charges that price at most.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path

import duckdb

from dpduck.publish.view_section import caption_of, single_numbers
from dpduck.publish.words import ABOUT, HOW_TO_READ, costs, guesses
from dpduck.server.clients.desk import Desk, PageAnswer, PageStatement, Prices, is_charged, is_paid
from dpduck.server.gate import UNEXPECTED, Service, owner_of
from dpduck.server.limits import Limits, Places
from dpduck.server.principals import Principal, hash_token
from dpduck.server.sessions import Sessions
from dpduck.server.web.asking import Offers, answer_shape, has_seal, is_offer, names_of, seal, view_shape
from dpduck.server.web.beside import History, beside
from dpduck.server.web.cards import BY_ANALYST, OWNER, cards, views_of
from dpduck.server.web.drawing import Artist
from dpduck.server.web.files import file_of, file_sql
from dpduck.server.web.identity import NO_PRINCIPAL, SIGNED_OUT, TrustedProxy
from dpduck.server.web.markup import (
    Html,
    budgets,
    element,
    header,
    hidden,
    in_order,
    ledger,
    login_form,
    more,
    odds_of_price,
    page,
    pictures,
    price,
    promises,
    refusal,
    render_answer,
    render_price,
    table,
    total,
    welcome,
)
from dpduck.server.web.requests import REFUSED, PageHosts, PageRequest, Response, new_nonce, set_cookie
from dpduck.server.web.rows import FILE_BYTES, FILES, render_rows, wish_of
from dpduck.store.cursors import DEARER, NamedLocks
from dpduck.values.errors import BusyRefusal, DpduckError, PermissionRefusal, Refusal, StoreError
from dpduck.values.odds import BLIND, times_of_100
from dpduck.values.quoting import fold, quote_identifier, quote_text

LIFE, IDLE = 4 * 3600.0, 20 * 60.0
"""The longest times of a session in seconds, since its start and since its last use."""

SESSIONS, SESSIONS_EACH = 2_000, 20
WRONG_TOKEN_SECONDS = 1.0
AT_WORK_EACH = 8
"""The largest number of requests of one principal at the same time."""

FILE_SECONDS = 60.0
"""The longest time in seconds that a file waits for the files of others."""

MOST_NAMES, MOST_PAID = 5_000, 200
NOT_AS_SHOWN = "The price, or what it buys, is not what you were shown. Nothing was charged; this is what it is now."
CHARGED = "What was charged is paid for: the same statement again is free."
_KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_VIEW_NAME = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)\.(?P<kind>csv|parquet)")


@dataclass(frozen=True)
class _Visit:
    request: PageRequest
    principal: Principal
    desk: Desk
    form_token: str


class Pages:
    """Pages of one server. Many threads may use it."""

    def __init__(
        self,
        service: Service,
        limits: Limits,
        place: PageHosts,
        cookie: str,
        title: str = "",
        proxy: TrustedProxy | None = None,
    ) -> None:
        """place: the hosts of the page. cookie: the name of the session's cookie. title: the owner's title.

        proxy: the proxy that may state who a browser's user is, None for no proxy.
        """
        self._title, self.proxy = title, proxy
        self.place, self.cookie = place, f"__Host-{cookie}" if place.secure else cookie
        self._service, self._limits = service, limits
        few = replace(limits, sessions=SESSIONS, sessions_each=SESSIONS_EACH)
        self._sessions = Sessions(service.book, few, life=LIFE, idle=IDLE)
        self._artist, self._offers, self._pressed, self._history = Artist(), Offers(), NamedLocks(), History()
        self._lock, self._at_work = threading.Lock(), Counter[str]()
        self._filing = Places(1, 1)  # one file at a time: several would need much memory
        with duckdb.connect() as parser:  # an empty database, which knows the reserved words
            words = parser.execute("SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category = 'reserved'")
            self._reserved = {word for (word,) in words.fetchall()}
        self._key = secrets.token_bytes(32)
        folder = Path(__file__).parent
        self._files = {
            f"/{name}": Response(HTTPStatus.OK, (folder / name).read_bytes(), _KINDS[name.rpartition(".")[2]])
            for name in ("page.css", "page.js", "icon.svg")
        }

    def close(self) -> None:
        self._artist.close()
        self._filing.close()

    def knows(self, request: PageRequest) -> bool:
        """Tells whether the sender has logged in. The forms of other senders may have LOGIN_BYTES at most."""
        return self._principal(request) is not None

    def answer(self, request: PageRequest, pause: Callable[[float], None]) -> Response:
        """Returns the page for a request. pause: makes a client with a wrong token wait for some seconds."""
        try:
            if request.method == "GET" and request.path in self._files:
                return self._files[request.path]
            if request.claim.why:
                self._service.audit.note(None, "turned away", why=request.claim.why)
            if request.claim.malformed:
                self._principal(request)  # ends a session of an identity, which this request does not state
                return _message(NO_PRINCIPAL, HTTPStatus.FORBIDDEN)
            if (request.method, request.path) == ("POST", "/login"):
                return _to("/") if request.claim.identity else self._login(request, pause)
            handler = self._route(request)
            if handler is None:
                return REFUSED
            principal = self._principal(request)
            if principal is None and request.claim.identity:
                return self._enter(request, handler)
            if principal is None:
                return self._login_page() if request.method == "GET" else _to("/")
            with self._turn(principal.name):
                return handler(self._visit(request, principal))
        except DpduckError as error:
            return _message(str(error), _status(error, HTTPStatus.BAD_REQUEST))
        except Exception:  # its text could quote data that is not the caller's
            return _message(UNEXPECTED, HTTPStatus.BAD_REQUEST)

    @contextmanager
    def _turn(self, name: str) -> Iterator[None]:
        """Counts a request of a principal as running until the block ends. Refuses a request beyond AT_WORK_EACH."""
        with self._lock:
            if self._at_work[name] >= AT_WORK_EACH:
                raise BusyRefusal("too many pages at once", accepted=f"{AT_WORK_EACH} at a time")
            self._at_work[name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._at_work[name] -= 1

    def _route(self, request: PageRequest) -> Callable[[_Visit], Response] | None:
        pages = {
            ("GET", "/"): self._home, ("GET", "/ask"): self._ask, ("POST", "/ask"): self._ask,
            ("POST", "/run"): self._run, ("POST", "/logout"): self._logout,
        }  # fmt: skip
        if request.method == "GET" and request.path.startswith("/view/") and len(request.path) > len("/view/"):
            return self._view
        return pages.get((request.method, request.path))

    def sessions(self) -> int:
        """Counts the sessions of browsers."""
        return self._sessions.count()

    def _principal(self, request: PageRequest) -> Principal | None:
        try:
            if not request.session:
                return None
            return self._sessions.principal(hash_token(request.session), request.claim.identity)
        except PermissionRefusal:
            return None

    def _enter(self, request: PageRequest, handler: Callable[[_Visit], Response]) -> Response:
        """Begins a session of the identity that the proxy states, and returns the page with the session's cookie.

        It is not sent elsewhere first: after a login at another site, browsers would come back without the cookie.
        """
        principal = self._service.book.find_identity(request.claim.identity)
        if principal is None:
            why = f"no principal has the identity {request.claim.identity}"
            self._service.audit.note(None, "turned away", why=why)
            return _message(NO_PRINCIPAL, HTTPStatus.FORBIDDEN)
        if request.method != "GET" or not request.claim.navigates:  # its form is of a session that has ended
            return _to("/")
        session = secrets.token_urlsafe(32)
        self._sessions.enter(hash_token(session), principal, request.claim.identity)
        self._service.audit.note(principal.name, "connected")
        with self._turn(principal.name):
            response = handler(self._visit(replace(request, session=session), principal))
        return replace(response, headers=(*response.headers, set_cookie(self.cookie, session, self.place)))

    def _visit(self, request: PageRequest, principal: Principal) -> _Visit:
        form_token, given = seal(self._key, request.session), request.form.get("form_token", "")
        if request.method == "POST" and not has_seal(self._key, request.session, given):
            raise PermissionRefusal("this form is of another session", accepted="the page again, and the form on it")
        return _Visit(request, principal, Desk(self._service, principal, request.gone), form_token)

    def _login(self, request: PageRequest, pause: Callable[[float], None]) -> Response:
        session, token = secrets.token_urlsafe(32), request.form.get("token", "").strip()
        try:
            principal = self._sessions.begin(hash_token(session), token) if token else None
        except Refusal as error:
            self._service.audit.note(None, "turned away", why=str(error))
            return self._login_page(str(error), _status(error, HTTPStatus.FORBIDDEN))
        if principal is None:
            self._service.audit.note(None, "turned away", why="no such token")
            pause(WRONG_TOKEN_SECONDS)
            said = "no such token; accepted: one that dpduck principal add printed, and that is in force"
            return self._login_page(said, HTTPStatus.FORBIDDEN)
        self._service.audit.note(principal.name, "connected")
        if request.session:
            self._end(request)
        return _to("/", set_cookie(self.cookie, session, self.place))

    def _logout(self, visit: _Visit) -> Response:
        self._end(visit.request)
        ended = set_cookie(self.cookie, "", self.place)
        if visit.request.claim.identity:  # the start page would begin another session at once
            return replace(_message(SIGNED_OUT, HTTPStatus.OK, "Logged out"), headers=(ended,))
        return _to("/", ended)

    def _end(self, request: PageRequest) -> None:
        """Ends a session, if there is one, and logs this. The session ends even if logging fails."""
        principal = self._principal(request)
        self._sessions.end(hash_token(request.session))
        if principal is not None:
            with suppress(StoreError):
                self._service.audit.note(principal.name, "disconnected")

    def _home(self, visit: _Visit) -> Response:
        views = views_of(visit.desk, self._service.public.marks())
        content = cards(views, visit.desk, self._artist) if views else element("p", "Nobody has made one yet.")
        policies = _dicts(visit.desk.try_ask("SELECT table_name, guarantee, max_rows FROM dp_policies()"))
        budget = _budgets_of(visit.desk, policies)
        body = [
            element("h1", self._title or "Private views"),
            element("p", f"{ABOUT} Reading costs nothing."),
            more("How to read the numbers", element("ul", [element("li", sentence) for sentence in HOW_TO_READ])),
            element("section", element("h2", "Private views"), content),
            element("section", element("h2", "Your budgets"), budgets(budget)),
            element("section", element("h2", "What is protected"), promises(costs(budget, policies)),
                    _policies(policies)),
            element("section", element("h2", "What you paid"), _paid(visit.desk)),
        ]  # fmt: skip
        return self._page("Private views", visit, "/", body)

    def _view(self, visit: _Visit) -> Response:
        name, desk = visit.request.path.removeprefix("/view/"), visit.desk
        as_file = _VIEW_NAME.fullmatch(name)
        quoted = quote_text(as_file["name"] if as_file else name)
        comments = desk.ask(f"SELECT comment FROM duckdb_tables() WHERE table_name = {quoted}").rows
        if not comments:
            return REFUSED
        columns = desk.ask(
            f"SELECT column_name, data_type, comment FROM duckdb_columns() WHERE table_name = {quoted} "
            "ORDER BY column_index"
        ).dicts()
        if as_file:
            return REFUSED if visit.request.query else self._file(visit, as_file["name"], as_file["kind"], columns)
        wish = wish_of(visit.request.query, [str(column["column_name"]) for column in columns])
        if wish is None:
            return REFUSED
        shape, caption = view_shape(columns), caption_of(str(comments[0][0] or ""))
        released = desk.try_ask(f"SELECT epsilon, delta, rho FROM dp_releases() WHERE name = {quoted}")
        answer = in_order(desk.ask(f"FROM {quote_identifier(name)}"), shape)
        about = [(c["column_name"], c["data_type"], c["comment"]) for c in columns]
        record = desk.try_ask(f"FROM dp_certificate({quoted})")
        body = [
            element("h1", caption.title or name),
            element("p", caption.description) if caption.description else None,
            None if owner_of(self._service.public.marks().get(fold(name), "")) == OWNER else BY_ANALYST,
            [element("p", number, class_="one") for number in single_numbers(shape, answer.dicts())],
            pictures(answer, shape, self._artist, visit.principal.name),
            element("h2", "The rows"), render_rows(answer, shape, wish, name),
            element("h2", "What it cost"), [_cost(row) for row in _dicts(released)[:1]],
            element("p", caption.guarantee[:1].upper() + caption.guarantee[1:], ".", class_="note"),
            more("The columns", table(("column", "type", "what it is"), about, "Columns")),
            None if record is None else more("What was promised", table(record.columns, record.rows, "Certificate")),
        ]  # fmt: skip
        return self._page(name, visit, "", body)

    def _file(self, visit: _Visit, name: str, kind: str, columns: Sequence[Mapping[str, object]]) -> Response:
        sql = file_sql(name, [(str(column["column_name"]), str(column["data_type"])) for column in columns])
        admitted = visit.desk.admit(sql)  # before it takes a place, so that no file waits for the gate
        with self._filing.place(visit.principal.name, FILE_SECONDS, visit.request.gone):
            body = file_of(kind, visit.desk.table(admitted, FILE_BYTES))
        named = ("Content-Disposition", f'attachment; filename="{name}.{kind}"')
        return Response(HTTPStatus.OK, body, FILES[kind], (named,))

    def _ask(self, visit: _Visit) -> Response:
        text = visit.request.form.get("statement", "")
        if not text.strip():
            return self._ask_page(visit, text, "Ask", [])
        self._history.note(visit.principal.name, text)
        try:
            asked = visit.desk.read_statement(text)
            if not asked.charging:
                return self._ask_page(visit, text, "Answer", self._ask_and_render(visit, asked))
            return self._price_page(visit, asked, text, visit.desk.prices(asked))
        except DpduckError as error:
            return self._refusal_page(visit, text, error)

    def _run(self, visit: _Visit) -> Response:
        """Pays and answers once, if this session was shown a price that still holds. Otherwise shows the price."""
        text, ticket = visit.request.form.get("statement", ""), visit.request.form.get("offer", "")
        with self._pressed.hold(f"{visit.request.session} {ticket}"):  # a second press waits for the first
            offer = self._offers.take(visit.principal.name, ticket)
            try:
                asked = visit.desk.read_statement(text)
                prices = visit.desk.prices(asked)
                offered = offer is not None and is_offer(offer, visit.request.session, text, prices)
                if offered or (offer is None and is_paid(asked, prices)):
                    return self._pays(visit, text, asked, prices)
                return self._price_page(visit, asked, text, prices, offer is not None)
            except DpduckError as error:
                return self._refusal_page(visit, text, error)

    def _refusal_page(self, visit: _Visit, text: str, error: DpduckError) -> Response:
        response = self._ask_page(visit, text, "Refused", [refusal(str(error))])
        return replace(response, status=_status(error, response.status))

    def _pays(self, visit: _Visit, text: str, asked: PageStatement, prices: Prices) -> Response:
        """Pays the shown price, and renders the answer. If the price has risen, renders the new price."""
        before = visit.desk.charges()
        try:
            return self._ask_page(visit, text, "Answer", self._ask_and_render(visit, asked, prices))
        except DpduckError as error:
            said = str(error)
        except Exception:  # its text could quote data that is not the caller's
            said = UNEXPECTED
        if said.startswith(DEARER):  # the price changed meanwhile, and nothing was charged
            return self._price_page(visit, asked, text, visit.desk.prices(asked), changed=True)
        paid = element("p", CHARGED) if visit.desk.charges() != before else None
        budget = [element("h2", "Your budgets"), self._budgets(visit)]
        return self._ask_page(visit, text, "Refused", [refusal(said), *([paid] if paid else []), *budget])

    def _ask_and_render(self, visit: _Visit, asked: PageStatement, prices: Prices | None = None) -> list[Html]:
        answer = visit.desk.ask(asked.text, ceilings=prices.ceilings() if prices else None, typed=True)
        shape = answer_shape(answer, asked.text)
        bare = [name for name, errors in shape.answers if errors is None] if asked.charging and shape.keys else []
        how = f"Write dp_stderr({bare[0]}) beside it in the SELECT for its error bars: no further cost." if bare else ""
        return [
            element("h2", "The answer"),
            *render_answer(answer, shape, "the answer", self._artist, visit.principal.name),
            element("p", how, class_="help"),
            element("h2", "Your budgets"), self._budgets(visit),
        ]  # fmt: skip

    def _price_page(
        self, visit: _Visit, asked: PageStatement, text: str, prices: Prices, changed: bool = False
    ) -> Response:
        """Renders the price, the errors, and a button that pays if the budget has room.

        changed: whether the browser showed another price before.
        """
        paying = [price(row) for row in prices.totals if is_charged(row)]
        said = f"Pay {' and '.join(paying)}, and run" if paying else "Run: nothing is charged"
        if any(action != "run" for action, _ in asked.charging):
            use = "it may use up one of the answers that were paid for"
            said = f"Pay {' and '.join(paying)}, and ask the session: {use}" if paying else f"Ask the session: {use}"
        ticket = self._offers.add(visit.principal.name, visit.request.session, text, prices)
        form = element(
            "form", hidden("form_token", visit.form_token), hidden("statement", text), hidden("offer", ticket),
            element("button", said, class_="pay"), method="post", action="/run#result",
        )  # fmt: skip
        nothing = element("p", "Nothing is charged before you press the button.")
        odds = [element("p", said) for said in map(odds_of_price, prices.totals) if said]
        offer = [*odds, nothing, form] if prices.fits else [element("p", "It cannot be asked at this price.")]
        several = len(prices.statements) > 1
        listed = [part for quote in prices.statements for part in render_price(visit.desk.with_errors(quote), several)]
        totals = [total(row) for row in prices.totals] if several else []
        alert = [element("p", NOT_AS_SHOWN, class_="refusal", role="alert")] if changed else []
        head = element("h2", "What it costs, and what it misses")
        return self._ask_page(visit, text, "Price", [head, *alert, *listed, *totals, *offer])

    def _ask_page(self, visit: _Visit, text: str, title: str, result: Sequence[Html]) -> Response:
        columns = visit.desk.columns()
        names = [element("option", kind, value=self._quote_name(name)) for name, kind in names_of(columns)[:MOST_NAMES]]
        form = element(
            "form", hidden("form_token", visit.form_token),
            element("label", "Your statement", for_="statement"),
            element("p", "SELECT WITH DIFFERENTIAL_PRIVACY .., CREATE PRIVATE VIEW .., or a SELECT over private views. "
                         "As you type, names are suggested: arrow keys choose one, Enter takes it, Escape closes "
                         "the list.", id="help", class_="help"),
            element("div", element("textarea", "\n" + text, id="statement", name="statement", rows="6", required=True,
                                   maxlength=self._limits.characters, spellcheck="false", autocapitalize="off",
                                   autocomplete="off", aria_describedby="help"), class_="statement"),
            element("datalist", names, id="names"),
            element("button", "Show price and errors"), " ",
            element("span", "It costs nothing; what is free is answered at once.", class_="help"),
            method="post", action="/ask#result",
        )  # fmt: skip
        section = element("section", list(result), id="result", tabindex="-1") if result else None
        about = [] if result else [element("h2", "Your budgets"), self._budgets(visit)]
        views = sorted(self._service.public.sizes())
        before = self._history.of(visit.principal.name)
        side = beside(columns, views, before, visit.form_token, self._quote_name)
        main = element("div", element("h1", "Ask"), form, section, about)
        return self._page(title, visit, "/ask", [element("div", main, side, class_="desk")])

    def _quote_name(self, name: str) -> str:
        return name if _PLAIN.fullmatch(name) and name.lower() not in self._reserved else quote_identifier(name)

    def _budgets(self, visit: _Visit) -> Html:
        policies = _dicts(visit.desk.try_ask("SELECT table_name FROM dp_policies()"))
        return budgets(_budgets_of(visit.desk, policies))

    def _login_page(self, said: str = "", status: HTTPStatus = HTTPStatus.OK) -> Response:
        nonce = new_nonce()
        body = [*welcome(self._title), refusal(said) if said else None, login_form()]
        return Response(status, page("Log in", nonce, None, *body), nonce=nonce)

    def _page(self, title: str, visit: _Visit, here: str, body: Sequence[object]) -> Response:
        nonce = new_nonce()
        top = header(visit.principal.name, here, visit.form_token)
        return Response(HTTPStatus.OK, page(title, nonce, top, *body), nonce=nonce)


def _dicts(answer: PageAnswer | None) -> list[dict[str, object]]:
    return [] if answer is None else answer.dicts()


def _budgets_of(desk: Desk, policies: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """Returns the rows of dp_budget for the tables that this principal may ask about."""
    theirs = desk.may_ask([str(row["table_name"]) for row in policies])
    rows = _dicts(desk.try_ask("FROM dp_budget()"))
    return [row for row in rows if fold(str(row["table_name"]).rpartition(".")[2].strip('"')) in theirs]


def _policies(policies: Sequence[Mapping[str, object]]) -> Html:
    if not policies:
        return element("p", "No table has a policy.")
    heads = ("table", "what is promised", "rows counted at most")
    return table(heads, [tuple(row.values()) for row in policies], "What is protected")


def _paid(desk: Desk) -> Html:
    charges = desk.try_ask(
        "SELECT strftime(charged_at, '%Y-%m-%d %H:%M') AS moment, table_name, epsilon, rho, delta, statement, price "
        f"FROM dp_ledger() ORDER BY id DESC LIMIT {MOST_PAID}"
    )
    return ledger(charges.dicts()) if charges and charges.rows else element("p", "Nothing yet.")


def _cost(row: Mapping[str, object]) -> Html:
    said = f" Suppose somebody guesses whether one person is in the data. A blind guess is right {BLIND} of 100 times. "
    said += f"With this view alone, a guess is right {times_of_100(guesses(row))}."
    return element("p", "It cost ", element("strong", price(row)), ".", said)


def _to(path: str, *headers: tuple[str, str]) -> Response:
    return Response(HTTPStatus.SEE_OTHER, b"", headers=(("Location", path), *headers))


def _status(error: DpduckError, usual: HTTPStatus) -> HTTPStatus:
    return HTTPStatus.TOO_MANY_REQUESTS if isinstance(error, BusyRefusal) else usual


def _message(said: str, status: HTTPStatus, title: str = "Refused") -> Response:
    nonce = new_nonce()
    back = element("p", element("a", "To the private views", href="/"))
    shown = refusal(said) if title == "Refused" else element("p", said)
    body = page(title, nonce, None, element("h1", title), shown, back)
    return Response(status, body, nonce=nonce)
