"""The names in a plan over a schema: sensitive features and columns, resolved by the code that makes a query."""

from dpcore.accounting.protection import Scope
from dpcore.errors import PlanError
from dpcore.rados.schema_designs import dp_feat_design, joint_design, plain_design
from dpcore.randomness.discrete_gaussian import SMALLEST_SHARE_SIGMA
from dpcore.records.schema import Schema
from learner.requests import protected_column
from radofed.planning.cost import Cost
from radofed.planning.request import PlanRequest

_SCOPES: dict[str, Scope] = {"dp-feat": "marginal", "joint": "joint"}


def check_names(request: PlanRequest) -> Cost | None:
    """Why the names in `sensitive` and `rounded` cannot be protected; None if they can be, or there is no schema.

    Raises SchemaError if a name is of nothing in the schema.
    """
    if request.schema is None:
        return None
    try:
        protected_names(request, request.schema)
    except PlanError as error:
        reason, _, suggestion = str(error).partition(": ")
        scope = _SCOPES.get(request.kind_name, "none")
        return Cost(request, feasible=False, scope=scope, reason=reason, suggestion=suggestion)
    return None


def protected_names(request: PlanRequest, schema: Schema) -> tuple[str, ...]:
    """What the bound is about: coordinates of plain rados and dp-feat, the column of joint; empty for whole records.

    Raises PlanError and SchemaError as a query does.
    """
    match request.kind_name:
        case "plain":
            return tuple(schema.coordinates[place] for place in plain_design(schema).booleans)
        case "dp-feat":
            per_rado = request.epsilon_per_rado
            design = dp_feat_design(schema, request.sensitive, per_rado, rounded=request.rounded)
            return tuple(feature.name for feature in design.sensitive)
        case "joint":
            column = protected_column(schema, request.sensitive)
            return (joint_design(schema, column, SMALLEST_SHARE_SIGMA).column,)
        case _:
            return ()
