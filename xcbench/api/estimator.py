"""A scikit-learn estimator over every method: pipelines, grid search and cross-validation take it as any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.api.answers import as_lists, decided
from xcbench.api.fitting import dataset_of, train_alone
from xcbench.api.inputs import as_names, as_settings, check_k, check_text
from xcbench.api.predicting import LoadedModel
from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.plugins.extras import extra
from xcbench.runner.spec import RunSpec

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_consistent_length, check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ImportError:
    raise InputError(f"xcbench.XCClassifier needs scikit-learn 1.6 or newer: {extra('sklearn')}") from None

if TYPE_CHECKING:
    from numpy.random import RandomState

_LARGEST_SEED = 2**31 - 1


class XCClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A method of xcbench as a scikit-learn classifier for many labels.

    Points are titles (a list of texts) or features (a matrix, best sparse). Targets are a list of labels per point, a
    matrix of zeros and ones with a column per label, or one class per point. `predict` answers in the form of the
    targets: dense only where they were.

    Parameters
    ----------
    method
        A name that `xcbench list methods` shows, or the path of a Python file that registers a method.
    settings
        Config keys and values: `{"neighbours": 20}`.
    augment
        Augmentations of the training data.
    rerank
        A reranker of the predictions.
    k
        How many labels `predict` gives per point, at most.
    threshold
        `predict` gives only labels whose scores reach it; None: all k.
    device
        `auto`, `cpu`, `cuda` or `cuda:N`.
    random_state
        Decides everything random.

    Attributes
    ----------
    classes_
        The labels; the numbers of the columns if the targets were a matrix.
    n_features_in_
        The number of features, if it was fitted on features.
    """

    def __init__(
        self,
        method: str = "decaf",
        *,
        settings: Mapping[str, Any] | None = None,
        augment: Sequence[str] = (),
        rerank: str | None = None,
        k: int = 5,
        threshold: float | None = None,
        device: str = "auto",
        random_state: int | RandomState | None = 0,
    ) -> None:
        self.method = method
        self.settings = settings
        self.augment = augment
        self.rerank = rerank
        self.k = k
        self.threshold = threshold
        self.device = device
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Say what the estimator takes."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.string = True
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        # Labels compete for k places, and a method may need more text than a toy problem has.
        tags.classifier_tags.poor_score = True
        return tags

    def fit(self, X: Any, y: Any) -> XCClassifier:
        """Train on points and their targets.

        Parameters
        ----------
        X
            Titles, or a matrix of features.
        y
            The targets of each point.
        """
        check_k(self.k)
        points = self._points(X, first=True)
        targets = _targets(y)
        check_consistent_length(points, targets.labels)
        self._form = targets.form
        data, names = dataset_of(points, targets.labels)
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(_LARGEST_SEED)

        spec = RunSpec(
            method=check_text(self.method, "method"),
            augment=as_names(self.augment, "augment"),
            rerank=self.rerank,
            preset="none",
            overrides=as_settings(self.settings),
            seed=int(seed),
        )
        model = train_alone(spec, data, self.device)
        self._model = LoadedModel(model, names, data.feature_count)
        self._most_frequent = int(np.argmax(data.label_frequency))
        self.classes_ = np.asarray(names)
        if targets.classes is not None:
            self.classes_ = targets.classes
        return self

    def predict(self, X: Any) -> Any:
        """Return the best labels per point: lists, a sparse matrix or an array, as the targets were."""
        check_is_fitted(self, "classes_")
        if self._form == "classes":
            best = self.predict_topk(X, 1).indices[:, 0]
            return self.classes_[np.where(best < 0, self._most_frequent, best)]

        predictions = decided(self.predict_topk(X), self.threshold)
        if self._form == "lists":
            answers = as_lists(predictions, self._model.label_names)
            return [[prediction.label for prediction in answer] for answer in answers]
        indicator = _indicator(predictions, len(self.classes_))
        if self._form == "array":
            return indicator.toarray()
        return indicator

    def predict_topk(self, X: Any, k: int | None = None) -> TopK:
        """Return the k best labels per point with their scores; `classes_[indices]` are their names.

        Parameters
        ----------
        X
            Titles, or a matrix of features, as in `fit`.
        k
            How many labels per point; by default the `k` of the estimator.
        """
        check_is_fitted(self, "classes_")
        wanted = check_k(self.k if k is None else k)
        return self._model.ranked(self._points(X, first=False), min(wanted, len(self.classes_)))

    def _points(self, X: Any, first: bool) -> list[str] | sp.csr_array:
        """Return titles as a list, features as a sparse matrix."""
        if _are_titles(X):
            return list(X)
        matrix = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=first)
        return sp.csr_array(matrix)


def _are_titles(X: Any) -> bool:
    """Whether points are texts: a list or column whose first element is one."""
    if sp.issparse(X) or hasattr(X, "columns") or isinstance(X, str) or not hasattr(X, "__len__"):
        return False
    if getattr(X, "ndim", 1) != 1 or len(X) == 0:
        return False
    return isinstance(next(iter(X)), str)


@dataclass(frozen=True)
class _Targets:
    """Targets as `dataset_of` takes them, and what they were."""

    form: Literal["lists", "matrix", "array", "classes"]
    labels: Any
    classes: npt.NDArray[Any] | None = None
    """The classes, where each point has one."""


def _targets(y: Any) -> _Targets:
    if y is None:
        raise ValueError("XCClassifier requires y to be passed, but the target y is None")
    if sp.issparse(y):
        return _Targets("matrix", y)
    if getattr(y, "ndim", 0) == 2 and y.shape[1] > 1:
        return _Targets("array", sp.csr_array(np.asarray(y)))
    if _are_lists(y):
        return _Targets("lists", y)

    column = column_or_1d(y, warn=True)
    check_classification_targets(column)
    classes, codes = np.unique(column, return_inverse=True)
    points = len(column)
    entries = (np.ones(points), (np.arange(points), codes))
    one_per_point = sp.csr_array(entries, shape=(points, len(classes)))
    return _Targets("classes", one_per_point, classes)


def _are_lists(y: Any) -> bool:
    if isinstance(y, str) or not hasattr(y, "__len__") or len(y) == 0:
        return False
    return isinstance(next(iter(y)), list | tuple | set | frozenset)


def _indicator(predictions: TopK, labels: int) -> sp.csr_array:
    """Return [n, L] ones at the predicted labels."""
    matrix = predictions.to_csr(labels)
    matrix.data = np.ones(matrix.nnz, np.int64)
    return matrix
