"""Prints a packages.yml that names the folder of the dbt package."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGE = Path(__file__).parent / "package"


def print_packages() -> None:
    """Prints the file that `dbt deps` reads, with the folder of the package as it is installed here."""
    sys.stdout.write(f'packages:\n  - local: "{PACKAGE.resolve().as_posix()}"\n')


if __name__ == "__main__":
    print_packages()
