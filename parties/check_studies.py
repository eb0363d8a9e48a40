"""`rado party check` on the studies that a party was asked for: protocol numbers that differ in spelling only."""

from parties.check_files import Run
from parties.history.reading import HistoryReader
from parties.history.studies import studies, studies_of
from radobase.printing import json_text


def check_study_numbers(run: Run) -> None:
    """Say which numbers may be one study. Changes nothing."""
    run.step("study-numbers", lambda: _study_numbers(run), needs=("policy", "ledger"))


def _study_numbers(run: Run) -> None:
    """Numbers of studies that differ in spelling only; nothing without a study that has an answer or a rule."""
    if run.config.ledger_file.exists():
        with HistoryReader(run.config) as reader:
            found = studies_of(reader)
    else:
        found = studies(run.policy, (), ())
    alike = [each for each in found if each.spelt_alike]
    if not found:
        return
    pairs = sorted({tuple(sorted((each.number, *each.spelt_alike))) for each in alike})
    said = [" and ".join(map(json_text, numbers)) for numbers in pairs]
    spent = ", ".join(f"{json_text(each.number)}: {each.spent}" for each in alike)
    advice = (
        f"{'; '.join(said)}: may be one study. Each spelling has a budget of its own ({spent}). Ask the learner, and "
        "list the right one under [[studies]], so that others are refused."
    )
    count = f"{len(found)} {'study' if len(found) == 1 else 'studies'}"
    run.add("study-numbers", f"{count}, by protocol number", advice if alike else "")
