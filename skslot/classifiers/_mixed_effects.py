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
from ..exchange import ClassStatistics, ClientStatistics, LinearModel, MessageError
from ..privacy import PrivacyBudget
from ..statistics import FeatureMoments, fit_unlabelled, stack_class_means
from ._base import FoldedHeadsMixin, OneShotClassifier
from ._gaussian import check_priors, counts_and_means, factorise, head_of_means

# Thresholds of site reports, set by looking at reports on PACS and the embedded digits.
# Below this number of samples, predicted labels say little.
FEW_ROWS = 30
# Samples further than this from all classes, in variances within classes per feature,
# look unlike those of the other clients. Ordinary ones were at 0.3 to 3; those of known
# sites in units three times as small, at 5 to 30.
FAR = 3.0
# A class with a smaller share of its share at all clients is hardly there: some samples
# of other classes are mistaken for it.
HARDLY_THERE = 0.3


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
        """Add a client that joins later, with an offset and a linear map of its own.

        With labels, a few samples of each class are enough. Without, the offset is
        estimated by expectation maximisation. This works best if the samples follow
        the class distribution of the site. All other clients stay as they are.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the new client, with or without the client column.
        client : object
            Its id.
        y : array-like of shape (n_samples,), default=None
            Labels of these samples.

        Returns
        -------
        report : SiteReport
            Estimates for the client, with warnings.
        """
        check_is_fitted(self)
        refuse_without_noise(self, "add_client")
        check_client_name(client, needed=True)
        if client in self.aligner_.clients_.tolist():
            raise ValueError(
                f"client {client!r} is known already; adapt_client learns from more of "
                "its rows, and reset_client forgets one that joined later."
            )
        X = self._read_client(X, client, fitted=True)
        self.aligner_.add_client(X, client, y)
        self._forget(client)
        fit = self.aligner_.fits_.get(client)
        if fit is not None:
            return self._report_of_fit(client, len(X), fit)
        labels, counts = np.unique(y, return_counts=True)
        shares = (counts / counts.sum()).round(3).tolist()
        mix = dict(zip(labels.tolist(), shares, strict=True))
        offset, moved = self.aligner_.maps_[client].offset, 0.0
        if self._factor is not None:
            white = solve_triangular(self._factor, offset, lower=True)
            moved = float(np.linalg.norm(white))
        return SiteReport(client, len(X), mix, moved)

    def adapt_client(self, X, client):
        """Adapt the classifier of a known client to unlabelled samples.

        Under label shift, a site has labels of few classes, but sees all of them. Its
        unlabelled samples then show what the other classes look like there. Nothing is
        sent, and all other clients stay as they are. A second call starts again from
        the labelled samples. :meth:`reset_client` undoes it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Unlabelled features of the client, with or without the client column: about
            100 samples or more, which follow the class distribution of the site.
        client : object
            Its id.

        Returns
        -------
        report : SiteReport
            Estimates for the client, with warnings.
        """
        check_is_fitted(self)
        refuse_without_noise(self, "adapt_client")
        self._check_known(client)
        X = self._read_client(X, client, fitted=True)
        client_map = self.aligner_.maps_[client]
        linear = replace(client_map, offset=np.zeros_like(client_map.offset))
        rows = linear.transform(X.astype(np.float64))
        cells = self._labelled_cells(client)
        with np.errstate(over="ignore", invalid="ignore"):
            fit = fit_unlabelled(self._model, self.covariance_, rows, *cells)
        if not np.isfinite(fit.class_means).all():
            raise ValueError(
                f"X of client {client!r} contains numbers that are too large. Check "
                "the units of its features."
            )
        self._forget(client)
        self._adapted[client] = fit
        return self._report_of_fit(client, len(X), fit)

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
        if client not in self._adapted:
            if client in self._model.clients:
                raise ValueError(
                    f"client {client!r} was neither adapted nor added later: there is "
                    "nothing to undo."
                )
            self.aligner_.remove_client(client)
        self._forget(client)
        return self

    @classmethod
    def from_model(cls, model, statistics=None):
        """Make the classifier of a site from the model of a server.

        Parameters
        ----------
        model : MixedEffectsModel
            The :meth:`shared_model` of the server.
        statistics : ClassStatistics, default=None
            Message that the site had sent. If None, the site joins by
            :meth:`add_client`.

        Returns
        -------
        classifier : MixedEffectsClassifier
            Fitted classifier, which knows this site only. Its predictions are those of
            the classifier of the server.
        """
        aligner = MixedEffectsAligner.from_model(model, statistics)
        classifier = cls(tau=aligner.tau)
        classifier.aligner_ = aligner
        try:
            classifier._take_over(model)
        except ValueError as error:
            raise MessageError(
                "the covariance within classes cannot be inverted; ask the server for "
                "the model again."
            ) from error
        classifier._encoder, classifier.clients_report_ = model.encoder, None
        classifier.n_features_in_ = model.n_features
        classifier._heads = {}
        return classifier

    def shared_model(self):
        """Return the message to all clients, who derive their classifiers from it.

        Returns
        -------
        model : MixedEffectsModel
            The fitted model, for :meth:`from_model`.
        """
        check_is_fitted(self)
        return self._model

    def summary(self):
        """Describe the sources of the variance between samples.

        Returns
        -------
        text : str
            Shares of class, site, their interaction and noise, and what they mean.
        """
        check_is_fitted(self)
        model, cells = self._model, self.aligner_.cells_
        if len(model.clients) == 1 or len(model.classes) == 1:
            what = "client" if len(model.clients) == 1 else "class"
            return (
                f"There is one {what}: what sites do cannot be told from what classes "
                "do, and nothing is taken out."
            )
        holders = dict(zip(model.classes, model.holders, strict=True))
        alone = [
            client
            for client in model.clients
            if client in cells and all(holders[label] == 1 for label in cells[client])
        ]
        facts = self.variance_components_, self.tau_, model.by_client
        return describe_components(*facts, alone)

    # --------------------------------------------------------- what was fitted

    @property
    def variance_components_(self):
        """Variance of each kind of effect."""
        return self.aligner_.variance_components_

    @property
    def client_offsets_(self):
        """Offset of each client."""
        return np.array([offset for offset, _ in self._effects()])

    @property
    def class_means_(self):
        """Mean of each class over clients, without their offsets."""
        return self.aligner_.class_means_

    @property
    def cell_means_(self):
        """Mean of each class at each client."""
        return np.array([means for _, means in self._effects()])

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
            within_shrinkage=self.shrinkage,
            unknown_client=self.unknown_client,
            memory=self.memory,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )
        self.aligner_ = aligner.server_aggregate(messages.for_aligner())
        model = aligner.reference_
        priors, by_client = model.class_shares, False
        if not isinstance(self.priors, str):
            priors = check_priors(self.priors, aligner.classes_)
        elif self.priors == "uniform":
            priors = np.full(len(priors), 1 / len(priors))
        else:
            by_client = self.priors == "client"
        self._take_over(replace(model, priors=priors, by_client=by_client))

    def _take_over(self, model):
        """Take over a fitted model, and make the classifier of an average client."""
        self._model, self._adapted = model, {}
        self.classes_, self.priors_ = np.array(model.classes), model.priors
        self.covariance_, self.shrinkage_ = model.covariance, model.shrinkage
        n_samples = model.class_counts.sum()
        self._factor = factorise(model.covariance, model.means, n_samples)
        self.coef_, self.intercept_ = head_of_means(
            model.means, self._factor, np.log(model.priors)
        )

    def _fold(self, client_map, client):
        offset, means = self._effects_of(client, client_map.offset)
        priors, cells = self.priors_, self._labelled_cells(client)
        if self._model.by_client and cells:
            priors = (cells[0] + priors) / (cells[0].sum() + 1)
        head = head_of_means(means, self._factor, np.log(priors))
        model = LinearModel(self.classes_.tolist(), *head, encoder=self._encoder)
        return model.pulled_back(*replace(client_map, offset=offset).affine, client)

    def _effects_of(self, client, offset):
        """Offset and class means of a client whose offset the aligner has estimated."""
        if client in self._adapted:
            fit = self._adapted[client]
            return fit.offset, fit.class_means
        cells = self._labelled_cells(client)
        if not cells:
            return offset, self._model.means
        return offset, self._model.own_means(*cells, offset)

    def _effects(self):
        """Offset and class means of each client."""
        clients = self.aligner_.clients_.tolist()
        pairs = zip(clients, self.aligner_.client_offsets_, strict=True)
        return [self._effects_of(*pair) for pair in pairs]

    def _labelled_cells(self, client):
        """Counts and means of the classes of a client; empty if it has no labels."""
        cells = self.aligner_.cells_.get(client)
        return stack_class_means(cells, self._model.classes) if cells else ()

    def _forget(self, client):
        """Forget the classifier of a client, which is made again when it is needed."""
        self._heads.pop(client, None)
        self._adapted.pop(client, None)

    def _check_known(self, client):
        check_client_name(client, needed=True)
        clients = self.aligner_.clients_.tolist()
        if client not in clients:
            what = reasons_for_exclusion(self, [client]) or (
                f"client {client!r} was not seen in fit, which saw {shorten(clients)};"
            )
            raise ValueError(f"{what} add_client lets it join.")

    def _report_of_fit(self, client, n_samples, fit):
        """Report on a client whose labels were predicted, with warnings."""
        notes = []
        if n_samples < FEW_ROWS:
            notes.append(
                f"client {client!r} gave {n_samples} rows without labels, which say "
                f"little; {FEW_ROWS} or more are worth it."
            )
        if fit.distance > FAR:
            notes.append(
                f"the rows of client {client!r} lie {fit.distance:.1f} times as far "
                "from all classes as those of the other clients: are they made in the "
                "same way? Predicted labels may be wrong."
            )
        there = fit.label_mix >= HARDLY_THERE * self._model.class_shares
        if there.sum() <= len(there) / 2:
            notes.append(
                f"the unlabelled rows of client {client!r} seem to be of "
                f"{self.classes_[there].tolist()} only; they should be an ordinary "
                "sample of what the site sees, as the offset is estimated from these "
                "classes alone."
            )
        for note in notes:
            warn_user(note)
        mix = {
            label: round(float(share), 3)
            for label, share in zip(self.classes_.tolist(), fit.label_mix, strict=True)
        }
        facts = fit.moved, fit.n_passes, fit.certainty, fit.distance
        return SiteReport(client, n_samples, mix, *facts, tuple(notes))


# ------------------------------------------------------------------ site report


@dataclass(frozen=True)
class SiteReport:
    """Report of :class:`MixedEffectsClassifier` on a site that joined or adapted.

    The fields with defaults are those of samples whose labels were predicted.
    """

    client: object
    n_samples: int
    label_mix: dict
    moved: float
    n_passes: int = 0
    certainty: float | None = None
    distance: float | None = None
    warnings: tuple = ()

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
            "own, set priors to 'client'."
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
            "adapt_client or skslot adapt."
        )
    if taus.max(initial=0.0) > 0:
        yield (
            "Covariances are moved towards each other by linear maps, of strength "
            f"{taus.min():.2f} to {taus.max():.2f}."
        )
