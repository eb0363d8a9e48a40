"""`rado party rehearse`: what releases give away, by attacks on the party's own rows."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dpcore.attacks.options import RehearsalFields
from dpcore.declared import Option
from radobase.failure import EXIT_FAILED
from radobase.printing import in_lines
from radofed.cli.framework import ConfigOption, check_new
from radofed.cli.output import Output, Result, wrapped
from wire.request_fields import LABEL

if TYPE_CHECKING:
    from parties.rehearsal import Rehearsed


@dataclass(frozen=True, kw_only=True)
class RehearseOptions(RehearsalFields):
    """The options of `rado party rehearse`."""

    rows: Annotated[int | None, Option("Play on a random part of so many rows.", default="on all rows", at_least=4)] = (
        None
    )
    label: Annotated[str | None, LABEL] = None
    seed: Annotated[
        int | None,
        Option("Draws the same again.", default="the system's randomness", at_least=0, at_most=2**32 - 1),
    ] = None
    picture: Annotated[Path | None, Option("Draw the table into this new SVG file.")] = None


def rehearse(output: Output, config: ConfigOption, options: RehearseOptions) -> Result:
    """Play the adversary on this party's own rows, to see what each design gives away before you allow it.

    Reads the schema and the rows, and makes releases that it attacks here. Charges nothing and sends nothing; the node
    may run. The figures of designs without a bound depend on the rows: keep them to yourselves. The exit code is 1 if
    an attack achieves more than epsilon allows.
    """
    from dpcore.randomness.sources import SeededRandom, SystemRandom
    from parties.config import PartyConfig
    from parties.data.dataset import load, recode_of
    from parties.rehearsal import Rehearsed
    from radobase.presentation.svg import check_picture
    from radobase.schema_files import load_shared, schema_of

    picture = options.picture
    if picture is not None:
        check_new(picture)
        check_picture(picture)
    loaded = PartyConfig.load(config)
    shared = load_shared(loaded.schema_file)
    schema = schema_of(shared, options.label, str(loaded.schema_file))
    random = SystemRandom() if options.seed is None else SeededRandom(options.seed)
    records = load(loaded.table, schema, recode=recode_of(loaded, shared)).records
    found = Rehearsed.of(options, records, schema, random, rows=options.rows, progress=output.note)
    return rehearsed_result(found, picture)


def rehearsed_result(found: "Rehearsed", picture: Path | None) -> Result:
    """The result of a rehearsal, after its picture was drawn."""
    from parties.rehearsal import HEADER

    if picture is not None:
        found.draw(picture)
    return Result(
        {**found.to_dict(), "picture": picture},
        wrapped(HEADER, found.table(), in_lines(found.sentences())),
        exit_code=EXIT_FAILED if found.alarms else 0,
    )
