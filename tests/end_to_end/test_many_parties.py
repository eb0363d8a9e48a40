"""A real coordinator with 200 connected parties: one encrypted query, and what it takes of memory and disk.

The parties are real nodes, on their own files and connections, but in three processes.
"""

import os
import resource
import sys
import time
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path

import pytest

from dpcore.predicates.notation import parse
from learner.config import LearnerConfig
from learner.decryption import create_key
from learner.requests import StatisticRequest
from learner.session import Session
from radofed.node_config import PolicyChoices
from tests.end_to_end.many_parties import host_parties
from tests.federation.material import STAYS
from tests.federation.processes import Forked, ProcessFederation
from tests.waiting import wait_until
from wire.roster import Role
from wire.status import Phase

PARTIES, PROCESSES, ROWS_EACH = 200, 3, 10
ROWS = "age,smoker,stayed\n" + "40,yes,yes\n" * ROWS_EACH
MOST_MEMORY_MB = 400
"""Measured: 260, of which a coordinator without parties has 150."""
MOST_DISK_MB = 20
"""Measured: 5."""
POLICY = PolicyChoices(designs=("statistic",), smallest_cohort=3, assumed_colluders=1, epsilon="100", delta="1e-5")


def most_memory_mb(pid: int) -> int:
    """The largest resident memory of a process so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) // 1024


def processor_s(pid: int) -> float:
    """The processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def disk_mb(directory: Path) -> float:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file()) / 1e6


@pytest.mark.more
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")
def test_a_coordinator_with_two_hundred_parties(tmp_path, capsys):
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 1024, "raise the limit on open files: ulimit -n 1024"
    parties = {f"p{place:03}": ROWS for place in range(PARTIES)}
    with ExitStack() as opened:
        made = opened.enter_context(ProcessFederation(tmp_path, parties=parties, schema=STAYS.to_toml(), policy=POLICY))
        create_key(made.learner.directory / "paillier.jwk", bits=2048)
        made.start("coordinator")
        wait_until(lambda: '"listening"' in made.log("coordinator"), what="the coordinator")
        coordinator = made.processes["coordinator"].pid
        before_mb, before_s = most_memory_mb(coordinator), processor_s(coordinator)
        configs = [str(member.config) for member in made.made.of(Role.PARTY)]
        for place in range(PROCESSES):
            log = tmp_path / f"host{place}.log"
            made.processes[log.stem] = Forked(host_parties, tuple(configs[place::PROCESSES]), log)
        logs = [f"host{place}" for place in range(PROCESSES)]
        wait_until(
            lambda: sum(made.log(log).count('"ledger witnessed"') for log in logs) == PARTIES,
            what="the parties, that have asked one another",
        )
        started_s = processor_s(coordinator) - before_s
        session = opened.enter_context(Session(LearnerConfig.load(made.learner.config)))
        total, seconds = asked(session)
        memory_mb, used_mb = most_memory_mb(coordinator), disk_mb(made.directory("coordinator"))
    with capsys.disabled():
        sys.stdout.write(
            f"\n{PARTIES} parties: {seconds:.0f} s; the coordinator took {memory_mb} MB, {before_mb} of them before "
            f"any party, {used_mb:.1f} MB of disk, and {started_s:.0f} s of a processor until all had started\n"
        )
    assert total == pytest.approx(1, abs=0.05)
    assert memory_mb < MOST_MEMORY_MB
    assert used_mb < MOST_DISK_MB


def asked(session: Session) -> tuple[float, float]:
    """The share of rows with an age of 30 or more, which is 1, and how long the query took."""
    request = StatisticRequest(
        STAYS,
        (parse('x["age"] >= 30'),),
        epsilon=Fraction(1),
        max_rows=100_000,
        answer_within_s=600,
        prepare_within_s=600,
        upload_within_s=600,
    )
    begun = time.monotonic()
    plan = session.plan(request)
    assert plan.query.mask_neighbours == 20
    query_id = session.prepare(plan)
    session.send(query_id)
    status = wait_until(
        lambda: found if (found := session.status(query_id)).phase.is_terminal else None,
        what="the total",
    )
    assert status.phase is Phase.COMPLETE, (status.code, status.detail)
    release = session.fetch(query_id)
    count = int(release.integers[0]) / (1 << plan.query.encoding.fraction_bits)
    return count / PARTIES / ROWS_EACH, time.monotonic() - begun
