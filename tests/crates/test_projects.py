"""What a signed study says is whom and what the crate names."""

from types import SimpleNamespace

from radobase.presentation.five_safes import Approval, Check, Evidence, Output, Project
from tests.crates.reading import Received

STUDY = SimpleNamespace(
    purpose="beds in winter", protocol_number="IRB 7/2026", organisation="University", person_in_charge="Ann Example"
)


def output(identity: str, project: Project, *approvals: Approval) -> Output:
    return Output(
        what="answer",
        identity=identity,
        learner="lea",
        key="ab:cd",
        project=project,
        words="1 statistic",
        asked={},
        privacy={},
        checks=(Check("noise", "passed", "here"),),
        approvals=approvals,
        rule="accepted",
        began_unix_s=1.0,
        ended_unix_s=2.0,
    )


def test_several_studies_are_several_projects(tmp_path):
    stated, other = Project.of(STUDY, ""), Project.of(None, "another purpose")
    approval = Approval("sign-on:bob@example.org", "Bob", True, "agreed", 1.5, "ann")
    evidence = Evidence(
        role="party",
        member="north",
        federation="clinics",
        title="Answers",
        description="Two answers.",
        version="0",
        made_at_unix_s=3.0e8,
        outputs=(output("1" * 64, stated, approval), output("2" * 64, other)),
        page="<html></html>",
        report={},
        registry={},
        sign_off=("Use approved by",),
    )
    file = tmp_path / "both.zip"
    file.write_bytes(evidence.archive("both"))
    received = Received(file, tmp_path / "received")
    received.check_profile()
    assert {each["name"] for each in received.of_type("Project")} == {"beds in winter", "another purpose"}
    numbered = next(each for each in received.of_type("Project") if each["name"] == "beds in winter")
    assert received.entities[numbered["identifier"]["@id"]]["value"] == "IRB 7/2026"
    assert received.entities[numbered["member"]["@id"]]["name"] == "University"
    people = {each["name"]: each for each in received.of_type("Person")}
    assert received.entities[people["Ann Example"]["affiliation"]["@id"]]["name"] == "University"
    assert "Whoever signs as learner lea" in people
    assert people["Bob"]["identifier"] == "sign-on:bob@example.org"
    assert received.actions("SignOff")[0]["description"] == "agreed; in place of ann"
    assert received.records()[0]["approvals"][0]["acts_for"] == "ann"
