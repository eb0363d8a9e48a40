"""Evidence to file, for output checkers and ethics boards: a record of each output in a Five Safes RO-Crate.

The crate follows the Five Safes profile, 0.4 (https://w3id.org/5s-crate/0.4): each answer is an action of whoever
asked, for a project, by a workflow, with the actions that assessed it. Parties and learners say what they know; what
they do not know, such as who signs for the output, is a pending action, and is left to people.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any
from uuid import uuid4

from radobase.presentation.crate import HTML, JSON, METADATA, Crate, Description, Reference, readable, rfc3339
from radobase.printing import amount, listed

PROFILE = "https://w3id.org/5s-crate/0.4"
WORKFLOW_PROFILE = "https://w3id.org/workflowhub/workflow-ro-crate/1.0"
RECORD_FORMAT, RECORD_VERSION = "radofed-output-record", 1
ANSWER, MODEL = "answer", "model"
"""What an output is."""
PASSED, NOT_CHECKED, OPEN = "passed", "not checked", "a person has to decide"
"""Results of a check."""
_SHP = "https://w3id.org/shp#"
_STATUS = "http://schema.org/{}ActionStatus"
_SHA512 = "https://www.iana.org/assignments/named-information#sha-512"
_DIGITS = 16
_REGISTRY = "registry.json"
_WORKFLOW, _STEPS = "workflow/", "steps.md"
_STEPS_TEXT = """\
# How radofed answers a query

No program of a learner runs at a party. A learner signs a query of a fixed kind, and each party's own program does
this:

1. It checks the signature, the schema and the query's terms, and asks its policy, and people where the policy says so.
2. It reserves the query's cost in its privacy ledger, or refuses.
3. It computes a sum over its rows, adds its share of the noise, encrypts it for the learner, and masks it.
4. It charges its ledger. Only then the encrypted sum leaves.
5. The coordinator adds the ciphertexts of all parties of the attempt. It can read none of them.
6. The learner decrypts the total of all parties, or nothing.
"""


@dataclass(frozen=True)
class Project:
    """What an answer is for, as its learner states it. Empty where it states nothing."""

    title: str = ""
    number: str = ""
    """Of its protocol."""
    organisation: str = ""
    """The learner's."""
    person: str = ""
    """Who answers for it there."""

    @classmethod
    def of(cls, study: Any, purpose: str) -> "Project":
        """That of a signed study, with its texts as attributes; of None only the purpose is known."""
        if study is None:
            return cls(title=purpose)
        return cls(study.purpose, study.protocol_number, study.organisation, study.person_in_charge)


@dataclass(frozen=True)
class Approval:
    """One person's decision on a query. identity: what tells people apart, such as a user of the operating system."""

    identity: str
    name: str
    approves: bool
    reason: str
    at_unix_s: float
    acts_for: str = ""
    """In whose place; empty for nobody's."""


@dataclass(frozen=True)
class Check:
    """One check of an output."""

    what: str
    result: str
    """`PASSED`, `NOT_CHECKED` or `OPEN`."""
    how: str
    """By what, and when."""


@dataclass(frozen=True)
class Output:
    """One output, and all that its record says. All mappings are in JSON types."""

    what: str
    """`ANSWER`, the total of a query, or `MODEL`."""
    identity: str
    """Of the output: the query's id, or the model's digest; hexadecimal."""
    learner: str
    key: str
    """Fingerprint of the learner's signing key; empty if it is not known here."""
    project: Project
    words: str
    """What was asked, in one line."""
    asked: Mapping[str, Any]
    privacy: Mapping[str, Any]
    checks: tuple[Check, ...]
    approvals: tuple[Approval, ...]
    rule: str
    """How it was decided, in words."""
    began_unix_s: float
    ended_unix_s: float
    signed: Mapping[str, Any] | None = None
    """The query as it was signed; None if it is not kept."""

    @property
    def digits(self) -> str:
        """What names it in the crate."""
        return self.identity[:_DIGITS]

    def record(self, sign_off: Sequence[str]) -> dict[str, Any]:
        """Its machine-readable record."""
        return {
            "format": RECORD_FORMAT,
            "format_version": RECORD_VERSION,
            "output": {"what": self.what, "id": self.identity},
            "learner": {"name": self.learner, "signing_key": self.key or None},
            "project": {key: value or None for key, value in asdict(self.project).items()},
            "asked": dict(self.asked),
            "made_at": rfc3339(self.ended_unix_s),
            "privacy": dict(self.privacy),
            "checks": [asdict(check) for check in self.checks],
            "decision": self.rule,
            "approvals": [
                {key: value or None for key, value in asdict(each).items() if key not in {"approves", "at_unix_s"}}
                | {"approves": each.approves, "at": rfc3339(each.at_unix_s)}
                for each in self.approvals
            ],
            "sign_off": [{"item": item, "name_and_position": None, "date": None, "notes": None} for item in sign_off],
            "registry_file": _REGISTRY,
        }


@dataclass(frozen=True)
class Evidence:
    """What a crate says. report, registry and policy are in JSON types."""

    role: str
    """Of the member that files it."""
    member: str
    federation: str
    title: str
    description: str
    version: str
    """Of the program."""
    made_at_unix_s: float
    outputs: tuple[Output, ...]
    page: str
    """The report as HTML."""
    report: Mapping[str, Any]
    registry: Mapping[str, Any]
    sign_off: tuple[str, ...]
    """What people sign for."""
    policy: Mapping[str, Any] | None = None
    """Of a party, as it is when the crate is made."""

    def archive(self, name: str) -> bytes:
        """The ZIP file, with one directory of this name."""
        return _Making(self).archive(name)


class _Making:
    """One crate while it is made."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._crate = Crate(evidence.title, evidence.description, uuid4(), evidence.made_at_unix_s)
        self._mentions: list[Reference] = []

    def archive(self, name: str) -> bytes:
        evidence, crate = self._evidence, self._crate
        organisation = crate.add(
            "#organisation", "Organization", name=f"{evidence.member}, {evidence.role} of {evidence.federation}"
        )
        self._program = crate.add(
            "#program",
            "SoftwareApplication",
            name=f"radofed {evidence.version}, {evidence.role} {evidence.member}",
            version=evidence.version,
            softwareVersion=evidence.version,
            url={"@id": _WORKFLOW + _STEPS},
            provider=organisation,
        )
        self._organisation = organisation
        self._workflow = self._nested_workflow()
        self._policy = self._policy_file()
        self._papers()
        projects = {output.project: self._project(output.project) for output in evidence.outputs}
        for output in evidence.outputs:
            self._answer(output, projects[output.project])
        self._pending()
        crate.root.update(
            conformsTo=crate.add(PROFILE, "Profile", name="Five Safes RO-Crate profile", version="0.4"),
            mainEntity=self._workflow,
            mentions=self._mentions,
            sourceOrganization=[*projects.values()] if len(projects) > 1 else next(iter(projects.values())),
            publisher=organisation,
            license=crate.add(
                "#conditions",
                "CreativeWork",
                name="Restricted",
                description="For the organisation that filed it and those whom it shows it to: questions may name "
                "people. Not for publication.",
            ),
        )
        return crate.archive(name)

    def _papers(self) -> None:
        evidence, crate = self._evidence, self._crate
        crate.file(
            "report.html",
            evidence.page,
            HTML,
            name="The report, for people",
            description="As `rado report` writes it.",
            dateCreated=self._now,
        )
        crate.file(
            "report.json",
            readable(dict(evidence.report)),
            JSON,
            name="The report's figures",
            description="Everything that the report says, for programs.",
        )
        crate.file(
            _REGISTRY,
            readable(dict(evidence.registry)),
            JSON,
            name="The fields of the registry of differential privacy deployments",
            description="As far as this member knows them; None where only the organisation can say.",
        )

    @property
    def _now(self) -> str:
        return rfc3339(self._evidence.made_at_unix_s)

    def _nested_workflow(self) -> Reference:
        nested = Description(
            "How radofed answers a query",
            "radofed runs no program of a learner. These steps stand for its own.",
            self._evidence.made_at_unix_s,
            rocrate="1.1",
        )
        language = nested.add("#english", "ComputerLanguage", name="English, numbered steps")
        nested.root.update(
            conformsTo=nested.add(WORKFLOW_PROFILE, "CreativeWork", name="Workflow RO-Crate profile", version="1.0"),
            mainEntity=nested.part(
                _STEPS,
                ["File", "SoftwareSourceCode", "ComputationalWorkflow"],
                name="How radofed answers a query",
                encodingFormat="text/markdown",
                programmingLanguage=language,
            ),
            license=nested.add("https://spdx.org/licenses/Apache-2.0", "CreativeWork", name="Apache License 2.0"),
        )
        self._crate.hold(_WORKFLOW + METADATA, nested.text())
        self._crate.hold(_WORKFLOW + _STEPS, _STEPS_TEXT)
        self._crate.add(WORKFLOW_PROFILE, "Profile", name="Workflow RO-Crate profile", version="1.0")
        described = self._crate.add(
            _WORKFLOW + METADATA,
            "CreativeWork",
            name="Description of the workflow",
            encodingFormat="application/ld+json",
        )
        steps = self._crate.part(
            _WORKFLOW + _STEPS,
            "File",
            name="How radofed answers a query, in steps",
            description="radofed runs no program of a learner: these steps are those of its own.",
            encodingFormat="text/markdown",
        )
        return self._crate.part(
            _WORKFLOW,
            "Dataset",
            name="How radofed answers a query",
            description="A Workflow RO-Crate of its own.",
            conformsTo={"@id": WORKFLOW_PROFILE},
            subjectOf=described,
            hasPart=steps,
        )

    def _policy_file(self) -> Reference:
        """What decisions follow: a party's policy, as it is now."""
        evidence = self._evidence
        if evidence.policy is None:
            return self._crate.add(
                "#policies", "CreativeWork", name="The policies of the parties that answered; each keeps its own"
            )
        words = f"Policy of {evidence.member}, when this crate was made"
        return self._crate.file(
            "policy.json", readable(dict(evidence.policy)), JSON, "CreativeWork", name=words, description="All rules."
        )

    def _project(self, project: Project) -> Reference:
        number = project.number and self._crate.add(
            _id("protocol", project.number), "PropertyValue", name="protocol number", value=project.number
        )
        return self._crate.add(
            _id("project", *asdict(project).values()),
            "Project",
            name=project.title or f"Learners of {self._evidence.federation} stated no purpose",
            identifier=number or None,
            member=self._asking_organisation(project),
        )

    def _asking_organisation(self, project: Project) -> Reference | None:
        if not project.organisation:
            return None
        return self._crate.add(_id("organisation", project.organisation), "Organization", name=project.organisation)

    def _asking_person(self, output: Output, project: Reference) -> Reference:
        """Who asked: a signature proves the learner's key, and who the person is, is what the learner states."""
        stated = output.project
        affiliation = self._asking_organisation(stated) or self._crate.add(
            _id("learner", output.learner),
            "Organization",
            name=f"Learner {output.learner}, which states no organisation",
        )
        return self._crate.add(
            _id("asking", output.learner, output.key, *asdict(stated).values()),
            "Person",
            name=stated.person or f"Whoever signs as learner {output.learner}",
            description=f"Signing key of learner {output.learner}: {output.key or 'not known here'}",
            affiliation=affiliation,
            memberOf=project,
        )

    def _answer(self, output: Output, project: Reference) -> None:
        crate, evidence = self._crate, self._evidence
        record = crate.file(
            f"outputs/{output.digits}.json",
            readable(output.record(evidence.sign_off)),
            JSON,
            name=f"Record of output {output.digits}",
            description="What was asked, what is protected, what was checked, who decided, and what is to be signed.",
        )
        signed = output.signed and crate.file(
            f"queries/{output.digits}.json",
            readable(dict(output.signed)),
            JSON,
            name=f"Query {output.digits} as it was signed",
            description="Ed25519 over the payload, as the protocol says; both in Base64.",
        )
        self._mention(
            f"#{output.what}-{output.digits}",
            "CreateAction",
            name=f"{'Model' if output.what == MODEL else 'Answer to query'} {output.digits}: {output.words}",
            agent=self._asking_person(output, project),
            instrument=self._workflow,
            object=signed,
            result=record,
            actionStatus=_STATUS.format("Completed"),
            startTime=rfc3339(output.began_unix_s),
            endTime=rfc3339(output.ended_unix_s),
        )
        self._sign_offs(output, project)
        self._disclosure(output, record)

    def _sign_offs(self, output: Output, project: Reference) -> None:
        """Decisions before the answer: each person's, and the policy's if no person decided."""
        common: dict[str, Any] = {
            "additionalType": {"@id": f"{_SHP}SignOff"},
            "object": [{"@id": "./"}, self._workflow, project],
            "instrument": self._policy,
        }
        for number, each in enumerate(output.approvals, 1):
            person = self._crate.add(
                _id("person", each.identity),
                "Person",
                name=each.name or each.identity,
                identifier=each.identity,
                affiliation=self._organisation,
            )
            self._mention(
                f"#signoff-{output.digits}-{number}",
                "AssessAction",
                name=f"Decision on {output.digits}: {'approved' if each.approves else 'refused'}",
                description="; ".join(filter(None, [each.reason, each.acts_for and f"in place of {each.acts_for}"])),
                agent=person,
                actionStatus=_STATUS.format("Completed" if each.approves else "Failed"),
                endTime=rfc3339(each.at_unix_s),
                **common,
            )
        if not output.approvals:
            self._mention(
                f"#signoff-{output.digits}",
                "AssessAction",
                name=f"Decision on {output.digits}: {output.rule}",
                agent=self._program,
                actionStatus=_STATUS.format("Completed"),
                endTime=rfc3339(output.ended_unix_s),
                **common,
            )

    def _disclosure(self, output: Output, record: Reference) -> None:
        """The checks of the output itself: done by the program, or left to a person."""
        left = [check.what for check in output.checks if check.result != PASSED]
        common: dict[str, Any] = {
            "additionalType": {"@id": f"{_SHP}DisclosureCheck"},
            "object": [{"@id": "./"}, record],
            "agent": self._program,
        }
        passed = len(output.checks) - len(left)
        if not left:
            common |= {"actionStatus": _STATUS.format("Completed"), "endTime": rfc3339(output.ended_unix_s)}
        else:
            common |= {"actionStatus": _STATUS.format("Potential"), "agent": self._organisation}
        words = f"{amount(passed, 'check')} passed" + (f"; left to a person: {listed(left)}" if left else "")
        self._mention(
            f"#disclosure-{output.digits}",
            "AssessAction",
            name=f"Disclosure check of {output.digits}: {words}",
            **common,
        )

    def _pending(self) -> None:
        """What people sign for, and the manifests, which are computed after this is written."""
        self._mention(
            "#sign-off",
            "AssessAction",
            additionalType={"@id": f"{_SHP}DisclosureCheck"},
            name="Sign-off of these outputs by the organisation: pending",
            description="; ".join(self._evidence.sign_off),
            object={"@id": "./"},
            agent=self._organisation,
            actionStatus=_STATUS.format("Potential"),
        )
        self._mention(
            "#manifests",
            "UpdateAction",
            additionalType={"@id": f"{_SHP}GenerateCheckValue"},
            name="Manifests of the bag written",
            object={"@id": "./"},
            instrument=self._crate.add(_SHA512, "DefinedTerm", name="sha-512 algorithm"),
            agent=self._program,
            actionStatus=_STATUS.format("Completed"),
            startTime=self._now,
            endTime=self._now,
        )

    def _mention(self, id_: str, type_: str, **properties: Any) -> None:
        self._mentions.append(self._crate.add(id_, type_, **properties))


def _id(kind: str, *texts: str) -> str:
    """An @id for whatever has these texts. They may hold any character, and an @id may not."""
    return f"#{kind}-{sha256(chr(0).join(texts).encode()).hexdigest()[:_DIGITS]}"
