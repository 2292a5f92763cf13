"""Apache Superset on this machine, from an environment of its own ($DPDUCK_SUPERSET), and a browser to look at it.

    python -m venv superset && superset/bin/pip install apache-superset==6.1.0 rich cachetools \
        Flask-Caching==2.3.1 wtforms-json==0.3.5 \
        duckdb==1.5.5 duckdb-engine psycopg2-binary pillow flightsql-dbapi==0.2.2
    apt-get install -y chromium
    DPDUCK_SUPERSET=superset/bin make peers
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port

CONFIG = """
SECRET_KEY = "for a test on this machine alone, 0123456789"
SQLALCHEMY_DATABASE_URI = "sqlite:///{folder}/superset.db"
DATA_DIR = "{folder}"
WTF_CSRF_ENABLED = False
TALISMAN_ENABLED = False
PUBLIC_ROLE_LIKE = "Admin"  # the browser of the test looks without a login
PREVENT_UNSAFE_DB_CONNECTIONS = True
LOG_LEVEL = "WARNING"
"""


@dataclass
class Superset:
    """A running Superset. address: http://localhost:port."""

    address: str
    folder: Path
    session: urllib.request.OpenerDirector = field(
        default_factory=lambda: urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    )

    def login(self) -> None:
        """As the administrator, by a cookie: where the public may do everything, Superset takes no token."""
        given = urllib.parse.urlencode({"username": "admin", "password": "admin"}).encode()
        self.session.open(f"{self.address}/login/", given, timeout=120).close()

    def call(self, method: str, path: str, body: object = None) -> Any:
        """A call of the REST interface."""
        headers = {"Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}{path}", data, headers, method=method)  # noqa: S310
        try:
            with self.session.open(request, timeout=120) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read()[:2000]!r}") from None

    def screenshot(self, path: str, name: str) -> Path | None:
        """Returns a picture of a page, or None without a browser."""
        browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if browser is None:
            return None
        picture = Path(os.environ.get("DPDUCK_SCREENSHOTS") or self.folder) / f"{name}.png"
        command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                   f"--user-data-dir={self.folder / 'browser'}", "--window-size=1400,900",
                   "--virtual-time-budget=90000", f"--screenshot={picture}", f"{self.address}{path}"]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        return picture


@contextmanager
def superset_server(folder: Path) -> Iterator[Superset]:
    """Superset with an administrator, in a folder. Skips where it is not installed."""
    place = os.environ.get("DPDUCK_SUPERSET")
    if not place or not (Path(place) / "superset").exists():
        pytest.skip("no Apache Superset: DPDUCK_SUPERSET names no folder with the command superset")
    superset = str(Path(place).resolve() / "superset")
    config = folder / "superset_config.py"
    config.write_text(CONFIG.format(folder=folder))
    surroundings = {
        **os.environ,
        "SUPERSET_CONFIG_PATH": str(config),
        "FLASK_APP": "superset",
        "SUPERSET_HOME": str(folder),
    }
    surroundings.pop("PYTHONPATH", None)

    def run(*words: str) -> None:
        done = subprocess.run([superset, *words], env=surroundings, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]

    run("db", "upgrade")
    run("init")
    run("fab", "create-admin", "--username", "admin", "--firstname", "a", "--lastname", "b",
        "--email", "a@example.org", "--password", "admin")  # fmt: skip
    port = free_port()
    log = (folder / "superset.log").open("w")
    words = [superset, "run", "-p", str(port), "--with-threads"]
    with log, subprocess.Popen(words, env=surroundings, stdout=log, stderr=log) as process:
        try:
            server = Superset(f"http://localhost:{port}", folder)
            _wait(server)
            server.login()
            yield server
        finally:
            process.terminate()


def _wait(server: Superset) -> None:
    for _ in range(120):
        try:
            with urllib.request.urlopen(f"{server.address}/health", timeout=5) as response:  # noqa: S310
                if response.status == 200:
                    return
        except OSError:
            time.sleep(1)
    raise AssertionError((server.folder / "superset.log").read_text()[-3000:])
