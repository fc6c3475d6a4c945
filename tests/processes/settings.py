"""Settings of the worker processes: those of the suite, with what ``harness.Workers`` overrides."""

import json
import os

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.processes"]
globals().update(json.loads(os.environ.get("PROCESS_SETTINGS", "{}")))
