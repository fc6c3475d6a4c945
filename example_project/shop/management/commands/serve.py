from __future__ import annotations

import secrets
import socket
import time
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ... import seed
from ...models import Order
from ...processes import Child, interrupt_on_signals
from ...report import Report, short

HOST = "127.0.0.1"
LOGIN = "demo"


class Command(BaseCommand):
    help = "Run the example shop: web server and worker together, with a login for the admin."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("port", type=int, nargs="?", default=8000, help="of the web server (8000)")

    def handle(self, *, port: int, **options: Any) -> None:
        _refuse_unusable(port)
        call_command("migrate", verbosity=0, interactive=False)
        if not Order.objects.exists():
            seed.load()
        password = _superuser()
        interrupt_on_signals()
        worker = Child("runworker", "--shutdown-timeout", "10", log=settings.WORKER_LOG)
        web = Child("runserver", "--noreload", f"{HOST}:{port}", log=settings.WEB_LOG)
        try:
            with worker, web:
                _wait_until_served(port, web)
                self._tell(port, password)
                _watch(web, worker)
        except KeyboardInterrupt:
            self.stdout.write("\nStopped.")

    def _tell(self, port: int, password: str) -> None:
        report = Report(self.stdout, self.style)
        report.title("The shop is open; Ctrl-C closes it")
        report.fact("Shop", f"http://{HOST}:{port}/")
        report.fact("Admin", f"http://{HOST}:{port}/admin/")
        report.fact("Login", LOGIN)
        report.fact("Password", f"{password}  (a new one at each start)")
        report.fact("Logs", f"{short(settings.WORKER_LOG)}, {short(settings.WEB_LOG)}")
        report.fact("Try", "in the admin, add a product NTB-999; then retry the failed job of order 1064")


def _refuse_unusable(port: int) -> None:
    if not 0 < port < 65_536:
        raise CommandError(f"A port is a number from 1 to 65535, not {port}.")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise CommandError(
                f"Port {port} cannot be used ({error.strerror}). Choose another: make serve PORT=8001"
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
    """Raise CommandError once one of ``children`` has ended."""
    while True:
        for child in children:
            if child.exit_code is not None:
                raise CommandError(
                    f"{child.name} ended with exit code {child.exit_code}; the rest is stopped. See {short(child.log)}."
                )
        time.sleep(0.2)
