"""When a node's certificate is to be renewed."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from radofed.node_config import load_node_config, role_of
from wire.identity import Certificate


@dataclass(frozen=True)
class Renewal:
    """A node's certificate, and what to do about it at a time."""

    certificate: Certificate
    now: dt.datetime

    @property
    def is_due(self) -> bool:
        """Whether two thirds of the certificate's life are over."""
        return self.certificate.needs_renewal(self.now)

    def sentence(self) -> str:
        """For the administrator of the node."""
        found = self.certificate
        valid = f"{found.san}: valid until {found.not_after:%Y-%m-%d %H:%M} UTC"
        if not self.is_due:
            return f"{valid}; nothing to do before {found.renew_from:%Y-%m-%d}"
        return (
            f"{valid}; two thirds of its life are over. Ask the operator for `rado provision renew`, and install the "
            "answer with `rado provision install`"
        )

    def to_dict(self) -> dict[str, Any]:
        """For `--format json`. Times are ISO 8601, in UTC."""
        return {
            "member": self.certificate.san,
            "is_due": self.is_due,
            "renew_from": self.certificate.renew_from.isoformat(timespec="seconds"),
            "not_after": self.certificate.not_after.isoformat(timespec="seconds"),
        }


def renewal_of(config: Path, now: dt.datetime) -> Renewal:
    """Of the node with this configuration file.

    Raises ConfigurationError if it is no node's configuration, or the certificate is not valid now or not this node's.
    """
    node = load_node_config(config)
    return Renewal(node.tls.files.check(node.federation, role_of(config), node.name, now), now)
