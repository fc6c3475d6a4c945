"""The arguments of a job: checked against its signature when enqueued, read back as the annotated types.

Arguments travel as JSON. An annotated argument is validated strictly, save that an int is good for a
float and a value for its Enum; one without an annotation must be plain JSON.
"""

from __future__ import annotations

import inspect
import json
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Final, ForwardRef

from pydantic import BeforeValidator, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation

from ..exceptions import InvalidPayload

_MAX_DEPTH: Final = 100
_MAX_INTEGER_BITS: Final = 13_000  # json.loads refuses integers of more than about 4,300 digits
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
Adapter = TypeAdapter[Any]


@dataclass(frozen=True, slots=True)
class Schema:
    """How the arguments of one function are checked, stored and read back."""

    function: Callable[..., Any]
    signature: inspect.Signature
    adapters: Mapping[
        str, Adapter | type | None
    ]  # None = plain JSON; a bare scalar type is compared directly
    problems: tuple[str, ...]  # annotations that cannot be used, each with its parameter's name
    plain_names: tuple[str, ...] | None  # the parameters, if every one may be given by position or name
    required: frozenset[str]

    def dump(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """``{"args", "kwargs"}`` in JSON form. Raises InvalidPayload naming the argument."""
        if self.problems:
            raise InvalidPayload(f"{self._name}() cannot be enqueued: {' '.join(self.problems)}")
        if self._binds_plainly(args, kwargs):
            return {
                "args": [
                    self._check(name, name, value)
                    for name, value in zip(self.plain_names or (), args, strict=False)
                ],
                "kwargs": {name: self._check(name, name, value) for name, value in kwargs.items()},
            }
        bound = self._bind(args, kwargs)
        named = {
            name: self._dump_one(name, value, parameter)
            for name, value, parameter in _arguments(bound, self.signature)
        }
        return _as_called(kwargs, self.signature, named)

    def load(self, payload: Any) -> tuple[list[Any], dict[str, Any]]:
        """The arguments to call with. Raises InvalidPayload if the payload no longer fits."""
        args, kwargs = split(payload)
        if self._binds_plainly(args, kwargs):
            loaded = [
                self._load_one(name, value) for name, value in zip(self.plain_names or (), args, strict=False)
            ]
            return loaded, {name: self._load_one(name, value) for name, value in kwargs.items()}
        bound = self._bind(tuple(args), kwargs)
        for name, value, parameter in _arguments(bound, self.signature):
            match parameter.kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    bound.arguments[name] = tuple(self._load_one(name, each) for each in value)
                case inspect.Parameter.VAR_KEYWORD:
                    bound.arguments[name] = {key: self._load_one(name, each) for key, each in value.items()}
                case _:
                    bound.arguments[name] = self._load_one(name, value)
        return list(bound.args), bound.kwargs

    @property
    def _name(self) -> str:
        return self.function.__qualname__

    def _binds_plainly(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Whether a call fits a signature without frills: what ``inspect`` would find out in ten times the time."""
        names = self.plain_names
        if names is None or len(args) > len(names):
            return False
        given = {*names[: len(args)], *kwargs}
        return len(given) == len(args) + len(kwargs) and self.required <= given <= self.adapters.keys()

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        try:
            return self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidPayload(f"{self._name}(): {error}. Its signature is {self.signature}.") from None

    def _dump_one(self, name: str, value: Any, parameter: inspect.Parameter) -> Any:
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                return [self._check(f"{name}[{index}]", name, each) for index, each in enumerate(value)]
            case inspect.Parameter.VAR_KEYWORD:
                return {plain(key, key): self._check(key, name, each) for key, each in value.items()}
            case _:
                return self._check(name, name, value)

    def _check(self, label: str, name: str, value: Any) -> Any:
        adapter = self.adapters[name]
        if adapter is None or type(value) is adapter:
            return plain(value, label)
        if isinstance(adapter, type):
            if adapter is float and type(value) is int:
                return _as_float(value, label)
            if isinstance(value, adapter) and not isinstance(value, bool):  # SafeString, TextChoices, …
                return plain(value, label)
            raise _mistyped(self._name, label, value, f"Input should be {adapter.__name__}.")
        try:
            checked = adapter.validate_python(value, strict=True)
            dumped = plain(adapter.dump_python(checked, mode="json", warnings="error"), label)
            adapter.validate_json(json.dumps(dumped), strict=True)  # what the worker will do
        except InvalidPayload:
            raise
        except ValidationError as error:
            raise _mistyped(self._name, label, value, _reasons(error)) from None
        except (ValueError, TypeError, RecursionError) as error:
            raise _mistyped(self._name, label, value, f"It cannot be stored as JSON: {error}.") from None
        return dumped

    def _load_one(self, name: str, value: Any) -> Any:
        adapter = self.adapters[name]
        if adapter is None or type(value) is adapter:
            return value
        if isinstance(adapter, type):
            if adapter is float and type(value) is int:
                return float(value)
            raise _mistyped(self._name, name, value, f"Input should be {adapter.__name__}.")
        try:
            return adapter.validate_json(json.dumps(value), strict=True)
        except ValidationError as error:
            raise _mistyped(self._name, name, value, _reasons(error)) from None


@cache
def schema_of(function: Callable[..., Any], takes_context: bool = False) -> Schema:
    """The schema of ``function``, built at first use."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[1 if takes_context else 0 :]
    adapters: dict[str, Adapter | type | None] = {}
    problems: list[str] = []
    for parameter in parameters:
        try:
            adapters[parameter.name] = _adapter(parameter.annotation, function)
        except Exception as error:  # noqa: BLE001 - an annotation is any expression; each fault is reported
            adapters[parameter.name] = None
            problems.append(
                f"The annotation {_shown(parameter.annotation)} of parameter {parameter.name!r} of "
                f"{function.__module__}.{function.__qualname__} cannot be used: {_one_line(error)}."
            )
    is_plain = all(parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)
    return Schema(
        function,
        signature.replace(parameters=parameters),
        adapters,
        tuple(problems),
        plain_names=tuple(adapters) if is_plain else None,
        required=frozenset(each.name for each in parameters if each.default is inspect.Parameter.empty),
    )


def split(payload: Any) -> tuple[list[Any], dict[str, Any]]:
    """The two halves of a stored payload. Raises InvalidPayload for anything else."""
    match payload:
        case {"args": list() as args, "kwargs": dict() as kwargs}:
            return args, kwargs
    raise InvalidPayload(
        f"The stored payload is not {{'args': […], 'kwargs': {{…}}}} but {_clipped(payload)}."
    )


def encode(value: Any, label: str, limit: int) -> str:
    """``value`` (plain JSON already) as text of at most ``limit`` bytes. Raises InvalidPayload."""
    text = _ENCODER.encode(value)
    if len(text) * 4 > limit and (size := len(text.encode())) > limit:
        raise InvalidPayload(
            f"{label} takes {size:,} bytes as JSON; at most {limit:,} are stored (MAX_PAYLOAD_BYTES). "
            "Store large data elsewhere and pass its key."
        )
    return text


def plain(value: Any, label: str, depth: int = 0) -> Any:
    """``value`` as plain JSON, as every database keeps it. Raises InvalidPayload naming ``label``."""
    kind = type(value)
    if kind is str:
        return _storable(value, label)
    if value is None or kind is bool:
        return value
    if kind is int:
        if value.bit_length() > _MAX_INTEGER_BITS:
            raise InvalidPayload(f"Argument {label!r} holds an integer of too many digits to be stored.")
        return value
    if kind is float:
        if not math.isfinite(value):
            raise InvalidPayload(f"Argument {label!r} holds {value!r}, which is not JSON.")
        return value
    if depth > _MAX_DEPTH:
        raise InvalidPayload(f"Argument {label!r} is nested more than {_MAX_DEPTH} levels deep.")
    if isinstance(value, dict):
        return {_key(key, label): plain(each, label, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each, label, depth + 1) for each in value]
    return _plain_other(value, label, depth)


def _plain_other(value: Any, label: str, depth: int) -> Any:
    if isinstance(value, bytes):  # as django.tasks has it
        try:
            return _storable(value.decode(), label)
        except UnicodeDecodeError:
            raise InvalidPayload(f"Argument {label!r} holds bytes that are not UTF-8 text.") from None
    if isinstance(value, (str, int, float)):  # a subclass: SafeString, a TextChoices member, …
        base = next(kind for kind in (str, int, float) if isinstance(value, kind))
        return plain(base(value.value if isinstance(value, Enum) else value), label, depth)
    kind = type(value)
    raise InvalidPayload(
        f"Argument {label!r} is a {kind.__module__}.{kind.__qualname__}, which is not JSON. "
        f"Annotate the parameter with a type that can be stored, or pass a key instead"
        f"{' (a model instance: its pk)' if hasattr(value, '_meta') else ''}."
    )


def _key(key: Any, label: str) -> str:
    if isinstance(key, str):
        return _storable(str(key), label)
    if type(key) is int:
        return str(key)
    raise InvalidPayload(f"Argument {label!r} has the key {key!r}; JSON keys are strings.")


def _storable(text: str, label: str) -> str:
    if "\0" in text:
        raise InvalidPayload(f"Argument {label!r} holds a NUL character, which PostgreSQL cannot store.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidPayload(
                f"Argument {label!r} holds a lone surrogate, which is not valid text."
            ) from None
    return text


def _as_float(value: int, label: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise InvalidPayload(f"Argument {label!r} is too large for a float.") from None


def _arguments(
    bound: inspect.BoundArguments, signature: inspect.Signature
) -> list[tuple[str, Any, inspect.Parameter]]:
    return [(name, value, signature.parameters[name]) for name, value in bound.arguments.items()]


def _as_called(kwargs: dict[str, Any], signature: inspect.Signature, named: dict[str, Any]) -> dict[str, Any]:
    """Spread the checked values over args and kwargs the way the caller did."""
    stored_args: list[Any] = []
    stored_kwargs: dict[str, Any] = {}
    for name, value in named.items():
        match signature.parameters[name].kind:
            case inspect.Parameter.VAR_POSITIONAL:
                stored_args.extend(value)
            case inspect.Parameter.VAR_KEYWORD:
                stored_kwargs.update(value)
            case inspect.Parameter.POSITIONAL_ONLY:
                stored_args.append(value)
            case _ if name in kwargs:
                stored_kwargs[name] = value
            case _:
                stored_args.append(value)
    return {"args": stored_args, "kwargs": stored_kwargs}


def _adapter(annotation: Any, function: Callable[..., Any]) -> Adapter | type | None:
    resolved = _resolved(annotation, inspect.unwrap(function).__globals__)
    if resolved in (inspect.Parameter.empty, Any, object):
        return None
    if resolved in (str, int, float, bool):
        return resolved  # type: ignore[no-any-return]
    return TypeAdapter(resolved)


def _resolved(annotation: Any, names: dict[str, Any]) -> Any:
    """``annotation`` with quoted names looked up, and each Enum accepting its values as well as its members."""
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        return _resolved(eval(annotation, names), names)  # noqa: S307 - the program's own source
    if inspect.isclass(annotation) and issubclass(annotation, Enum):
        return Annotated[annotation, BeforeValidator(lambda value: _member(annotation, value))]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, UnionType):
        return reduce(or_, (_resolved(each, names) for each in arguments))
    if origin in (list, set, frozenset, tuple, dict):
        return origin[tuple(_resolved(each, names) for each in arguments)]
    return annotation


def _member(kind: type[Enum], value: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        return value


def _mistyped(function: str, label: str, value: Any, reason: str) -> InvalidPayload:
    return InvalidPayload(f"{function}(): argument {label!r} is {_clipped(value)}. {reason}")


def _reasons(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)[:3]
    return " ".join(
        f"{each['msg']}{' at ' + '.'.join(map(str, each['loc'])) if each['loc'] else ''}." for each in found
    )


def _one_line(error: Exception) -> str:
    if isinstance(error, PydanticSchemaGenerationError | PydanticUndefinedAnnotation | PydanticUserError):
        return error.message.splitlines()[0].rstrip(".")
    return f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".")


def _shown(annotation: Any) -> str:
    return (
        annotation if isinstance(annotation, str) else getattr(annotation, "__qualname__", repr(annotation))
    )


def _clipped(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a caller's own __repr__
        text = f"<{type(value).__qualname__}>"
    return text if len(text) <= 100 else text[:99] + "…"
