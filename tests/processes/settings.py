"""Settings of the worker processes: those of the suite without the admin, with what ``harness.Workers`` overrides."""

import json
import os

from tests.settings import *  # noqa: F403

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "bunderstack_django",
    "tests.testapp",
    "tests.processes",
]
MIDDLEWARE: list[str] = []
ROOT_URLCONF = __name__
urlpatterns: list[object] = []
globals().update(json.loads(os.environ.get("PROCESS_SETTINGS", "{}")))
