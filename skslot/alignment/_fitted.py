"""What a fitted aligner holds, and how it is computed."""

import warnings
from dataclasses import dataclass, replace

import numpy as np
from joblib import Parallel, delayed
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

from .._clients import REMEDY, ClientGroups, clients_array
from ..exchange import AlignmentReference
from ..geometry import BarycenterResult
from ..statistics import FeatureMoments
from ..statistics._classes import class_means
from ._auto_tau import automatic_tau_of
from ._client_maps import ClientMaps
from ._maps import TransportMap
from ._steps import aggregate, degeneracy_notes, map_matrix, summarize

AUTO_TAU_NEEDS_LABELS = (
    "tau='auto' needs y in fit, to compare label mixes; pass y, or give tau a number."
)


@dataclass(frozen=True)
class Alignment:
    """Messages, weights and full maps of all clients; nothing depends on tau."""

    statistics: dict
    weights: np.ndarray
    reference: AlignmentReference
    matrices: dict

    def map_of(self, client, tau):
        """Map of a fitted client, with strength tau."""
        mean, matrix = self.statistics[client].mean, self.matrices[client]
        return TransportMap(mean, matrix, self.reference.mean, tau)

    def with_client(self, statistics):
        """The same with one more client, which has no weight in the reference."""
        client, matrix = statistics.client, map_matrix(statistics, self.reference)
        return replace(
            self,
            statistics={**self.statistics, client: statistics},
            weights=np.append(self.weights, 0.0),
            matrices={**self.matrices, client: matrix},
        )


def align_rows(X, groups, shrinkage, weights, solver, tol, max_iter, n_jobs):
    """Moments and alignment of grouped rows; the part of ``fit`` worth caching."""
    run = Parallel(n_jobs=n_jobs, prefer="threads")
    moments = run(delayed(FeatureMoments.from_rows)(X[rows]) for rows in groups.rows)
    moments = dict(zip(groups.clients, moments, strict=True))
    alignment = align_moments(
        moments, frozenset(), shrinkage, weights, solver, tol, max_iter, n_jobs
    )
    return moments, alignment


def align_moments(moments, joined, shrinkage, weights, solver, tol, max_iter, n_jobs):
    """Alignment from the moments of each client; the joined ones have no weight."""
    statistics = {name: summarize(m, shrinkage, name) for name, m in moments.items()}
    founders = [name for name in statistics if name not in joined]
    reference, founder_weights = aggregate(
        [statistics[name] for name in founders], weights, solver, tol, max_iter
    )
    weight_of = dict(zip(founders, founder_weights, strict=True))
    run = Parallel(n_jobs=n_jobs, prefer="threads")
    matrices = run(delayed(map_matrix)(s, reference) for s in statistics.values())
    return Alignment(
        statistics,
        np.array([weight_of.get(name, 0.0) for name in statistics]),
        reference,
        dict(zip(statistics, matrices, strict=True)),
    )


class FittedAlignmentMixin:
    """Fitted attributes of the aligner, derived from the moments of its clients.

    ``_moments`` maps clients to moments, ``_class_means`` to those of their classes
    when these are needed, ``_joined`` names those that came after the
    reference, ``_alignment`` is None when rows were added since it was computed.
    """

    def _aligned(self):
        """Reference and maps, computed now if rows were added since."""
        check_is_fitted(self)
        if self._alignment is None:
            self._alignment = align_moments(
                self._moments, self._joined, **self._step_params(), n_jobs=self.n_jobs
            )
            self._warn_about(self._alignment)
        return self._alignment

    def _client_maps(self):
        alignment = self._aligned()
        self._validate_params()  # tau may have been set since
        tau = self.tau_
        maps = {client: alignment.map_of(client, tau) for client in self._moments}
        return ClientMaps(maps, replace(alignment.reference, tau=tau), self)

    def _step_params(self):
        return {
            "shrinkage": self.shrinkage,
            "weights": self.weights,
            "solver": self.solver,
            "tol": self.tol,
            "max_iter": self.max_iter,
        }

    def _means_by_class(self, X, y, groups):
        """Class means of each client, if they are needed for tau."""
        if self.tau != "auto":
            return {}
        if y is None:
            raise ValueError(AUTO_TAU_NEEDS_LABELS)
        y = check_labels(y, X)
        pairs = zip(groups.clients, groups.rows, strict=True)
        return {client: class_means(X[rows], y[rows]) for client, rows in pairs}

    def _groups_without_ids(self, n_samples):
        if len(self._moments) > 1:
            raise ValueError(
                f"client_ids is missing, but {len(self._moments)} clients were fitted, "
                f"each with a map of its own. {REMEDY}"
            )
        return ClientGroups.single(next(iter(self._moments)), n_samples)

    def _warn_about(self, alignment):
        self._warn_about_degenerate(alignment.statistics.values())
        self._warn_about_convergence(alignment.reference)

    def _warn_about_degenerate(self, statistics):
        for note in degeneracy_notes(list(statistics), self.shrinkage):
            warnings.warn(note, stacklevel=4)

    def _warn_about_convergence(self, reference):
        converged = reference.residual <= self.tol
        result = BarycenterResult(reference.n_iter, reference.residual, converged)
        result._warn_unless_converged(self.tol, stacklevel=5)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_moments")

    @property
    def clients_(self):
        """Client ids."""
        check_is_fitted(self)
        return clients_array(list(self._moments))

    @property
    def statistics_(self):
        """Message of each client."""
        return list(self._aligned().statistics.values())

    @property
    def reference_(self):
        """Message of the server."""
        return self._aligned().reference

    @property
    def tau_(self):
        """Strength of the alignment that is used."""
        alignment = self._aligned()
        if self.tau != "auto":
            return float(self.tau)
        founders = [client for client in self._moments if client not in self._joined]
        for client in founders:
            cells = self._class_means.get(client, {}).values()
            if sum(count for count, _ in cells) != self._moments[client].n_samples:
                raise ValueError(AUTO_TAU_NEEDS_LABELS)
        return automatic_tau_of(
            [self._class_means[client] for client in founders],
            [alignment.statistics[client].variances.sum() for client in founders],
        )

    @property
    def maps_(self):
        """Map of each client."""
        return list(self._client_maps().maps.values())

    @property
    def weights_(self):
        """Weight of each client in the reference."""
        return self._aligned().weights

    @property
    def means_(self):
        """Mean of each client."""
        return np.array([s.mean for s in self.statistics_])

    @property
    def covariances_(self):
        """Shrunk covariance of each client."""
        return np.array([s.covariance for s in self.statistics_])

    @property
    def shrinkage_(self):
        """Shrinkage coefficient of each client."""
        return np.array([s.shrinkage for s in self.statistics_])

    @property
    def reference_mean_(self):
        """Mean of the reference."""
        return self.reference_.mean

    @property
    def reference_covariance_(self):
        """Covariance of the reference."""
        return self.reference_.covariance

    @property
    def n_iter_(self):
        """Passes of the barycenter solver."""
        return self.reference_.n_iter

    @property
    def residual_(self):
        """Residual of the barycenter."""
        return self.reference_.residual


def check_labels(y, X):
    """Labels as a vector, one per row of X."""
    y = column_or_1d(y)
    assert_all_finite(y, input_name="y")
    check_consistent_length(X, y)
    return y
