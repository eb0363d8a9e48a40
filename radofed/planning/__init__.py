"""What a query would cost, before anybody is asked: privacy, exactly, and ciphertexts, bytes and seconds.

Nothing here knows a roster, a schema or a key: row counts and sizes are enough. `learner.planning` makes the query
itself.
"""

from radofed.planning.cost import Cost
from radofed.planning.planner import plan_cost
from radofed.planning.request import PlannedDesign, PlanRequest, Source, Split, split_equally

__all__ = ["Cost", "PlanRequest", "PlannedDesign", "Source", "Split", "plan_cost", "split_equally"]
