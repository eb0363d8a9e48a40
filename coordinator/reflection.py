"""gRPC server reflection, so that tools list the services and their messages: version 1, and its draft v1alpha.

The library serves the draft alone. Both have the same messages under another package, so one servicer serves both, and
the descriptors of version 1 are those of the draft, renamed.
"""

from collections.abc import Sequence

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

DRAFT = str(reflection.SERVICE_NAME)
SERVICE_NAME = DRAFT.replace("v1alpha", "v1")
_METHOD = "ServerReflectionInfo"


def serve(server: grpc.aio.Server, services: Sequence[str]) -> None:
    """Serve reflection about these services, and about itself."""
    _describe()
    servicer = reflection.aio.ReflectionServicer((*services, DRAFT, SERVICE_NAME))
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server)
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, {_METHOD: handler}),))


def _describe() -> None:
    """Add the descriptors of version 1 to the pool from which the servicer answers. Once more has no effect."""
    file = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(file)
    file.name, file.package = "grpc/reflection/v1/reflection.proto", SERVICE_NAME.rpartition(".")[0]
    for message in file.message_type:
        for field in message.field:
            if field.type_name:
                field.type_name = field.type_name.replace(".v1alpha.", ".v1.")
    for service in file.service:
        for method in service.method:
            method.input_type = method.input_type.replace(".v1alpha.", ".v1.")
            method.output_type = method.output_type.replace(".v1alpha.", ".v1.")
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
