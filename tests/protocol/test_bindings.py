"""The checked-in bindings and the released descriptor set are those of the proto files."""

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

PROTOS = Path(__file__).resolve().parents[2] / "protos"
BUF = shutil.which("buf", path=str(Path(sys.executable).parent))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    if BUF is None:
        pytest.skip("buf is not installed beside this Python (it comes with the dev extra)")
    target = tmp_path_factory.mktemp("descriptors") / "all.binpb"
    subprocess.run([BUF, "build", "-o", str(target), "--exclude-source-info"], cwd=PROTOS, check=True)
    return descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes())


def comparable(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """Without what differs between compilers and says nothing of the wire."""
    copy = descriptor_pb2.FileDescriptorProto()
    copy.CopyFrom(file)
    copy.ClearField("source_code_info")
    messages = list(copy.message_type)
    while messages:
        message = messages.pop()
        messages.extend(message.nested_type)
        for field in message.field:
            field.ClearField("json_name")
    # buf writes its own extension into the file's unknown fields.
    copy.DiscardUnknownFields()
    return copy


def test_bindings_are_generated_from_these_protos(compiled):
    names = {file.name for file in compiled.file}
    assert names == {str(path.relative_to(PROTOS)) for path in PROTOS.glob("rado/v1/*.proto")}
    for file in compiled.file:
        module = importlib.import_module(file.name.removesuffix(".proto").replace("/", ".") + "_pb2")
        embedded = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        assert comparable(embedded) == comparable(file), f"{file.name}: run `make proto`"


def test_stubs_know_every_method(compiled):
    for file in compiled.file:
        for service in file.service:
            module = importlib.import_module(file.name.removesuffix(".proto").replace("/", ".") + "_pb2_grpc")
            servicer = getattr(module, f"{service.name}Servicer")
            assert {method.name for method in service.method} == {n for n in vars(servicer) if not n.startswith("_")}


def breaking(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BUF, "breaking", "--against", str(PROTOS / "rado/v1/released.binpb")],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_renumbered_field_is_caught(compiled, tmp_path):
    copy = tmp_path / "protos"
    shutil.copytree(PROTOS, copy, ignore=shutil.ignore_patterns("*.py*", "__pycache__"))
    assert breaking(copy).returncode == 0
    path = copy / "rado/v1/query.proto"
    text = path.read_text()
    assert "bytes nonce = 3;" in text
    path.write_text(text.replace("bytes nonce = 3;", "bytes nonce = 33;"))
    result = breaking(copy)
    assert result.returncode != 0
    assert "nonce" in result.stdout
