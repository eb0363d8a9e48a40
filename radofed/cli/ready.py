"""What the commands of nodes and learners import, and all commands, made: a process that is forked has them at once."""

import gc
from importlib import import_module

from radofed.cli.entry_point import COLLECT_AFTER_OBJECTS, made_command

_IMPORTED = (
    "coordinator.server",
    "parties.node",
    "learner.session",
    "learner.training",
    "learner.federation",
    "learner.expected_coefficients",
    "dpcore.paillier.compiled",
    "dpcore.predicates.compiled",
    "dpcore.rados.compiled",
    "dpcore.records.compiled",
)

gc.set_threshold(COLLECT_AFTER_OBJECTS)
for name in _IMPORTED:
    import_module(name)
made_command()
gc.collect()
gc.freeze()  # A collection in a forked process would write to all memory that it shares, and so copy it.
