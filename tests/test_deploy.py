"""deploy/: the unit and the Containerfile. Built or verified where a program does that, and read here in any case."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from dpduck.commands.serving import serve
from dpduck.server.operations.metrics import metrics_address
from tests.test_packaging import pins

ROOT = Path(__file__).resolve().parent.parent
UNIT, CONTAINER = ROOT / "deploy" / "dpduck.service", ROOT / "deploy" / "Containerfile"
EXPOSURE = 20
"""Ten times the exposure that systemd-analyze security finds, at most. It calls a figure below 2.0 OK."""


def joined(path: Path) -> list[str]:
    """The lines of a file without remarks, with continued lines in one."""
    return [line for line in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines() if line[:1] not in "#;"]


def settings() -> dict[str, list[str]]:
    """The settings of the unit by name."""
    found: dict[str, list[str]] = {}
    for line in joined(UNIT):
        name, mark, value = line.partition("=")
        if mark:
            found.setdefault(name, []).append(value)
    return found


def parsed(words: list[str], folder: Path) -> dict[str, object]:
    """The configuration that dpduck serve reads from some words. Named files become files of one folder."""
    file = folder / "file"
    file.write_text("x", encoding="ascii")
    names = {name for option in serve.params for name in option.opts}
    assert {word for word in words if word.startswith("--")} <= names
    given = [str(file) if word.startswith(("/", "%d/")) else word for word in words]
    return serve.make_context("serve", given).params


def test_the_unit_says_what_serve_understands(tmp_path: Path) -> None:
    """Each option is there, figures are for this machine, the log lies where the unit may write, and HUP reopens it."""
    unit = settings()
    (start,) = unit["ExecStart"]
    program, command, *words = shlex.split(start)
    assert program == "/opt/dpduck/bin/dpduck" and command == "serve"
    given = parsed(words, tmp_path)
    assert metrics_address(str(given["metrics"])) == ("127.0.0.1", 9464) and given["metrics_token"] is not None
    assert f"{words[words.index('--audit') + 1]}".startswith("/var/log/" + unit["LogsDirectory"][0])
    assert words[0].startswith("/var/lib/" + unit["StateDirectory"][0].split()[0])
    (witness,) = unit["Environment"]
    assert witness == "DPDUCK_STATE_DIR=/var/lib/" + unit["StateDirectory"][0].split()[1]
    assert unit["ExecReload"] == ["/bin/kill -HUP $MAINPID"] and unit["Restart"] == ["on-failure"]
    assert [one.partition(":")[0] for one in unit["LoadCredential"]] == re.findall(r"%d/(\w+)", start)
    for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "RestrictNamespaces"):
        assert unit[name] == ["yes"], name
    assert unit["ProtectSystem"] == ["strict"] and unit["CapabilityBoundingSet"] == [""]
    assert int(unit["TimeoutStopSec"][0]) > 80, "releases of 45 s and connections of 30 s end first"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """It finds nothing wrong, and little that a service could still do."""
    unit = tmp_path / UNIT.name
    text = UNIT.read_text(encoding="utf-8").replace("/opt/dpduck/bin/dpduck", sys.executable)
    unit.write_text(text, encoding="utf-8")
    run = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False, timeout=120
    )
    mine = [line for line in run.stderr.splitlines() if UNIT.name in line]
    assert run.returncode == 0 and mine == [], run.stderr
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager", str(unit)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 0, run.stdout[-500:] + run.stderr


def steps() -> list[tuple[str, str]]:
    """The instructions of the Containerfile with their words."""
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in joined(CONTAINER) if line.strip()]


def test_the_container_is_pinned_and_not_root(tmp_path: Path) -> None:
    """Requirements have hashes, the user is a number, the health check asks the port of the figures, options exist."""
    found = steps()
    last = [place for place, (kind, _) in enumerate(found) if kind == "FROM"][-1]
    final = found[last:]
    assert all(re.search(r":3\.\d+-slim\b", words) for kind, words in found if kind == "FROM")
    installs = [one for kind, words in found if kind == "RUN" for one in words.split("&&") if "pip install" in one]
    assert installs and all("--require-hashes" in one or "--no-index" in one for one in installs)
    copied = [word for kind, words in found[:last] if kind == "COPY" for word in words.split()[:-1]]
    for lock in re.findall(r"-r (\S+\.lock)", " ".join(installs)):
        assert (ROOT / lock).is_file() and lock in copied, lock
    (user,) = [words for kind, words in final if kind == "USER"]
    assert user.isdigit() and int(user) > 0
    (health,) = [words for kind, words in final if kind == "HEALTHCHECK"]
    (entry,) = [json.loads(words) for kind, words in final if kind == "ENTRYPOINT"]
    (usual,) = [json.loads(words) for kind, words in final if kind == "CMD"]
    assert entry[:2] == ["dpduck", "serve"]
    given = parsed([*entry[2:], *usual], tmp_path)
    port = metrics_address(str(given["metrics"]))[1]
    assert f"http://127.0.0.1:{port}/health" in health
    volumes = [word for kind, words in final if kind == "VOLUME" for word in json.loads(words)]
    assert entry[2].startswith(volumes[0]) and f"DPDUCK_STATE_DIR={volumes[1]}" in dict(final)["ENV"]
    example = re.search(r"dpduck (--web \S+ --web-origin \S+)", CONTAINER.read_text(encoding="utf-8"))
    assert example is not None and parsed([*entry[2:], *example[1].split()], tmp_path)["web_origin"]
    assert not [kind for kind, _ in found if kind == "ADD"]


def test_the_health_check_of_the_container_is_python(tmp_path: Path) -> None:
    """Its command runs, and fails where nobody listens."""
    (health,) = [words for kind, words in steps() if kind == "HEALTHCHECK"]
    program, *words = json.loads(health.partition(" CMD ")[2])
    assert program == "python"
    run = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 1 and "URLError" in run.stderr


def test_what_a_server_needs_is_pinned() -> None:
    """requirements/server.lock: run time, the extras `server` and `report`, in the versions that are tested."""
    server, development, runtime = pins("server"), pins("development"), pins("runtime")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {re.split(r"[=<>~!]", one)[0] for extra in ("server", "report") for one in extras[extra]}
    assert set(runtime) | named <= set(server)
    assert server == {name: development[name] for name in server}


@pytest.mark.slow
def test_what_is_copied_makes_the_wheel(tmp_path: Path) -> None:
    """The files that the first stage copies are enough for its own command, and its wheel has every module."""
    source, wheels = tmp_path / "source", tmp_path / "wheels"
    for kind, words in steps():
        *names, target = words.split()
        for name in names if kind == "COPY" and "--from" not in words else ():
            place = source / target / (Path(name).name if target.endswith("/") and (ROOT / name).is_file() else "")
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, place)
    (made,) = [one for kind, words in steps() if kind == "RUN" for one in words.split("&&") if "hatchling" in one]
    command = [sys.executable, *shlex.split(made)[1:]]
    command[command.index("-d") + 1] = str(wheels)
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=600)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.endswith(".py")}
    assert held == {str(path.relative_to(ROOT)) for path in (ROOT / "dpduck").rglob("*.py")}


def builder() -> str | None:
    """A program that can build an image here. Docker needs a daemon."""
    for name in ("podman", "buildah", "docker"):
        if shutil.which(name) is not None:
            run = subprocess.run([name, "info"], capture_output=True, check=False, timeout=120)
            if run.returncode == 0:
                return name
    return None


@pytest.mark.audit
def test_the_container_is_built() -> None:
    """The image is made, and its command tells the version."""
    program = builder()
    if program is None:
        pytest.skip("no podman or buildah, and no daemon of docker")
    build = [program, "build", "-f", str(CONTAINER), "-t", "dpduck-tried", str(ROOT)]
    run = subprocess.run(build, capture_output=True, text=True, check=False, timeout=1_800)
    assert run.returncode == 0, run.stderr[-2000:]
    if program != "buildah":
        told = subprocess.run(
            [program, "run", "--rm", "--entrypoint", "dpduck", "dpduck-tried", "--version"],
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        assert "version" in told.stdout
