"""Configuration files as `rado provision init` writes them, with the comments that their readers need.

The samples in deploy/samples are what these functions give for an example federation; a test holds them together.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_TLS = """
[tls]
ca = "ca.pem"                     # the federation's certificate authority
certificate = "certificate.pem"   # this member's certificate; valid for a year
key = "tls.key"                   # its private key; never leaves this directory
"""


def coordinator_toml(federation: str, name: str, listen: str) -> str:
    """coordinator.toml of the coordinator called `name`."""
    return f"""\
# The coordinator of the federation {federation!r}. Paths are relative to this file; an unknown key is refused.
# Start it with: rado coordinator start --config coordinator.toml

federation = {_text(federation)}
name = {_text(name)}
listen = {_text(listen)}          # address and port to serve on; the certificate names what members dial
federation_key = "federation.pub"   # pinned: only rosters signed by this key are served
roster = "roster.signed"            # replace it by a newer one and send SIGHUP
state_directory = "state"           # queries and uploads; survives restarts, one coordinator at a time
log_level = "info"
# log_file = "coordinator.log"      # default: standard error
{_TLS}
[limits]
open_queries = 16                 # at one time, over all learners
open_queries_per_learner = 4
spool_bytes = 50_000_000_000      # uploads on disk, over all open queries
query_life_s = 7_776_000          # how far away the end of a query may be
keep_finished_s = 86_400          # how long a total can still be fetched
finished_per_learner = 200        # the oldest beyond that many are dropped before

# A Ray cluster of the coordinator's own, which makes large totals; see docs/operating.md. Without it this machine does.
# [cluster]
# address = "auto"                  # this machine is a node of it; else the head's "host:port"
# token_file = "ray.token"          # default: where Ray itself looks
# workers = 8                       # tasks at one time, a processor each
# from_bytes = 268_435_456          # a query whose uploads have at least so many is added there
# timeout_s = 300                   # the longest wait for an answer; then this machine goes on
"""


def party_toml(federation: str, name: str, coordinator: str) -> str:
    """party.toml of the party called `name`, which dials `coordinator` ("host:port")."""
    return f"""\
# The party {name!r} of the federation {federation!r}. Paths are relative to this file; an unknown key is refused.
# First:   rado party check --config party.toml     (says what is wrong, and how to mend it)
# Then:    rado party start --config party.toml

federation = {_text(federation)}
name = {_text(name)}
coordinator = {_text(coordinator)}   # the party dials out; nothing dials in
federation_key = "federation.pub"     # pinned: only rosters signed by this key are believed
signing_key = "signing.key"           # signs what this party says; never leaves this directory
policy = "policy.toml"                # what this party agrees to
schema = "schema.toml"                # the same file at every party; draft one with `rado schema infer`
data = "data.csv"                     # this party's rows, CSV or Parquet; read once, at start; they stay here
state_directory = "state"             # spools and attempts; survives restarts
# data_source = "data.csv"            # what the ledger counts for; keep it when the rows move to another file
# ledger = "state/ledger.sqlite"      # the privacy ledger of the data source; back it up, never restore an old copy
spool_bytes = 10_000_000_000          # contributions on disk
spare_obfuscators = 1000              # made ahead once idle for 30 s, in memory only, 1 KB each
log_level = "info"
# log_file = "party.log"              # default: standard error
{_TLS}
# A Ray cluster of the party's own, which sums its rows; see docs/operating.md. Whoever is in it can read them.
# Without it this machine does.
# [cluster]
# address = "auto"                    # this machine is a node of it; else the head's "host:port"
# token_file = "ray.token"            # default: where Ray itself looks
# workers = 8                         # tasks at one time, a processor each
# from_rows = 10_000_000              # a table of at least so many is summed there
# timeout_s = 300                     # the longest wait for an answer; then this machine sums
"""


@dataclass(frozen=True)
class PolicyChoices:
    """What a party's policy allows. The defaults deny every query. `reason` is printed above what is allowed."""

    designs: Sequence[str] = ()
    allow_unprotected: bool = False
    smallest_cohort: int = 3
    assumed_colluders: int = 1
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
    members = "\n".join(f"  {_text(fingerprint)},  # {name}" for name, fingerprint in accepted.items())
    pinned = "\n".join(
        f"[[learners]]\nname = {_text(name)}\nsigning_key = {_text(fingerprint)}\n"
        for name, fingerprint in learners.items()
    )
    reason = "".join(f"# {line}\n" for line in choices.reason.splitlines())
    return f"""\
# What this party agrees to. Whatever is not allowed here is refused, and nobody else can change this file.
# A running node reads it again on SIGHUP.
{reason}
# What may be asked. "statistic", "gradient", "moments", "gaussian" and "fixed-support" (with noise) bound what is told
# of whole records.
# "dp-feat-joint" bounds one source column, "dp-feat" single features' own values, "plain" those of boolean features:
# these leave whole records without a bound, so they need allow_unprotected = true as well, and unbounded_queries below.
# An empty list refuses every query.
designs = {_list(choices.designs)}
allow_unprotected = {json.dumps(choices.allow_unprotected)}

# A cohort must have this many members that this party has accepted, itself included, and at least two more than
# assumed_colluders, the number of other parties that may tell what they know to coordinator or learner.
smallest_cohort = {choices.smallest_cohort}
assumed_colluders = {choices.assumed_colluders}

# Parties of the roster that count for this one. Compare each fingerprint with its owner over another channel, such as
# the telephone, before you keep it: a certificate alone makes nobody a member.
accepted_members = [
{members}
]

# What the data source may give in its whole lifetime, over all learners; exact decimals in quotation marks. What was
# spent never comes back. epsilon and delta hold in each scope by itself: whole records, each source column, each
# feature's own values. Half of delta is for the sum of the queries' own deltas, half for counting many queries as less
# than the sum of their epsilons: give at least twice delta_per_query. unbounded_queries: how many queries without a
# bound for whole records may ever be answered. Each attempt at a query counts.
[limits]
epsilon = {_text(choices.epsilon)}
delta = {_text(choices.delta)}
unbounded_queries = {choices.unbounded_queries}
# For one query. An accepted query sets its privacy aside until it ends, at latest after lifetime_per_query_s seconds.
rados_per_query = {choices.rados_per_query}
predicates_per_query = 10_000
delta_per_query = {_text(choices.delta_per_query)}
attempts_per_query = {choices.attempts_per_query}
lifetime_per_query_s = {choices.lifetime_per_query_s:_}

# Other limits, where wanted: for whole records, for a source column, for a feature; and, beside those of the lifetime,
# for what each learner is given and for any 24 hours.
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

# Learners that may ask, pinned by the fingerprints of their signing keys.
{pinned}"""


def learner_toml(federation: str, name: str, coordinator: str) -> str:
    """learner.toml of the learner called `name`, which dials `coordinator` ("host:port")."""
    return f"""\
# The learner {name!r} of the federation {federation!r}. Paths are relative to this file; an unknown key is refused.
# First:   rado learner keygen --config learner.toml

federation = {_text(federation)}
name = {_text(name)}
coordinator = {_text(coordinator)}
federation_key = "federation.pub"     # pinned: only rosters signed by this key are believed
signing_key = "signing.key"           # the parties pin this key; it certifies the Paillier key below
paillier_key = "paillier.jwk"         # opens totals; made by `rado learner keygen`, never leaves this directory
state_directory = "state"             # queries that were asked
releases_directory = "releases"       # what was learnt, each with its privacy statement
{_TLS}"""


def _text(value: str) -> str:
    # TOML's basic strings and JSON's agree on everything that names, addresses and fingerprints may hold.
    return json.dumps(value)


def _list(values: Sequence[str]) -> str:
    return f"[{', '.join(_text(value) for value in values)}]"
