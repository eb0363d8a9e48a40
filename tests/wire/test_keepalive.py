"""Idle connections stay open: a server does not treat its clients' pings as an attack."""

import time
from concurrent import futures
from contextlib import ExitStack

import grpc
import pytest

from tests.waiting import HANG_S
from wire.transport import CHANNEL_OPTIONS, SERVER_OPTIONS

# By gRPC's default rules the server disconnects a client that pings every 20 s at the fourth ping.
IDLE_S = 100
NEEDED = ("grpc.http2.min_ping_interval_without_data_ms", "grpc.keepalive_permit_without_calls")


def connected(stack, server_options):
    """The states of a client's channel from now on, in order."""
    server = grpc.server(futures.ThreadPoolExecutor(1), options=server_options)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    stack.callback(lambda: server.stop(None).wait(HANG_S))
    channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS))
    states = []
    channel.subscribe(states.append, try_to_connect=True)
    grpc.channel_ready_future(channel).result(timeout=HANG_S)
    return states


@pytest.mark.slow
def test_an_idle_client_is_not_disconnected_for_its_pings():
    with ExitStack() as stack:
        kept = connected(stack, SERVER_OPTIONS)
        cut_off = [
            connected(stack, [(name, value) for name, value in SERVER_OPTIONS if name != needed]) for needed in NEEDED
        ]
        time.sleep(IDLE_S)
        assert kept[-1] is grpc.ChannelConnectivity.READY
        # Without either option it is disconnected: this test can fail.
        assert all(states[-1] is not grpc.ChannelConnectivity.READY for states in cut_off)
