from __future__ import annotations

import http.cookiejar
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from .conftest import ROOT, environment, manage

pytestmark = pytest.mark.processes


@dataclass
class Shop:
    """``manage.py serve``, and a browser before it."""

    process: subprocess.Popen[str]
    folder: Path
    port: int
    told: str

    def __post_init__(self) -> None:
        self.cookies = http.cookiejar.CookieJar()
        self._browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))

    def get(self, path: str) -> str:
        with self._browser.open(self._url(path), timeout=10) as answer:
            return answer.read().decode()

    def post(self, path: str, **fields: str) -> str:
        token = next(each.value for each in self.cookies if each.name == "csrftoken")
        data = urllib.parse.urlencode({"csrfmiddlewaretoken": token, **fields}).encode()
        with self._browser.open(self._url(path), data, timeout=10) as answer:
            return answer.read().decode()

    def child(self, command: str) -> psutil.Process:
        children = psutil.Process(self.process.pid).children()
        return next(each for each in children if command in each.cmdline())

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@pytest.fixture
def shop(demo, tmp_path) -> Iterator[Shop]:
    """The shop, open, with what the demo left."""
    folder = tmp_path / "demo"
    shutil.copytree(demo[0], folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "manage.py", "serve", str(port)],
        cwd=ROOT,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            told = ""
            for line in process.stdout:
                told += line
                if line.startswith("  Try"):
                    break
            yield Shop(process, folder, port, told)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def until(condition) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_shop_can_be_used_and_closed(shop):
    home = shop.get("/")
    assert "Uma Virtanen" in home
    assert "succeeded" in home
    assert "is not an email address" in shop.get("/?receipt=failed")
    assert "Fountain pen" in shop.get("/orders/1003/receipt/")

    # The login that was printed opens the admin.
    assert f"http://127.0.0.1:{shop.port}/admin/" in shop.told
    password = re.search(r"Password +(\S+)", shop.told)[1]
    shop.get("/admin/login/")
    assert "Log out" in shop.post("/admin/login/?next=/admin/", username="demo", password=password)
    assert "NTB-100" in shop.get("/admin/shop/product/")

    # An order placed now gets its receipt from the worker beside the web server.
    number = re.search(r"Order (W-\w+) is placed", shop.post("/orders/sample/"))[1]
    until((shop.folder / "receipts" / f"{number}.html").exists)
    assert "The export is job" in shop.post("/orders/export/")

    # A demo would take the database away from under the worker.
    refused = manage(shop.folder, "demo")
    assert refused.returncode == 1
    assert "Stop it first" in refused.stderr

    children = psutil.Process(shop.process.pid).children()
    shop.process.send_signal(signal.SIGINT)
    assert shop.process.wait(20) == 0
    assert "Stopped." in shop.process.stdout.read()
    assert not any(child.is_running() for child in children)


@pytest.mark.parametrize(("dying", "other"), [("runworker", "runserver"), ("runserver", "runworker")])
def test_when_one_child_dies_the_other_is_stopped(shop, dying, other):
    rest = shop.child(other)

    shop.child(dying).kill()

    assert shop.process.wait(20) == 1
    assert f"{dying} ended with exit code -9" in shop.process.stdout.read()
    assert not rest.is_running()


def test_a_port_in_use_is_told_in_one_sentence(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = manage(tmp_path, "serve", str(taken.getsockname()[1]))

    assert done.returncode == 1
    assert "cannot be used" in done.stderr
    assert "Traceback" not in done.stderr
