"""Partial indexes and uniqueness while a row has some status."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import ClassVar

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, migrations, models, transaction
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ModelState, ProjectState
from django.db.migrations.writer import MigrationWriter
from django.db.models import Q
from django.test.utils import isolate_apps

from bunderstack_django.db.fields import ByteCharField, JsonTextField, UTCDateTimeField
from bunderstack_django.db.indexes import PartialIndex, UniqueWhile
from bunderstack_django.jobs.models import Job

LIVE = ["new", "open"]
WHERE_UNIQUE = "while_unique"
WHERE_INDEX = "while_index"


def make_model() -> type[models.Model]:
    class Ticket(models.Model):
        owner = ByteCharField(max_length=50)
        key = ByteCharField(max_length=50, null=True)
        status = ByteCharField(max_length=10, default="new")
        rank = models.IntegerField(default=0)

        class Meta:
            app_label = "testapp"
            db_table = "while_ticket"
            indexes: ClassVar = [
                PartialIndex(fields=["-rank", "id"], where=Q(status="open"), lead="status", name=WHERE_INDEX)
            ]
            constraints: ClassVar = [UniqueWhile(fields=["owner", "key"], statuses=LIVE, name=WHERE_UNIQUE)]

        def __str__(self) -> str:
            return str(self.pk)

    return Ticket


@pytest.fixture
def ticket(transactional_db) -> Iterator[type[models.Model]]:
    """A table with such an index and such a constraint, made and dropped by Django's schema editor."""
    with isolate_apps("tests.testapp"):
        model = make_model()
        with connection.schema_editor() as editor:
            editor.create_model(model)
        try:
            yield model
        finally:
            with connection.schema_editor() as editor:
                editor.delete_model(model)


def clashes(model, **values) -> bool:
    """Whether a row cannot be added."""
    try:
        with transaction.atomic():
            model.objects.create(**values)
    except IntegrityError:
        return True
    return False


def names(model) -> set[str]:
    with connection.cursor() as cursor:
        return set(connection.introspection.get_constraints(cursor, model._meta.db_table))


def assert_unique(model) -> None:
    """The constraint does what it says."""
    model.objects.all().delete()
    assert not clashes(model, owner="o", key="k", status="new")
    assert clashes(model, owner="o", key="k", status="open")
    assert not clashes(model, owner="o", key="k", status="done")
    model.objects.all().delete()


def test_two_live_rows_of_one_key_clash(ticket):
    ticket.objects.create(owner="o", key="k", status="new")

    assert clashes(ticket, owner="o", key="k", status="open")


def test_dead_rows_of_one_key_do_not_clash(ticket):
    for _ in range(2):
        assert not clashes(ticket, owner="o", key="k", status="done")

    assert not clashes(ticket, owner="o", key="k", status="new")


def test_rows_without_a_key_do_not_clash(ticket):
    for _ in range(2):
        assert not clashes(ticket, owner="o", key=None)


def test_rows_of_other_owners_do_not_clash(ticket):
    assert not any(clashes(ticket, owner=owner, key="k") for owner in ("o", "O", "o "))


@pytest.mark.parametrize("key", ["K", "k ", "ḱ"], ids=ascii)
def test_keys_that_look_alike_do_not_clash(ticket, key):
    ticket.objects.create(owner="o", key="k")

    assert not clashes(ticket, owner="o", key=key)


def test_a_row_that_comes_alive_clashes_with_a_live_one(ticket):
    ticket.objects.create(owner="o", key="k", status="open")
    dead = ticket.objects.create(owner="o", key="k", status="done")
    with pytest.raises(IntegrityError), transaction.atomic():
        ticket.objects.filter(pk=dead.pk).update(status="new")


def test_a_row_that_dies_frees_its_key(ticket):
    row = ticket.objects.create(owner="o", key="k", status="open")
    ticket.objects.filter(pk=row.pk).update(status="done")

    assert not clashes(ticket, owner="o", key="k")


def test_a_row_that_changes_its_key_clashes_with_its_new_one(ticket):
    ticket.objects.create(owner="o", key="k")
    other = ticket.objects.create(owner="o", key="l")
    with pytest.raises(IntegrityError), transaction.atomic():
        ticket.objects.filter(pk=other.pk).update(key="k")


def test_index_and_constraint_are_in_the_database_by_their_names(ticket):
    assert {WHERE_INDEX, WHERE_UNIQUE} <= names(ticket)


def test_migrations_can_remove_both_and_add_them_again(ticket):
    (index,), (constraint,) = ticket._meta.indexes, ticket._meta.constraints
    state = ProjectState()
    state.add_model(ModelState.from_model(ticket))
    state = migrate(state, migrations.RemoveIndex("Ticket", index.name))
    state = migrate(state, migrations.RemoveConstraint("Ticket", constraint.name))
    assert not {WHERE_INDEX, WHERE_UNIQUE} & names(ticket)
    ticket.objects.create(owner="o", key="k")
    assert not clashes(ticket, owner="o", key="k")
    ticket.objects.all().delete()

    state = migrate(state, migrations.AddConstraint("Ticket", constraint))
    migrate(state, migrations.AddIndex("Ticket", index))

    assert {WHERE_INDEX, WHERE_UNIQUE} <= names(ticket)
    assert_unique(ticket)


def migrate(state: ProjectState, operation: Operation) -> ProjectState:
    after = state.clone()
    operation.state_forwards("testapp", after)
    with connection.schema_editor() as editor:
        operation.database_forwards("testapp", editor, state, after)
    return after


def test_a_column_added_keeps_both(ticket):
    field = models.CharField(max_length=10, default="x")
    field.set_attributes_from_name("note")
    ticket.objects.create(owner="o", key="kept")
    with connection.schema_editor() as editor:
        editor.add_field(ticket, field)

    assert {WHERE_INDEX, WHERE_UNIQUE} <= names(ticket)
    with connection.cursor() as cursor:
        cursor.execute("SELECT owner, note FROM while_ticket")
        assert list(cursor.fetchall()) == [("o", "x")]
    with connection.schema_editor() as editor:
        editor.remove_field(ticket, field)
    assert {WHERE_INDEX, WHERE_UNIQUE} <= names(ticket)
    assert_unique(ticket)


def test_a_column_altered_keeps_both(ticket):
    """SQLite makes the table anew."""
    old = ticket._meta.get_field("rank")
    new = models.BigIntegerField(default=0, null=True)
    new.set_attributes_from_name("rank")
    new.model = ticket
    with connection.schema_editor() as editor:
        editor.alter_field(ticket, old, new, strict=True)

    assert {WHERE_INDEX, WHERE_UNIQUE} <= names(ticket)
    assert_unique(ticket)


def test_a_key_column_widened_keeps_both(ticket):
    old = ticket._meta.get_field("key")
    new = ByteCharField(max_length=80, null=True)
    new.set_attributes_from_name("key")
    new.model = ticket
    with connection.schema_editor() as editor:
        editor.alter_field(ticket, old, new, strict=True)

    assert {WHERE_INDEX, WHERE_UNIQUE} <= names(ticket)
    assert_unique(ticket)
    assert not clashes(ticket, owner="o", key="k" * 80)


def test_the_index_is_partial_where_the_database_can(ticket):
    index = ticket._meta.indexes[0]
    with connection.schema_editor(collect_sql=True) as editor:
        sql = str(index.create_sql(ticket, editor))

    assert ("WHERE" in sql) == (connection.vendor != "mysql")
    assert ("status" in sql.split("(")[1].split(",")[0]) == (connection.vendor == "mysql")


@pytest.mark.django_db
def test_migrations_and_models_agree():
    out = StringIO()
    call_command("makemigrations", "bunderstack_django", check=True, dry_run=True, stdout=out)

    assert "No changes" in out.getvalue()


@pytest.mark.django_db
def test_the_tables_of_a_migrated_database_have_every_index_and_constraint():
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, Job._meta.db_table)

    assert {each.name for each in [*Job._meta.indexes, *Job._meta.constraints]} <= set(found)
    assert found["bunderstack_job_dedupe"]["unique"]


@pytest.mark.parametrize("made", [*Job._meta.indexes, *Job._meta.constraints], ids=lambda each: each.name)
def test_deconstructing_gives_what_makes_it_again(made):
    path, args, kwargs = made.deconstruct()

    assert path == f"{type(made).__module__}.{type(made).__name__}"
    assert type(made)(*args, **kwargs) == made
    assert type(made)(*args, **kwargs).deconstruct() == (path, args, kwargs)


@pytest.mark.parametrize("made", [*Job._meta.indexes, *Job._meta.constraints], ids=lambda each: each.name)
def test_a_migration_writes_it_out_and_reads_it_back(made):
    text, imports = MigrationWriter.serialize(made)
    names: dict[str, object] = {}
    exec("\n".join(imports), names)

    assert eval(text, names) == made


@pytest.mark.parametrize("made", [*Job._meta.indexes, *Job._meta.constraints], ids=lambda each: each.name)
def test_its_clone_equals_it(made):
    assert made.clone() == made


@pytest.mark.parametrize(
    "field",
    [ByteCharField(max_length=9), JsonTextField(null=True), UTCDateTimeField(auto_now=True)],
    ids=lambda each: type(each).__name__,
)
def test_a_field_is_written_out_and_read_back(field):
    text, imports = MigrationWriter.serialize(field)
    names: dict[str, object] = {}
    exec("\n".join(imports), names)

    assert eval(text, names).deconstruct() == field.deconstruct()


def test_constraints_differ_by_statuses_fields_and_name():
    made = UniqueWhile(fields=["a", "b"], statuses=["x"], name="n")

    assert made == UniqueWhile(fields=("a", "b"), statuses=("x",), name="n")
    assert made != UniqueWhile(fields=["a", "b"], statuses=["y"], name="n")
    assert made != UniqueWhile(fields=["a"], statuses=["x"], name="n")
    assert made != UniqueWhile(fields=["a", "b"], statuses=["x"], name="m")
    assert made != object()


@isolate_apps("tests.testapp")
def test_the_autodetector_sees_a_changed_constraint():
    before, after = ProjectState(), ProjectState()
    model = make_model()
    before.add_model(ModelState.from_model(model))
    model._meta.constraints = [UniqueWhile(fields=["owner", "key"], statuses=["new"], name=WHERE_UNIQUE)]
    after.add_model(ModelState.from_model(model))
    changes = MigrationAutodetector(before, after)._detect_changes()
    operations = [type(each) for migration in changes["testapp"] for each in migration.operations]

    assert sorted(operations, key=str) == sorted(
        [migrations.RemoveConstraint, migrations.AddConstraint], key=str
    )


@pytest.mark.django_db
def test_the_state_of_the_migrations_renders():
    state = MigrationLoader(connection).project_state()

    assert state.apps.get_model("bunderstack_django", "Job")._meta.constraints == Job._meta.constraints
