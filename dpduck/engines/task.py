"""Function that an engine runs over rows of whole units. It is sent by value, with the files of dpduck that it needs.

A task has duckdb and pyarrow, but no dpduck. It runs the same files as this process, sent as texts under a module name
that no installed dpduck has. Every failure there has one fixed text.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from dpduck.kernel.places.orders import Order

PACKAGE = Path(__file__).resolve().parent.parent
SENT = (
    *("values.errors", "values.quoting", "values.child_process", "kernel.worker.worker", "kernel.worker.workers"),
    *("kernel.rows.stand_ins", "kernel.rows.reader", "kernel.worker.answered", "kernel.places.orders"),
    "engines.pieces",
)
"""Files to send. Each imports only from earlier ones."""

ORDERS, PIECES = "kernel.places.orders", "engines.pieces"
STREAMS = ("cut_task", "made_task", "bundle_task", "answer_packed")
FAILED = "counting failed"
TASKS = 8
"""Most idle worker processes in one process of an engine, which may run several tasks at the same time."""


def _loader() -> Callable[[], Any]:
    """Returns a function that loads dpduck's files into a process, once. The function returns their root module."""
    texts = {name: (PACKAGE / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8") for name in SENT}
    mark = f"dpduck_sent_{hashlib.sha256(repr(texts).encode()).hexdigest()[:16]}"
    sent = {
        f"{mark}.{name}": re.sub(r"^from dpduck\b", f"from {mark}", text, flags=re.M) for name, text in texts.items()
    }
    worker = texts["kernel.worker.worker"]
    versions, failed, tasks = (duckdb.__version__, sys.version_info[:2]), FAILED, TASKS

    def load_files() -> Any:
        import sys  # noqa: PLC0415
        import threading  # noqa: PLC0415
        import types  # noqa: PLC0415

        import duckdb  # noqa: PLC0415

        if versions != (duckdb.__version__, sys.version_info[:2]):
            raise RuntimeError(failed)
        root: Any = sys.modules.setdefault(mark, types.ModuleType(mark))
        with root.__dict__.setdefault("lock", threading.Lock()):
            if not hasattr(root, "workers"):
                for name, text in sent.items():
                    module, (parent, _, last) = types.ModuleType(name), name.rpartition(".")
                    module.__file__ = f"{name}.py"
                    sys.modules[name] = module
                    setattr(sys.modules.setdefault(parent, types.ModuleType(parent)), last, module)
                    exec(compile(text, name, "exec"), module.__dict__)  # noqa: S102  # dpduck's own files
                pool = sys.modules[f"{mark}.kernel.worker.workers"].Workers
                root.function = lambda module, name: getattr(sys.modules[f"{mark}.{module}"], name)
                root.workers = pool((sys.executable, "-I", "-c", worker), tasks)
        return root

    return load_files


def task_of(order: Order, name: str, module: str = ORDERS) -> Callable[[Any], Any]:
    """Wraps a function of a sent module, so that a client sends it by value. The wrapper needs no installed dpduck.

    For a function in STREAMS, the wrapper takes an iterator of batches, and yields batches.
    """
    loaded, plain, failed = _loader(), order.plain(), FAILED

    def answering(given: Any) -> Any:
        result = None
        try:
            root = loaded()
            result = root.function(module, name)(plain, given, root.workers)
        except Exception:  # noqa: S110  # whatever it says could quote data
            pass
        if result is None:
            raise RuntimeError(failed)
        return result

    def streaming(given: Any) -> Any:
        done = False
        try:
            root = loaded()
            yield from root.function(module, name)(plain, given, root.workers)
            done = True
        except Exception:  # noqa: S110
            pass
        if not done:
            raise RuntimeError(failed)

    return streaming if name in STREAMS else answering
