"""Credentials of servers that tests start: none of them renews its certificate."""

import grpc

from wire.identity import TlsFiles


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """As a coordinator's: clients without a certificate of the same authority are refused."""
    ca, certificate, key = files.read()
    return grpc.ssl_server_credentials([(key, certificate)], root_certificates=ca, require_client_auth=True)
