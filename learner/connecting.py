"""A federation of organisations, from a learner's configuration file."""

import warnings
from os import PathLike
from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError
from dpcore.records.schema import Schema
from dpcore.records.shared_schema import SharedSchema
from learner.config import LearnerConfig
from learner.federation import Federation, check_terms
from learner.journal import SessionSource
from learner.session import Session, check_timeout
from radobase.schema_files import schema_of

USUAL_SCHEMA = "schema.toml"
"""The file beside the configuration with the schema that the parties share, if no other is given."""


class ConnectedFederation(Federation):
    """A federation over a session, which ends with the block or with `close`."""

    def __init__(self, source: SessionSource, schema: Schema, **terms: Any) -> None:
        super().__init__(source, schema, **terms)
        self.session = source.session

    def close(self) -> None:
        """Close the connection. Queries that were sent continue."""
        self.session.close()


def connect(
    config: Path | str | LearnerConfig,
    *,
    schema: Schema | SharedSchema | Path | str | None = None,
    label: str | None = None,
    ask_again: bool = False,
    reuse: bool = False,
    timeout_s: float | None = None,
    progress: bool = True,
    **terms: Any,
) -> ConnectedFederation:
    """The federation of a learner, in place of `radofed.simulate_federation` once organisations answer.

        with radofed.connect("learner.toml") as federation:
            federation.describe(epsilon=1)

    - config: `learner.toml`. schema: one, or its file; by default `schema.toml` beside the configuration.
    - label: the one that is asked about, by its name in the schema; it may be left out if there is one.
    - ask_again, reuse: what happens to a question that was asked before: it is asked and charged again, or answered by
      the answer on disk, which costs nothing. By default it is refused, and the error says so.
    - timeout_s: the longest wait for an answer. progress: whether to show the progress of queries.
    - terms: of every query, such as purpose and cohort_min.

    Only parties that `rado learner accept` has accepted are asked. Raises ConfigurationError or SchemaError before
    anything is sent.
    """
    check_terms(terms, connect)
    check_timeout(timeout_s)
    if ask_again and reuse:
        raise ConfigurationError("ask_again and reuse exclude one another: give one of them")
    if not isinstance(config, LearnerConfig | str | PathLike):
        raise ConfigurationError(f"config is {config!r}: give the path of learner.toml, or a LearnerConfig")
    found = config if isinstance(config, LearnerConfig) else LearnerConfig.load(Path(config))
    if schema is None:
        if isinstance(config, LearnerConfig):
            raise ConfigurationError("give the schema that the parties share: schema='schema.toml'")
        schema = Path(config).parent / USUAL_SCHEMA
        if not schema.is_file():
            raise ConfigurationError(f"{schema} is not there: give the schema that the parties share, schema=...")
    shared = schema_of(schema, label)
    session = Session(found, progress=progress)
    source = SessionSource(session, asks_again=ask_again, reuses=reuse, timeout_s=timeout_s, note=_warned)
    return ConnectedFederation(source, shared, **terms)


def _warned(sentence: str) -> None:
    """What a command prints is a UserWarning in Python, unless it says only how far a round is."""
    if not sentence.startswith("round "):
        warnings.warn(sentence.removeprefix("Warning: "), stacklevel=2)
