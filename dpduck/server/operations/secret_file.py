"""Secrets that the owner gives in a file, for another program that shares them: a proxy, or a collector of figures."""

from __future__ import annotations

import re
from pathlib import Path

from dpduck.values.errors import Refusal

LEAST_SECRET, MOST_SECRET = 32, 1_024
"""Limits of a secret, in bytes."""


def read_secret(path: Path) -> bytes:
    """Returns the secret in a file, without the end of its line. Refuses a file that every account can read."""
    try:
        state, secret = path.stat(), path.read_bytes().strip(b"\r\n")
    except OSError:
        raise Refusal("the file with the secret cannot be read", accepted="a file of this account") from None
    if state.st_mode & 0o007:
        raise Refusal("every account can read this secret", accepted=f"chmod 600 {path}")
    if not LEAST_SECRET <= len(secret) <= MOST_SECRET or re.search(rb"[^!-~]", secret):
        raise Refusal(
            "the secret is too short, too long, or has blanks",
            accepted=f"{LEAST_SECRET} to {MOST_SECRET} letters and digits, as openssl rand -hex 32 prints",
        )
    return secret
