"""`rado provision`: make a federation's keys, certificates, roster and configurations, and renew the roster."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from radobase.printing import in_lines, printable
from radofed.cli.framework import command, group
from radofed.cli.output import Output, Result

if TYPE_CHECKING:
    from radofed.joining.requests import ReceivedRequest


MOST_DIGITS = 18
"""The most digits of a number of rows."""

app = group("Make a federation's keys, certificates and configurations, and renew its roster.")

_RosterDays = Annotated[int, typer.Option(help="The roster expires after so many days.")]


@command(app, "init")
def init(
    output: Output,
    federation: Annotated[str, typer.Option(help="The federation's name: a-z, 0-9 and '-'.", show_default=False)],
    directory: Annotated[Path, typer.Option(help="Directory for the federation; absent or empty.", show_default=False)],
    coordinator: Annotated[str, typer.Option(help="HOST:PORT that members dial.", show_default=False)],
    party: Annotated[
        list[str],
        typer.Option(help="A party: NAME, or NAME=ROWS with its least number of rows; repeatable.", show_default=False),
    ],
    learner: Annotated[
        list[str] | None, typer.Option(help="A learner's name; repeatable. Default: one called learner.")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(help="HOST:PORT that the coordinator binds. Default: loopback for a local host, otherwise all."),
    ] = None,
    roster_days: _RosterDays = 90,
) -> Result:
    """Make a federation: keys, certificates, the signed roster, and a directory for every member."""
    from dpcore.errors import ConfigurationError
    from radofed.provision import provision, split_address

    if split_address(coordinator)[1] == 0:
        raise ConfigurationError(f"--coordinator {coordinator}: members cannot dial port 0; give the real port")
    rows: dict[str, int] = {}
    names = []
    for entry in party:
        name, equals, count = entry.partition("=")
        if equals and not (count.isascii() and count.isdigit() and len(count) <= MOST_DIGITS):
            raise ConfigurationError(f"--party {entry}: write NAME or NAME=ROWS, such as north=1200")
        if equals:
            rows[name] = int(count)
        names.append(name)
    output.note("making keys and certificates ...")
    made = provision(
        directory,
        federation=federation,
        coordinator_address=coordinator,
        parties=names,
        learners=learner or ["learner"],
        rows_at_least=rows,
        listen=listen,
        roster_days=roster_days,
    )
    members = [
        {"role": m.role.value, "name": m.name, "config": m.config, "fingerprint": m.fingerprint or None}
        for m in made.members
    ]
    data = {
        "federation": federation,
        "directory": made.directory,
        "federation_fingerprint": made.federation_fingerprint,
        "roster_expires": made.roster.expiry_date,
        "members": members,
    }
    return Result(data, in_lines(made.sentences()))


@command(app, "renew-roster")
def renew_roster(
    _output: Output,
    federation: Annotated[
        Path,
        typer.Argument(help="The federation directory, with federation.key and roster.signed.", show_default=False),
    ],
    roster: Annotated[
        Path | None,
        typer.Option(help="Another signed roster, used if it is newer, such as the coordinator's.", show_default=False),
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(help="A party or learner that the next version does not list; repeatable.")
    ] = None,
    roster_days: _RosterDays = 90,
) -> Result:
    """Sign the next version of the roster, with a new expiry. Run it where the federation key is kept, offline.

    Replaces roster.signed in the federation directory. The coordinator reads its copy of the file on SIGHUP.
    """
    from radofed.provision import renew_roster

    renewed = renew_roster(federation, days=roster_days, newest=roster, without=remove or ())
    return Result(renewed.to_dict(), in_lines(renewed.sentences()))


# `rado provision create | request | sign | add | install | renew | replace-key | remove | roster`.
#
# Keys are made at home, by their owners.

MOST_TRIES = 3
"""How often a terminal is asked for digits."""

Operator = Annotated[Path, typer.Argument(help="The operator's directory, with federation.key.", show_default=False)]
Days = Annotated[int, typer.Option("--roster-days", help="The roster expires after so many days.")]
Fingerprints = Annotated[
    list[str] | None,
    typer.Option(
        "--fingerprint",
        help="NAME=DIGITS, as the member read them out; repeatable. Default: ask, in a terminal.",
        show_default=False,
    ),
]
CoordinatorAddress = Annotated[
    str, typer.Option("--coordinator", help="HOST:PORT that members dial, if no coordinator's request was signed here.")
]


def create(
    _output: Output,
    directory: Annotated[Path, typer.Argument(help="Directory for the operator; absent or empty.", show_default=False)],
    federation: Annotated[str, typer.Option(help="The federation's name: a-z, 0-9 and '-'.", show_default=False)],
) -> Result:
    """Found a federation without members: the keys that sign rosters and certificates. Keep them offline."""
    from radofed.joining.operator import found

    made = found(directory, federation)
    data = {"federation": federation, "directory": directory, "federation_fingerprint": made.spoken}
    return Result(data, in_lines(made.sentences()))


def request(
    _output: Output,
    directory: Annotated[Path, typer.Argument(help="This member's directory, for its keys.", show_default=False)],
    federation: Annotated[str, typer.Option(help="The federation's name.", show_default=False)],
    role: Annotated[str, typer.Option(help="party, coordinator or learner.", show_default=False)],
    name: Annotated[str, typer.Option(help="This member's name: a-z, 0-9 and '-'.", show_default=False)],
    rows: Annotated[int | None, typer.Option(help="A party's least number of rows, for planning.", min=1)] = None,
    address: Annotated[str, typer.Option(help="A coordinator's HOST:PORT, as members dial it.")] = "",
) -> Result:
    """Make this member's keys, here, and a request to join, which holds no secret."""
    from dpcore.errors import ConfigurationError
    from radofed.joining.requests import make_join_request
    from wire.roster import Role

    try:
        wanted = Role(role)
    except ValueError:
        raise ConfigurationError(f"--role {role}: give party, coordinator or learner") from None
    made = make_join_request(
        directory, federation=federation, role=wanted, name=name, rows_at_least=rows, address=address
    )
    return Result(made.to_dict(), in_lines(made.sentences()))


def sign(
    _output: Output,
    operator: Operator,
    requests: Annotated[list[Path], typer.Argument(help="Requests of members.", show_default=False)],
    fingerprint: Fingerprints = None,
    coordinator: CoordinatorAddress = "",
    roster_days: Days = 90,
) -> Result:
    """Admit members: compare the fingerprint of each request with the member, then sign.

    Writes an admission for each, to send back, and the next roster. For a member that is listed with the same key this
    renews its certificate.
    """
    return _admit(operator, requests, fingerprint, coordinator, roster_days, replaced=False)


def add(
    _output: Output,
    operator: Operator,
    requests: Annotated[list[Path], typer.Argument(help="Requests of members.", show_default=False)],
    fingerprint: Fingerprints = None,
    coordinator: CoordinatorAddress = "",
    roster_days: Days = 90,
) -> Result:
    """Add members: another name of `rado provision sign`, which writes the next roster, too."""
    return sign(_output, operator, requests, fingerprint, coordinator, roster_days)


def replace_key(
    _output: Output,
    operator: Operator,
    requests: Annotated[list[Path], typer.Argument(help="New requests of members.", show_default=False)],
    fingerprint: Fingerprints = None,
    coordinator: CoordinatorAddress = "",
    roster_days: Days = 90,
) -> Result:
    """Give members that lost their keys, or had them stolen, the keys of new requests."""
    return _admit(operator, requests, fingerprint, coordinator, roster_days, replaced=True)


def renew(
    _output: Output,
    operator: Operator,
    names: Annotated[list[str], typer.Argument(help="Members, by name.", metavar="NAME...", show_default=False)],
    coordinator: CoordinatorAddress = "",
    roster_days: Days = 90,
) -> Result:
    """Renew certificates of members that keep their keys, by the requests that were signed before."""
    from radofed.joining.operator import admit, kept_requests

    admitted = admit(operator, kept_requests(operator, names), coordinator=coordinator, days=roster_days)
    return Result(admitted.to_dict(), in_lines(admitted.sentences()))


def move(
    _output: Output,
    operator: Operator,
    address: Annotated[str, typer.Argument(help="HOST:PORT, as members dial it from then on.", metavar="ADDRESS")],
    roster_days: Days = 90,
) -> Result:
    """Sign that the coordinator moves to another address, before it does.

    Writes its new certificate, which names both addresses, and the next roster, by which members follow without a file
    edited.
    """
    from radofed.joining.moving import move

    moved = move(operator, address, days=roster_days)
    return Result(moved.to_dict(), in_lines(moved.sentences()))


def remove(
    _output: Output,
    operator: Operator,
    names: Annotated[list[str], typer.Argument(help="Parties or learners.", metavar="NAME...", show_default=False)],
    roster_days: Days = 90,
) -> Result:
    """Sign the next version of the roster without these members."""
    from radofed.provision import renew_roster

    renewed = renew_roster(operator, days=roster_days, without=names)
    return Result(renewed.to_dict(), in_lines(renewed.sentences()))


def roster(_output: Output, operator: Operator) -> Result:
    """List the members of the newest roster, until when their certificates are valid, and what to renew."""
    from radofed.joining.operator import listing

    found = listing(operator)
    return Result(found.to_dict(), in_lines(found.sentences()))


def install(
    _output: Output,
    admission: Annotated[Path, typer.Argument(help="The operator's answer.", show_default=False)],
    directory: Annotated[Path, typer.Option(help="This member's directory, with its keys.", show_default=False)],
    fingerprint: Annotated[
        str | None,
        typer.Option(
            help="The federation's digits, as the operator read them out. Default: ask, in a terminal.",
            show_default=False,
        ),
    ] = None,
) -> Result:
    """Install the operator's answer: certificate, roster and, at first, configuration files.

    Compare the federation's fingerprint with the operator, over the telephone. It is asked once: later answers must be
    signed by the same key.
    """
    from radofed.joining.installing import Admission, install, is_pinned

    found = Admission.load(admission)
    if not is_pinned(directory, found):
        _compare("the federation", "the operator", found.federation_spoken, fingerprint)
    installed = install(directory, found)
    return Result(installed.to_dict(), in_lines(installed.sentences()))


def _admit(
    operator: Path, files: Sequence[Path], given: Sequence[str] | None, coordinator: str, days: int, *, replaced: bool
) -> Result:
    from radofed.joining.operator import admit
    from radofed.joining.requests import ReceivedRequest

    received = [ReceivedRequest.load(file) for file in files]
    digits = _by_name(given or (), received)
    for each in received:
        request = each.request
        what = f"{request.role.value} {request.name}"
        _compare(what, what, request.fingerprint, digits.get(request.name))
    admitted = admit(operator, received, coordinator=coordinator, replaced=replaced, days=days)
    return Result(admitted.to_dict(), in_lines(admitted.sentences()))


def _by_name(given: Sequence[str], received: "Sequence[ReceivedRequest]") -> dict[str, str]:
    from dpcore.errors import ConfigurationError

    names, found = {each.request.name for each in received}, {}
    for entry in given:
        name, _, digits = entry.partition("=")
        if name not in names or not digits:
            raise ConfigurationError(f"--fingerprint {entry}: write NAME=DIGITS, with the name of one of the requests")
        found[name] = digits
    return found


def _compare(whose: str, reader: str, expected: str, given: str | None) -> None:
    """Raise ConfigurationError unless the other side read out the same digits.

    A terminal is asked for them, again after a typing error. No message has the right digits: they would be copied.
    """
    from dpcore.errors import ConfigurationError
    from wire.envelopes import same_digits

    asks = given is None and sys.stdin.isatty()
    if given is None and not asks:
        raise ConfigurationError(
            f"compare the fingerprint of {whose}: call {reader}, and give the digits that are read out with "
            "--fingerprint"
        )
    for more_tries in reversed(range(MOST_TRIES if asks else 1)):
        digits = str(typer.prompt(printable(f"Digits that {reader} reads out"), err=True)) if asks else given
        if same_digits(str(digits), expected):
            return
        differs = f"{whose} has another fingerprint than {digits}: ask {reader} to read it out again"
        if more_tries:
            typer.echo(printable(differs), err=True)
    raise ConfigurationError(
        f"{differs}; if it still differs, the file was changed on its way, so ask for it over another channel"
    )


def passphrase(
    _output: Output,
    directory: Annotated[Path, typer.Argument(help="Of a member, or of the operator.", show_default=False)],
) -> Result:
    """Encrypt the private keys of a directory with the passphrase in the file that RADO_PASSPHRASE_FILE names.

    Signing keys, TLS keys and the operator's two keys. Every command and node that reads them needs the variable then.
    The Paillier key and state/secret have no passphrase: keep them on an encrypted disk.
    """
    from radofed.joining.installing import set_passphrases

    names = set_passphrases(directory)
    return Result({"encrypted": names}, f"{directory}: {', '.join(names) or 'nothing to do'}")
