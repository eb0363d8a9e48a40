"""The Kubernetes manifests: accepted by their schemas, restricted, and in agreement with the images and the program."""

import re
import shutil
import subprocess
import sys
import tomllib
from functools import lru_cache
from pathlib import Path

import pytest
import yaml

import coordinator.server
import parties.node
from coordinator.config import CoordinatorConfig
from learner.accepted_parties import parties_toml
from parties.config import PartyCluster, PartyConfig
from radobase.cluster_jobs import ClusterSettings
from radofed.node_config import PolicyChoices, coordinator_toml, learner_toml, party_toml, policy_toml
from tests.deploy.reading import DEPLOY, KUBECTL, PORT, USER, assert_command, documents, laid_out
from wire.envelopes import ENVIRONMENT

FOLDER = DEPLOY / "kubernetes"
ROLES = ("coordinator", "party", "learner")
DRAIN_S = max(coordinator.server.DRAIN_S, parties.node.DRAIN_S)
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
CHECKED_VERSION = "1.33"


def sources():
    return [path for path in FOLDER.rglob("*.yaml") if path.name not in {"kustomization.yaml", "joined.yaml"}]


RESOURCES = [
    pytest.param(found, id=f"{path.parent.name}-{found['metadata']['name']}")
    for path in sources()
    for found in documents(path)
]


def pods():
    """The specification of every pod, by where it is."""
    for path in sources():
        for found in documents(path):
            spec = found["spec"]
            if found["kind"] == "RayCluster":
                groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
                yield from ((f"{path.stem}-{number}", group["template"]) for number, group in enumerate(groups))
            elif "template" in spec:
                yield found["metadata"]["name"], spec["template"]


PODS = [pytest.param(template, id=name) for name, template in pods()]


def containers(spec):
    return [*spec.get("initContainers", []), *spec["containers"]]


@pytest.mark.parametrize("resource", RESOURCES)
def test_the_schemas_of_kubernetes_accept_it(resource):
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    if resource["kind"] == "RayCluster":
        groups = [resource["spec"]["headGroupSpec"], *resource["spec"]["workerGroupSpecs"]]
        # The schema of KubeRay's own resource is not there; that of its pods is.
        for group in groups:
            metadata = group["template"]["metadata"] | {"name": "ray"}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": group["template"]["spec"]}
            validate.validate(pod, CHECKED_VERSION, strict=True)
        return
    validate.validate(resource, CHECKED_VERSION, strict=True)


@pytest.mark.parametrize("template", PODS)
def test_a_pod_is_restricted(template):
    """As the profile `restricted` of Pod Security asks, with a read-only root besides."""
    spec = template["spec"]
    assert spec["automountServiceAccountToken"] is spec["enableServiceLinks"] is False
    assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    security = spec["securityContext"]
    assert security["runAsNonRoot"] is True
    assert {security[key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {USER}
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers(spec):
        assert container["securityContext"] == RESTRICTED
        assert container["resources"]["limits"]["memory"]
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        assert mounts.keys() <= {"/etc/rado", "/srv/rado", "/var/lib/rado", "/tmp", "/dev/shm"}
        assert all(mounts[path]["readOnly"] for path in ("/etc/rado", "/srv/rado") if path in mounts)
    for volume in spec["volumes"]:
        assert "hostPath" not in volume
        # As wire.envelopes wants keys of another user: readable by the group, and by no one else.
        assert volume.get("projected", {"defaultMode": 0o440})["defaultMode"] == 0o440
    assert template["metadata"]["labels"]["app.kubernetes.io/part-of"] == "radofed"


def rado_commands(container):
    """The commands of `rado` that a container runs, also in its probes."""
    entry = container.get("command") or ["rado", *container["args"]]
    given = [
        entry,
        *(container[probe]["exec"]["command"] for probe in ("readinessProbe", "livenessProbe") if probe in container),
    ]
    for words in given:
        if words[:2] == ["sh", "-c"]:
            yield from ([*found.split()] for found in re.findall(r"rado [^;]+", words[2]))
        elif words[0] == "rado":
            yield words


@pytest.mark.parametrize("role", ROLES)
def test_every_command_is_one_of_the_program(role):
    (template,) = (
        found["spec"]["template"] for found in documents(FOLDER / role / f"{role}.yaml") if "template" in found["spec"]
    )
    shown = [words for container in containers(template["spec"]) for words in rado_commands(container)]
    assert len(shown) >= 2
    for words in shown:
        assert_command(words)
        assert f"/etc/rado/{role}.toml" in words
    for container in template["spec"]["containers"]:
        assert container["image"] == f"radofed-{role}"


@pytest.mark.parametrize("role", ROLES[:2])
def test_a_node_is_one_with_time_to_stop(role):
    (node,) = (found for found in documents(FOLDER / role / f"{role}.yaml") if found["kind"] == "StatefulSet")
    assert node["spec"]["replicas"] == 1
    spec = node["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] >= 2 * DRAIN_S
    (container,) = spec["containers"]
    assert container["livenessProbe"]["exec"]["command"][2].endswith("test $? -lt 2")
    ports = [port["containerPort"] for port in container.get("ports", [])]
    assert ports == ([PORT] if role == "coordinator" else [])


def test_only_the_coordinator_is_reached_from_outside():
    policies = {found["metadata"]["name"]: found["spec"] for found in documents(FOLDER / "common" / "network.yaml")}
    assert policies["nothing"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    inward, outward = policies["into-the-coordinator"], policies["to-the-coordinator"]
    assert inward["podSelector"]["matchLabels"] == {"app.kubernetes.io/component": "coordinator"}
    assert inward["ingress"] == [{"ports": [{"protocol": "TCP", "port": PORT}]}]
    assert "egress" not in inward
    assert "ingress" not in outward
    ports = [port["port"] for rule in outward["egress"] for port in rule["ports"]]
    assert sorted(ports) == [53, 53, PORT]
    assert policies.keys() == {"nothing", "into-the-coordinator", "to-the-coordinator"}


def test_pods_of_a_cluster_reach_one_another_only():
    (policy,) = (
        found["spec"] for found in documents(FOLDER / "ray" / "cluster.yaml") if found["kind"] == "NetworkPolicy"
    )
    of_the_cluster = {"podSelector": {"matchLabels": {"app.kubernetes.io/part-of": "radofed"}}}
    assert policy["podSelector"] == of_the_cluster["podSelector"]
    assert policy["ingress"] == [{"from": [of_the_cluster]}]
    assert policy["egress"][0] == {"to": [of_the_cluster]}
    assert [port["port"] for port in policy["egress"][1]["ports"]] == [53, 53]
    assert len(policy["egress"]) == 2


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """What `kubectl kustomize` makes of a folder, with a member's directory as provisioning writes it."""
    if KUBECTL is None:
        pytest.skip("kubectl is not installed")
    copied = tmp_path_factory.mktemp("kubernetes") / "manifests"
    shutil.copytree(FOLDER, copied)
    written = {
        "coordinator.toml": coordinator_toml("clinics", "hub", "0.0.0.0:7443"),
        "party.toml": party_toml("clinics", "north", "rado.example.org:7443"),
        "learner.toml": learner_toml("clinics", "lab", "rado.example.org:7443"),
        "parties.toml": parties_toml({}),
        "policy.toml": policy_toml({}, {}, PolicyChoices()),
        "schema.toml": (DEPLOY / "samples" / "schema.toml").read_text(),
    }
    others = ("signing.key", "tls.key", "ca.pem", "certificate.pem", "federation.pub", "roster.signed")
    for role in ROLES:
        (copied / role / "member").mkdir()
        for name, text in {**written, **dict.fromkeys(others, "x")}.items():
            (copied / role / "member" / name).write_text(text)
        laid_out(copied / role / "member" / f"{role}.toml")

    @lru_cache
    def build(role, *, components=(), changes=""):
        file = copied / role / "kustomization.yaml"
        if changes:
            # In place of the generator that the page shows with one file more.
            text = re.sub(r"^secretGenerator:\n(?: .*\n)+", "", file.read_text(), flags=re.MULTILINE)
            place = copied / f"{role}-changed"
            shutil.copytree(copied / role, place)
            (place / "member/passphrase").write_text("x")
            file = place / "kustomization.yaml"
            file.write_text(f"{text}\n{changes}")
        if components:
            place = shutil.copytree(copied / role, copied / f"{role}-with-{len(components)}")
            file = place / "kustomization.yaml"
            file.write_text(file.read_text() + f"components: [{', '.join(components)}]\n")
        made = subprocess.run([KUBECTL, "kustomize", file.parent], capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        return list(yaml.safe_load_all(made.stdout))

    return build


@pytest.mark.parametrize("role", ROLES)
def test_a_member_s_files_come_together_where_the_program_looks(built, tmp_path, role):
    resources = built(role)
    assert {found["metadata"]["namespace"] for found in resources} == {"radofed"}
    by_name = {(found["kind"], found["metadata"]["name"]): found for found in resources}
    (template,) = (found["spec"]["template"] for found in resources if found["kind"] in {"StatefulSet", "Job"})
    (member,) = (each["projected"] for each in template["spec"]["volumes"] if "projected" in each)
    files = {}
    for source in member["sources"]:
        ((kind, reference),) = source.items()
        files |= by_name[("ConfigMap" if kind == "configMap" else "Secret", reference["name"])]["data"]
    keys = {name for name in files if name.endswith(".key")}
    assert keys == by_name[("Secret", f"{role}-keys")]["data"].keys()
    for name in files:
        (tmp_path / name).write_text(files[name])
    config = (tmp_path / f"{role}.toml").read_text()
    named = set(
        re.findall(r'= "([\w.]+\.(?:key|pem|pub|toml|signed))"', re.sub(r"^#.*", "", config, flags=re.MULTILINE))
    )
    # A learner's schema is named in its command.
    assert files.keys() == named | {f"{role}.toml"} | ({"schema.toml"} if role == "learner" else set())


@pytest.mark.parametrize("role", ROLES[:2])
def test_a_node_joins_its_cluster(built, role):
    before = {(found["kind"], found["metadata"]["name"]): found for found in built(role)}
    found = {(found["kind"], found["metadata"]["name"]): found for found in built(role, components=("../ray",))}
    assert found.keys() - before.keys() == {("RayCluster", "cluster"), ("NetworkPolicy", "within-the-cluster")}
    spec = found["StatefulSet", role]["spec"]["template"]["spec"]
    (node,), (ray,) = spec["containers"], spec["initContainers"]
    # A program of Ray shares these with the Ray node beside it.
    shared = {"/tmp", "/dev/shm"}
    for path in shared:
        assert (
            len({mount["name"] for each in (node, ray) for mount in each["volumeMounts"] if mount["mountPath"] == path})
            == 1
        )
    assert ray["restartPolicy"] == "Always"
    assert ray["securityContext"] == RESTRICTED
    token = {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": {"name": "cluster", "key": "auth_token"}}}
    assert token in node["env"]
    assert token in ray["env"]


def test_workers_find_the_table_where_the_party_does(built):
    note = (FOLDER / "ray-table" / "kustomization.yaml").read_text()
    said = re.sub("^#   ", "", "\n".join(re.findall(r"^#   .*$", note, re.MULTILINE)), flags=re.MULTILINE)
    components, _, settings = said.partition("\n")
    given = tuple(yaml.safe_load(components)["components"])
    found = {(each["kind"], each["metadata"]["name"]): each for each in built("party", components=given)}
    cluster = PartyCluster.model_validate(tomllib.loads(settings)["cluster"])
    assert cluster.reads_table
    (workers,) = found["RayCluster", "cluster"]["spec"]["workerGroupSpecs"]
    party = found["StatefulSet", "party"]["spec"]["template"]["spec"]
    of_workers = workers["template"]["spec"]
    claims = [next(each for each in spec["volumes"] if each["name"] == "table") for spec in (party, of_workers)]
    mounts = [
        next(each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "table")
        for spec in (party, of_workers)
    ]
    assert claims[0] == claims[1]
    assert mounts[0] == mounts[1]
    assert mounts[1]["readOnly"]
    paths = {each["mountPath"]: each["name"] for each in of_workers["containers"][0]["volumeMounts"]}
    (rows,) = (each for each in of_workers["volumes"] if each["name"] == paths[str(cluster.worker_disk)])
    assert rows["emptyDir"]["sizeLimit"]
    # As many workers as the pods have processors.
    (_, _, command) = ray_starts()
    (processors,) = (int(option.partition("=")[2]) for option in command if option.startswith("--num-cpus="))
    assert cluster.workers == processors * workers["replicas"]
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ray"}, "spec": of_workers}
    validate.validate(pod, CHECKED_VERSION, strict=True)


def test_the_page_s_passphrase_is_mounted_and_named(built):
    page = (FOLDER.parents[1] / "docs/how-to/deploy.md").read_text()
    shown = page.partition("    # in deploy/kubernetes/party/kustomization.yaml\n    secretGenerator")[2].partition(
        "\n\n"
    )[0]
    changes = "secretGenerator" + re.sub("^    ", "", shown, flags=re.MULTILINE) + "\n"
    found = {(each["kind"], each["metadata"]["name"]): each for each in built("party", changes=changes)}
    assert found["Secret", "party-keys"]["data"].keys() == {"signing.key", "tls.key", "passphrase"}
    (container,) = found["StatefulSet", "party"]["spec"]["template"]["spec"]["containers"]
    assert {"name": ENVIRONMENT, "value": "/etc/rado/passphrase"} in container["env"]
    # The rest of the container stays.
    assert {"name": "member", "mountPath": "/etc/rado", "readOnly": True} in container["volumeMounts"]


def ray_starts():
    (patch, *_) = yaml.safe_load((FOLDER / "ray" / "joined.yaml").read_text())
    yield patch["value"][0]["command"]
    (cluster,) = (
        found["spec"] for found in documents(FOLDER / "ray" / "cluster.yaml") if found["kind"] == "RayCluster"
    )
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        yield group["template"]["spec"]["containers"][0]["command"]


def test_the_address_that_a_node_is_told_is_the_head_s():
    note = (FOLDER / "ray" / "kustomization.yaml").read_text()
    (address,) = re.findall(r'^#   address = "(.*)"$', note, re.MULTILINE)
    for model in (PartyConfig, CoordinatorConfig):
        assert "cluster" in model.model_fields
    assert ClusterSettings(address=address).address == "cluster-head-svc:6379"
    joins, head, _ = ray_starts()
    assert f"--address={address}" in joins
    assert "--port=6379" in head
    # The head and the node's own pod compute nothing.
    assert "--num-cpus=0" in joins
    assert "--num-cpus=0" in head


def test_ray_knows_the_options():
    program = Path(sys.executable).with_name("ray")
    if not program.exists():
        pytest.skip("Ray is not installed")
    known = subprocess.run([program, "start", "--help"], capture_output=True, text=True, check=True).stdout
    for ray, start, *options in ray_starts():
        assert (ray, start) == ("ray", "start")
        for option in options:
            assert re.search(rf"^ +{option.partition('=')[0]}\b", known, re.MULTILINE), option
