"""Base of classifiers that need no more of a client than its class statistics."""

from ..exchange import ClassStatistics
from ..privacy import PrivacyBudget
from ..statistics import FeatureMoments
from ._base import AlignedClassifierMixin, FoldedHeadsMixin, OneShotClassifier
from ._gaussian import counts_and_means, pool_statistics


class ClassStatisticsClassifier(
    FoldedHeadsMixin, AlignedClassifierMixin, OneShotClassifier
):
    """Linear classifier from class counts, class means and one covariance.

    A subclass has the parameters ``aligner`` and ``privacy`` and a method
    ``_fit_head(pooled)``, which sets ``coef_`` and ``intercept_`` from the statistics
    of all rows together.
    """

    message_type = ClassStatistics

    _parameter_constraints: dict = {
        **OneShotClassifier._parameter_constraints,
        "privacy": [PrivacyBudget, None],
    }

    @property
    def _ids_matter(self):
        return self.aligner is not None

    def _summarize(self, X, y, classes, client, seed):
        if self.privacy is not None:
            return ClassStatistics.release(
                self.privacy, X, y, classes, client, self._noisy_shrinkage
            )
        counts, means = counts_and_means(X, y, classes)
        part = self._part_for_alignment(FeatureMoments.from_rows(X))
        return ClassStatistics(classes.tolist(), counts, means, *part, client)

    def _learn(self, messages, seed):
        self._fit_aligner(messages)
        pooled = pool_statistics(
            self._aligned_messages(messages, ClassStatistics.pushed)
        )
        self.classes_ = pooled.classes
        self._fit_head(pooled)
