from __future__ import annotations

import secrets
import signal
import socket
import time
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ... import seed
from ...models import Order
from ...processes import Child
from ...report import Report, short

HOST = "127.0.0.1"
LOGIN = "demo"


class Command(BaseCommand):
    help = "Run the example shop: web server and worker together, with a login for the admin."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("port", type=int, nargs="?", default=8000, help="of the web server (8000)")

    def handle(self, *, port: int, **options: Any) -> None:
        _refuse_taken(port)
        call_command("migrate", verbosity=0, interactive=False)
        if not Order.objects.exists():
            seed.load()
        password = _superuser()
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.default_int_handler)  # raises KeyboardInterrupt
        try:
            with (
                Child("runworker", "--shutdown-timeout", "10", log=settings.WORKER_LOG) as worker,
                Child("runserver", "--noreload", "--verbosity", "0", f"{HOST}:{port}") as web,
            ):
                try:
                    _wait_until_served(port, web)
                    self._tell(port, password)
                    _watch(web, worker)
                finally:
                    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                        signal.signal(each, signal.SIG_IGN)  # both stop in bounded time
        except KeyboardInterrupt:
            self.stdout.write("\nStopped.")

    def _tell(self, port: int, password: str) -> None:
        report = Report(self.stdout, self.style)
        report.title("The shop is open; Ctrl-C closes it")
        report.fact("Shop", f"http://{HOST}:{port}/")
        report.fact("Admin", f"http://{HOST}:{port}/admin/")
        report.fact("Login", LOGIN)
        report.fact("Password", f"{password}   (a new one each time)")
        report.fact("Worker log", short(settings.WORKER_LOG))
        report.fact("Try", "add the product NTB-999, then retry the failed job of order 1064")
        report.title("Requests")


def _refuse_taken(port: int) -> None:
    if not 0 < port < 65536:
        raise CommandError(f"A port is a number from 1 to 65535, not {port}.")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise CommandError(
                f"Port {port} cannot be used ({error.strerror}). Choose another: make serve PORT={port % 65535 + 1}"
            ) from None


def _superuser() -> str:
    """Make the demo's superuser, or give it a new password. Returns the password."""
    password = secrets.token_urlsafe(9)
    user, _ = get_user_model().objects.get_or_create(username=LOGIN)
    user.is_staff = user.is_superuser = user.is_active = True
    user.set_password(password)
    user.save()
    return password


def _wait_until_served(port: int, web: Child) -> None:
    while web.exit_code is None:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.1)


def _watch(*children: Child) -> None:
    """Return never; raise CommandError once one of ``children`` has ended."""
    while True:
        for child in children:
            if child.exit_code is not None:
                raise CommandError(f"{child.name} ended by itself (exit code {child.exit_code}); the other is stopped.")
        time.sleep(0.2)
