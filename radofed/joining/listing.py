"""What an operator has signed: the roster's members, and until when their certificates are valid."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError
from radofed.certificates import Authority
from radofed.joining.installing import Admission
from radofed.joining.operator import ADMISSION_SUFFIX, ADMISSIONS
from radofed.provision_roster import ROSTER_FILE, signed_roster
from wire.envelopes import public_key_of
from wire.identity import Certificate
from wire.roster import Roster


@dataclass(frozen=True)
class Listing:
    """The newest roster of an operator's directory."""

    roster: Roster
    certificates: Mapping[str, Certificate]
    """Those signed there, by the member's name."""
    now: dt.datetime
    authority: Authority
    """The one that signs certificates."""

    def sentences(self) -> list[str]:
        """For the operator: one line for each member, then what to renew."""
        roster = self.roster
        lines = [f"version {roster.version} of federation {roster.federation}, expires: {roster.expiry_date}"]
        for member in roster.members:
            digits = member.digits or "signs nothing"
            certificate = self.certificates.get(member.name)
            until = "was not signed here" if certificate is None else f"until {certificate.not_after:%Y-%m-%d}"
            lines.append(f"{member.role.value} {member.name}: {digits}; certificate {until}")
        lines.append(f"the authority that signs certificates: until {self.authority.not_after:%Y-%m-%d}")
        if warning := roster.expiry_warning(self.now.timestamp()):
            lines.append(f"Warning: {warning}.")
        if warning := self.authority.expiry_warning(self.now):
            lines.append(f"Warning: {warning}.")
        if self.due:
            lines.append(f"To renew now: rado provision renew OPERATOR {' '.join(self.due)}")
        return lines

    @property
    def due(self) -> list[str]:
        """Members with two thirds of their certificate's life over."""
        return [
            member.name
            for member in self.roster.members
            if member.name in self.certificates and self.certificates[member.name].needs_renewal(self.now)
        ]

    def to_dict(self) -> dict[str, Any]:
        """For JSON. Times are ISO 8601, in UTC; null where no certificate was signed here."""
        ends = {name: found.not_after.isoformat(timespec="seconds") for name, found in self.certificates.items()}
        return {
            "federation": self.roster.federation,
            "version": self.roster.version,
            "expires": self.roster.expiry_date,
            "authority_not_after": self.authority.not_after.isoformat(timespec="seconds"),
            "authority_warning": self.authority.expiry_warning(self.now),
            "members": [
                {
                    "role": member.role.value,
                    "name": member.name,
                    "fingerprint": member.digits or None,
                    "certificate_not_after": ends.get(member.name),
                    "is_due": member.name in self.due,
                }
                for member in self.roster.members
            ],
        }


def listing(operator: Path, now: dt.datetime | None = None) -> Listing:
    """Read an operator's directory. Raises ConfigurationError if its key did not sign the roster or an admission."""
    key = public_key_of(operator / "federation.key")
    roster = signed_roster(operator / ROSTER_FILE, key)
    certificates = {}
    for member in roster.members:
        file = operator / ADMISSIONS / f"{member.name}{ADMISSION_SUFFIX}"
        if file.exists():
            admission = Admission.load(file)
            if admission.federation_key != key:
                raise ConfigurationError(f"{file}: another operator signed it; keep the files of one federation here")
            certificates[member.name] = Certificate.of_pem(admission.certificate, file)
    now = dt.datetime.now(dt.UTC) if now is None else now
    return Listing(roster, certificates, now, Authority.load(operator))
