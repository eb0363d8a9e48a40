"""The cost of a query before it is sent: exact privacy, and ciphertexts, bytes and seconds.

Plans need only row counts and sizes, no roster, schema or key. `learner.planning` makes the query itself.
"""

from radofed.planning.cost import Cost
from radofed.planning.planner import plan_cost
from radofed.planning.request import PlannedDesign, PlanRequest, Source, Split, split_equally

__all__ = ["Cost", "PlanRequest", "PlannedDesign", "Source", "Split", "plan_cost", "split_equally"]
