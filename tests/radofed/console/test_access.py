"""Who may use a console: the holder of the link, in one browser, and no page of another origin."""

import errno
from contextlib import contextmanager

import pytest

from dpcore.errors import ConfigurationError
from radofed.console.app import CSRF_FIELD, HEADERS, IDLE_S, MOST_FORM_BYTES, TOKEN_LIFE_S, Access
from radofed.console.pages import File, Goto, Shown, Views
from tests.radofed.console.serving import Caller, serving

HTML = "<script>alert(1)</script>"


class Rooms:
    """Views of nothing real: a page, a file, a page that fails, and an action that counts."""

    def __init__(self) -> None:
        self.forms = []

    def views(self) -> Views:
        return Views(
            role="party",
            member="north",
            federation="clinics",
            navigation=(("start", "Start"),),
            pages={
                "start": lambda _: Shown("failure.html", HTML, {"failure": FAILURE, "is_action": False}),
                "named/{name}": lambda visit: File("a.csv", visit.path["name"].encode(), "text/csv"),
                "bad": self._bad,
                "disk": self._disk,
                "bug": lambda _: 1 / 0,
            },
            actions={"act": self._act, "act/badly": self._bad},
        )

    def _bad(self, _):
        raise ConfigurationError(f"{HTML}: correct it")

    def _disk(self, _):
        raise OSError(errno.ENOSPC, "No space left on device", HTML)

    def _act(self, visit):
        self.forms.append(dict(visit.form))
        return Goto("start")


class _Failure:
    message, code, page = HTML, "CODE", ""


FAILURE = _Failure()


@contextmanager
def serving_rooms(**options):
    """A console of `Rooms`. Yields its rooms, its access and a client."""
    rooms = Rooms()
    with serving(rooms.views(), **options) as access:
        yield rooms, access, Caller(access.link)


@pytest.fixture(scope="module")
def served():
    with serving_rooms() as (rooms, access, caller):
        assert caller.enter() == 303
        yield rooms, access, caller


@pytest.fixture
def caller(served):
    return served[2]


def act(served, **changes):
    """Send the form of the action; returns its status and whether it was done."""
    rooms, access, caller = served
    before = len(rooms.forms)
    form = {CSRF_FIELD: access.csrf} | changes.pop("form", {})
    status, _, _ = caller.ask(changes.pop("path", "act"), method="POST", form=form, **changes)
    return status, len(rooms.forms) - before


def test_the_link_works_once():
    with serving_rooms() as (_, _, first):
        assert first.enter() == 303
        assert first.ask("start")[0] == 200
        second = Caller(f"http://{first.host}{first.root}enter?{first.address.query}")
        assert second.enter() == 403
        assert second.ask("start")[0] == 403
        # The first one stays.
        assert first.ask("start")[0] == 200


def test_a_page_that_refreshes_itself_does_not_keep_a_session_open():
    now = [0.0]
    with serving_rooms(clock=lambda: now[0]) as (_, _, caller):
        assert caller.enter() == 303
        now[0] = IDLE_S
        assert caller.ask("start", HX_Request="true")[0] == 200
        now[0] = IDLE_S + 1
        assert caller.ask("start", HX_Request="true")[0] == 403
        assert caller.ask("start")[0] == 403


@pytest.mark.parametrize("token", ["", "x", "é", "token", "0" * 43])
def test_a_wrong_token_opens_nothing_and_does_not_use_up_the_link(token):
    access = Access(80)
    assert access.enter(token) is None
    assert access.enter(access.link.partition("token=")[2])


def test_an_old_link_and_an_idle_session_open_nothing():
    now = [0.0]
    access = Access(80, clock=lambda: now[0])
    token = access.link.partition("token=")[2]
    now[0] = TOKEN_LIFE_S + 1
    assert access.enter(token) is None
    now[0] = TOKEN_LIFE_S
    session = access.enter(token)
    for _ in range(3):
        now[0] += IDLE_S
        assert access.knows(session)
    now[0] += IDLE_S + 1
    assert not access.knows(session)


def test_the_cookie_is_limited_to_the_secret_path(served):
    _, access, _ = served
    with serving_rooms() as (_, other, caller):
        _, headers, _ = caller.ask(f"enter?{caller.address.query}")
        cookie = headers["set-cookie"].lower()
        assert f"path={other.root.lower()}/" in cookie
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "domain" not in cookie
        assert other.root != access.root
        assert len(other.root) > 20


@pytest.mark.parametrize("cookie", ["", "rado-console=", "rado-console=x", "other=1; rado-console=é"])
def test_without_the_session_nothing_is_shown_and_nothing_done(served, cookie):
    rooms, access, caller = served
    stranger = Caller(access.link)
    stranger.cookie = cookie.encode().decode("latin-1")
    for path in ("", "start", "static/style.css", "named/x", "missing"):
        assert stranger.ask(path)[0] == 403, path
    assert stranger.ask("act", method="POST", form={CSRF_FIELD: access.csrf})[0] == 403
    assert rooms.forms == []
    assert caller.ask("start")[0] == 200


def test_cookies_of_other_ports_of_this_host_shut_nobody_out(served):
    """Another user may set any that browsers send along: one that is odd, or of the same name for a shorter path."""
    _, access, caller = served
    known = Caller(access.link)
    for cookie in (f"a,b=1; {caller.cookie}", f"{caller.cookie}; rado-console=x", f'x="; {caller.cookie}; =; {{}}'):
        known.cookie = cookie
        assert known.ask("start")[0] == 200, cookie


@pytest.mark.parametrize("path", ["/", "/start", "/static/style.css", "/x/start", "//", "/enter"])
def test_without_the_secret_path_a_session_is_of_no_use(caller, path):
    assert caller.ask(path)[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost", "127.0.0.1:1", "evil.example:{port}", ""])
def test_a_foreign_host_header_is_refused(caller, host):
    status, _, text = caller.ask("start", Host=host.format(port=caller.address.port) or " ")
    assert status in {400, 421}
    assert HTML not in text


def test_both_names_of_loopback_are_accepted(served):
    _, _, caller = served
    assert caller.ask("start", Host=f"localhost:{caller.address.port}")[0] == 200


def test_a_form_of_the_console_is_accepted_once_for_each_time_it_is_sent(served):
    assert act(served, form={"name": "Ann"}) == (303, 1)
    assert served[0].forms[-1] == {"name": "Ann"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "https://{host}"},
        {"Origin": ""},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_a_form_of_another_origin_does_nothing(served, headers):
    headers = {name: value.format(host=served[2].host) for name, value in headers.items()}
    assert act(served, **headers) == (403, 0)


@pytest.mark.parametrize("token", ["", "x", "é"])
def test_a_form_without_its_token_does_nothing(served, token):
    assert act(served, form={CSRF_FIELD: token}) == (403, 0)


def test_a_page_is_not_sent_and_an_action_is_not_looked_at(served):
    assert act(served, path="start") == (405, 0)
    assert served[2].ask("act")[0] == 405


@pytest.mark.parametrize("body", [{"x": "y" * MOST_FORM_BYTES}, {str(n): "1" for n in range(300)}])
def test_a_form_that_is_too_large_does_nothing(served, body):
    status, done = act(served, form=body)
    assert (status in {400, 413}, done) == (True, 0)


@pytest.mark.parametrize("path", ["start", "bad", "disk", "missing", "bug", "/", "static/style.css", "named/x"])
def test_every_answer_has_the_security_headers(caller, path):
    _, headers, _ = caller.ask(path)
    for name, value in HEADERS.items():
        assert headers[name.lower()] == value
    assert "server" not in headers
    assert "'unsafe" not in headers["content-security-policy"]


def test_inserted_text_is_nothing_but_text(caller):
    for path in ("start", "bad"):
        _, _, text = caller.ask(path)
        assert HTML not in text
        assert "&lt;script&gt;alert(1)" in text


def test_an_error_of_the_program_is_a_page_with_its_sentence(caller):
    status, headers, text = caller.ask("bad")
    assert status == 400
    assert headers["content-type"].startswith("text/html")
    assert "correct it" in text


def test_only_what_changes_nothing_says_that_nothing_was_changed(served):
    _, access, caller = served
    assert "Nothing was changed" in caller.ask("bad")[2]
    # An action may have reached others before it failed, such as a cancellation whose answer was lost.
    status, _, text = caller.ask("act/badly", method="POST", form={CSRF_FIELD: access.csrf})
    assert status == 400
    assert "correct it" in text
    assert "Nothing was changed" not in text
    assert "A part of it may have been done" in text


def test_a_full_disk_is_a_page_with_its_sentence(caller):
    status, _, text = caller.ask("disk")
    assert status == 400
    assert "No space left on device" in text
    assert HTML not in text


def test_a_bug_says_nothing_about_the_program(caller):
    status, _, text = caller.ask("bug")
    assert status == 500
    assert "ZeroDivision" not in text


def test_a_file_is_stored_and_not_shown(caller):
    status, headers, text = caller.ask("named/x")
    assert (status, text) == (200, "x")
    assert headers["content-disposition"] == 'attachment; filename="a.csv"'


def test_scripts_and_styles_are_the_console_s_own_and_small(caller):
    _, _, page = caller.ask("start")
    for name in ("style.css", "htmx-2.0.11.min.js"):
        assert f"{caller.root}static/{name}" in page
        status, _, text = caller.ask(f"static/{name}")
        assert status == 200
        assert len(text) < 100_000
    assert "http://" not in page.replace(f"http://{caller.host}", "")
    assert "https://" not in page
