"""What the documentation shows works, and what it lists is all there is."""

from __future__ import annotations

import re
import sys
import types
import unittest
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command, get_commands, load_command_class
from django.db import transaction
from django.utils.module_loading import import_string

from bunderstack_django import checks, conf
from bunderstack_django.jobs.declare import OPTIONS, registry
from bunderstack_django.jobs.states import FailureReason
from bunderstack_django.runtime import clock

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(path: Path, language: str) -> list[str]:
    return [code for name, code in BLOCK.findall(path.read_text()) if name == language]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture
def declared():
    """Forget the jobs that a page declares."""
    before = dict(registry._by_name)
    yield
    registry._by_name.clear()
    registry._by_name.update(before)


@pytest.mark.django_db
@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_the_python_of_a_page_runs(path, declared, monkeypatch):
    module = types.ModuleType("page_" + re.sub(r"\W", "_", name_of(path)))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for code in blocks(path, "python"):
        if code.startswith("# settings.py"):
            check_settings(code)
        else:
            exec(compile(code, name_of(path), "exec"), vars(module))
    run_test_cases(module)


def check_settings(code: str) -> None:
    names: dict[str, object] = {"INSTALLED_APPS": []}
    exec(code, names)
    for alias in names.get("TASKS", {}).values():  # type: ignore[attr-defined]
        assert import_string(alias["BACKEND"])
    assert set(names.get("BUNDERSTACK", {})) <= set(conf.DEFAULTS)  # type: ignore[call-overload]


def run_test_cases(module: types.ModuleType) -> None:
    """A page's own TestCase classes, in savepoints of this test's transaction."""
    cases = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]
    for case in (each for each in cases if issubclass(each, unittest.TestCase)):
        for method in unittest.defaultTestLoader.getTestCaseNames(case):
            instance = case(method)
            with transaction.atomic():
                getattr(instance, method)()
                transaction.set_rollback(True)
            instance.tearDown()
    clock.reset()


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_the_commands_of_a_page_exist_with_their_options(path):
    targets = set(re.findall(r"^([a-z-]+):.*## ", "".join(p.read_text() for p in makefiles()), re.MULTILINE))
    for line in "".join(blocks(path, "console")).splitlines():
        words = line.removeprefix("$ ").split()
        if words[0] == "make":
            assert words[1] in targets, line
        if words[:2] == ["python", "manage.py"]:
            assert words[2] in get_commands(), line
            command = load_command_class(get_commands()[words[2]], words[2])
            known = command.create_parser("manage.py", words[2]).format_help()
            assert all(word in known for word in words[3:] if word.startswith("--")), line


def makefiles() -> list[Path]:
    return [ROOT / "Makefile", *ROOT.glob("benchmarks/*.mk")]


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(path):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_every_option_of_a_job_is_documented():
    text = (ROOT / "docs/reference/jobs.md").read_text()

    assert {option for option in OPTIONS if f"`{option}`" not in text} == set()


def test_every_option_of_runworker_is_documented():
    output = StringIO()
    with pytest.raises(SystemExit):
        command = load_command_class("bunderstack_django", "runworker")
        sys_stdout, sys.stdout = sys.stdout, output
        try:
            call_command(command, "--help")
        finally:
            sys.stdout = sys_stdout
    own = set(re.findall(r"^  (--[a-z-]+)", output.getvalue(), re.MULTILINE)) - BASE_OPTIONS
    text = (ROOT / "docs/reference/runworker.md").read_text()

    assert own
    assert {option for option in own if f"`{option}" not in text} == set()


BASE_OPTIONS = {
    "--settings",
    "--pythonpath",
    "--traceback",
    "--no-color",
    "--force-color",
    "--skip-checks",
    "--version",
}


def test_every_check_is_documented():
    ids = set(re.findall(r"bunderstack_django\.[EW]\d{3}", Path(checks.__file__).read_text()))
    backend = (ROOT / "bunderstack_django/backend.py").read_text()
    ids |= set(re.findall(r"bunderstack_django\.[EW]\d{3}", backend))
    text = (ROOT / "docs/reference/settings.md").read_text()

    assert {each for each in ids if f"`{each}`" not in text} == set()


def test_every_failure_reason_is_documented():
    text = (ROOT / "docs/howto/failed-jobs.md").read_text()

    assert {reason for reason in FailureReason if f"`{reason}`" not in text} == set()


def test_the_documented_defaults_are_those_of_the_code():
    text = (ROOT / "docs/reference/settings.md").read_text()

    for key in ("LEASE", "MAX_CRASHES", "UNKNOWN_JOB_GRACE", "POLL_INTERVAL"):
        assert f"| `{key}` | {conf.DEFAULTS[key]} |" in text
    assert settings.configured
