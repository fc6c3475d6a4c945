"""Indexes and constraints over the rows in some statuses only, on databases with partial indexes and without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.ddl_references import Statement
from django.db.models.constraints import BaseConstraint

_WIDEST = 255  # of a key on MariaDB; a migration may widen its column up to this


class PartialIndex(models.Index):
    """An index of the rows that meet ``where``; MariaDB, which has no such index, leads with ``lead`` instead.

    ``condition`` of Django's own Index makes MariaDB skip the index and warn (models.W037).
    """

    def __init__(self, *, fields: Sequence[str], name: str, where: models.Q, lead: str | None = None) -> None:
        super().__init__(fields=fields, name=name)
        self.where = where
        self.lead = lead

    def deconstruct(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        path, args, kwargs = super().deconstruct()
        return path, tuple(args), {**kwargs, "where": self.where, "lead": self.lead}

    def create_sql(
        self,
        model: type[models.Model],
        schema_editor: BaseDatabaseSchemaEditor,
        using: str = "",
        **kwargs: Any,
    ) -> Statement:
        if schema_editor.connection.features.supports_partial_indexes:
            index = models.Index(fields=self.fields, name=self.name, condition=self.where)
        else:
            index = models.Index(fields=[*([self.lead] if self.lead else []), *self.fields], name=self.name)
        return index.create_sql(model, schema_editor, using, **kwargs)


class UniqueWhile(BaseConstraint):
    """``fields`` are unique among the rows whose ``status`` is one of ``statuses``.

    A partial unique index where there is one. On MariaDB a generated column holds the last field
    while the row has such a status, else NULL, and a plain unique index covers it.
    """

    def __init__(self, *, fields: Sequence[str], statuses: Sequence[str], name: str) -> None:
        super().__init__(name=name)
        self.fields = tuple(fields)
        self.statuses = tuple(statuses)

    def deconstruct(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        path, args, kwargs = super().deconstruct()
        return path, tuple(args), {**kwargs, "fields": self.fields, "statuses": self.statuses}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UniqueWhile):
            return NotImplemented
        return self.deconstruct() == other.deconstruct()

    __hash__ = None  # type: ignore[assignment]

    def constraint_sql(self, model: Any, schema_editor: Any) -> None:  # type: ignore[override]
        # An index of its own, made once the table stands; Django does the same for a conditional constraint.
        schema_editor.deferred_sql.append(self.create_sql(model, schema_editor))

    def create_sql(self, model: Any, schema_editor: Any) -> Any:
        if schema_editor.connection.features.supports_partial_indexes:
            return self._partial(model).create_sql(model, schema_editor)
        quote = schema_editor.quote_name
        table = quote(model._meta.db_table)
        columns = [model._meta.get_field(name).column for name in self.fields]
        last = model._meta.get_field(self.fields[-1])
        listed = ", ".join(f"'{status}'" for status in self.statuses)
        unique = ", ".join(quote(column) for column in [*columns[:-1], self._slot])
        collation = last.db_parameters(schema_editor.connection)["collation"]
        return (
            f"ALTER TABLE {table} ADD COLUMN {quote(self._slot)} varchar({_WIDEST}) "
            f"COLLATE {collation} GENERATED ALWAYS AS "
            f"(CASE WHEN status IN ({listed}) THEN {quote(columns[-1])} END) VIRTUAL, "
            f"ADD UNIQUE INDEX {quote(self.name)} ({unique})"
        )

    def remove_sql(self, model: Any, schema_editor: Any) -> Any:
        if schema_editor.connection.features.supports_partial_indexes:
            return self._partial(model).remove_sql(model, schema_editor)
        quote = schema_editor.quote_name
        return f"ALTER TABLE {quote(model._meta.db_table)} DROP INDEX {quote(self.name)}, DROP COLUMN {quote(self._slot)}"

    def validate(self, model: Any, instance: Any, exclude: Any = None, using: str = "default") -> None:
        """The database decides: rows are written by the store, never through a form."""

    @property
    def _slot(self) -> str:
        return f"{self.fields[-1]}_while_active"

    def _partial(self, model: Any) -> models.UniqueConstraint:
        # Most rows have no key: none of their versions needs an entry in the index.
        has_key = models.Q(**{f"{self.fields[-1]}__isnull": False})
        return models.UniqueConstraint(
            fields=self.fields, condition=models.Q(status__in=self.statuses) & has_key, name=self.name
        )
