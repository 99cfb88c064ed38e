"""Opening shadow channels: once for all, with the right server only, kept, and what strangers get instead (S1, T9)."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from typing import Any

import pytest
import trustme
from peer_samples import ca_pair
from receive_stage import CONNECTOR, client_context, loopback, until
from shadow_channel_stage import HUB_02, SERVERS, answering_tls, channel_stage, issue, server, showing

from gatepost.configuration.key_pairs import load_key_pair
from gatepost.organization.transport import PermissionGroup, ReceiveAuthentication, TlsLevel
from gatepost.peers.ca import KeyPair
from gatepost.peers.identity import PeerTrust
from gatepost.transport.message import Watcher
from gatepost.transport.receive.tls import TRANSPORT_ROLES
from gatepost.transport.send.outcome import ConnectFailed
from gatepost.transport.send.tls import TlsMaterial
from gatepost.transport.shadow.ports import ChannelLost
from gatepost.transport.shadow.tokens import Tokens
from gatepost.wire.shadow_frames import ClientFrames
from gatepost.wire.shadow_messages import AskStatus
from gatepost.wire.shadow_words import ShadowHub, ShadowOffer, is_token


async def test_a_channel_is_opened_once_for_all_who_wait_and_kept() -> None:
    async with channel_stage() as stage:
        assert stage.channels.ready("HUB-01")
        assert stage.reach.calls == []
        found = await asyncio.gather(*(stage.channels.channel("HUB-01", heartbeat=n % 2 == 0) for n in range(20)))
        assert len(set(found)) == 1
        assert await stage.channels.channel("HUB-01") is found[0]
        assert len(stage.reach.calls) == len(stage.channels) == stage.channels.opened == 1


async def test_who_waits_and_gives_up_does_not_end_the_opening() -> None:
    async with channel_stage() as stage:
        first = asyncio.create_task(stage.channels.channel("HUB-01"))
        second = asyncio.create_task(stage.channels.channel("HUB-01"))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).usable
        assert len(stage.reach.calls) == 1


async def test_a_hub_that_is_known_to_be_down_is_tried_by_heartbeats_only() -> None:
    async with channel_stage() as stage:
        stage.reach.up = False
        assert not stage.channels.ready("HUB-01")
        with pytest.raises(ChannelLost, match="known to be down"):
            await stage.channels.channel("HUB-01")
        waiting = asyncio.create_task(stage.channels.channel("HUB-01", heartbeat=True))
        assert (await waiting).usable
        assert stage.reach.calls == [("HUB-01", False), ("HUB-01", True)]
        assert stage.channels.ready("HUB-01")


async def test_a_heartbeat_that_joins_an_attempt_the_list_has_stopped_makes_its_own() -> None:
    async with channel_stage() as stage:
        stage.reach.up = False
        stage.reach.gate.clear()
        plain = asyncio.create_task(stage.channels.channel("HUB-01"))
        await until(lambda: stage.reach.calls)
        heartbeat = asyncio.create_task(stage.channels.channel("HUB-01", heartbeat=True))
        await asyncio.sleep(0.01)
        assert len(stage.reach.calls) == 1
        stage.reach.gate.set()
        with pytest.raises(ChannelLost):
            await plain
        assert (await heartbeat).usable


async def test_a_hub_that_refuses_is_left_alone_for_a_while() -> None:
    async with channel_stage() as stage:
        stage.received.service.shadow = None
        with pytest.raises(ChannelLost, match="offers no shadow channel"):
            await stage.channels.channel("HUB-01")
        assert not stage.channels.ready("HUB-01")
        with pytest.raises(ChannelLost):
            await stage.channels.channel("HUB-01")
        assert len(stage.reach.calls) == 1
        stage.channels.keep_only(frozenset({"HUB-01"}))
        assert stage.channels.ready("HUB-01")


async def test_a_lost_channel_is_opened_again() -> None:
    async with channel_stage() as stage:
        first = await stage.channels.channel("HUB-01")
        stage.answering.abort()
        await until(lambda: not first.usable)
        assert stage.channels.ready("HUB-01")
        second = await stage.channels.channel("HUB-01")
        assert second.usable
        assert await second.hold("a", b"e", b"c", 1) == ""


async def test_channels_to_servers_that_are_none_any_more_are_closed() -> None:
    async with channel_stage() as stage:
        channel = await stage.channels.channel("HUB-01")
        stage.channels.keep_only(frozenset({"HUB-01"}))
        assert channel.usable
        stage.channels.keep_only(frozenset({"HUB-03"}))
        assert not channel.usable
        await until(lambda: not stage.received.service.channels)


async def test_nothing_is_opened_any_more_after_the_end() -> None:
    async with channel_stage() as stage:
        channel = await stage.channels.channel("HUB-01")
        waiting = asyncio.create_task(stage.channels.channel("HUB-03"))
        await asyncio.sleep(0)
        stage.channels.close()
        stage.channels.close()
        assert not channel.usable
        with pytest.raises(ChannelLost):
            await waiting
        with pytest.raises(ChannelLost):
            await stage.channels.channel("HUB-01")
        assert not stage.channels.ready("HUB-01")


# Who the other side is


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (lambda: issue(SERVERS["HUB-03"]), "certificate refused"),
        (lambda: issue(SERVERS["HUB-01"], "fabrikam"), "certificate refused"),
        # The name is right, the server is another: a certificate from before hubs were renamed, or a shared name.
        (lambda: issue(replace(server("HUB-03"), fqdn="hub-01.contoso.com")), "offers no shadow channel"),
    ],
    ids=["another hub", "another organization", "another server by that name"],
)
async def test_the_peer_must_prove_to_be_that_server(shown: Any, why: str) -> None:
    pair: KeyPair = shown()
    good = answering_tls()
    mutual = good.mutual
    assert mutual is not None
    load_key_pair(mutual, pair.certificate, pair.private_key)
    async with channel_stage(tls=good) as stage:
        with pytest.raises(ChannelLost, match=why):
            await stage.channels.channel("HUB-01")
        assert not stage.received.service.channels


@pytest.mark.parametrize("way", [{"mutual": False, "tls": TlsLevel.ENCRYPTED}, {"server": ""}, {"server": "HUB-09"}])
async def test_without_mutual_tls_with_that_server_there_is_no_channel(way: dict[str, Any]) -> None:
    async with channel_stage() as stage:
        stage.reach.way = way
        with pytest.raises(ChannelLost, match=r"offers no shadow channel|closed"):
            await stage.channels.channel("HUB-01")


async def test_a_server_that_calls_itself_another_is_refused() -> None:
    async with channel_stage() as stage:
        part = stage.received.service.shadow
        assert part is not None
        other = ShadowOffer(ShadowHub("HUB-03", "x"), part.offer.servers)
        stage.received.service.shadow = replace(part, offer=other)
        with pytest.raises(ChannelLost, match="offers no shadow channel"):
            await stage.channels.channel("HUB-01")


async def test_a_server_that_answers_as_another_than_it_said_is_refused() -> None:
    async with channel_stage() as stage:
        sender = await stage.reach.reach_server("HUB-01")
        (connection,) = stage.received.service.connections
        assert connection.session is not None
        connection.session._shadow = ShadowOffer(ShadowHub("HUB-03", "x"), frozenset({"HUB-02"}))
        with pytest.raises(ConnectFailed, match="another server answers"):
            await sender.open_channel(HUB_02)
        assert sender.closed or sender.transport.is_closing()


@pytest.mark.parametrize("name", ["CAS-01", "HUB-03"])
async def test_only_hubs_that_take_part_may_open_one(name: str) -> None:
    async with channel_stage() as stage:
        part = stage.received.service.shadow
        assert part is not None
        stage.received.service.shadow = replace(part, offer=ShadowOffer(part.offer.own, frozenset({"HUB-02"})))
        pair = issue(SERVERS[name])
        stage.outbound.renew(TlsMaterial(b"", ca_pair().certificate, pair.certificate, pair.private_key))
        stage.reach.name = f"{name.lower()}.contoso.com"
        with pytest.raises(ChannelLost, match="offers no shadow channel"):
            await stage.channels.channel("HUB-01")


async def attempt(client: Any) -> list[str]:
    """What somebody gets who tries all of it."""
    got = await client.say(
        "EHLO hub-02.contoso.com",
        "XSHADOW HUB-02 identity",
        "MAIL FROM:<a@far.example> XSHADOW=a-1",
        "MAIL FROM:<a@far.example>",
        "XSHADOW HUB-02 identity",
    )
    assert "XSHADOW" not in got[0]
    return [answer[:9] for answer in got[1:]]


REFUSED = ["502 5.5.1", "555 5.5.4", "250 2.1.0", "502 5.5.1"]


async def test_before_tls_nobody_is_offered_anything() -> None:
    async with channel_stage() as stage:
        assert await attempt(await stage.received.client()) == REFUSED


async def test_a_stranger_within_tls_is_not_offered_anything() -> None:
    async with channel_stage() as stage:
        client = await stage.received.client()
        await client.say("EHLO far.example", "STARTTLS")
        await client.start_tls()
        assert await attempt(client) == REFUSED
        assert not stage.received.service.channels


async def test_a_partner_is_not_offered_anything() -> None:
    known = trustme.CA()
    groups = frozenset({PermissionGroup.PARTNERS, PermissionGroup.SERVERS})
    connector = replace(CONNECTOR, permission_groups=groups)
    async with channel_stage(connector, tls=answering_tls(partner_ca=known.cert_pem.bytes())) as stage:
        client = await stage.received.client()
        await client.say("EHLO p.example", "STARTTLS")
        context = client_context()
        known.issue_cert("hub-02.contoso.com").configure_cert(context)
        await client.start_tls(context)
        assert await attempt(client) == REFUSED


@pytest.mark.parametrize("organization", ["fabrikam", ""])
async def test_a_certificate_of_another_authority_gets_nowhere(organization: str) -> None:
    async with channel_stage() as stage:
        client = await stage.received.client()
        await client.say("EHLO hub-02.contoso.com", "STARTTLS")
        context = showing(issue(SERVERS["HUB-02"], organization) if organization else None)
        try:
            await client.start_tls(context)
            got = await client.say("EHLO hub-02.contoso.com", "XSHADOW HUB-02 identity")
        except (ssl.SSLError, ConnectionError):
            got = []
        assert not any(answer.startswith("250 2.0.0") for answer in got)
        assert not stage.received.service.channels
        await until(lambda: not stage.received.service.connections)


async def test_an_externally_secured_network_is_not_enough() -> None:
    how = frozenset({ReceiveAuthentication.EXTERNALLY_SECURED, ReceiveAuthentication.TLS})
    async with channel_stage(replace(CONNECTOR, authentication=how)) as stage:
        client = await stage.received.client()
        await client.say("EHLO hub-02.contoso.com", "STARTTLS")
        await client.start_tls()
        assert await attempt(client) == REFUSED


async def test_who_speaks_for_another_is_no_hub_any_more() -> None:
    async with channel_stage(replace(CONNECTOR, xclient_from=(loopback(),))) as stage:
        client = await stage.received.client()
        await client.say("EHLO hub-02.contoso.com", "STARTTLS")
        await client.start_tls(showing(issue(SERVERS["HUB-02"])))
        assert "XSHADOW" in (await client.say("EHLO hub-02.contoso.com"))[0]
        assert (await client.say("XCLIENT ADDR=192.0.2.1"))[0].startswith("220")
        assert await attempt(client) == REFUSED


async def test_a_hub_by_its_certificate_gives_its_message_a_watcher() -> None:
    async with channel_stage() as stage:
        client = await stage.received.client()
        await client.say("EHLO hub-02.contoso.com", "STARTTLS")
        await client.start_tls(showing(issue(SERVERS["HUB-02"])))
        got = await client.say("EHLO hub-02.contoso.com", "MAIL FROM:<a@ours.example> XSHADOW=ab-1")
        assert got[1].startswith("250")
        await client.say("RCPT TO:<b@ours.example>", "DATA")
        await client.say("x\r\n.")
        await client.begin()
        await client.say("x\r\n.")
        first, second = (envelope for envelope, _ in stage.received.intake.taken)
        assert first.watchers == [Watcher("HUB-02", "ab-1")]
        assert second.watchers == []


async def test_octets_in_the_same_packet_belong_to_the_channel() -> None:
    async with channel_stage() as stage:
        client = await stage.received.client()
        await client.say("EHLO hub-02.contoso.com", "STARTTLS")
        await client.start_tls(showing(issue(SERVERS["HUB-02"])))
        await client.say("EHLO hub-02.contoso.com")
        frames = ClientFrames()
        client.writer.write(b"XSHADOW HUB-02 identity\r\n" + frames.ask(AskStatus(["a"]))[1])
        assert await client.reply() == "250 2.0.0 HUB-01 id-of-hub-01"
        answer = await client.reader.readexactly(12)
        frames.receive(answer + await client.reader.readexactly(int.from_bytes(answer[8:], "big")))
        assert frames.fault is None
        assert frames.under_way == 0
        client.close()


async def test_a_channel_keeps_its_connectors_place() -> None:
    async with channel_stage(replace(CONNECTOR, max_connections_per_source=1)) as stage:
        channel = await stage.channels.channel("HUB-01")
        other = await stage.received.client(greeted=False)
        assert (await other.reply()).startswith("421")
        channel.close()
        await until(lambda: not stage.received.service.channels)
        assert (await (await stage.received.client(greeted=False)).reply()).startswith("220")


def test_tokens_are_unique_over_runs_and_messages() -> None:
    identity = "0123456789abcdef0123456789abcdef"
    runs = [Tokens(identity), Tokens(identity), Tokens("f" * 32)]
    found = [run.fresh() for run in runs for _ in range(1000)]
    found += [
        run.of(number, running) for run in runs[1:] for number in (1, 0x7FFF_FFFF_FFFF_FFFF) for running in (0, 1)
    ]
    assert len(set(found)) == len(found)
    assert all(map(is_token, found))
    assert is_token(Tokens("01234567-89ab-cdef-0123-456789abcdef").fresh())
    with pytest.raises(ValueError, match="another form"):
        Tokens("no identity")


@pytest.mark.parametrize("change", ["off", "no hub any more", "another CA", "nothing"])
async def test_a_channel_ends_when_its_hub_is_none_any_more(change: str) -> None:
    async with channel_stage() as stage:
        channel = await stage.channels.channel("HUB-01")
        service = stage.received.service
        part, tls = service.shadow, service.tls
        assert part is not None
        assert tls is not None
        if change == "off":
            service.shadow = None
        elif change == "no hub any more":
            service.shadow = replace(part, offer=ShadowOffer(part.offer.own, frozenset({"HUB-03"})))
        else:
            ca = ca_pair("fabrikam" if change == "another CA" else "contoso").certificate
            trust = PeerTrust(ca, SERVERS, "HUB-01", TRANSPORT_ROLES)
            service.reload(service._connectors, service.host, replace(tls, trust=trust), None)
        if change == "nothing":
            assert await channel.hold("a", b"e", b"c", 1) == ""
        else:
            await until(lambda: not channel.usable and not service.channels)
