from __future__ import annotations

import csv
import re
import sqlite3
from contextlib import closing

import pytest

from .conftest import manage

pytestmark = pytest.mark.processes

BROKEN = {"1028", "1064", "1119", "1155", "1223", "1264"}


def test_the_demo_ends_well_and_accounts_for_every_job(demo):
    _, done = demo

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "301 enqueued = 295 succeeded + 6 failed" in done.stdout
    assert re.search(r"shop\.send_receipt +300 +318 +18 +294 +6\n", done.stdout)
    assert re.search(r"shop\.export_orders +1 +1 +0 +1 +0\n", done.stdout)
    assert re.search(r"Speed +[1-9]\d* jobs per second", done.stdout)


def test_the_output_is_plain_text_where_there_is_no_terminal(demo):
    _, done = demo

    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout


def test_each_failed_order_is_told_with_its_reason(demo):
    _, done = demo

    failed = done.stdout.split("Failed for good")[1].split("Where to look")[0]
    assert set(re.findall(r"order (\d+)", failed)) == BROKEN
    assert re.search(
        r"order 1028 +1 attempt +discarded +'felix.dubois\(at\)example.com' is not an email", failed
    )
    assert re.search(r"order 1064 +4 attempts +error +No product has the code 'NTB-999'", failed)


def test_jobs_that_failed_at_first_are_told_with_their_attempts(demo):
    _, done = demo

    retried = done.stdout.split("Failed at first, then succeeded")[1].split("Failed for good")[0]
    assert len(re.findall(r"order \d+ +2 attempts +451 4\.7\.1 .*greylisted", retried)) == 9


def test_every_order_but_the_broken_has_a_receipt_and_a_mail(demo):
    folder, _ = demo

    receipts = {path.stem for path in (folder / "receipts").glob("*.html")}
    assert receipts == {str(number) for number in range(1001, 1301)} - BROKEN
    assert "Fountain pen, steel nib" in (folder / "receipts" / "1003.html").read_text()
    mails = "".join(path.read_text() for path in (folder / "mail").iterdir())
    assert len(set(re.findall(r"^Message-ID: <receipt-(\d+)@", mails, re.MULTILINE))) == 294


def test_the_export_has_every_order(demo):
    folder, _ = demo

    with (folder / "exports" / "orders.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 300


def test_the_export_kept_its_progress_and_its_log(demo):
    folder, _ = demo

    with closing(sqlite3.connect(folder / "shop.sqlite3")) as database:
        progress, log = database.execute(
            "SELECT progress, log FROM bunderstack_django_job WHERE name = 'shop.export_orders'"
        ).fetchone()
    assert "300 of 300 orders" in progress
    assert "Exporting 300 orders" in log


def test_the_demo_refuses_a_database_with_orders_in_it(demo, tmp_path):
    folder, _ = demo

    done = manage(tmp_path, "demo", DATABASE_URL=f"sqlite:///{folder / 'shop.sqlite3'}")

    assert done.returncode == 1
    assert "needs an empty database" in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_want_a_secret_key_where_debug_is_off(tmp_path):
    done = manage(tmp_path, "check", DEBUG="off")

    assert done.returncode != 0
    assert "SECRET_KEY" in done.stderr


def test_no_migration_of_the_shop_is_missing(tmp_path):
    done = manage(tmp_path, "makemigrations", "--check", "--dry-run", "shop")

    assert done.returncode == 0, done.stdout
