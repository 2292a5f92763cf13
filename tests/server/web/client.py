"""A small HTTP browser, and raw requests that no browser would send."""

from __future__ import annotations

import html
import http.client
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from dpduck.server.gate import Service
from dpduck.server.limits import Limits
from dpduck.server.web.listener import WebListener
from tests.support.ports import free_port


@dataclass
class Answer:
    """An answer of the server. body: as text."""

    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def words(self) -> str:
        """The text without its tags."""
        return html.unescape(re.sub(r"<[^>]*>", " ", self.body))


@dataclass
class Browser:
    """Keeps one cookie, sends forms with the origin of their page, and finds the fields of a form."""

    port: int
    cookie: str = ""
    last: Answer = field(default_factory=lambda: Answer(0, {}, ""))

    def get(self, path: str, **headers: str) -> Answer:
        return self._asked("GET", path, None, headers)

    def post(self, path: str, form: Mapping[str, str], **headers: str) -> Answer:
        return self._asked("POST", path, urlencode(form).encode(), headers)

    def login(self, token: str) -> Answer:
        return self.post("/login", {"token": token})

    def form(self, page: Answer, **more: str) -> dict[str, str]:
        """Returns the hidden fields of the paying form, or else of the asking one, and the typed text."""
        forms = re.findall(r'<form method="post" action="(/run|/ask)#result">(.*?)</form>', page.body, re.DOTALL)
        named = dict(reversed(forms))
        form = str(named.get("/run") or named.get("/ask") or page.body)
        found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form)
        return {name: html.unescape(value) for name, value in found} | more

    def ask(self, text: str) -> Answer:
        return self.post("/ask", self.form(self.get("/ask"), statement=text))

    def pay(self, priced: Answer) -> Answer:
        return self.post("/run", self.form(priced))

    def _asked(self, method: str, path: str, body: bytes | None, more: Mapping[str, str]) -> Answer:
        host = f"127.0.0.1:{self.port}"
        headers = {"Host": host, **({"Cookie": self.cookie} if self.cookie else {})}
        if method == "POST":
            headers |= {"Origin": f"http://{host}", "Content-Type": "application/x-www-form-urlencoded"}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        client.putrequest(method, path, skip_host=True)
        for name, value in headers.items():
            if value:
                client.putheader(name, value)
        if body is not None:
            client.putheader("Content-Length", str(len(body)))
        client.endheaders(body)
        given = client.getresponse()
        answer = Answer(given.status, dict(given.getheaders()), given.read().decode("utf-8"))
        client.close()
        if "Set-Cookie" in answer.headers:
            self.cookie = answer.headers["Set-Cookie"].partition(";")[0]
        self.last = answer
        return answer


def sent(port: int, data: bytes, seconds: float = 30.0) -> bytes:
    """Sends these bytes. Returns the answer until the other end hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as client:
        client.sendall(data)
        return received(client)


def received(client: socket.socket) -> bytes:
    found = b""
    while True:
        try:
            piece = client.recv(65_536)
        except ConnectionResetError:
            return found
        if not piece:
            return found
        found += piece


@contextmanager
def listening(service: Service, limits: Limits | None = None, **options: Any) -> Iterator[int]:
    """The port of a page over a served clinic."""
    port = free_port()
    kept = limits or Limits(seconds=60.0, rows=100_000)
    listener = WebListener(f"127.0.0.1:{port}", service, kept, **options)
    try:
        yield port
    finally:
        listener.close()
