"""The schemas that tests of several packages share."""

from dpcore.records.features import BooleanFeature, Label, RealFeature
from dpcore.records.schema import Schema

STAYS = Schema(
    name="stays",
    label=Label(column="stayed", positive=("yes",), negative=("no",)),
    features=(
        RealFeature(name="age", lower=0.0, upper=100.0, missing="zero-vector"),
        BooleanFeature(name="smoker", true=("yes",), false=("no",)),
    ),
)
SMALL = Schema(
    name="small",
    label=Label(column="y", positive=("1",)),
    features=(
        RealFeature(name="x0", lower=0.0, upper=1.0),
        BooleanFeature(name="s", true=("1",), false=("0",)),
    ),
)
