"""Types of the file's values of transport: sizes, time spans, bindings, address ranges, address spaces, smart hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator

from gatepost.configuration.words import by_value, fault, reader
from gatepost.organization.faults import quoted
from gatepost.organization.transport import (
    AddressRange,
    AddressSpace,
    Binding,
    DomainKind,
    PermissionGroup,
    ReceiveAuthentication,
    ShadowPreference,
    SmartHost,
    TlsLevel,
)
from gatepost.organization.transport_text import (
    read_binding,
    read_range,
    read_size,
    read_smart_host,
    read_space,
    read_span,
)

T = TypeVar("T")


def _text(read: Callable[[str], T], example: str) -> Callable[[Any], T]:
    """A validator for a text that `read` understands."""

    def validate(value: Any) -> T:  # noqa: ANN401 - anything that TOML can hold
        if not isinstance(value, str):
            raise fault("must be text in quotes", f"write it like {example}")
        try:
            return read(value)
        except ValueError as wrong:
            raise fault(f"has {quoted(value)}, which {wrong}", f"write it like {example}") from None

    return validate


def _size(value: Any) -> int:  # noqa: ANN401
    """Bytes, as a number or as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return _text(read_size, '"35MB"')(value)


def _span(value: Any) -> float:  # noqa: ANN401
    """Seconds, as a number or as `dd.hh:mm:ss`."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return _text(read_span, '"00:05:00"')(value)


Size = Annotated[int, BeforeValidator(_size)]
"""Bytes: a number, or text such as `35MB`."""
Span = Annotated[float, BeforeValidator(_span)]
"""Seconds: a number, or text such as `00:05:00`."""
BindingText = Annotated[Binding, BeforeValidator(_text(read_binding, '"0.0.0.0:25"'))]
RangeText = Annotated[AddressRange, BeforeValidator(_text(read_range, '"10.0.0.0/8"'))]
SpaceText = Annotated[AddressSpace, BeforeValidator(_text(read_space, '"*.contoso.com;5"'))]
SmartHostText = Annotated[SmartHost, BeforeValidator(_text(read_smart_host, '"relay.contoso.com"'))]
DomainKindWord = Annotated[DomainKind, BeforeValidator(reader(by_value(DomainKind)))]
PermissionWord = Annotated[PermissionGroup, BeforeValidator(reader(by_value(PermissionGroup)))]
ReceiveAuthenticationWord = Annotated[ReceiveAuthentication, BeforeValidator(reader(by_value(ReceiveAuthentication)))]
ShadowPreferenceWord = Annotated[ShadowPreference, BeforeValidator(reader(by_value(ShadowPreference)))]
TlsLevelWord = Annotated[TlsLevel, BeforeValidator(reader(by_value(TlsLevel)))]
