"""Settings of the example shop. What differs between machines comes from environment variables:

DEMO_DIR      where the example keeps its database, receipts and mails   var/demo
DATABASE_URL  sqlite:///…, postgres://… or mysql://…                     SQLite in DEMO_DIR
DEBUG         on or off                                                  on
SECRET_KEY    required when DEBUG is off                                 a new one per process
ALLOWED_HOSTS comma-separated, needed when DEBUG is off                  none
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import django
import environ
from django.core.management.utils import get_random_secret_key

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()

DEMO_DIR = Path(env.str("DEMO_DIR", default=str(BASE_DIR / "var" / "demo"))).resolve()
DEMO_DIR.mkdir(parents=True, exist_ok=True)  # SQLite makes its file, not the folder
RECEIPTS_DIR = DEMO_DIR / "receipts"
EXPORTS_DIR = DEMO_DIR / "exports"
MAIL_DIR = DEMO_DIR / "mail"
WORKER_LOG = DEMO_DIR / "worker.log"
WEB_LOG = DEMO_DIR / "web.log"

DEBUG = env.bool("DEBUG", default=True)
if DEBUG:
    # With a prefix: django-environ takes a value that begins with $ for the name of another variable.
    SECRET_KEY = env.str("SECRET_KEY", default=f"django-insecure-{get_random_secret_key()}")
else:
    SECRET_KEY = env.str("SECRET_KEY")
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=[])

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "bunderstack_django",
    "example_project.shop",
]

TASKS = {"default": {"BACKEND": "bunderstack_django.backend.DatabaseBackend", "QUEUES": []}}

DATABASES = {"default": env.db("DATABASE_URL", default=f"sqlite:///{quote(str(DEMO_DIR))}/shop.sqlite3")}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["OPTIONS"] = {
        "timeout": 20,  # seconds that a writer waits for another
        "transaction_mode": "IMMEDIATE",  # else a transaction that reads first may fail when it writes
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",  # readers and writer side by side
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
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
ROOT_URLCONF = "example_project.urls"
STATIC_URL = "static/"
USE_TZ = True
TIME_ZONE = "UTC"

# Mails become files. Django 6.1 has MAILERS, and deprecates the settings before it.
if django.VERSION >= (6, 1):
    MAILERS = {
        "default": {
            "BACKEND": "django.core.mail.backends.filebased.EmailBackend",
            "OPTIONS": {"file_path": MAIL_DIR},
        }
    }
else:
    EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    EMAIL_FILE_PATH = MAIL_DIR
DEFAULT_FROM_EMAIL = "Paper & Ink <shop@example.com>"

# The worker writes a line per job; Django's own three per job, shown in DEBUG, would bury it.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "loggers": {name: {"level": "CRITICAL"} for name in ("django.tasks", "django_tasks")},
}
