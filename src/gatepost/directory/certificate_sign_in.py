"""Signing in by a client's certificate: SASL EXTERNAL (RFC 4422), and HTTP requests on a connection that showed one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from gatepost.directory.certificates import CertificateNotJudged, CertificateRefused, Certificates, utc_now
from gatepost.directory.kerberos_port import Challenge
from gatepost.directory.policy.policy import SignInPolicy
from gatepost.directory.port import Directory, SignInResult, Verdict
from gatepost.directory.scram import ScramSignIn
from gatepost.directory.signed_in import WRONG, SignedInUsers, not_allowed
from gatepost.organization.model import Protocol
from gatepost.organization.names import BadLoginName, canonical_login_name
from gatepost.wire.events import Credentials
from gatepost.wire.sasl import BadSaslMessage, text

NO_CERTIFICATE = SignInResult(WRONG, reason="no certificate")


class CertificateSignIn(ScramSignIn):
    """The part of `SignInService` that judges certificates."""

    def __init__(
        self, directory: Directory, default_domain: str, clock: Callable[[], float], policy: SignInPolicy
    ) -> None:
        super().__init__(directory, default_domain, clock, policy)
        self.certificates: Certificates | None = None
        """None: clients' certificates are no identities."""
        self.utc: Callable[[], datetime] = utc_now

    def accepts_certificates(self, protocol: Protocol) -> bool:
        """Whether clients of this protocol are asked for a certificate."""
        return self.certificates is not None and self.certificates.settings.asks(protocol)

    async def user_of_certificate(self, der: bytes, protocol: Protocol, client: str) -> SignInResult:
        """The user whose certificate TLS has verified. A wrong one is charged nothing: nobody guesses. Never raises."""
        result = await self._of_certificate(der, protocol, client)
        self.policy.decided("(a certificate's)", protocol, client, result)
        return result

    async def _of_certificate(self, der: bytes, protocol: Protocol, client: str) -> SignInResult:
        if self.certificates is None or not der:
            return NO_CERTIFICATE
        try:
            name = self.certificates.name_of(der, self.utc())
            canonical = canonical_login_name(name, self._default_domain)
        except CertificateRefused as refused:
            return SignInResult(WRONG, reason=str(refused))
        except BadLoginName as error:
            return SignInResult(WRONG, reason=f"no possible name in the certificate: {error}")
        except CertificateNotJudged as fault:
            return SignInResult(Verdict.UNAVAILABLE, reason=str(fault))
        result = await SignedInUsers.user_of_ticket(self, canonical, protocol, client)
        user = result.user
        if result.verdict is Verdict.SIGNED_IN and user is not None and not self.policy.allows(user, protocol, client):
            return not_allowed(user)
        return result


@dataclass(slots=True)
class ExternalExchange:
    """SASL EXTERNAL: the client may say whom it wants to act as, and nothing else."""

    sign_in: CertificateSignIn
    certificate: bytes = field(repr=False)
    protocol: Protocol
    client: str
    credentials: Credentials = field(default_factory=lambda: Credentials("EXTERNAL", ""))

    async def step(self, token: bytes) -> Challenge | SignInResult:
        """Take the client's message. Never raises."""
        try:
            authorization = text(token)
        except BadSaslMessage as error:
            return SignInResult(WRONG, reason=f"EXTERNAL: {error}")
        result = await self.sign_in.user_of_certificate(self.certificate, self.protocol, self.client)
        name = result.user.name if result.user is not None else ""
        self.credentials = Credentials("EXTERNAL", name, authorization)
        return result
