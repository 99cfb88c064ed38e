"""Steps of the tour: the rules of client access. Redirected, proxied by a peer, refused; forms sign-in; affinity."""

from __future__ import annotations

import re
import time
from urllib.parse import urlencode

from gatepost.lab import figure
from gatepost.lab.clients import WebAnswer
from gatepost.lab.servers.gatepost import run_gatepost
from gatepost.lab.tour import Differs, Step, Visit, expect

FOLLOW_SECONDS = 6.0
"""From a cmdlet's end until the front end follows it: four of them read the file anew at once, on this one machine."""
TOLD_SECONDS = 3.0
"""From a sign-out at one front end until another one knows."""
NOTICE_SECONDS = 10.0
"""Until a server that came back is used again."""
POLL_SECONDS = 0.05
PAGE = {"Accept": "text/html"}
OWA_AT_02 = r'"CAS-02\owa (default web site)"'
FORM_FIELD = re.compile(r'<input[^>]*name="([^"]+)"[^>]*value="([^"]*)"')


def steps() -> list[Step]:
    """In the order to take them."""
    outside = figure.external_name("usa")
    return [
        Step("user5, whose mailbox of 2010 is in usa, by ActiveSync at CAS-02", f"451, to {outside}", _device),
        Step("the same with a phone of protocol 12.0, too old for 451", "proxied by CAS-01 to EX10-02", _old_device),
        Step("user5 opens /owa/?id=7 at CAS-02", f"a page with the link to https://{outside}/owa/?id=7", _link),
        Step(f"set-owavirtualdirectory {OWA_AT_02} -RedirectToOptimalOWAServer $false", "proxied within 6 s", _switch),
        Step(f"set-owavirtualdirectory {OWA_AT_02} -RedirectToOptimalOWAServer $true", "the page again", _back),
        Step("user4, a 2010 mailbox of asia, opens /owa at CAS-02", "proxied by CAS-03 or CAS-04 to EX10-01", _proxied),
        Step("the front end of asia that it went by is stopped", "the next click goes by the other one", _other),
        Step("it is started again", "the user stays with the other one", _stays),
        Step("user6, a 2003 mailbox, opens /owa at CAS-01", "a page that says to use /exchange", _old_owa),
        Step("user6 opens /exchange at CAS-01", "straight to EX03-01 in europe", _exchange),
        Step("user5 opens /exchange at CAS-01", "sent to /owa", _newer_exchange),
        Step("a browser opens /owa at CAS-01", "the sign-in page", _sign_in_page),
        Step("user1 signs in there with the form", "the page of MBX-01", _sign_in),
        Step("the next click, at CAS-02", "the page of MBX-01, nobody is asked for a password", _next_click),
        Step("user1 signs out at CAS-02; the old cookie at CAS-01", "void there within 3 s", _sign_out),
        Step("user5 asks CAS-02 for autodiscover", f"URLs at {outside}", _autodiscover),
        Step("a balancer asks for /owa/healthcheck.htm at CAS-01", "200 and the server's name", _health),
    ]


def _activesync(visit: Visit, version: str) -> WebAnswer:
    path = f"/{figure.ACTIVESYNC}?Cmd=FolderSync&User=user5&DeviceId=lab0&DeviceType=Lab"
    headers = {"MS-ASProtocolVersion": version, "Content-Type": "application/vnd.ms-sync.wbxml"}
    return visit.web("CAS-02", "user5", path, headers, method="POST", body=b"\x03\x01\x6a\x00")


def _device(visit: Visit) -> str:
    answer = _activesync(visit, "14.1")
    location = answer.headers.get("x-ms-location", "")
    right = answer.status == 451 and figure.external_name("usa") in location and location.endswith(figure.ACTIVESYNC)
    return expect(f"{answer.status}, X-MS-Location: {location}", right)


def _went(answer: WebAnswer) -> str:
    """Status and way of an answer."""
    names = ("x-feserver", "x-calculatedbetarget", "x-beserver")
    return f"{answer.status}, " + ", ".join(f"{name}: {answer.headers.get(name, '-')}" for name in names)


def _old_device(visit: Visit) -> str:
    answer = _activesync(visit, "12.0")
    way = (answer.headers.get("x-calculatedbetarget"), answer.headers.get("x-beserver"))
    return expect(_went(answer), answer.status == 200 and way == ("CAS-01", "EX10-02"))


def _owa(visit: Visit, front_end: str = "CAS-02", user: str = "user5", path: str = "/owa/?id=7") -> WebAnswer:
    return visit.web(front_end, user, path, PAGE)


def _has_link(answer: WebAnswer) -> bool:
    return (
        answer.status == 200
        and re.search(rf'href="https://{figure.external_name("usa")}[^"]*/owa/\?id=7"', answer.text) is not None
    )


def _link(visit: Visit) -> str:
    answer = _owa(visit)
    found = re.findall(r'href="([^"]+)"', answer.text)
    return expect(f"{answer.status}, links: {', '.join(found)}", _has_link(answer))


def _set_redirect(visit: Visit, word: str) -> float:
    line = f"set-owavirtualdirectory {OWA_AT_02} -RedirectToOptimalOWAServer {word}"
    run_gatepost("shell", "--config", str(visit.fleet.configuration), "-c", line)
    return time.monotonic()


def _until(visit: Visit, since: float, *, page: bool) -> str:
    while True:
        answer = _owa(visit)
        seconds = time.monotonic() - since
        by_page = _has_link(answer)
        if by_page == page and (page or answer.headers.get("x-beserver") == "EX10-02"):
            what = "the page with the link" if page else _went(answer)
            return expect(f"{what}, {seconds:.2f} s later", seconds < FOLLOW_SECONDS)
        if seconds > 5 * FOLLOW_SECONDS:
            raise Differs(f"after {seconds:.1f} s still {_went(answer)}")
        time.sleep(POLL_SECONDS)


def _switch(visit: Visit) -> str:
    return _until(visit, _set_redirect(visit, "$false"), page=False)


def _back(visit: Visit) -> str:
    return _until(visit, _set_redirect(visit, "$true"), page=True)


def _asia(visit: Visit) -> WebAnswer:
    """A click of user4 at CAS-02, with the cookies that a browser would keep."""
    cookies = "; ".join(f"{name}={value}" for name, value in visit.cookies.items())
    answer = visit.web("CAS-02", "user4", headers={"Cookie": cookies} if cookies else {})
    visit.cookies |= answer.cookies
    return answer


def _by(answer: WebAnswer) -> str:
    return answer.headers.get("x-calculatedbetarget", "")


def _proxied(visit: Visit) -> str:
    visit.cookies.clear()
    answers = [_asia(visit) for _ in range(4)]
    ways = {_by(answer) for answer in answers}
    right = len(ways) == 1 and ways <= set(figure.ARRAY)
    right = right and all(answer.facts.get("mailbox_server") == "EX10-01" for answer in answers)
    return expect(f"4 clicks, each {_went(answers[-1])}", right)


def _other(visit: Visit) -> str:
    before = _by(_asia(visit))
    visit.fleet.front_ends[before].stop()
    answers = [_asia(visit) for _ in range(3)]
    right = all(answer.status == 200 and _by(answer) not in {"", before} for answer in answers)
    return expect(f"{before} stopped; then {', '.join(_went(answer) for answer in answers)}", right)


def _stays(visit: Visit) -> str:
    now = _by(_asia(visit))
    stopped = next(name for name in figure.ARRAY if name != now)
    visit.fleet.front_ends[stopped].start()
    visit.fleet.front_ends[stopped].wait_ready()
    answers = [_asia(visit) for _ in range(4)]
    came = f"{stopped} is back; 4 clicks by {', '.join(sorted({_by(answer) for answer in answers}))}"
    visit.cookies.clear()
    return expect(came, all(_by(answer) == now for answer in answers))


def _heading(answer: WebAnswer) -> str:
    found = re.search(r"<h1[^>]*>(.*?)</h1>", answer.text, re.DOTALL)
    return f"{answer.status}: {found[1] if found else answer.text[:80]}"


def _old_owa(visit: Visit) -> str:
    answer = _owa(visit, "CAS-01", "user6", "/owa")
    return expect(_heading(answer), "/exchange" in answer.text and "MBX" not in answer.text and answer.status == 403)


def _exchange(visit: Visit) -> str:
    answer = visit.web("CAS-01", "user6", "/exchange")
    return expect(_went(answer), answer.facts.get("mailbox_server") == "EX03-01")


def _newer_exchange(visit: Visit) -> str:
    answer = visit.web("CAS-01", "user5", "/exchange")
    location = answer.headers.get("location", "")
    return expect(f"{answer.status}, Location: {location}", answer.status == 302 and location.startswith("/owa"))


def _cookie_line(visit: Visit) -> dict[str, str]:
    return {"Cookie": "; ".join(f"{name}={value}" for name, value in visit.cookies.items() if value)}


def _sign_in_page(visit: Visit) -> str:
    visit.cookies.clear()
    sent = visit.web("CAS-01", headers=PAGE)
    location = sent.headers.get("location", "")
    if sent.status != 302:
        raise Differs(f"{sent.status}")
    answer = visit.web("CAS-01", path=location, headers=PAGE)
    visit.cookies |= answer.cookies
    visit.cookies["form"] = answer.text
    return expect(f"302 to {location}; {_heading(answer)}", answer.status == 200 and "password" in answer.text)


def _sign_in(visit: Visit) -> str:
    page = visit.cookies.pop("form")
    user = visit.users["user1"]
    fields = dict(FORM_FIELD.findall(page)) | {"username": user.name, "password": user.password, "trusted": "4"}
    action = re.search(r'<form[^>]*action="([^"]+)"', page)
    if action is None:
        raise Differs("the page has no form")
    headers = PAGE | _cookie_line(visit) | {"Content-Type": "application/x-www-form-urlencoded"}
    answer = visit.web("CAS-01", path=action[1], headers=headers, method="POST", body=urlencode(fields).encode())
    visit.cookies |= answer.cookies
    there = visit.web("CAS-01", path=answer.headers.get("location", "/"), headers=_cookie_line(visit))
    right = answer.status == 303 and there.facts.get("mailbox_server") == "MBX-01"
    return expect(f"{answer.status} to {answer.headers.get('location')}; then {_went(there)}", right)


def _next_click(visit: Visit) -> str:
    answer = visit.web("CAS-02", headers=_cookie_line(visit))
    right = answer.facts.get("user") == visit.users["user1"].name and answer.facts.get("mailbox_server") == "MBX-01"
    return expect(_went(answer), right)


def _sign_out(visit: Visit) -> str:
    old = _cookie_line(visit)
    same = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    left = visit.web("CAS-02", path="/owa/logoff", headers=PAGE | old | same)
    since = time.monotonic()
    while True:
        answer = visit.web("CAS-01", headers=PAGE | old)
        seconds = time.monotonic() - since
        if answer.status == 302:
            return expect(f"{_heading(left)}; void at CAS-01 after {seconds:.2f} s", seconds < TOLD_SECONDS)
        if seconds > 5 * TOLD_SECONDS:
            raise Differs(f"{_heading(left)}; after {seconds:.1f} s CAS-01 still answers {answer.status}")
        time.sleep(POLL_SECONDS)


def _autodiscover(visit: Visit) -> str:
    request = (
        '<?xml version="1.0"?><Autodiscover xmlns="http://schemas.microsoft.com/exchange/autodiscover/mobilesync/'
        f'requestschema/2006"><Request><EMailAddress>user5@{figure.DOMAIN}</EMailAddress><AcceptableResponseSchema>'
        "http://schemas.microsoft.com/exchange/autodiscover/mobilesync/responseschema/2006"
        "</AcceptableResponseSchema></Request></Autodiscover>"
    )
    headers = {"Content-Type": "text/xml"}
    path = "/Autodiscover/Autodiscover.xml"
    answer = visit.web("CAS-02", "user5", path, headers, method="POST", body=request.encode())
    urls = re.findall(r"<Url>([^<]+)</Url>", answer.text)
    right = answer.status == 200 and any(figure.external_name("usa") in url for url in urls)
    return expect(f"{answer.status}, {', '.join(urls)}", right)


def _health(visit: Visit) -> str:
    answer = visit.web("CAS-01", path="/owa/healthcheck.htm")
    return expect(
        f"{answer.status}: {answer.text}", answer.status == 200 and figure.fqdn("CAS-01") in answer.text.lower()
    )
