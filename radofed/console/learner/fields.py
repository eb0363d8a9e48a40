"""The fields of the page that plans: which options a design, an estimator or a batch of statistics takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from learner.design_options import OPTIONS, taken_options
from learner.estimators import BY_QUERIES
from radofed.console.forms import Field, Form
from radofed.planning.fields import PlanOptions
from wire.request_fields import DESIGNS, USUAL_DESIGN, AskOptions, QueryOptions, TrainOptions

PLAN, QUERY, BUDGET, TRAIN = Form(PlanOptions), Form(QueryOptions), Form(AskOptions), Form(TrainOptions)

STATISTIC = "statistic"
CHOICES: Mapping[str, Sequence[str]] = {
    "One release": DESIGNS,
    "What an estimator asks": tuple(BY_QUERIES),
    "Counts and means": (STATISTIC,),
}
USUAL = USUAL_DESIGN

_ROWS = ("rows", "parties", "party_rows")
_OF_ASKING = ("honest", "key_bits", "cohort_min", "colluders", "max_rows", "quorum_wait_s", "purpose")
# Not fields: where it runs, files of its machine, what is chosen above the form, and how a command waits and prints.
_NOT_SHOWN = {"config", "map_file", "design", "wait", "timeout_s", "retries", "ask_again", "would_accept"}
# In this order before the others, which are folded away.
_FIRST = (
    "schema",
    "purpose",
    *_ROWS,
    "statistic",
    "rados",
    "sensitive",
    "joint",
    "epsilon",
    "worth",
    "tolerance",
    "delta",
    "option",
    "rounds",
)


@dataclass(frozen=True)
class PlanFields:
    """The fields of one choice. first: shown at once. more: folded away."""

    what: str
    first: tuple[Field, ...]
    more: tuple[Field, ...]

    @property
    def is_design(self) -> bool:
        """Whether it is a release's design."""
        return self.what in DESIGNS

    @property
    def asks_by_itself(self) -> bool:
        """Whether it is an estimator, which asks several queries."""
        return not self.is_design and self.what != STATISTIC

    @property
    def chosen(self) -> dict[str, str]:
        """The option of `rado plan` that says what is planned."""
        if self.what == STATISTIC:
            return {}
        return {"design" if self.is_design else "estimator": self.what}


def fields_of(what: str) -> PlanFields:
    """The fields for a design, an estimator or statistics: options of `rado plan` and `rado learner query`."""
    of_plan, of_query = ({field.name: field for field in form.fields} for form in (PLAN, QUERY))
    if what in DESIGNS:
        taken = taken_options(what) | taken_options(what, joint=what == "dp-feat")
        names = {"schema", *_ROWS, *(name for name in of_query if name in taken or name not in OPTIONS)}
        names |= {"worth"} if "epsilon" in taken else set()
    else:
        own = {"statistic", "tolerance", "confidence", "noise_rate"}
        own = own if what == STATISTIC else {"option", "rounds", "hold_back"}
        names = {"schema", *_ROWS, *_OF_ASKING, "epsilon", "worth", "delta"} | own
    known = of_plan | of_query if what in DESIGNS else of_query | of_plan
    shown = [known[name] for name in known if name in names - _NOT_SHOWN]
    first = sorted((each for each in shown if each.name in _FIRST), key=lambda each: _FIRST.index(each.name))
    return PlanFields(what, tuple(first), tuple(each for each in shown if each.name not in _FIRST))
