"""MixedEffectsClassifier: what sites do to features, apart from what labels do."""

from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.utils.validation import check_is_fitted

from .._docstrings import document
from .._sklearn_compat import HasMethods, Interval, StrOptions
from .._utils import printable, shorten, warn_user
from ..alignment import MixedEffectsAligner
from ..base import check_client_name, reasons_for_exclusion, refuse_without_noise
from ..exchange import (
    ClassStatistics,
    ClientStatistics,
    LinearModel,
    MessageError,
    MixedEffectsModel,
)
from ..privacy import PrivacyBudget
from ..statistics import FeatureMoments, fit_unlabelled
from ._base import FoldedHeadsMixin, OneShotClassifier
from ._gaussian import check_priors, counts_and_means, factorise, head_of_means


@document
class MixedEffectsClassifier(FoldedHeadsMixin, OneShotClassifier):
    """Federated classifier that separates the effects of clients and of labels.

    Clients send class counts, class means and one covariance, which is the message of
    :class:`FedCGSClassifier`. A random-effects model of the means of all cells (pairs
    of a client and a class) estimates an offset for each client, which is removed. The
    class means of a client are shrunk towards the class means of all clients. The
    amounts are estimated from the data, so there is no strength to choose. Without
    differences between clients, this is linear discriminant analysis of all samples.

    Read more in the :doc:`User Guide </user_guide/mixed_effects>`.

    Parameters
    ----------
    tau : float in [0, 1] or "auto", default="auto"
        Strength of a linear map of each client towards the covariance of all clients.
        ``"auto"`` computes it from the variances and the number of samples of each
        client. 0 omits linear maps, which saves most of the time.
    priors : {"pooled", "client", "uniform"} or array-like of shape (n_classes,), \
default="pooled"
        Class probabilities. ``"pooled"`` uses the class distribution of all clients
        together, ``"client"`` the class distribution of each client, ``"uniform"``
        equal probabilities. An array contains one probability for each entry of
        ``classes_``. The right choice depends on the class distribution in later use,
        and cannot be inferred from the data.
    shrinkage : {"clients", "oas"} or float in [0, 1], default="clients"
        Weight of the identity in the covariance within classes. ``"clients"`` computes
        it from the differences between clients, ``"oas"`` from the number of samples.
    {unknown_client}
    {privacy}
    {client_column}
    {screen}
    {memory}
    {n_jobs}
    {verbose}

    Attributes
    ----------
    {classes_}
    {variance_components_}
    {client_offsets_}
    {class_means_}
    cell_means_ : ndarray of shape (n_clients, n_classes, n_features)
        Mean of each class at each client, without its offset, as used by predictions.
    covariance_ : ndarray of shape (n_features, n_features)
        Covariance within classes.
    shrinkage_ : float
        Weight of the identity in ``covariance_``.
    {tau_}
    {priors_}
        With ``priors="client"``, these are used for clients without labels.
    {converged_}
    {coef_}
        They apply to aligned features of a client without class means of its own.
    {intercept_}
        They apply like ``coef_``.
    {clients_report_}
    aligner_ : MixedEffectsAligner
        Fitted aligner, which contains the offsets and maps of all clients.
    {n_features_in_}
    {feature_names_in_}

    See Also
    --------
    MixedEffectsAligner : Removes the offsets for any other classifier.
    FedCGSClassifier : Uses the same message without a model of the clients.

    Notes
    -----
    The model assumes normal effects with one variance for all features, and equal
    covariances within classes. If no two clients share a class, the effects of a client
    and of its classes cannot be distinguished, and a weak prior splits the difference.

    Examples
    --------
    >>> from skslot import MixedEffectsClassifier
    >>> from skslot.datasets import load_digit_scanners
    >>> data = load_digit_scanners()
    >>> X, y, site = data.data, data.target, data.client_ids
    >>> classifier = MixedEffectsClassifier().fit(X, y, client_ids=site)
    >>> classifier.score(X, y, client_ids=site) > 0.9
    True
    >>> classifier.variance_components_
    {'client': ..., 'class': ..., 'interaction': ...}
    """

    message_type = ClassStatistics

    _parameter_constraints: dict = {
        **OneShotClassifier._parameter_constraints,
        "tau": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "priors": [StrOptions({"pooled", "client", "uniform"}), "array-like"],
        "shrinkage": [
            StrOptions({"clients", "oas"}),
            Interval(Real, 0, 1, closed="both"),
        ],
        "unknown_client": [StrOptions({"error", "identity", "adapt"})],
        "privacy": [PrivacyBudget, None],
        "memory": [None, str, HasMethods("cache")],
    }

    def __init__(
        self,
        tau="auto",
        *,
        priors="pooled",
        shrinkage="clients",
        unknown_client="error",
        privacy=None,
        client_column=None,
        screen="warn",
        memory=None,
        n_jobs=None,
        verbose=0,
    ):
        self.tau = tau
        self.priors = priors
        self.shrinkage = shrinkage
        self.unknown_client = unknown_client
        self.privacy = privacy
        self.client_column = client_column
        self.screen = screen
        self.memory = memory
        self.n_jobs = n_jobs
        self.verbose = verbose

    # --------------------------------------------------------- at a single site

    def add_client(self, X, client, y=None):
        """Give a client that joins later an offset, and a linear map if others have.

        With labels, a few rows of each class are enough. Without, the offset is
        estimated by expectation maximisation; it helps most if the rows are an ordinary
        sample of what the site sees. All other clients stay as they are.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the new client, with or without the client column.
        client : object
            Its id.
        y : array-like of shape (n_samples,), default=None
            Labels of these rows.

        Returns
        -------
        report : SiteReport
            What was found out about the client.
        """
        check_is_fitted(self)
        refuse_without_noise(self, "add_client")
        check_client_name(client, needed=True)
        if client in self.aligner_._clients():
            raise ValueError(
                f"client {client!r} is known already; adapt_client learns from more of "
                "its rows, and reset_client forgets one that joined later."
            )
        X = self._read_client(X, client, fitted=True)
        self.aligner_.add_client(X, client, y)
        self._forget(client)
        fit = self.aligner_._joined[client].guess
        if fit is None:
            return SiteReport.of_labels(self, client, y)
        return self._report(client, X, fit)

    def adapt_client(self, X, client):
        """Let a known client learn from rows without labels.

        Under label shift a site has labels of few classes, but sees all of them. Its
        unlabelled rows then say how the others look there. Nothing is sent, and all
        other clients stay as they are. Calling it again begins anew, from the labelled
        rows; :meth:`reset_client` undoes it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the client without labels: an ordinary sample of what it sees,
            about 100 rows or more, of all classes. With or without the client column.
        client : object
            Its id.

        Returns
        -------
        report : SiteReport
            What was found out about the client.
        """
        check_is_fitted(self)
        refuse_without_noise(self, "adapt_client")
        self._check_known(client)
        X = self._read_client(X, client, fitted=True)
        rows = self._linear_map(client)._move(X.astype(np.float64, copy=False))
        fit = fit_unlabelled(
            self.aligner_._aligned().model,
            self.covariance_,
            rows,
            *self._labelled_cells(client),
        )
        self._forget(client)
        self._adapted[client] = fit
        return self._report(client, X, fit)

    def reset_client(self, client):
        """Undo :meth:`adapt_client`, or :meth:`add_client` for one that joined later.

        Parameters
        ----------
        client : object
            Its id.

        Returns
        -------
        self : object
            The classifier.
        """
        check_is_fitted(self)
        self._check_known(client)
        if client in self._adapted:
            self._forget(client)
        elif client in self.aligner_._joined:
            self._forget(client)
            self.aligner_.remove_client(client)
        else:
            raise ValueError(
                f"client {client!r} was neither adapted nor added later: there is "
                "nothing to undo."
            )
        return self

    @classmethod
    def from_model(cls, model, statistics=None):
        """Make the classifier of a site, from what the server sent to all.

        Parameters
        ----------
        model : MixedEffectsModel
            What :meth:`shared_model` returned.
        statistics : ClassStatistics, default=None
            What the site had sent. A site that had sent nothing joins by
            :meth:`add_client`.

        Returns
        -------
        classifier : MixedEffectsClassifier
            Fitted; it knows this site only, and predicts for it as the server would.
        """
        if not isinstance(model, MixedEffectsModel):
            raise TypeError(
                f"model must be a MixedEffectsModel, got a {type(model).__name__}; "
                "files and bytes are read by skslot.exchange.load_message."
            )
        aligner = MixedEffectsAligner()._adopt(model, statistics)
        classifier = cls(tau="auto" if model.by_rows else model.strength)
        classifier.aligner_ = aligner
        classifier._by_client = model.by_client
        try:
            classifier._adopt(model.covariance, None, model.priors)
        except ValueError as error:
            raise MessageError(
                "the covariance within classes cannot be inverted; ask the server for "
                "the model again."
            ) from error
        classifier._encoder = model.encoder
        classifier.n_features_in_ = model.n_features
        classifier._heads = {}
        return classifier

    def shared_model(self):
        """The message to all clients, who derive their own classifiers from it.

        Returns
        -------
        model : MixedEffectsModel
            Class means, covariance and variances; see :meth:`from_model`.
        """
        check_is_fitted(self)
        return self.aligner_._message(self.covariance_, self.priors_, self._by_client)

    def summary(self):
        """Say in words where the differences between rows come from.

        Returns
        -------
        text : str
            Shares of class, site, their interaction and noise, and what they mean.
        """
        check_is_fitted(self)
        founders = self.aligner_._aligned().founders
        if len(founders) == 1 or len(self.classes_) == 1:
            what = "client" if len(founders) == 1 else "class"
            return (
                f"There is one {what}: what sites do cannot be told from what classes "
                "do, and nothing is taken out."
            )
        facts = self.variance_components_, self.tau_, self._by_client
        return describe_components(*facts, self._alone())

    # --------------------------------------------------------- what was fitted

    @property
    def variance_components_(self):
        """Variance of each kind of effect."""
        return self.aligner_.variance_components_

    @property
    def client_offsets_(self):
        """What is subtracted from the features of each client."""
        clients = self.aligner_._clients()
        return np.array([self._effects_of(client)[0] for client in clients])

    @property
    def class_means_(self):
        """Mean of each class over clients."""
        return self.aligner_.class_means_

    @property
    def cell_means_(self):
        """Mean of each class at each client."""
        clients = self.aligner_._clients()
        return np.array([self._effects_of(client)[1] for client in clients])

    @property
    def tau_(self):
        """Strength of the linear map of each client."""
        return self.aligner_.tau_

    @property
    def converged_(self):
        """Whether the search for the variances converged."""
        return self.aligner_.converged_

    # ----------------------------------------------------------------- helpers

    def _summarize(self, X, y, classes, client, seed):
        if self.privacy is not None:
            return ClassStatistics.release(self.privacy, X, y, classes, client)
        counts, means = counts_and_means(X, y, classes)
        covariance = FeatureMoments.from_rows(X).sample_covariance()
        return ClassStatistics(
            classes.tolist(), counts, means, covariance, client=client
        )

    def _allowed_messages(self):
        # those without labels are refused where the client and the remedy are named
        return *super()._allowed_messages(), ClientStatistics

    def _learn(self, messages, seed):
        aligner = MixedEffectsAligner(
            self.tau,
            unknown_client=self.unknown_client,
            memory=self.memory,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )
        self.aligner_ = aligner.server_aggregate(messages.for_aligner())
        self._by_client = isinstance(self.priors, str) and self.priors == "client"
        shares = aligner._aligned().model.class_shares
        if not isinstance(self.priors, str):
            shares = check_priors(self.priors, aligner.classes_)
        elif self.priors == "uniform":
            shares = np.full(len(shares), 1 / len(shares))
        self._adopt(*aligner._within(self.shrinkage), shares)

    def _adopt(self, covariance, shrinkage, priors):
        """Take over what was fitted, and make the head of an average client."""
        self._adapted = {}
        self.covariance_, self.shrinkage_ = covariance, shrinkage
        self.aligner_._covariance = covariance
        self.classes_, self.priors_ = self.aligner_.classes_, priors
        n_samples = self.aligner_._aligned().model.class_counts.sum()
        self._factor = factorise(covariance, self.class_means_, n_samples)
        self.coef_, self.intercept_ = head_of_means(
            self.class_means_, self._factor, np.log(priors)
        )

    def _fold(self, client_map, client):
        offset, means = self._effects_of(client, client_map)
        head = head_of_means(means, self._factor, self._log_priors(client))
        model = LinearModel(self.classes_.tolist(), *head, encoder=self._encoder)
        moved_by = replace(client_map, offset=offset)
        return model.pulled_back(*moved_by.affine, client)

    def _effects_of(self, client, client_map=None):
        """Offset of a client and the class means that its predictions use."""
        if client in self._adapted:
            fit = self._adapted[client]
            return fit.offset, fit.class_means
        if client_map is None:
            client_map = self.aligner_.maps_[client]
        alignment = self.aligner_._aligned()
        model = alignment.model
        cells = self._labelled_cells(client)
        if not cells:
            return client_map.offset, model.means
        return client_map.offset, model.own_means(*cells, client_map.offset)

    def _labelled_cells(self, client):
        """Rows and means of each class at a client; empty if it has no labels."""
        alignment = self.aligner_._aligned()
        joined = self.aligner_._joined.get(client)
        is_guessed = joined is not None and joined.guess is not None
        if is_guessed or client not in alignment.sites:
            return ()
        return alignment.rows_and_means(alignment.sites[client])

    def _log_priors(self, client):
        priors, cells = self.priors_, self._labelled_cells(client)
        if self._by_client and cells:
            priors = (cells[0] + priors) / (cells[0].sum() + 1)
        return np.log(priors)

    def _linear_map(self, client):
        client_map = self.aligner_.maps_[client]
        return replace(client_map, offset=np.zeros_like(client_map.offset))

    def _forget(self, client):
        """Forget the model of a client, which is made anew when it is needed."""
        self._heads.pop(client, None)
        self._adapted.pop(client, None)

    def _alone(self):
        """Clients that share no class with any other, which there are."""
        alignment = self.aligner_._aligned()
        holders = dict(zip(alignment.labels, alignment.model.holders, strict=True))
        return [
            client
            for client in alignment.founders
            if len(alignment.founders) > 1 and client in alignment.sites
            if all(holders[label] == 1 for label in alignment.sites[client])
        ]

    def _report(self, client, X, fit):
        report = SiteReport.of_guesses(self, client, len(X), fit)
        report.warn()
        return report

    def _check_known(self, client):
        check_client_name(client, needed=True)
        clients = self.aligner_._clients()
        if client not in clients:
            what = reasons_for_exclusion(self, [client]) or (
                f"client {client!r} was not seen in fit, which saw {shorten(clients)};"
            )
            raise ValueError(f"{what} add_client lets it join.")


# ------------------------------------------------------------------ site report


# Set by looking at reports on PACS and the embedded digits.
# Below this many rows, guesses of their classes say little.
FEW_ROWS = 30
# Rows further than this from all classes, in variances within classes per feature, look
# unlike those of the other clients. Ordinary ones were at 0.3 to 3; those of known
# sites three times as large as they should be, at 5 to 30.
FAR = 3.0
# A class with a smaller share of its share at all clients is hardly there: some rows of
# others are taken for it.
HARDLY_THERE = 0.3


@dataclass(frozen=True)
class SiteReport:
    """What :class:`MixedEffectsClassifier` found out about one site."""

    client: object
    n_samples: int
    label_mix: dict
    moved: float
    n_passes: int
    certainty: float | None
    distance: float | None
    warnings: tuple

    @classmethod
    def of_guesses(cls, classifier, client, n_samples, fit):
        """Report on a site that guessed the classes of its rows."""
        mix = dict(zip(classifier.classes_.tolist(), fit.label_mix, strict=True))
        notes = _notes(client, n_samples, fit, classifier)
        mix = {label: round(float(share), 3) for label, share in mix.items()}
        facts = fit.moved, fit.n_passes, fit.certainty, fit.distance
        return cls(client, n_samples, mix, *facts, notes)

    @classmethod
    def of_labels(cls, classifier, client, y):
        """Report on a site that joined with labels."""
        labels, counts = np.unique(y, return_counts=True)
        shares = (counts / counts.sum()).round(3).tolist()
        offset = classifier.aligner_.maps_[client].offset
        factor = classifier._factor
        moved = 0.0
        if factor is not None:
            moved = np.linalg.norm(solve_triangular(factor, offset, lower=True))
        mix = dict(zip(labels.tolist(), shares, strict=True))
        return cls(client, int(counts.sum()), mix, float(moved), 0, None, None, ())

    def warn(self):
        """Warn of what may be wrong with the rows."""
        for note in self.warnings:
            warn_user(note)

    def __repr__(self):
        shares = self.label_mix.items()
        mix = ", ".join(f"{printable(c)}: {share:.0%}" for c, share in shares)
        lines = [
            f"client {self.client!r}: {self.n_samples} rows, offset moved by "
            f"{self.moved:.2f} standard deviations within a class",
        ]
        if self.certainty is None:
            lines.append(f"labels: {mix}")
        else:
            lines += [
                f"estimated label mix after {self.n_passes} passes: {mix}",
                f"mean probability of the most likely class: {self.certainty:.2f}",
                f"distance from the classes: {self.distance:.2f} (about 1 for rows "
                "like those of the other clients)",
            ]
        return "\n".join([*lines, *(f"! {note}" for note in self.warnings)])


def _notes(client, n_samples, fit, classifier):
    """Sentences on rows that guesses should not be trusted for."""
    notes = []
    if n_samples < FEW_ROWS:
        notes.append(
            f"client {client!r} gave {n_samples} rows without labels, which say "
            f"little; {FEW_ROWS} or more are worth it."
        )
    if fit.distance > FAR:
        notes.append(
            f"the rows of client {client!r} lie {fit.distance:.1f} times as far from "
            "all classes as those of the other clients: are they made in the same way? "
            "Guesses of their classes may be wrong."
        )
    shares = classifier.aligner_._aligned().model.class_shares
    there = fit.label_mix >= HARDLY_THERE * shares
    if there.sum() <= len(there) / 2:
        labels = classifier.classes_[there].tolist()
        notes.append(
            f"the unlabelled rows of client {client!r} seem to be of {labels} only; "
            "they should be an ordinary sample of what the site sees, as the offset is "
            "estimated from these classes alone."
        )
    return tuple(notes)


def describe_components(components, taus, by_client, alone=()):
    """Shares of the variance between rows, and what they mean for the user.

    ``alone`` are clients that share no class with any other.
    """
    total = 1 + sum(components.values())
    names = {
        "class": "what class a row is of",
        "client": "what site it comes from, whatever the class",
        "interaction": "how a site shows this class, beyond the two",
        "within": "the row itself",
    }
    values = {**components, "within": 1.0}
    lines = ["Differences between rows come from"]
    lines += [f"{values[k] / total:6.1%}  {words}" for k, words in names.items()]
    lines += ["", *_advice(components, taus)]
    if alone:
        lines.append(
            f"No other site has a class of {shorten(alone)}: what such a site does "
            "cannot be told from what its classes do, so only a part of it is taken "
            "out."
        )
    if by_client:
        lines.append(
            "Predictions expect the label mix that each site had; rows with other "
            "labels than usual are recognised less well."
        )
    else:
        lines.append(
            "Predictions expect the same label mix at all sites; if each keeps its "
            "own, priors='client' is better."
        )
    return "\n".join(lines)


def _advice(components, taus):
    """Sentences on how far sites are apart."""
    site, label = components["client"], components["class"]
    interaction = components["interaction"]
    if site + interaction < 0.01:
        yield "Sites hardly differ: this is nearly a classifier of all rows pooled."
    elif site + interaction < label:
        yield (
            "Sites differ, but less than classes: their offsets are taken out, and "
            "classes stay apart."
        )
    else:
        yield (
            "Sites differ more than classes do: without the offsets, rows would be "
            "recognised by their site."
        )
    if interaction > max(site, 0.01):
        yield (
            "Most of that differs from class to class, which an offset cannot take "
            "out: sites with labels of few classes gain by unlabelled rows, see "
            "adapt_client."
        )
    if taus.max(initial=0.0) > 0:
        yield (
            "Covariances are moved towards each other by linear maps, of strength "
            f"{taus.min():.2f} to {taus.max():.2f}."
        )
