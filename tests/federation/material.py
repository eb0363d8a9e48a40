"""What federations of tests are made of: schemas, keys, rosters, and credentials of servers."""

import grpc

from dpcore.records.features import BooleanFeature, Label, RealFeature
from dpcore.records.schema import Schema
from wire.identity import TlsFiles

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


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """As a coordinator's: clients without a certificate of the same authority are refused."""
    ca, certificate, key = files.read()
    return grpc.ssl_server_credentials([(key, certificate)], root_certificates=ca, require_client_auth=True)
