"""A faster constructor for frozen dataclasses.

`dataclass(frozen=True)` closes a class by a `__setattr__` that raises, so its `__init__` sets each field by a call of
`object.__setattr__`. A tenth of a simulated run was such calls. Here an object is filled as one of an open class with
the same slots, where an assignment is one instruction, and becomes one of the frozen class at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from types import FunctionType, MethodType
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


def quickly_made(kind: type[T]) -> type[T]:
    """Give a frozen dataclass with slots a constructor that takes the same arguments, and sets them by assignment.

    For classes of which many are made. The class must have no base, and no field with a factory. A compiled class,
    which has no slots, is returned as it is: it sets its fields directly already.
    """
    if "__slots__" not in vars(kind):
        return kind
    members = fields(kind)  # type: ignore[arg-type]
    assert kind.__bases__ == (object,), kind
    assert all(each.init and each.default_factory is MISSING for each in members), kind
    open_kind = type(kind.__name__, (), {"__slots__": vars(kind)["__slots__"], "__module__": kind.__module__})
    names: dict[str, Any] = {"open_kind": open_kind}
    exec(_constructor(members, names, is_checked=hasattr(kind, "__post_init__")), names)
    kind.__new__ = names["__new__"]  # type: ignore[method-assign]
    del kind.__init__
    # A copy and an unpickled object are made by the constructor too.
    kind.__getnewargs_ex__ = lambda self: ((), {each.name: getattr(self, each.name) for each in members})  # type: ignore[attr-defined]
    return kind


def _constructor(members: tuple[Field[Any], ...], names: dict[str, Any], *, is_checked: bool) -> str:
    """Returns the source of a `__new__` for these fields, and puts their defaults into `names`."""
    positional = [_parameter(each, names) for each in members if not each.kw_only]
    by_name = [_parameter(each, names) for each in members if each.kw_only]
    parameters = ", ".join(["cls", *positional, *(["*", *by_name] if by_name else [])])
    lines = [f"self.{each.name} = {each.name}" for each in members]
    check = ["self.__post_init__()"] if is_checked else []
    body = "\n    ".join(["self = open_kind()", *lines, "self.__class__ = cls", *check, "return self"])
    return f"def __new__({parameters}):\n    {body}\n"


def _parameter(member: Field[Any], names: dict[str, Any]) -> str:
    if member.default is MISSING:
        return member.name
    names[f"default_{member.name}"] = member.default
    return f"{member.name}=default_{member.name}"


def maker(kind: Callable[P, T]) -> Callable[P, T]:
    """Returns a function that makes what a call of the class makes, from the same arguments, in about half the time.

    A call of a class collects the names of its arguments in a dict; a call of a function does not. For classes that are
    `quickly_made`, where each message makes several; of any other class it returns the class itself.
    """
    # A class has no dict but a view of one, which the compiled build tells apart by the type.
    constructor: object = vars(cast("type[object]", kind)).get("__new__")
    if not isinstance(constructor, FunctionType):
        return kind
    made: Any = MethodType(constructor, kind)
    return made  # type: ignore[no-any-return]


def complete(
    kind: type[Any],
    annotations: dict[str, str],
    defaults: dict[str, Any],
    *,
    frozen: bool = False,
    eq: bool = True,
    kw_only: bool = False,
) -> None:
    """Give a compiled class, which has its fields and its constructor, the rest of a dataclass.

    Only the compiled build calls this (`tools/native_form.py`). The rest is taken from a dataclass of the same fields.
    """
    pattern: Any = type(
        kind.__name__, (), {"__annotations__": annotations, "__module__": kind.__module__, **defaults}
    )
    pattern.__qualname__ = kind.__qualname__
    pattern = dataclass(frozen=frozen, eq=eq, kw_only=kw_only)(pattern)
    for name in ("__dataclass_fields__", "__dataclass_params__", "__match_args__"):
        setattr(kind, name, getattr(pattern, name))
    for name in ("__eq__", "__hash__", "__repr__"):
        # A class with a comparison and no hash of its own has None in its place.
        if name in vars(pattern) and vars(kind).get(name) is None:
            setattr(kind, name, vars(pattern)[name])
    names = tuple(annotations)
    reduce: Any = lambda self: (_made, (kind, {name: getattr(self, name) for name in names}))  # noqa: E731
    setattr(kind, "__reduce__", reduce)  # noqa: B010


def caused(error: E | type[E], cause: BaseException | None) -> E:
    """Returns the error with its cause, as `raise error from cause` would set it; an error class is called first.

    Only the compiled build calls this (`tools/native_form.py`).
    """
    raised = error() if isinstance(error, type) else error
    raised.__cause__ = cause
    return raised


def _made(kind: type[T], values: dict[str, Any]) -> T:
    """Returns a copied or unpickled object, made by the constructor as any other."""
    return kind(**values)
