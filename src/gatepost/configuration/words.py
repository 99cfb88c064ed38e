"""Types of the file's values that are words, networks or numbers with bounds, with their faults in plain words."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from ipaddress import ip_interface, ip_network
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from gatepost.organization.faults import nearest, quoted
from gatepost.organization.model import (
    AuthenticationMethod,
    ClientAddress,
    CrossSiteRedirect,
    Edition,
    HttpSignIn,
    Network,
    PathClass,
    Role,
    SignInForm,
    TlsMode,
    Version,
)
from gatepost.wire.submission_front import EXTENSIONS, FURTHER_EXTENSIONS

FAULT = "gatepost"
"""The error type of faults that carry `message` and `remedy` of their own."""

E = TypeVar("E", bound=Enum)
W = TypeVar("W")


def fault(message: str, remedy: str) -> PydanticCustomError:
    """An error for a validator to raise, with the texts that the operator will read."""
    return PydanticCustomError(FAULT, "{message}", {"message": message, "remedy": remedy})


def reader(choices: dict[str, W]) -> Callable[[Any], W]:
    """A validator that turns one of the words `choices` into its value."""

    def read(value: Any) -> W:  # noqa: ANN401 - anything that TOML can hold
        word = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(word, str):
            raise fault("is not a word", f"write one of: {', '.join(choices)}")
        if word in choices:
            return choices[word]
        meant = nearest(word, choices)
        words = ", ".join(choices)
        remedy = f'did you mean "{meant}"? Words are: {words}' if meant else f"words are: {words}"
        raise fault(f"has the unknown word {quoted(word)}", remedy)

    return read


def by_value(kind: type[E]) -> dict[str, E]:
    """The members of an enum by their words."""
    return {str(member.value): member for member in kind}


def read_network(value: Any) -> Network:  # noqa: ANN401 - anything that TOML can hold
    """A subnet from its text such as `10.0.0.0/8`; an address alone is a subnet of one."""
    if not isinstance(value, str):
        raise fault("is not a subnet", 'write it as text, for example "10.0.0.0/8"')
    try:
        return ip_network(value)
    except ValueError:
        pass
    try:
        meant = ip_interface(value).network
    except ValueError:
        raise fault(f"has {quoted(value)}, which is not a subnet", 'write it like "10.0.0.0/8"') from None
    raise fault(f"has {quoted(value)}, which has bits set behind its prefix", f'write "{meant}"')


VersionWord = Annotated[Version, BeforeValidator(reader({version.word: version for version in Version}))]
RoleWord = Annotated[Role, BeforeValidator(reader(by_value(Role)))]
EditionWord = Annotated[Edition, BeforeValidator(reader(by_value(Edition)))]
TlsWord = Annotated[TlsMode, BeforeValidator(reader(by_value(TlsMode)))]
ClientAddressWord = Annotated[ClientAddress, BeforeValidator(reader(by_value(ClientAddress)))]
FormWord = Annotated[SignInForm, BeforeValidator(reader(by_value(SignInForm)))]
HttpSignInWord = Annotated[HttpSignIn, BeforeValidator(reader(by_value(HttpSignIn)))]
AuthenticationWord = Annotated[AuthenticationMethod, BeforeValidator(reader(by_value(AuthenticationMethod)))]
PathClassWord = Annotated[PathClass, BeforeValidator(reader(by_value(PathClass)))]
CrossSiteRedirectWord = Annotated[CrossSiteRedirect, BeforeValidator(reader(by_value(CrossSiteRedirect)))]
SubmissionExtensionWord = Annotated[
    str, BeforeValidator(reader({word: word for word in (*EXTENSIONS, *FURTHER_EXTENSIONS)}))
]
Subnet = Annotated[Network, BeforeValidator(read_network)]
Port = Annotated[int, Field(ge=1, le=65535)]
