"""Which runs each of the paper's experiments consists of."""

from dataclasses import dataclass

ONE_SHOT = ("O-FedAvg", "FedCGS", "FedPFT")
SEEDED = ("O-FedAvg", "FedPFT")  # FedCGS draws nothing at random


@dataclass(frozen=True)
class Run:
    """One training run: what is trained, on which partition, with which seed."""

    alpha: float | None
    n_parts: int
    partition: int
    tau: float
    method: str
    seed: int


@dataclass(frozen=True)
class Plan:
    """An experiment: every method at every alpha and tau."""

    title: str
    alphas: tuple
    taus: tuple = (0.0, 0.4)
    references: tuple = ()
    n_parts: int = 1

    @property
    def rows(self):
        """(alpha, method, tau) of each row of the table, in its order."""
        return [
            (alpha, method, tau)
            for alpha in self.alphas
            for method in (*self.references, *ONE_SHOT)
            for tau in (self.taus if method in ONE_SHOT else (0.0,))
        ]

    def runs(self, n_runs):
        """Partitions 0, 1, ... with seed 0, and partition 0 with seeds 1, 2, ...

        The paper's runs share one partition; partitions differ far more than seeds do,
        so that both are told. Runs on the same aligned features follow each other.
        """
        runs = [
            Run(alpha, self.n_parts, partition, tau, method, 0)
            for alpha, method, tau in self.rows
            for partition in range(n_runs)
        ]
        runs += [
            Run(alpha, self.n_parts, 0, tau, method, seed)
            for alpha, method, tau in self.rows
            if method in SEEDED
            for seed in range(1, n_runs)
        ]
        return sorted(runs, key=lambda run: (run.alpha or 0, run.partition, run.tau))


PLANS = {
    "main": Plan("joint domain and label shift", (0.1,), references=("FedAvg",)),
    "skew": Plan("stronger label shift", (0.05, 0.01)),
    "domain-only": Plan("domain shift only", (None,), references=("FedAvg",)),
    "tau": Plan("alignment strength", (0.1,), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
    "backbones": Plan("frozen encoders", (0.1,), references=("FedAvg",)),
    "scalability": Plan("two clients per domain", (0.1,), n_parts=2),
}
