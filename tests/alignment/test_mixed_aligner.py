"""MixedEffectsAligner: invariances, what it is not, and its way through files."""

import copy
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from skslot import (
    FedCGSClassifier,
    FederatedOTAligner,
    FedPFTClassifier,
    MixedEffectsAligner,
)
from skslot.alignment import MixedEffectsMap
from skslot.datasets import make_shifted_clients
from skslot.exchange import load_message, load_messages

TAUS = [0, 0.4, "auto"]
SITES = np.array(["Bern", "Oslo", "Turin", "Vigo"])

drawn = make_shifted_clients(
    n_samples=320,
    n_clients=4,
    n_classes=5,
    n_features=6,
    label_shift=0.5,
    random_state=1,
)
X, Y = drawn.data, np.array(list("abcde"))[drawn.target]
IDS = SITES[drawn.client_ids]
FRAME = pd.DataFrame(X, columns=list("uvwxyz"))


def new(tau=0, **params):
    return MixedEffectsAligner(tau, **params)


def fitted(tau=0, X=X, y=Y, ids=IDS, **params):
    return new(tau, **params).fit(X, y, client_ids=ids)


def aligned(tau=0, X=X, y=Y, ids=IDS):
    return fitted(tau, X, y, ids).transform(X, client_ids=ids)


def messages_of(tau=0, ids=IDS):
    aligner = new(tau)
    return [
        aligner.client_update(X[ids == site], Y[ids == site], client=site)
        for site in np.unique(ids).tolist()
    ]


def over(values, name="tau"):
    return pytest.mark.parametrize(name, values)


# ------------------------------------------------------------------ what it does


def test_offset_is_subtracted_and_labels_are_not_needed():
    aligner = fitted()
    moved = aligner.transform(X, client_ids=IDS)
    offsets = aligner.client_offsets_[drawn.client_ids]
    np.testing.assert_allclose(moved, X - offsets, rtol=0, atol=1e-12)
    assert not aligner.tau_.any()


@over(TAUS[1:])
def test_linear_map_turns_around_the_mean_of_the_client(tau):
    aligner = fitted(tau)
    for site, offset, each in zip(
        SITES, aligner.client_offsets_, aligner.maps_.values(), strict=True
    ):
        rows = X[site == IDS]
        mean = rows.mean(axis=0)
        matrix = (1 - each.tau) * np.eye(6) + each.tau * each.matrix
        expected = (rows - mean) @ matrix + mean - offset
        actual = aligner.transform(rows, client_ids=site)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-10)


def test_full_linear_maps_lead_to_one_covariance():
    """That of the optimal-transport aligner, whose reference it is."""
    aligner = fitted(1.0)
    transport = FederatedOTAligner(1.0, shrinkage="oas").fit(X, client_ids=IDS)
    for each, other in zip(
        aligner.maps_.values(), transport.maps_.values(), strict=True
    ):
        np.testing.assert_allclose(each.matrix, other.matrix, rtol=0, atol=1e-5)


def test_strength_follows_from_variances_and_rows():
    aligner = fitted("auto")
    first = fitted(0).variance_components_
    site = first["client"] + first["interaction"]
    rows = np.unique(IDS, return_counts=True)[1]
    expected = site / (site + first["class"]) * rows / (rows + 6)
    np.testing.assert_allclose(aligner.tau_, expected, rtol=1e-12)
    assert aligner.reference_.by_rows
    assert not fitted(0.4).reference_.by_rows


def test_variances_of_a_second_fit_are_those_of_moved_rows():
    """Alignment of rows that were moved by the linear maps, and by nothing else."""
    aligner = fitted(0.6)
    moved = X.copy()
    for site, each in zip(SITES, aligner.maps_.values(), strict=True):
        rows = site == IDS
        moved[rows] = each.transform(X[rows]) + each.offset
    again = fitted(0, moved)
    for name, value in again.variance_components_.items():
        assert aligner.variance_components_[name] == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(
        aligner.client_offsets_, again.client_offsets_, rtol=0, atol=1e-6
    )


def test_shift_of_sites_is_taken_out_and_classes_stay():
    truth = drawn.offsets - drawn.offsets.mean(axis=0)
    before = X - drawn.class_means[drawn.target]
    after = aligned() - drawn.class_means[drawn.target]

    def spread(rows):
        means = [rows[site == IDS].mean(axis=0) for site in SITES]
        return np.square(means - np.mean(means, axis=0)).sum()

    assert spread(after) < 0.3 * spread(before)
    assert np.square(truth).sum() > 1


# ------------------------------------------------------------------- invariances


@over(TAUS)
def test_order_of_rows_does_not_matter(tau):
    order = np.random.default_rng(0).permutation(len(X))
    moved = aligned(tau, X[order], Y[order], IDS[order])
    np.testing.assert_allclose(moved, aligned(tau)[order], rtol=0, atol=1e-9)


@over(TAUS)
def test_order_and_names_of_clients_do_not_matter(tau):
    names = np.array(["z", "a", "q", "m"])[drawn.client_ids]
    first, second = fitted(tau), fitted(tau, ids=names)
    np.testing.assert_allclose(
        second.transform(X, client_ids=names),
        first.transform(X, client_ids=IDS),
        rtol=0,
        atol=1e-9,
    )
    order = [second.clients_.tolist().index(name) for name in "zaqm"]
    np.testing.assert_allclose(
        second.client_offsets_[order], first.client_offsets_, rtol=0, atol=1e-9
    )


@over(TAUS)
def test_rotation_scale_and_origin_of_features_do_not_matter(tau):
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    other = 3.0 * X @ rotation.T + rng.normal(size=6)
    first, second = fitted(tau), fitted(tau, other)
    np.testing.assert_allclose(
        second.client_offsets_,
        3 * first.client_offsets_ @ rotation.T,
        rtol=0,
        atol=1e-9 if tau == 0 else 1e-7,  # to what the solver of the reference reaches
    )
    np.testing.assert_allclose(second.tau_, first.tau_, rtol=0, atol=1e-9)


@over(TAUS)
@over([1, 3, 10], "n_chunks")
def test_chunks_equal_fit(tau, n_chunks):
    aligner = new(tau)
    for rows in np.array_split(np.random.default_rng(0).permutation(len(X)), n_chunks):
        aligner.partial_fit(X[rows], Y[rows], client_ids=IDS[rows])
    np.testing.assert_allclose(
        aligner.transform(X, client_ids=IDS), aligned(tau), rtol=0, atol=1e-9
    )
    assert list(aligner.clients_) == list(SITES)


@over(TAUS)
def test_messages_equal_rows(tau):
    by_rows, by_messages = fitted(tau), new(tau).server_aggregate(messages_of(tau))
    assert np.array_equal(by_messages.tau_, by_rows.tau_)
    assert by_messages.variance_components_ == by_rows.variance_components_
    np.testing.assert_allclose(
        by_messages.transform(X, client_ids=IDS), aligned(tau), rtol=0, atol=1e-12
    )


@over(TAUS)
def test_steps_by_hand_equal_fit(tau):
    sent = messages_of(tau)
    reference = new(tau).server_aggregate(sent).reference_
    aligner = fitted(tau)
    assert reference.clients == list(SITES)
    for message, expected in zip(sent, aligner.maps_.values(), strict=True):
        made = new(tau).client_map(message, reference)
        rows = X[message.client == IDS]
        np.testing.assert_allclose(
            made.transform(rows), expected.transform(rows), rtol=0, atol=1e-10
        )
    np.testing.assert_allclose(
        reference.covariance, aligner.reference_.covariance, atol=1e-12
    )


@over([("float32", 1e-5), ("float16", 0.05)], "wire")
@over(TAUS)
def test_steps_work_over_the_wire(tau, wire):
    dtype, tolerance = wire
    sent = [load_message(each.to_bytes(dtype)) for each in messages_of(tau)]
    reference = new(tau).server_aggregate(sent).reference_
    reference = load_message(reference.to_bytes(dtype))
    aligner = fitted(tau)
    for message in sent:
        rows = X[message.client == IDS]
        made = new(tau).client_map(message, reference).transform(rows)
        expected = aligner.transform(rows, client_ids=message.client)
        np.testing.assert_allclose(made, expected, rtol=0, atol=tolerance)


@over(["auto", 0.4])
def test_linear_maps_that_are_not_kept_are_made_anew(tau, tmp_path, count_calls):
    paths = []
    for message in messages_of(tau):
        paths.append(tmp_path / f"{message.client}.slot")
        message.save(paths[-1], "float64", min_samples=1)
    kept = new(tau).server_aggregate(list(load_messages(paths)))
    from_files = FedCGSClassifier(aligner=new(tau)).server_aggregate(
        load_messages(paths)
    )
    assert not from_files.aligner_._aligned().maps
    in_memory = FedCGSClassifier(aligner=new(tau)).server_aggregate(
        list(load_messages(paths))
    )
    assert np.array_equal(
        from_files.decision_function(X, client_ids=IDS),
        in_memory.decision_function(X, client_ids=IDS),
    )
    assert np.array_equal(
        from_files.aligner_.transform(X, client_ids=IDS),
        kept.transform(X, client_ids=IDS),
    )


# ---------------------------------------------------------- what does not hold


def test_stretching_features_matters():
    stretch = np.array([10.0, 1, 1, 1, 1, 1])
    first, second = fitted().client_offsets_, fitted(X=X * stretch).client_offsets_
    assert not np.allclose(first * stretch, second, rtol=0.01)


def test_splitting_a_client_matters():
    parts = np.where(np.arange(len(X)) % 2, IDS, np.char.add(IDS, "2"))
    ids = np.where(IDS == "Oslo", parts, IDS)
    bern = [fitted(ids=each).client_offsets_[0] for each in (IDS, ids)]
    assert not np.allclose(*bern, rtol=1e-3)


def test_offset_follows_a_shift_only_in_part():
    shifted = X + 2.0 * (IDS == "Oslo")[:, None]
    change = fitted(X=shifted).client_offsets_[1] - fitted().client_offsets_[1]
    assert ((change > 0.5) & (change < 2.0)).all()


# ------------------------------------------------------------ labels and clients


def test_labels_are_needed():
    with pytest.raises(ValueError, match="requires y to be passed.*FederatedOTAligner"):
        new().fit(X, client_ids=IDS)
    with pytest.raises(ValueError, match="requires y to be passed"):
        new().partial_fit(X, client_ids=IDS)
    with pytest.raises(ValueError, match="requires y to be passed"):
        new().client_update(X, client="Bern")
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        new().fit(X, Y[1:], client_ids=IDS)


@over([drawn.target, Y, drawn.target > 2, drawn.target.astype(float)], "y")
def test_labels_of_any_kind(y):
    aligner = fitted(y=y)
    assert aligner.classes_.tolist() == np.unique(y).tolist()
    assert aligner.reference_.classes == np.unique(y).tolist()


def test_single_client_stays_where_it_is():
    with pytest.warns(UserWarning, match="No client_ids were passed"):
        aligner = new("auto").fit(X, Y)
    assert np.array_equal(aligner.transform(X), X)
    assert aligner.variance_components_ == {"client": 0, "class": 0, "interaction": 0}


def test_messages_without_names_are_refused():
    sent = [new().client_update(X[site == IDS], Y[site == IDS]) for site in SITES]
    with pytest.raises(ValueError, match="4 messages came without names"):
        new().server_aggregate(sent)


def test_message_without_labels_names_client_and_remedy():
    sent = messages_of()[:2]
    sent.append(FederatedOTAligner().client_update(X[IDS == "Turin"], client="Turin"))
    with pytest.raises(ValueError, match="client 'Turin' sent a ClientStatistics.*y"):
        new().server_aggregate(sent)


def test_message_without_covariance_is_refused():
    sent = [
        FedPFTClassifier().client_update(X[site == IDS], Y[site == IDS], client=site)
        for site in SITES.tolist()
    ]
    with pytest.raises(ValueError, match="client 'Bern' sent no covariance"):
        new().server_aggregate(sent)


def test_map_of_a_client_with_other_classes_is_refused():
    reference = new().server_aggregate(messages_of()).reference_
    stranger = new().client_update(X[:4], ["a", "a", "b", "zebra"], client="Rome")
    with pytest.raises(ValueError, match=r"client 'Rome' has rows of \['zebra'\]"):
        new().client_map(stranger, reference)


# --------------------------------------------------------------------- newcomers


HERE, NEW = IDS != "Vigo", IDS == "Vigo"


def founders(tau=0, **params):
    return fitted(tau, X[HERE], Y[HERE], IDS[HERE], **params)


@over(TAUS)
@over([True, False], "with_labels")
def test_newcomer_leaves_the_others_alone(tau, with_labels):
    aligner = founders(tau)
    before = aligner.transform(X[HERE], client_ids=IDS[HERE])
    aligner.add_client(X[NEW], "Vigo", Y[NEW] if with_labels else None)
    after = aligner.transform(X[HERE], client_ids=IDS[HERE])
    assert np.array_equal(before, after)
    assert aligner.client_offsets_[-1].any()
    assert aligner.clients_[-1] == "Vigo"
    assert aligner.reference_.clients == ["Bern", "Oslo", "Turin"]
    aligner.remove_client("Vigo")
    assert list(aligner.clients_) == ["Bern", "Oslo", "Turin"]
    with pytest.raises(ValueError, match="was not seen in fit"):
        aligner.transform(X[NEW], client_ids="Vigo")


@over(TAUS)
def test_labels_bring_a_newcomer_about_where_a_fit_would(tau):
    aligner = founders(tau).add_client(X[NEW], "Vigo", Y[NEW])
    there = aligner.transform(X[NEW], client_ids="Vigo")
    with_all = fitted(tau).transform(X[NEW], client_ids="Vigo")
    apart = np.linalg.norm(there.mean(0) - with_all.mean(0))
    assert apart < 0.5 * np.linalg.norm(X[NEW].mean(0) - with_all.mean(0))


@over([0, "auto"])
def test_unknown_client_adapts_as_if_added(tau):
    aligner = founders(tau, unknown_client="adapt")
    moved = aligner.transform(X[NEW], client_ids="Vigo")
    added = founders(tau).add_client(X[NEW], "Vigo").transform(X[NEW], "Vigo")
    assert np.array_equal(moved, added)
    stays = founders(tau, unknown_client="identity")
    assert np.array_equal(stays.transform(X[NEW], client_ids="Vigo"), X[NEW])
    with pytest.raises(ValueError, match="client \\['Vigo'\\] was not seen in fit"):
        founders(tau).transform(X[NEW], client_ids="Vigo")


def test_statistics_are_the_messages():
    aligner = founders().add_client(X[NEW], "Vigo").add_client(X[NEW], "Wien", Y[NEW])
    *sent, guessed, joined = aligner.statistics_
    for message, site in zip([*sent, joined], [*SITES[:3], "Vigo"], strict=True):
        rows = site == IDS
        own = new().client_update(X[rows], Y[rows], client=message.client)
        assert message == own
    # predicted classes are not part of it
    assert not guessed.describes_classes
    assert (guessed.client, guessed.n_samples) == ("Vigo", NEW.sum())
    np.testing.assert_allclose(guessed.mean, X[NEW].mean(axis=0))


def test_newcomer_with_unknown_labels_is_refused():
    with pytest.raises(ValueError, match="client 'Vigo' has rows of .*'zebra'.*fit"):
        founders().add_client(X[:2], "Vigo", ["a", "zebra"])
    with pytest.raises(ValueError, match="known already"):
        founders().add_client(X[:2], "Bern")


def test_rows_of_a_newcomer_that_come_later_move_nobody_else():
    half = np.flatnonzero(NEW)[::2]
    aligner = founders().add_client(X[half], "Vigo", Y[half])
    before = aligner.transform(X[HERE], client_ids=IDS[HERE])
    rest = np.flatnonzero(NEW)[1::2]
    aligner.partial_fit(X[rest], Y[rest], client_ids="Vigo")
    after = aligner.transform(X[HERE], client_ids=IDS[HERE])
    np.testing.assert_allclose(before, after, rtol=0, atol=1e-12)
    at_once = founders().add_client(X[NEW], "Vigo", Y[NEW])
    np.testing.assert_allclose(
        aligner.client_offsets_[-1], at_once.client_offsets_[-1], atol=1e-12
    )


def test_labels_of_a_newcomer_that_come_later_take_the_place_of_predicted_ones():
    aligner = founders("auto").add_client(X[NEW], "Vigo")
    assert aligner.cells_["Vigo"] == {}
    offset = aligner.fits_["Vigo"].offset
    assert np.array_equal(aligner.client_offsets_[-1], offset)
    # more samples of another client change the model, but not this offset
    aligner.partial_fit(X[HERE][:9], Y[HERE][:9], client_ids=IDS[HERE][:9])
    assert np.array_equal(aligner.client_offsets_[-1], offset)
    aligner = founders("auto").add_client(X[NEW], "Vigo")
    aligner.partial_fit(X[NEW], Y[NEW], client_ids="Vigo")
    with_labels = founders("auto").add_client(X[NEW], "Vigo", Y[NEW])
    assert aligner.fits_ == {}
    np.testing.assert_allclose(
        aligner.client_offsets_[-1], with_labels.client_offsets_[-1], atol=1e-12
    )


# ------------------------------------------------------- scikit-learn and frames


@over(TAUS)
@over(["float64", "float32"], "dtype")
def test_inverse_goes_back(tau, dtype):
    rows = X.astype(dtype)
    aligner = fitted(tau, rows)
    moved = aligner.transform(rows, client_ids=IDS)
    assert moved.dtype == dtype
    back = aligner.inverse_transform(moved, client_ids=IDS)
    np.testing.assert_allclose(
        back, rows, atol=1e-10 if dtype == "float64" else 1e-4, rtol=0
    )


@over([pickle.dumps, copy.deepcopy, clone], "duplicate")
def test_copies(duplicate):
    aligner = fitted("auto", unknown_client="adapt")
    if duplicate is clone:
        assert repr(clone(aligner)) == repr(aligner)
        assert not hasattr(clone(aligner), "clients_")
        return
    other = duplicate(aligner)
    other = pickle.loads(other) if isinstance(other, bytes) else other
    assert np.array_equal(
        other.transform(X, client_ids=IDS), aligner.transform(X, client_ids=IDS)
    )


@over([pd.DataFrame, pl.from_pandas], "make")
@over([True, False], "keep")
def test_column_of_ids_equals_ids(make, keep):
    table = make(FRAME.assign(site=IDS))
    aligner = MixedEffectsAligner(client_column="site", keep_client_column=keep)
    moved = aligner.fit_transform(table, Y)
    names = [*"uvwxyz"] + ["site"] * keep
    assert aligner.get_feature_names_out().tolist() == names
    assert np.array_equal(np.asarray(moved)[:, :6].astype(float), aligned())
    aligner.add_client(FRAME, "new").add_client(FRAME, "newer", Y)
    back = moved if keep else np.asarray(moved)
    ids = {} if keep else {"client_ids": IDS}
    np.testing.assert_allclose(
        np.asarray(aligner.inverse_transform(back, **ids)), X, atol=1e-10
    )


@over(["pandas", "polars"], "library")
def test_set_output(library):
    aligner = fitted(X=FRAME).set_output(transform=library)
    moved = aligner.transform(FRAME, client_ids=IDS)
    assert list(moved.columns) == list("uvwxyz")
    assert np.array_equal(moved.to_numpy(), aligned())


def test_read_only_rows_are_not_written_to():
    rows = X.copy()
    rows.flags.writeable = False
    assert np.array_equal(aligned("auto", rows), aligned("auto"))


def test_bad_rows_are_refused():
    with pytest.raises(TypeError, match="Sparse data was passed"):
        fitted(X=csr_array(X))
    spoilt = X.copy()
    spoilt[np.flatnonzero(IDS == "Oslo")[2], 3] = np.nan
    with pytest.raises(ValueError, match="client \\['Oslo'\\]: Input X contains NaN"):
        fitted(X=spoilt)
    with pytest.raises(ValueError, match="client_ids has 319 entries"):
        fitted(ids=IDS[1:])
    with pytest.raises(ValueError, match="tau"):
        fitted(1.5)


@over([None, 2], "n_jobs")
def test_grid_of_strengths_solves_once(tmp_path, count_references, n_jobs):
    memory = str(tmp_path)
    for tau in (0.2, 0.4, 0.8, "auto"):
        expected = aligned(tau)
        count_references.clear()
        again = fitted(tau, memory=memory, n_jobs=n_jobs)
        assert np.array_equal(again.transform(X, client_ids=IDS), expected)
        assert len(count_references) == (1 if tau == 0.2 else 0)
    count_references.clear()
    fitted(0)
    assert len(count_references) == 0


def test_repr_and_map_in_parts():
    each = next(iter(fitted("auto").maps_.values()))
    assert repr(each).startswith("MixedEffectsMap(n_features=6, tau=0.")
    none, half = each.at(0), each.at(0.5)
    np.testing.assert_allclose(none.transform(X), X, atol=1e-12)
    expected = (X + each.transform(X)) / 2
    np.testing.assert_allclose(half.transform(X), expected, atol=1e-10)
    stays = MixedEffectsMap.identity(6)
    assert np.array_equal(stays.transform(X), X)
    assert np.array_equal(stays.inverse_transform(X), X)
    with pytest.raises(ValueError, match="X has 5 features"):
        stays.transform(X[:, :5])


# ------------------------------------------------------ before and in classifiers


@over(TAUS)
@over(["total", "within"], "covariance")
def test_one_upload_equals_the_pipeline(routing, tau, covariance):
    inside = FedCGSClassifier(covariance, aligner=new(tau)).fit(X, Y, client_ids=IDS)
    pipeline = make_pipeline(new(tau), FedCGSClassifier(covariance))
    pipeline.fit(X, Y, client_ids=IDS)
    np.testing.assert_allclose(
        inside.decision_function(X, client_ids=IDS),
        pipeline.decision_function(X, client_ids=IDS),
        rtol=0,
        atol=1e-8,
    )


@over(["spherical", "full"], "shape")
def test_one_upload_of_mixtures(shape):
    params = {"covariance_type": shape, "random_state": 0}
    inside = FedPFTClassifier(aligner=new(), **params).fit(X, Y, client_ids=IDS)
    alone = FedPFTClassifier(**params).fit(X, Y, client_ids=IDS)
    np.testing.assert_allclose(
        inside.aligner_.client_offsets_, fitted().client_offsets_, atol=1e-8
    )
    assert inside.score(X, Y, client_ids=IDS) > alone.score(X, Y, client_ids=IDS)


def test_before_logistic_regression(routing):
    model = make_pipeline(new(), LogisticRegression()).fit(X, Y, client_ids=IDS)
    expected = LogisticRegression().fit(aligned(), Y)
    assert np.array_equal(
        model.predict_proba(X, client_ids=IDS), expected.predict_proba(aligned())
    )
    assert model.score(X, Y, client_ids=IDS) > LogisticRegression().fit(X, Y).score(
        X, Y
    )


def test_before_training_in_rounds(routing):
    pytest.importorskip("skorch")
    from skslot import FedAvgClassifier

    params = {"net__max_epochs": 3, "random_state": 0}
    model = make_pipeline(new(), FedAvgClassifier(**params)).fit(X, Y, client_ids=IDS)
    expected = FedAvgClassifier(**params).fit(aligned(), Y, client_ids=IDS)
    assert np.array_equal(
        model.predict(X, client_ids=IDS), expected.predict(aligned(), client_ids=IDS)
    )


def test_labels_that_are_measurements_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="Unknown label type"):
        MixedEffectsAligner().fit(
            rng.normal(size=(20, 2)), rng.normal(size=20), np.arange(20) % 2
        )
