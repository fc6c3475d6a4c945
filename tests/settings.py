"""Settings of the test suite; TEST_DATABASE_URL chooses the database."""

import os
import tempfile
from pathlib import Path
from urllib.parse import urlsplit


def _database(url: str) -> dict[str, object]:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        name = parts.path or str(Path(tempfile.gettempdir()) / f"bunderstack-tests-{os.getpid()}.sqlite3")
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": name,
            "TEST": {"NAME": name + ".test"},
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            },
        }
    return {
        "ENGINE": {"postgres": "django.db.backends.postgresql", "mysql": "django.db.backends.mysql"}[
            parts.scheme
        ],
        "NAME": parts.path.lstrip("/") or "bunderstack",
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "OPTIONS": {"charset": "utf8mb4"} if parts.scheme == "mysql" else {},
    }


PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # quick
MAILERS = {
    "default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}
}  # Django 6.1; earlier ones pass it over
SECRET_KEY = "not a secret: for tests only"
DATABASES = {"default": _database(os.environ.get("TEST_DATABASE_URL", "sqlite://"))}
USE_TZ = os.environ.get("TEST_USE_TZ", "1") == "1"
TIME_ZONE = "UTC" if USE_TZ else "Europe/Berlin"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "bunderstack_django",
    "tests.testapp",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
TASKS = {"default": {"BACKEND": "bunderstack_django.backend.DatabaseBackend", "QUEUES": []}}
