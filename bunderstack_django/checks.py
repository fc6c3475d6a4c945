"""System checks."""

from __future__ import annotations


def register() -> None:
    pass


def check_backend(backend):
    return []
