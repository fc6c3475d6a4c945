"""What the system checks find, and what cure they name."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test import override_settings

from bunderstack_django import checks
from bunderstack_django.backend import DatabaseBackend
from bunderstack_django.jobs.declare import JobTask, registry


def found(check) -> dict[str, str]:
    """Ids of the messages and all their text."""
    return {message.id.rpartition(".")[2]: f"{message.msg} {message.hint}" for message in check(None)}


def test_the_settings_of_the_suite_have_no_problems():
    for check in (
        checks.check_setting_names,
        checks.check_setting_values,
        checks.check_backends,
        checks.check_databases,
    ):
        assert found(check) == {}


@override_settings(BUNDERSTACK={"LEESE": 30})
def test_an_unknown_setting_is_an_error_with_a_near_match():
    messages = found(checks.check_setting_names)

    assert "LEASE" in messages["E001"]


@override_settings(BUNDERSTACK=["LEASE"])
def test_a_setting_that_is_no_dictionary_is_an_error():
    assert "dictionary" in found(checks.check_setting_names)["E001"]


@pytest.mark.parametrize(
    "setting",
    [
        {"LEASE": 0},
        {"LEASE": "30"},
        {"TIMEOUT": timedelta(-1)},
        {"HEARTBEAT": -1},
        {"RETRIES": -1},
        {"MAX_CRASHES": 0},
        {"MAX_PAYLOAD_BYTES": 1.5},
        {"RETENTION": 5},
        {"RETENTION": {"done": 5}},
        {"RETENTION": {"failed": 0}},
    ],
)
def test_a_value_that_cannot_be_used_is_an_error(setting):
    with override_settings(BUNDERSTACK=setting):
        assert next(iter(setting)) in found(checks.check_setting_values)["E002"]


@override_settings(BUNDERSTACK={"LEASE": 30, "HEARTBEAT": 20})
def test_a_heartbeat_too_slow_for_the_lease_is_a_warning():
    assert "W007" in found(checks.check_setting_values)


@override_settings(TASKS={"default": {"BACKEND": "bunderstack_django.testing.backends.DummyBackend"}})
def test_no_backend_of_ours_is_a_warning():
    assert "DatabaseBackend" in found(checks.check_backends)["W001"]


def test_a_database_that_does_not_exist_is_an_error_of_the_backend():
    (message,) = DatabaseBackend("default", {"OPTIONS": {"database": "nope"}}).check()

    assert "'nope'" in message.msg


def _unusable(order: Missing) -> None: ...  # noqa: F821


def test_an_annotation_that_cannot_be_used_is_an_error(monkeypatch):
    task = JobTask(func=_unusable, run_after=None, priority=0, backend="default", queue_name="default")
    monkeypatch.setattr(registry, "_by_name", {"unusable": task})

    assert "'order'" in found(checks.check_jobs)["E005"]


def test_an_option_without_effect_yet_is_a_warning(monkeypatch):
    task = JobTask(
        func=_plain, concurrency=2, run_after=None, priority=0, backend="default", queue_name="default"
    )
    monkeypatch.setattr(registry, "_by_name", {"limited": task})

    assert "not enforced" in found(checks.check_jobs)["W006"]


def _plain() -> None: ...


@pytest.mark.skipif("connection.vendor != 'sqlite'")
def test_sqlite_with_deferred_transactions_is_a_warning(monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {})

    assert "IMMEDIATE" in found(checks.check_databases)["W003"]


@pytest.mark.django_db
def test_the_servers_of_the_suite_have_no_problems():
    assert list(checks.check_database_servers(databases=["default"])) == []
    assert list(checks.check_database_servers()) == []  # connects only when asked to


@pytest.mark.django_db
@pytest.mark.skipif("connection.vendor != 'sqlite'")
def test_sqlite_without_a_write_ahead_log_is_a_warning(tmp_path):
    from django.db.backends.sqlite3.base import DatabaseWrapper

    settings = {**connection.settings_dict, "NAME": tmp_path / "plain.sqlite3", "OPTIONS": {}}
    plain = DatabaseWrapper(settings, alias="plain")
    try:
        (message,) = checks._check_sqlite(plain)
    finally:
        plain.close()

    assert message.id == "bunderstack_django.W002"
