"""A page for each named policy, from the policies themselves: what it answers, what it asks, what it refuses."""

import math

from docs.generate.tables import code, table
from dpcore.accounting.filters import NO_LOSS
from parties.named_policies import ASKS, AT_ONCE, NAMED, REFUSED, NamedPolicy, levels
from parties.policy import Policy
from radofed.cli.party_policy import policy_text


def policy_pages() -> dict[str, str]:
    """The text of each page, by its name without an ending."""
    return {"index": _index(), **{each.name: _page(each) for each in NAMED}}


def _index() -> str:
    header = ["what is asked", *(f"[{each.title}]({each.name}.md)" for each in NAMED)]
    columns = [[_short(level) for _, level in levels(each.policy)] for each in NAMED]
    rows = [[function.words, *row] for (function, _), *row in zip(levels(NAMED[0].policy), *columns, strict=True)]
    budget = ["spent at most, ever", *(_most(each.policy) for each in NAMED)]
    return f"""# Named policies

<!-- Written by python -m docs.generate from parties/named_policies.py: do not edit. -->

Four policies to start from. Each has a page that takes two minutes to read. `rado party policy` lists them.

{table(header, [*rows, budget])}
In each of them a party refuses what exceeds its limits, learners that it has not pinned, and cohorts with too few
members that it accepts. [Decide what your organisation answers](../how-to/decide.md) says how people decide.

```{{toctree}}
:hidden:

{chr(10).join(each.name for each in NAMED)}
```
"""


def _page(each: NamedPolicy) -> str:
    policy = each.policy
    rows = [[function.words, code(f"rado learner {function.commands}"), level] for function, level in levels(policy)]
    return f"""# {each.title}

<!-- Written by python -m docs.generate from parties/named_policies.py: do not edit. -->

{each.summary}

## What becomes of a query

{table(["what a learner asks", "commands", "what happens"], rows)}
{chr(10).join(_rules(policy))}

## Take it

    rado party policy {each.name} --config party.toml
    rado party policy {each.name} --config party.toml --write
    rado party reload --config party.toml

The first shows the file. The second replaces `policy.toml`, keeps the former one beside it, and says which settings are
no longer there. Members, pinned learners, studies, who decides, `[data]` and `[history]` stay as they were. Charges
stay in the ledger whatever the policy says.

## The file

```toml
{policy_text(each, {})}```
"""


def _rules(policy: Policy) -> list[str]:
    """What holds besides, one line each."""
    limits = policy.limits
    lines = [f"- **Budget.** {_most(policy)}, over the lifetime of the data and all learners."]
    both = [each for each in (limits.of_ledger.lifetime, limits.of_ledger.per_day) if each is not None]
    if limits.epsilon:
        left = [each.left(NO_LOSS) for each in both]
        pure, gaussian = _rounded_down(min(x.pure for x in left)), _rounded_down(min(x.gaussian for x in left))
        lines.append(
            f"- **One answer** fits up to epsilon {pure} with Laplace noise, which statistics, tables and curves have, "
            f"and up to {gaussian} with Gaussian noise, which moments and trainings have. What was answered before "
            "leaves less."
        )
    if limits.per_day is not None:
        lines.append(f"- **In any 24 hours** at most epsilon {float(limits.per_day.epsilon):g}.")
    if policy.purpose_required:
        lines.append("- **Purpose.** A query that states neither a purpose nor a study is refused.")
    if not policy.approval.asks:
        lines.append("- **People** are asked about nothing.")
    else:
        lines.append(
            f"- **People.** {policy.approval.approvers} person must approve; undecided when the answers are due is "
            "refused. Nothing is reserved, computed or charged before."
        )
    lines.append(
        f"- **One query** is charged for each attempt that uploads, at most {limits.attempts_per_query} times."
    )
    return lines


def _rounded_down(epsilon: float) -> str:
    return f"{math.floor(100 * epsilon + 1e-3) / 100:g}"


def _most(policy: Policy) -> str:
    epsilon, delta = float(policy.limits.epsilon), float(policy.limits.delta)
    return f"Epsilon {epsilon:g} at delta {delta:g}" if epsilon else "Nothing"


def _short(level: str) -> str:
    return next(one for one in (AT_ONCE, ASKS, REFUSED) if level.startswith(one)) + (
        "; by cost" if ";" in level else ""
    )
