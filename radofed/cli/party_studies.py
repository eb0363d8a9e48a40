"""`rado party studies`: the studies that a party was asked for, and their budgets."""

from radobase.printing import in_lines
from radofed.cli.framework import ConfigOption
from radofed.cli.output import Output, Result


def studies(_output: Output, config: ConfigOption) -> Result:
    """List the studies that queries, charges or the policy name: who asked, what each spent, and what it may spend.

    What a study states is the learner's claim, signed with each query; nothing checks it. An answer must fit within the
    budget of its study, and within the party's. Reads no row and changes nothing; the node may run.
    """
    from parties.config import PartyConfig
    from parties.history.reading import HistoryReader
    from parties.history.studies import studies_of

    with HistoryReader(PartyConfig.load(config)) as reader:
        found = studies_of(reader)
    lines = [line for each in found for line in each.lines()]
    return Result({"studies": [each.to_dict() for each in found]}, in_lines(lines) if lines else "no study is named")
