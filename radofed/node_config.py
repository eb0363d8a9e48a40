"""Which role a configuration file is of, and the file read as that role's."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from dpcore.errors import ConfigurationError
from radobase.configuration import read_keys
from wire.roster import Role

if TYPE_CHECKING:
    from coordinator.config import CoordinatorConfig
    from learner.config import LearnerConfig
    from parties.config import PartyConfig


# ruff: noqa: PLC0415  (each role's configuration is imported where a file is of that role)

NodeConfig: TypeAlias = "PartyConfig | CoordinatorConfig | LearnerConfig"

# A key that only this role's configuration has.
_ROLES = {"policy": Role.PARTY, "roster": Role.COORDINATOR, "paillier_key": Role.LEARNER}


def role_of(config: Path) -> Role:
    """The role whose configuration this is. Raises ConfigurationError if it is no node's, or cannot be read."""
    keys = read_keys(config)
    found = [role for key, role in _ROLES.items() if key in keys]
    if len(found) != 1:
        raise ConfigurationError(
            f"{config}: no party.toml, coordinator.toml or learner.toml; give a node's configuration"
        )
    return found[0]


def load_node_config(config: Path) -> NodeConfig:
    """Read a node's configuration. Raises ConfigurationError if it is none."""
    match role_of(config):
        case Role.PARTY:
            from parties.config import PartyConfig

            return PartyConfig.load(config)
        case Role.COORDINATOR:
            from coordinator.config import CoordinatorConfig

            return CoordinatorConfig.load(config)
        case Role.LEARNER:
            from learner.config import LearnerConfig

            return LearnerConfig.load(config)


# Configuration files as `rado provision init` writes them, with comments for the people who edit them.
#
# The samples in deploy/samples are the output of these functions for an example federation; a test compares them.

_TLS = """
[tls]
ca = "ca.pem"                     # the federation's certificate authority
certificate = "certificate.pem"   # this member's certificate; valid for a year
key = "tls.key"                   # its private key; mode 0600, stays in this directory
"""

_WATCH = """
# Optional: metrics and health for programs of this machine; see docs/operating.md. Needs the extra "metrics".
# [watch]
# listen = "127.0.0.1:9464"         # or: socket = "state/watch.sock"
"""


def coordinator_toml(federation: str, name: str, listen: str) -> str:
    """coordinator.toml of the coordinator called `name`."""
    return f"""\
# The coordinator of the federation {federation!r}. Paths are relative to this file; unknown keys are refused.
# Start it with: rado coordinator start --config coordinator.toml

federation = {_text(federation)}
name = {_text(name)}
listen = {_text(listen)}          # address and port to bind; members dial the host in the certificate
federation_key = "federation.pub"   # pinned: only rosters signed by this key are served
roster = "roster.signed"            # a newer one: rado coordinator roster FILE
state_directory = "state"           # queries and uploads; kept over restarts; one coordinator at a time
log_level = "info"
# log_file = "coordinator.log"      # default: standard error
{_TLS}
[limits]
open_queries = 16                 # open at one time, over all learners
open_queries_per_learner = 4      # open at one time, for each learner
# queries_per_day_per_learner = 200                     # within 24 hours, for each learner; default: any number
# upload_bytes_per_day_per_learner = 20_000_000_000     # that its queries may cause within 24 hours; default: any
spool_bytes = 50_000_000_000      # disk space for uploads, over all open queries
query_life_s = 7_776_000          # longest time until a query expires: 90 days
keep_finished_s = 86_400          # a finished query's total can be fetched for this long: 1 day
finished_per_learner = 200        # finished queries kept for each learner; the oldest are dropped first
# [limits.learners.NAME]            # of one learner, in place of the above
# open_queries = 8
# queries_per_day = 1000
# upload_bytes_per_day = 100_000_000_000
{_WATCH}
# Optional: the coordinator's own Ray cluster, which adds large totals; see docs/operating.md.
# Without it this machine adds them.
# [cluster]
# address = "auto"                  # "auto" if this machine is one of its nodes, otherwise the head's "host:port"
# token_file = "ray.token"          # default: where Ray looks
# workers = 8                       # tasks at one time, one processor each
# from_bytes = 268_435_456          # smaller uploads are added on this machine
# timeout_s = 300                   # longest wait for an answer; then this machine continues
"""


def party_toml(federation: str, name: str, coordinator: str) -> str:
    """party.toml of the party called `name`, which dials `coordinator` ("host:port")."""
    return f"""\
# The party {name!r} of the federation {federation!r}. Paths are relative to this file; unknown keys are refused.
# First:   rado party check --config party.toml     (says what is wrong and how to fix it)
# Then:    rado party start --config party.toml

federation = {_text(federation)}
name = {_text(name)}
coordinator = {_text(coordinator)}   # the party dials out; no one dials in
federation_key = "federation.pub"     # pinned: only rosters signed by this key are accepted
signing_key = "signing.key"           # signs this party's messages; mode 0600, stays in this directory
policy = "policy.toml"                # what this party agrees to
schema = "schema.toml"                # the same file at every party; draft one with `rado schema infer`
data = "data.csv"                     # this party's rows, CSV or Parquet; read at start; they stay here. Or a database:
                                      # source and query, see docs/how-to/read-from-a-database.md
# id_column = "patient_id"            # the table's column of ids: an id decides which rows are held back from training
state_directory = "state"             # spools and attempts; kept over restarts
# data_source = "data.csv"            # the ledger's name for these rows; keep it when they move to another file
# ledger = "state/ledger.sqlite"      # the privacy ledger of the data source; back it up, never restore an old copy
spool_bytes = 10_000_000_000          # disk space for contributions
spare_obfuscators = 1000              # random factors made ahead after 30 idle seconds; in memory, 1 KB each
log_level = "info"
# log_file = "party.log"              # default: standard error
{_TLS}
# Optional: what this table writes otherwise than the schema; see docs/how-to/check-your-data.md. A draft of it:
# rado party spellings --config party.toml. It may also stand in a file of its own, named as recode = "recode.toml".
# [recode.columns.ward]
# cells = {{ "Chirurgie" = "Surgery", "k. A." = "" }}   # this table's spelling = the schema's; "" is an empty cell
{_WATCH}
# Optional: a command that tells people that a query waits for their decision; see docs/how-to/decide.md.
# [notify]
# command = ["/usr/local/bin/tell-officers"]   # without a shell; reads one JSON object on standard input

# Optional: the party's own Ray cluster, which sums its rows; see docs/operating.md. Every node of it can read them.
# Without it this machine sums them.
# [cluster]
# address = "auto"                    # "auto" if this machine is one of its nodes, otherwise the head's "host:port"
# token_file = "ray.token"            # default: where Ray looks
# workers = 8                         # tasks at one time, one processor each
# from_rows = 10_000_000              # smaller tables are summed on this machine
# timeout_s = 300                     # longest wait for an answer; then this machine continues
# reads_table = true                  # workers read the Parquet files of `data`, for tables larger than a machine
# worker_disk = "/var/lib/radofed"    # there they keep records that their memory has no room for
"""


_OPTIONAL_LIMITS = """\
# Optional limits: for whole records, for one source column, for one feature; and, in addition to the lifetime's, for
# each learner, for any 24 hours, and for one study, by its protocol number.
# [limits.record]
# epsilon = "3"
# delta = "1e-6"
# [limits.columns.COLUMN]
# epsilon = "3"
# delta = "1e-6"
# [limits.features.FEATURE]
# epsilon = "1"
# delta = "1e-6"
# [limits.per_learner]
# epsilon = "5"
# delta = "1e-5"
# [limits.per_day]
# epsilon = "1"
# delta = "1e-5"
# [limits.studies."PROTOCOL NUMBER"]
# epsilon = "2"
# delta = "1e-5"
"""

_STUDIES = """
# Optional: the studies whose queries are answered, and who may ask within each. See docs/how-to/studies.md.
# [[studies]]
# protocol_number = "PROTOCOL NUMBER"
# learners = ["LEARNER"]            # default: all that may ask
"""


@dataclass(frozen=True)
class PolicyChoices:
    """What a party's policy allows. The defaults deny every query. `reason` is a comment at the top of the file."""

    designs: Sequence[str] = ()
    allow_unprotected: bool = False
    smallest_cohort: int = 3
    assumed_colluders: int = 1
    required_witnesses: int = 1
    epsilon: str = "10"
    delta: str = "1e-5"
    unbounded_queries: int = 0
    rados_per_query: int = 1000
    delta_per_query: str = "1e-6"
    attempts_per_query: int = 3
    lifetime_per_query_s: int = 604_800
    reason: str = ""


def policy_toml(learners: Mapping[str, str], accepted: Mapping[str, str], choices: PolicyChoices) -> str:
    """policy.toml of a party. learners, accepted: fingerprints of signing keys by member name."""
    pinned = "\n".join(
        f"[[learners]]\nname = {_text(name)}\nsigning_key = {_text(fingerprint)}\n"
        for name, fingerprint in learners.items()
    )
    return f"""\
{_consent_toml(accepted, choices)}\
{_limits_toml(choices)}
{_OPTIONAL_LIMITS}
# How much this party's rows may change before a person has to accept them (rado party accept-rows): the largest share
# that may be unusable, the largest share by which they may be fewer than when the party answered last, and the largest
# share of a feature's cells by which more may be replaced or clipped than then.
# [data]
# most_unusable_rows = "0.5"
# largest_drop_in_rows = "0.25"
# largest_rise_in_changed_cells = "0.25"

# Learners that may ask, pinned by the fingerprints of their signing keys.
{pinned}{_STUDIES}"""


def _consent_toml(accepted: Mapping[str, str], choices: PolicyChoices) -> str:
    members = "\n".join(f"  {_text(fingerprint)},  # {name}" for name, fingerprint in accepted.items())
    reason = "".join(f"# {line}\n" for line in choices.reason.splitlines())
    return f"""\
# What this party agrees to. A query that is not allowed here is refused, and no other member can change this file.
# A running node reads it again on `rado party reload`, or on SIGHUP.
{reason}
# Designs of queries that may be asked. An empty list refuses every query. What each design protects:
#   whole records     "statistic", "local-statistic", "gradient", "moments", "gaussian", and "fixed-support" with noise
#   a source column   "dp-feat-joint"
#   single features   "dp-feat": each feature's own values; "plain": those of boolean features
# The last two kinds, and "fixed-support" without noise, leave whole records without a bound. They also need
# these: allow_unprotected = true, and unbounded_queries below.
designs = {_list(choices.designs)}
allow_unprotected = {json.dumps(choices.allow_unprotected)}

# A cohort needs at least smallest_cohort accepted parties, this one included, and at least assumed_colluders + 2.
# assumed_colluders: how many other parties may share what they know with the coordinator or the learner.
smallest_cohort = {choices.smallest_cohort}
assumed_colluders = {choices.assumed_colluders}

# After each start this party answers nothing until so many accepted parties have confirmed that its ledger is not an
# older copy. With 0 a restored copy of the whole machine may exceed the limits below unnoticed.
required_witnesses = {choices.required_witnesses}

# The parties that this one accepts, by the fingerprints of their signing keys. Compare each fingerprint with its
# owner over another channel, such as the telephone, before you keep it: a certificate alone proves no membership.
accepted_members = [
{members}
]

"""


def _limits_toml(choices: PolicyChoices) -> str:
    return f"""\
# The privacy budget of the data source, for its whole lifetime and all learners. What is spent never comes back, and
# each attempt at a query counts. Write exact decimals in quotation marks.
# epsilon, delta: hold in each scope separately: whole records, each source column, each feature's own values.
#   Half of delta is for the sum of the queries' own deltas, half for the composition of many queries, which costs less
#   than the sum of their epsilons. Give at least twice delta_per_query.
# unbounded_queries: how many queries without a bound for whole records may ever be answered.
[limits]
epsilon = {_text(choices.epsilon)}
delta = {_text(choices.delta)}
unbounded_queries = {choices.unbounded_queries}
# For one query. An accepted query reserves its privacy until it ends, at most for lifetime_per_query_s seconds.
rados_per_query = {choices.rados_per_query}
predicates_per_query = 10_000
map_terms_per_query = 500
delta_per_query = {_text(choices.delta_per_query)}
attempts_per_query = {choices.attempts_per_query}
lifetime_per_query_s = {choices.lifetime_per_query_s:_}
"""


def learner_toml(federation: str, name: str, coordinator: str) -> str:
    """learner.toml of the learner called `name`, which dials `coordinator` ("host:port")."""
    return f"""\
# The learner {name!r} of the federation {federation!r}. Paths are relative to this file; unknown keys are refused.
# First:   rado learner keygen --config learner.toml

federation = {_text(federation)}
name = {_text(name)}
coordinator = {_text(coordinator)}
federation_key = "federation.pub"     # pinned: only rosters signed by this key are accepted
signing_key = "signing.key"           # pinned by the parties; it certifies the Paillier key below
parties = "parties.toml"              # the parties that it asks; add one: rado learner accept NAME
paillier_key = "paillier.jwk"         # decrypts totals; made by `rado learner keygen`; mode 0600, stays here
state_directory = "state"             # the queries that were sent
releases_directory = "releases"       # the results, each with its privacy statement
{_TLS}
# Optional: the study that every query states, signed and shown to the parties. See docs/how-to/studies.md.
# [study]
# protocol_number = "EK 2026/17"
# purpose = "What it is to find out"
# organisation = "University of Chur"
# person_in_charge = "Dr. Ada Meier"
# begins = 2026-11-01                 # the first and the last day on which it asks, in UTC
# ends = 2027-06-30
"""


def _text(value: str) -> str:
    # TOML's basic strings and JSON's agree on all characters of names, addresses and fingerprints.
    return json.dumps(value)


def _list(values: Sequence[str]) -> str:
    return f"[{', '.join(_text(value) for value in values)}]"
