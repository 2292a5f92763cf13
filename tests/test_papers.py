"""The papers' figures are reproduced: `make papers` runs their benchmarks in a reduced form and asserts the gates."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from math import comb, exp, log
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def errors() -> ModuleType:
    """The settings, methods and errors of the datacubes benchmark."""
    return import_module("benchmarks.papers._datacube_errors")


def run(module: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a benchmark in a separate process."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", f"benchmarks.{module}", *options], cwd=ROOT,
        env={**os.environ, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.paper
def test_the_figures_of_the_datacubes_paper(data_file: Callable[[str], Path], tmp_path: Path) -> None:
    """From the paper and past it: every gate passes, measured and predicted, and the figures are drawn."""
    pytest.importorskip("matplotlib")
    data = data_file("adult.parquet").parent
    data_file("nltcs.parquet")
    reduced = ("--epsilons", "0.5", "1", "--repetitions", "10", "--planning-seconds", "1")
    done = run("papers.datacubes", *reduced, "--data", str(data), "--figures", str(tmp_path))
    gates = [line for line in done.stdout.splitlines() if line.startswith(("PASS", "FAIL"))]
    assert len(gates) == 11, done.stderr[-2000:]
    assert [line for line in gates if not line.startswith("PASS")] == []
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(list(tmp_path.glob("*.png"))) == 4


@pytest.mark.paper
def test_the_figures_of_the_mwem_paper(data_file: Callable[[str], Path]) -> None:
    """MWEM below Barak where the paper has it, above it on NLTCS 2-way at epsilon 1, and auto knows."""
    data = data_file("nltcs.parquet").parent
    data_file("mildew.csv")
    reduced = ("--runs", "20", "--cube-runs", "1", "--epsilons", "0.1", "0.5", "1", "--cube-epsilons", "0.1", "1")
    done = run("papers.mwem", *reduced, "--rounds", "30", "--data", str(data))
    gates = [line for line in done.stdout.splitlines() if line.startswith(("PASS", "FAIL"))]
    assert len(gates) == 12, done.stderr[-2000:]
    assert [line for line in gates if not line.startswith("PASS")] == []
    assert done.returncode == 0


@pytest.mark.paper
def test_the_figures_of_the_sparse_data_paper(data_file: Callable[[str], Path], tmp_path: Path) -> None:
    """filter_priority against the full mechanism, dyadic consistency on skewed data. Figures are drawn.

    The four ratios have standard errors below 3 %, the nearest lies 7 % from its bar. The cuts lie half again beyond.
    """
    pytest.importorskip("matplotlib")
    data = data_file("dpbench_1d.parquet").parent
    reduced = ("--repetitions", "2", "--no-counties", "--figures", str(tmp_path))
    done = run("papers.sparse_data", *reduced, DPDUCK_DATA=str(data))
    gates = [line for line in done.stdout.splitlines() if line.startswith(("PASS", "FAIL"))]
    assert len(gates) == 13, done.stderr[-2000:]
    assert [line for line in gates if not line.startswith("PASS")] == []
    assert done.returncode == 0
    assert len(list(tmp_path.glob("sparse_*.png"))) == 8


@pytest.mark.paper
def test_a_worse_summary_fails_the_sparse_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threshold sampling in place of filter_priority misses the bars. So does a check of parents that drops nothing."""
    pytest.importorskip("matplotlib")
    benchmark = import_module("benchmarks.papers.sparse_data")
    right, rng = benchmark.summarised, np.random.default_rng(4)
    monkeypatch.setattr(benchmark, "GATE_REPETITIONS", 2)
    monkeypatch.setattr(benchmark, "summarised", lambda table, method, size: right(table, "threshold", size))
    tables = {(density, 20): benchmark.synthetic(density, 20, rng) for density in (0.1, 0.01)}
    assert benchmark.claims(tables) == [False, False]
    monkeypatch.setattr(benchmark, "with_parents", lambda noisy, radix, axes: noisy)
    plain, checked, _ = benchmark.dyadic_errors(np.bincount(rng.integers(0, 9, 5_000), minlength=2_048), 12, rng)
    assert (checked > 0.7 * plain).all()


@pytest.mark.peer
def test_smartnoise_is_slower(data_file: Callable[[str], Path]) -> None:
    """50 times smartnoise-synth's MWEM. DPDUCK_SMARTNOISE names the python of its environment."""
    python = os.environ.get("DPDUCK_SMARTNOISE")
    if not python:
        pytest.skip("DPDUCK_SMARTNOISE names no python with smartnoise-synth 1.0.8")
    done = run("peers.synthetic", "--data", str(data_file("nltcs.parquet").parent), "--smartnoise", python)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.peer
def test_opendp_is_slower_and_less_accurate() -> None:
    """At most the error of make_alp_queryable on 100,000 occupied keys, 100 times faster."""
    pytest.importorskip("opendp")
    done = run("peers.keys")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.count("PASS gate") == 2


def test_without_data_the_benchmark_says_so(tmp_path: Path) -> None:
    """Data that may not be copied into the project are not needed for `make bench`."""
    pytest.importorskip("matplotlib")
    done = run("papers.datacubes", DPDUCK_DATA=str(tmp_path))
    assert (done.returncode, done.stdout[:27]) == (0, "skipped: no adult and no nl")


def test_a_gate_can_fail(errors: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that checks nothing would pass here: Q+ is not 90 % below Q, and nothing takes no time."""
    pytest.importorskip("matplotlib")
    benchmark = import_module("benchmarks.papers.datacubes")
    table = errors.Table("adult", np.ones((3, 4, 2), dtype=np.int64))
    asked = list(errors.settings(table))
    monkeypatch.setattr(benchmark, "REDUCTIONS", (("adult Q1*", "Q+", "Q", 0.9, 5),))
    assert [passed for passed, _ in benchmark.reduction_gates(asked)] == [False]
    monkeypatch.setattr(benchmark, "OTHER_SECONDS", 0.0)
    nltcs = list(errors.settings(errors.Table("nltcs", np.ones((2, 2, 2), dtype=np.int64))))
    assert [passed for passed, _ in benchmark.time_gates(nltcs, {})] == [True, False]


def test_auto_above_another_method_fails(errors: ModuleType) -> None:
    """The gates of auto compare with each of the seven: a planner that always takes F is found out twice."""
    pytest.importorskip("matplotlib")
    benchmark = import_module("benchmarks.papers.datacubes")
    table = errors.Table("adult", np.ones((3, 5, 7), dtype=np.int64))
    one = benchmark.Fraction(1)
    asked = list(errors.settings(table))[:1]
    plans = {method: errors.paper_plan(asked[0].workload, method, one) for method in errors.PAPER}
    plans["auto"] = plans["F"]
    results = {
        (str(asked[0]), method, one): benchmark.Result(plan, errors.measure_errors(table, plan, 40))
        for method, plan in plans.items()
    }
    assert [passed for passed, _ in benchmark.automatic_gates(asked, results, [one])] == [False, False]


@pytest.mark.parametrize(
    ("label", "marginals"),
    [("Q1", 16), ("Q1*", 16 + 60), ("Q1a", 16 + 15), ("Q2", 120), ("Q2*", 120 + 280), ("Q2a", 120 + comb(15, 2))],
)
def test_the_workloads_of_the_paper(errors: ModuleType, label: str, marginals: int) -> None:
    """All k-way marginals. Plus half of the (k+1)-way ones. Plus those with one fixed attribute."""
    asked = errors.workload((2,) * 16, int(label[1]), label[2:])
    assert len(set(asked.marginals)) == len(asked.marginals) == marginals
    for half in errors.HALVES:
        assert len(errors.workload((2,) * 16, 2, "*", half).marginals) == 120 + 280


@pytest.mark.parametrize("scales", [(0.3,), (1.0,), (40.0,), (1.0, 1.0, 1.0), (0.5, 3.0, 20.0)])
def test_the_mean_absolute_value_of_summed_noise(errors: ModuleType, scales: tuple[float, ...]) -> None:
    """The integral over the characteristic function equals the sum over the law itself."""
    reach = int(60 * max(scales)) + 60
    values = np.arange(-reach, reach + 1)
    law = np.ones(1)
    for scale in scales:
        law = np.convolve(law, np.tanh(0.5 / scale) * np.exp(-np.abs(values) / scale))
    wide = np.arange(len(law)) - len(law) // 2
    noise = tuple((2 * exp(-1 / scale) / (1 - exp(-1 / scale)) ** 2, 1) for scale in scales)
    assert errors.mean_absolute(noise) == pytest.approx(float(law @ np.abs(wide)), rel=2e-5)
    assert log(float(law.sum())) == pytest.approx(0, abs=1e-9)


def test_expected_errors_are_measured_errors(errors: ModuleType) -> None:
    """For each of the paper's methods the expected absolute error lies within 8 standard errors of 400 releases.

    14 means of 400: false alarms below 1e-12 in all.
    """
    table = errors.Table("small", np.arange(3 * 4 * 2).reshape(3, 4, 2))
    for setting in list(errors.settings(table))[1:3]:
        for method in errors.PAPER:
            plan = errors.paper_plan(setting.workload, method, errors.Fraction(1))
            measured = errors.measure_errors(table, plan, 400).absolute
            gap = abs(measured.mean() - errors.predicted_absolute(plan))
            assert gap < 8 * errors.deviation_of_mean(measured), (setting.label, method)


def test_one_matrix_recovers_as_well(errors: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The short way for very many repetitions has the same errors as the long one (8 standard errors: below 1e-14)."""
    table = errors.Table("small", np.arange(16).reshape(2, 2, 2, 2))
    asked = errors.workload((2, 2, 2, 2), 1, "*")
    monkeypatch.setattr(errors, "MOST_RECOVERED", 1000)
    for method in ("F+", "Q"):
        plan = errors.paper_plan(asked, method, errors.Fraction(1))
        short = errors.measure_at_length(table, plan, 2500).absolute
        assert len(short) == 2500
        assert abs(short.mean() - errors.predicted_absolute(plan)) < 8 * errors.deviation_of_mean(short)
