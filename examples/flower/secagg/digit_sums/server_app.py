"""The app that runs at the server."""

from pathlib import Path

import numpy as np
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import ServerApp
from sklearn.base import clone

from digit_sums.task import MODEL, N_SITES, QUANTIZATION, pool_sums
from skslot.datasets import load_digit_scanners

app = ServerApp()


class PoolSums(FedAvg):
    """Keeps the pooled message of all sites in ``pooled``."""

    pooled = None

    def aggregate_fit(self, server_round, results, failures):
        """Pool the sums. Every result contains the same unmasked mean."""
        means = parameters_to_ndarrays(results[0][1].parameters)
        self.pooled = pool_sums(means, len(results))
        return None, {}


@app.main()
def main(grid, context):
    """Run SecAgg+ once, fit the classifier and compare it with ``fit``."""
    strategy = PoolSums(
        fraction_evaluate=0.0,
        min_fit_clients=N_SITES,
        min_available_clients=N_SITES,
        initial_parameters=ndarrays_to_parameters([]),
    )
    secagg = SecAggPlusWorkflow(
        num_shares=N_SITES,
        reconstruction_threshold=N_SITES - 1,
        max_weight=1.0,
        clipping_range=1.0,
        quantization_range=QUANTIZATION,
        modulus_range=2**32,
    )
    workflow = DefaultWorkflow(fit_workflow=secagg)
    workflow(grid, LegacyContext(context, ServerConfig(num_rounds=1), strategy))
    if strategy.pooled is None:
        raise RuntimeError("SecAgg+ stopped before the sums were unmasked.")
    print(f"samples in the sums: {strategy.pooled.n_samples}")
    model = clone(MODEL).server_aggregate([strategy.pooled])
    folder = Path(context.run_config["output-dir"]) / f"run-{context.run_id}"
    folder.mkdir(parents=True, exist_ok=True)
    model.linear_model().save(folder / "model.slot", "float64")
    print_comparison(model)


def print_comparison(model):
    """Compare with ``fit`` on the data of all sites, possible only in a simulation."""
    data = load_digit_scanners()
    pooled = clone(MODEL).fit(data.data, data.target, client_ids=data.client_ids)
    difference = np.abs(model.coef_ - pooled.coef_).max() / np.abs(pooled.coef_).max()
    same = np.mean(model.predict(data.data) == pooled.predict(data.data))
    print(f"accuracy of SecAgg+: {model.score(data.data, data.target):.4f}")
    print(f"accuracy of fit: {pooled.score(data.data, data.target):.4f}")
    print(f"largest difference of coefficients, relative: {difference:.1e}")
    print(f"equal predicted labels: {same:.2%}", flush=True)
