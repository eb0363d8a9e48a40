"""Run by federated_run in Flower's own environment: `python flower_worker.py JOB.npz`, JSON on the last line.

The job: rows (a folder with x.npy and y.npy, rows in equal runs by client), parties, rounds. Printed: coef, intercept,
rounds_s (seconds of each round; the first also starts the clients' processes).

It follows Flower's own scikit-learn quickstart, with the SecAgg+ workflow around the aggregation: LogisticRegression
with a warm start, a few iterations at every client in each round.
"""

import json
import os
import sys
import time
import warnings
from pathlib import Path

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# In the temporary folder of the job, which is removed with it.
os.environ.setdefault("FLWR_HOME", str(Path(sys.argv[1]).resolve().parent))

import numpy as np
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import LegacyContext, ServerApp, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.simulation import run_simulation
from sklearn.linear_model import LogisticRegression

LOCAL_ITERATIONS = 5


class Client(NumPyClient):
    """A party: its part of the rows, mapped from the file."""

    def __init__(self, folder: str, place: int, parties: int) -> None:
        self.folder, self.place, self.parties = folder, place, parties

    def fit(self, parameters, config):  # noqa: ARG002 - Flower passes it
        """A few iterations on this party's rows from the given parameters; all parties have equal weight."""
        x, y = (np.load(Path(self.folder) / f"{name}.npy", mmap_mode="r") for name in ("x", "y"))
        ends = np.linspace(0, len(y), self.parties + 1).astype(int)
        here = slice(ends[self.place], ends[self.place + 1])
        model = LogisticRegression(max_iter=LOCAL_ITERATIONS, warm_start=True)
        model.classes_ = np.array([-1, 1])
        model.coef_, model.intercept_ = (np.array(part) for part in parameters)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(np.asarray(x[here]), np.asarray(y[here]))
        return [model.coef_, model.intercept_], 1, {}


def main() -> None:
    job = np.load(sys.argv[1])
    folder, parties, rounds = str(job["rows"]), int(job["parties"]), int(job["rounds"])
    columns = np.load(Path(folder) / "x.npy", mmap_mode="r").shape[1]
    times, found = [], []

    class Averaging(FedAvg):
        """FedAvg that records when rounds begin and end, and keeps the latest average."""

        def configure_fit(self, server_round, parameters, client_manager):
            times.append(time.perf_counter())
            return super().configure_fit(server_round, parameters, client_manager)

        def aggregate_fit(self, server_round, results, failures):
            parameters, metrics = super().aggregate_fit(server_round, results, failures)
            found.append(parameters_to_ndarrays(parameters))
            times.append(time.perf_counter())
            return parameters, metrics

    def serve(grid, context) -> None:
        strategy = Averaging(
            min_available_clients=parties,
            fraction_evaluate=0.0,
            initial_parameters=ndarrays_to_parameters([np.zeros((1, columns)), np.zeros(1)]),
        )
        legacy = LegacyContext(context=context, config=ServerConfig(num_rounds=rounds), strategy=strategy)
        summing = SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2, max_weight=1.0)
        DefaultWorkflow(fit_workflow=summing)(grid, legacy)

    server = ServerApp()
    server.main()(serve)

    def client_of(context):
        return Client(folder, int(context.node_config["partition-id"]), parties).to_client()

    cores = len(os.sched_getaffinity(0))
    run_simulation(
        server_app=server,
        client_app=ClientApp(client_fn=client_of, mods=[secaggplus_mod]),
        num_supernodes=parties,
        backend_config={
            "client_resources": {"num_cpus": 1},
            "init_args": {"num_cpus": cores, "include_dashboard": False},
        },
    )
    if len(found) != rounds:
        raise SystemExit(f"{len(found)} of {rounds} rounds were averaged")
    coef, intercept = found[-1]
    answer = {"coef": coef[0].tolist(), "intercept": float(intercept[0])}
    rounds_s = [end - start for start, end in zip(times[::2], times[1::2], strict=True)]
    print(json.dumps(answer | {"rounds_s": rounds_s}))


if __name__ == "__main__":
    main()
