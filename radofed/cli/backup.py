"""`rado backup create | verify` and `rado restore`: one archive of a node, or of an operator's directory."""

from pathlib import Path
from typing import Annotated

import typer

from radobase.printing import in_lines
from radofed.cli.framework import check_directory, check_new, command, group
from radofed.cli.output import Output, Result

app = group("Back up a node or an operator's directory, and check a backup. `rado restore` restores one.")

Archive = Annotated[Path, typer.Argument(help="The file of a backup.", metavar="FILE", show_default=False)]
ExpectedRole = Annotated[
    str | None, typer.Option(help="Refuse a backup of another role: party, coordinator, learner or operator.")
]
ExpectedName = Annotated[str | None, typer.Option(help="Refuse a backup of another member.")]
ExpectedFederation = Annotated[str | None, typer.Option(help="Refuse a backup of another federation.")]


@command(app, "create")
def create(
    _output: Output,
    file: Annotated[
        Path,
        typer.Argument(
            help="A new file, or a directory: the file in it is named by the node and the time.",
            metavar="FILE",
            show_default=False,
        ),
    ],
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="A node's configuration file.", show_default=False)
    ] = None,
    operator: Annotated[Path | None, typer.Option(help="Instead: an operator's directory.", show_default=False)] = None,
    *,
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="Also private keys. The file is then a secret as they are.")
    ] = False,
    keep: Annotated[
        int | None, typer.Option(help="In a directory: then delete all but the newest backups of this node, so many.")
    ] = None,
) -> Result:
    """Back up a node, also while it runs, or an operator's directory, as one file of mode 0600.

    It has the configuration, certificates, rosters and the node's state: a party's ledger, marked as a copy, and its
    history; a coordinator's queries and totals; a learner's queries and releases. It has no rows, uploads or models.

    Private keys are in it with --with-keys only; a key with a passphrase keeps it. The command names what it leaves
    out.
    """
    import time

    from dpcore.errors import ConfigurationError
    from radofed.backup.making import back_up, back_up_operator, dated_file, drop_oldest, whose
    from radofed.backup.restoring import to_dict, words_of

    if (config is None) == (operator is None):
        raise ConfigurationError("give either --config, a node's configuration, or --operator, an operator's directory")
    source = config or operator
    assert source is not None, "one of them is given"
    directory = file if file.is_dir() else None
    if keep is not None and (directory is None or keep < 1):
        raise ConfigurationError("--keep needs a directory in place of the file, and is at least 1")
    owner = "" if directory is None else whose(config, operator)
    if directory is not None:
        file = dated_file(directory, owner, time.time())
    check_new(file)
    check_directory(file)
    made = (back_up if config is not None else back_up_operator)(source, file, with_keys=with_keys)
    dropped = [] if directory is None or keep is None else drop_oldest(directory, owner, keep)
    lines = [f"{file}:", *words_of(made, time.time()), *(f"deleted: {path}" for path in dropped)]
    return Result({"file": file, **to_dict(made), "deleted": dropped}, in_lines(lines))


@command(app, "verify")
def verify(
    _output: Output,
    file: Archive,
    role: ExpectedRole = None,
    name: ExpectedName = None,
    federation: ExpectedFederation = None,
) -> Result:
    """Check all of a backup without restoring it: each file's SHA-256, the databases, and whose it is.

    This finds damage. It does not find what a person changed who can write such a file.
    """
    import time

    from radofed.backup.restoring import Expected, to_dict, verify_backup, words_of

    found = verify_backup(file, Expected(role, name, federation))
    return Result({"file": file, **to_dict(found)}, in_lines([f"{file}: intact", *words_of(found, time.time())]))


def restore(
    _output: Output,
    file: Archive,
    directory: Annotated[Path, typer.Argument(help="A new directory, or an empty one.", show_default=False)],
    role: ExpectedRole = None,
    name: ExpectedName = None,
    federation: ExpectedFederation = None,
) -> Result:
    """Restore a backup as a new directory, and print what was lost and what to run next.

    Everything is checked before anything is written, and a restore that fails leaves nothing behind. It overwrites
    nothing.
    """
    import datetime as dt

    from radofed.backup.restoring import Expected, lost, next_steps, to_dict, words_of
    from radofed.backup.restoring import restore as restore_backup

    now = dt.datetime.now(dt.UTC)
    found = restore_backup(file, directory, Expected(role, name, federation))
    steps = next_steps(found, directory.absolute(), now)
    lines = [
        f"{directory}: restored",
        *words_of(found, now.timestamp()),
        lost(found, now.timestamp()),
        "next:",
        *(f"  {number}. {step}" for number, step in enumerate(steps, 1)),
    ]
    data = {"directory": directory, "lost": lost(found, now.timestamp()), "next": steps, **to_dict(found)}
    return Result(data, in_lines(lines))
