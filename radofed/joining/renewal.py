"""When a node's certificate is to be renewed, and its renewal without a person at the node.

New certificates wait at the coordinator, each in an admission that the operator signed; each node fetches its own. The
coordinator can keep one back, and can neither make nor change one: the federation's key has signed it, and it is for
the TLS key that this node has.
"""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError
from rado.v1 import member_service_pb2, member_service_pb2_grpc
from radobase.files.writing import BY_UMASK, write_durably
from radobase.logs import Log
from radofed.joining.installing import Admission, check_certificate
from radofed.node_config import NodeConfig, load_node_config, role_of
from wire.envelopes import load_public_key
from wire.errors import Code, WireError
from wire.identity import Certificate
from wire.transport import Caller, open_channel

_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Renewal:
    """A node's certificate, and what to do about it at a time."""

    certificate: Certificate
    now: dt.datetime
    is_new: bool = False
    """Whether it has just been renewed."""

    @property
    def is_due(self) -> bool:
        """Whether two thirds of the certificate's life are over."""
        return self.certificate.needs_renewal(self.now)

    def sentence(self) -> str:
        """For the administrator of the node."""
        found = self.certificate
        valid = f"{found.san}: {'renewed, ' if self.is_new else ''}valid until {found.not_after:%Y-%m-%d %H:%M} UTC"
        if not self.is_due:
            return f"{valid}; nothing to do before {found.renew_from:%Y-%m-%d}"
        return (
            f"{valid}; two thirds of its life are over. Ask the operator for `rado provision renew`, then run "
            "`rado certificate renew`, or install the answer with `rado provision install`"
        )

    def to_dict(self) -> dict[str, Any]:
        """For `--format json`. Times are ISO 8601, in UTC."""
        return {
            "member": self.certificate.san,
            "is_due": self.is_due,
            "is_new": self.is_new,
            "renew_from": self.certificate.renew_from.isoformat(timespec="seconds"),
            "not_after": self.certificate.not_after.isoformat(timespec="seconds"),
        }


def renewal_of(config: Path, now: dt.datetime) -> Renewal:
    """Of the node with this configuration file.

    Raises ConfigurationError if it is no node's configuration, or the certificate is not valid now or not this node's.
    """
    node = load_node_config(config)
    return Renewal(node.tls.files.check(node.federation, role_of(config), node.name, now), now)


def renew(config: Path, now: dt.datetime, *, before_due: bool = False) -> Renewal:
    """Put the newer certificate that the operator left at the coordinator into its place, if it is time.

    A running node reads it from there. before_due: also while nothing is due. Where there is no newer one, the result
    is that of `renewal_of`. Raises ConfigurationError, and changes nothing, if what the coordinator sends is not signed
    by the federation's key, or is for another member, key or authority; ConnectionLostError if it cannot be reached.
    """
    found, node, role = renewal_of(config, now), load_node_config(config), role_of(config)
    if not (found.is_due or before_due):
        return found
    content = _fetched(node)
    if not content:
        return found
    admission = Admission.of_bytes(content, Path("the certificate from the coordinator"))
    if admission.federation_key != load_public_key(node.federation_key):
        raise ConfigurationError(
            f"the certificate from the coordinator is signed by another key than {node.federation_key}; ask the "
            "operator, and change nothing before you know why"
        )
    files = node.tls.files
    # By the authority that this node has: another one is installed by a person, who compares fingerprints.
    renewed = check_certificate(
        admission.certificate, files.read()[0], files.key, node.federation, role, node.name, now
    )
    if renewed.not_after <= found.certificate.not_after:
        return found
    write_durably(files.certificate, admission.certificate, mode=BY_UMASK)
    return Renewal(renewed, now, is_new=True)


def _fetched(node: NodeConfig) -> bytes:
    """The answer for this node, from the coordinator; a coordinator has its own. Empty if there is none."""
    from coordinator.config import CoordinatorConfig  # noqa: PLC0415  (only where a node needs it)

    if isinstance(node, CoordinatorConfig):
        from coordinator.membership import Admissions  # noqa: PLC0415

        return Admissions(node.admissions_directory, Log(node.name)).of(node.name)
    caller = Caller(node.coordinator, give_up_after_s=_PATIENCE_S)
    with open_channel(node.coordinator, node.tls.files) as channel:
        stub: Any = member_service_pb2_grpc.MemberServiceStub(channel)
        try:
            response = caller(stub.FetchAdmission, member_service_pb2.FetchAdmissionRequest())
        except WireError as error:
            if error.code is not Code.ROLE_FORBIDDEN:
                raise
            raise ConfigurationError(
                "the coordinator's version does not deliver certificates: ask its administrator to update it, or "
                "install the operator's answer with `rado provision install`"
            ) from error
    return bytes(response.admission)
