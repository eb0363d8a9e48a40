"""`rado plan`: the cost of a query, before it is sent."""

from radobase.failure import EXIT_FAILED
from radobase.printing import in_lines
from radofed.cli.framework import check_new
from radofed.cli.output import Output, Result
from radofed.planning.plan_options import PlanOptions


def plan(_output: Output, options: PlanOptions) -> Result:
    """Compute the cost of a query before it is sent.

    Plans a design, or with --estimator what an estimator asks, or with --statistic a batch of statistics. Prints
    privacy, noise, bytes and seconds; contacts no one. If a query is not possible, the exit code is 1 and the plan says
    what is.

    A warning says so if the noise exceeds the signal. Epsilons and deltas are exact decimals or fractions. --worth, or
    --tolerance without --epsilon, finds the epsilon that an accuracy needs.
    """
    from radobase.presentation.svg import check_picture
    from radofed.planning.design_cost import Cost
    from radofed.planning.from_options import cost_of, request_of
    from radofed.planning.picture import draw_plan

    request, picture = request_of(options), options.picture
    if picture is not None:
        check_new(picture)
        check_picture(picture)
    found = cost_of(request, options)
    if picture is not None:
        assert isinstance(found.cost, Cost), "--picture is of a design"
        draw_plan(found.cost, picture)
    text = in_lines(found.sentences())
    return Result(found.to_dict(), text, exit_code=0 if found.cost.feasible else EXIT_FAILED)
