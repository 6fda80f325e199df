"""The steps of the aligner one by one, for sites and servers that are apart."""

from dataclasses import replace

from .._clients import check_client_name
from ..exchange import ClassStatistics
from ..statistics import FeatureMoments
from ..statistics._classes import class_means
from ._fitted import check_labels
from ._maps import TransportMap
from ._steps import (
    ReceivedStatistics,
    aggregate,
    map_matrix,
    statistics_of,
    summarize,
    tau_of,
)


class AlignmentStepsMixin:
    """Client step, server step and map of the aligner; none needs a fitted one."""

    def client_update(self, X, client=None, y=None):
        """Client step: summarise the rows of one client.

        Needs no fit, changes nothing, and is what ``fit`` does for each client.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or FeatureMoments
            Rows of the client, or their moments when they do not fit in memory.
        client : object, default=None
            Its name, for error messages.
        y : array-like of shape (n_samples,), default=None
            Labels of the rows. With ``tau="auto"`` the server needs to know the counts
            and means of the classes.

        Returns
        -------
        statistics : ClientStatistics or ClassStatistics
            The message to the server; it describes classes if ``tau="auto"`` and ``y``
            is given.
        """
        self._validate_params()
        check_client_name(client)
        moments = X
        if not isinstance(X, FeatureMoments):
            X = self._read_client(X, client)
            moments = FeatureMoments.from_rows(X)
        statistics = summarize(moments, self.shrinkage, client)
        self._warn_about_degenerate([statistics])
        if self.tau != "auto" or y is None:
            return statistics
        if moments is X:
            raise ValueError(
                "y is of no use with FeatureMoments, which do not tell classes apart; "
                "with tau='auto' pass rows, or use partial_fit."
            )
        return ClassStatistics.from_class_means(
            class_means(X, check_labels(y, X)), statistics
        )

    def server_aggregate(self, statistics):
        """Server step: the reference of all clients.

        Needs no fit, changes nothing, and is what ``fit`` does once.

        Parameters
        ----------
        statistics : iterable of ClientStatistics
            One message per client; those of classifiers will do. An iterable that can
            be restarted, such as one that reads files, is never held in memory as a
            whole.

        Returns
        -------
        reference : AlignmentReference
            The message to all clients.
        """
        self._validate_params()
        if iter(statistics) is statistics:
            statistics = list(statistics)
        params = self._step_params()
        del params["shrinkage"]
        received = ReceivedStatistics(statistics)
        if self.memory is not None:
            received = list(received)
        reference, _ = self._cached(aggregate)(received, **params)
        self._warn_about_convergence(reference)
        if self.tau == "auto":
            reference = replace(reference, tau=tau_of(statistics))
        return reference

    def client_map(self, statistics, reference):
        """Client step, when the reference came back: the map of one client.

        Needs no fit, changes nothing, and is what ``fit`` does for each client.

        Parameters
        ----------
        statistics : ClientStatistics
            What the client had sent.
        reference : AlignmentReference
            What the server answered.

        Returns
        -------
        map : TransportMap
            Aligns features of this client without the estimator.
        """
        self._validate_params()
        tau = reference.tau if self.tau == "auto" else self.tau
        if tau is None:
            raise ValueError(
                "tau='auto', but the reference says no tau: the server that made it "
                "had a number for tau."
            )
        statistics = statistics_of(statistics)
        # tau is no part of it, so that one cached map serves all
        matrix = self._cached(map_matrix)(statistics, replace(reference, tau=None))
        return TransportMap(statistics.mean, matrix, reference.mean, tau)
