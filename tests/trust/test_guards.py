"""Guards of classifiers and aligners: who is left out, who counts less."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from skslot import (
    FedAvgClassifier,
    FedCGSClassifier,
    FedCOFClassifier,
    FedCoresetClassifier,
    FedEnsembleClassifier,
    FederatedOTAligner,
    FederatedScaler,
    FedMergeClassifier,
    FedPFTClassifier,
    FedQDAClassifier,
    FedRidgeClassifier,
    MixedEffectsAligner,
    MixedEffectsClassifier,
)
from skslot.datasets import load_digit_scanners
from skslot.exchange import (
    ClassStatistics,
    ClientStatistics,
    Message,
    feature_fingerprint,
    load_messages,
    receive,
)
from skslot.trust import ClientFacts, ClientScreen

data = load_digit_scanners()
X, Y, IDS = data.data[::3], data.target[::3], data.client_ids[::3]
CLIENTS = np.unique(IDS).tolist()
LIAR = "phone"
HONEST = IDS != LIAR
POISONED = np.where(HONEST[:, None], X, 1000 * X)

CLASSIFIERS = [
    FedCGSClassifier(),
    FedCGSClassifier(aligner=FederatedOTAligner()),
    FedRidgeClassifier(),
    FedCOFClassifier(),
    FedQDAClassifier(),
    FedPFTClassifier(random_state=0),
    FedCoresetClassifier(random_state=0),
    FedMergeClassifier("none"),
    FedMergeClassifier(aligner=FederatedOTAligner()),
    FedEnsembleClassifier(),
    FedEnsembleClassifier("stack"),
    MixedEffectsClassifier(),
]
ALIGNERS = [
    FederatedOTAligner(),
    FederatedOTAligner("auto"),
    MixedEffectsAligner(),
    MixedEffectsAligner("auto"),
]
# Those whose message is that of one row as well as that of its copies.
CLOSED_FORMS = [
    each
    for each in CLASSIFIERS
    if type(each).__name__
    in {
        "FedCGSClassifier",
        "FedRidgeClassifier",
        "FedQDAClassifier",
        "MixedEffectsClassifier",
    }
]
each_classifier = pytest.mark.parametrize("classifier", CLASSIFIERS, ids=str)
each_aligner = pytest.mark.parametrize("aligner", ALIGNERS, ids=str)


def messages_of(estimator, X=X):
    return [
        estimator.client_update(X[IDS == c], Y[IDS == c], client=c) for c in CLIENTS
    ]


def fit_leaving_out(estimator, X=POISONED, **params):
    estimator = clone(estimator).set_params(screen="exclude", **params)
    with pytest.warns(UserWarning, match=f"client '{LIAR}' was left out: its"):
        return estimator.fit(X, Y, client_ids=IDS)


@each_classifier
def test_classifier_is_that_of_the_others(classifier):
    fitted = fit_leaving_out(classifier)
    expected = clone(classifier).fit(X[HONEST], Y[HONEST], client_ids=IDS[HONEST])
    found = fitted.predict_proba(X[HONEST], client_ids=IDS[HONEST])
    assert np.array_equal(
        found, expected.predict_proba(X[HONEST], client_ids=IDS[HONEST])
    )
    assert list(fitted.clients_report_.left_out) == [LIAR]


@pytest.mark.parametrize("classifier", CLOSED_FORMS, ids=str)
def test_default_warns_of_the_client_and_uses_it(classifier):
    with pytest.warns(UserWarning, match=f"client '{LIAR}' stands out: its"):
        fitted = clone(classifier).fit(POISONED, Y, client_ids=IDS)
    assert list(fitted.clients_report_.outliers) == [LIAR]
    assert fitted.clients_report_.left_out == {}


@each_aligner
def test_aligner_is_that_of_the_others(aligner):
    fitted = fit_leaving_out(aligner)
    expected = clone(aligner).fit(X[HONEST], Y[HONEST], client_ids=IDS[HONEST])
    found = fitted.transform(X[HONEST], client_ids=IDS[HONEST])
    assert np.array_equal(found, expected.transform(X[HONEST], client_ids=IDS[HONEST]))
    assert LIAR not in fitted.clients_


@each_aligner
@pytest.mark.parametrize("cached", [False, True])
def test_aligner_reads_the_rows_of_each_client_once(
    aligner, cached, count_calls, tmp_path
):
    memory = str(tmp_path) if cached else None
    with count_calls("from_rows") as called:
        fitted = fit_leaving_out(clone(aligner).set_params(memory=memory))
    assert len(called) == len(fitted.clients_) + 1


@each_aligner
def test_aligner_leaves_out_the_same_in_all_ways_to_fit_it(aligner):
    fitted = fit_leaving_out(aligner)
    guarded = clone(aligner).set_params(screen="exclude")
    with pytest.warns(UserWarning, match="was left out"):
        by_messages = clone(guarded).server_aggregate(messages_of(aligner, POISONED))
    with pytest.warns(UserWarning, match="was left out"):
        reference = (
            clone(guarded).server_aggregate(messages_of(aligner, POISONED)).reference_
        )
    in_chunks = clone(guarded)
    for rows in np.array_split(np.arange(len(X)), 3):
        in_chunks.partial_fit(POISONED[rows], Y[rows], client_ids=IDS[rows])
    with pytest.warns(UserWarning, match="was left out"):
        assert in_chunks.clients_.tolist() == fitted.clients_.tolist()
    for other in (by_messages, in_chunks):
        np.testing.assert_allclose(
            other.transform(X[HONEST], client_ids=IDS[HONEST]),
            fitted.transform(X[HONEST], client_ids=IDS[HONEST]),
            atol=1e-8,
        )
        assert list(other.clients_report_.left_out) == [LIAR]
    assert reference == by_messages.reference_


@each_aligner
@pytest.mark.filterwarnings(f"ignore:client '{LIAR}' was left out")
def test_rows_added_after_fit_are_judged_with_those_of_fit(aligner):
    guarded = clone(aligner).set_params(screen="exclude")
    first = np.arange(len(X)) % 3 > 0  # then the liar has become honest
    rows = np.where(first[:, None], POISONED, X)
    guarded.fit(rows[first], Y[first], client_ids=IDS[first])
    guarded.partial_fit(rows[~first], Y[~first], client_ids=IDS[~first])
    expected = clone(guarded).fit(rows, Y, client_ids=IDS)
    assert str(guarded.clients_report_) == str(expected.clients_report_)
    assert list(guarded.clients_report_.left_out) == [LIAR]
    np.testing.assert_allclose(
        guarded.transform(X[HONEST], client_ids=IDS[HONEST]),
        expected.transform(X[HONEST], client_ids=IDS[HONEST]),
        atol=1e-8,
    )


@each_aligner
@pytest.mark.parametrize("more", [False, True])
@pytest.mark.filterwarnings(f"ignore:client '{LIAR}' was left out")
def test_one_left_out_that_joins_and_goes_is_as_it_was(aligner, more):
    fitted = fit_leaving_out(aligner)
    expected = clone(fitted).fit(POISONED, Y, client_ids=IDS)
    fitted.add_client(X[~HONEST], LIAR, Y[~HONEST])
    if more:
        fitted.partial_fit(X[HONEST], Y[HONEST], client_ids=IDS[HONEST])
        expected.partial_fit(X[HONEST], Y[HONEST], client_ids=IDS[HONEST])
    assert LIAR in fitted.clients_
    fitted.remove_client(LIAR)
    for each in (fitted, expected):
        each.partial_fit(X[~HONEST], Y[~HONEST], client_ids=IDS[~HONEST])
    assert list(fitted.clients_report_.left_out) == [LIAR]
    assert str(fitted.clients_report_) == str(expected.clients_report_)
    assert fitted.clients_.tolist() == expected.clients_.tolist()


@each_aligner
def test_rows_of_one_left_out_are_refused_with_the_reason(aligner):
    fitted = fit_leaving_out(aligner)
    with pytest.raises(ValueError, match=f"'{LIAR}' was left out .* times larger"):
        fitted.transform(POISONED, client_ids=IDS)
    rows = POISONED[~HONEST]
    fitted.add_client(rows, LIAR)
    assert fitted.transform(rows, client_ids=LIAR).shape == rows.shape


@pytest.mark.parametrize("policy", ["identity", "adapt"])
def test_one_left_out_is_as_one_that_was_never_seen(policy):
    fitted = fit_leaving_out(FederatedOTAligner(unknown_client=policy))
    never = FederatedOTAligner(unknown_client=policy)
    never.fit(X[HONEST], client_ids=IDS[HONEST])
    assert np.array_equal(
        fitted.transform(POISONED, client_ids=IDS),
        never.transform(POISONED, client_ids=IDS),
    )


@pytest.mark.parametrize(
    "classifier",
    [FedCGSClassifier(aligner=FederatedOTAligner()), MixedEffectsClassifier()],
    ids=str,
)
def test_there_is_no_model_for_one_left_out_and_the_error_says_why(classifier):
    fitted = fit_leaving_out(classifier)
    for call in (
        lambda: fitted.client_model(LIAR),
        lambda: fitted.predict(X[:1], client_ids=LIAR),
    ):
        with pytest.raises(ValueError, match=f"'{LIAR}' was left out of the fit, as"):
            call()


@pytest.mark.parametrize(
    "params", [{}, {"standardize": False}, {"n_rounds": 2}], ids=str
)
def test_fedavg_leaves_out_for_all_that_follows(params):
    pytest.importorskip("skorch")
    classifier = FedAvgClassifier(random_state=0, **params)
    fitted = fit_leaving_out(classifier)
    expected = classifier.fit(X[HONEST], Y[HONEST], client_ids=IDS[HONEST])
    assert np.array_equal(fitted.coef_, expected.coef_)
    assert list(fitted.clients_report_.left_out) == [LIAR]
    assert "head" in str(fitted.clients_report_)


def test_fedavg_server_steps_leave_out_what_fit_leaves_out():
    pytest.importorskip("skorch")
    classifier = FedAvgClassifier(random_state=0, screen="exclude")
    summaries = [
        classifier.client_summary(POISONED[IDS == c], client=c) for c in CLIENTS
    ]
    with pytest.warns(UserWarning, match="was left out"):
        scale = classifier.server_scale(summaries)
    heads = [
        classifier.client_update(
            POISONED[IDS == c], Y[IDS == c], classes=np.unique(Y), client=c, scale=scale
        )
        for c in CLIENTS
    ]
    with pytest.warns(UserWarning, match="was left out"):
        fitted = clone(classifier).server_aggregate([*summaries, *heads])
    assert np.array_equal(fitted.coef_, fit_leaving_out(classifier).coef_)


# ------------------------------------------------------------------- streamed files


@pytest.fixture
def paths(tmp_path):
    classifier = FedCGSClassifier(aligner=FederatedOTAligner())
    for message in messages_of(classifier, POISONED):
        message.save(tmp_path / f"{message.client}.slot", "float64")
    return sorted(tmp_path.glob("*.slot"))


@pytest.mark.parametrize("screen", [None, "exclude"])
def test_files_give_what_a_list_gives(paths, screen):
    classifier = FedCGSClassifier(aligner=FederatedOTAligner(), screen=screen)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        streamed = clone(classifier).server_aggregate(load_messages(paths))
        held = clone(classifier).server_aggregate(list(load_messages(paths)))
    assert str(streamed.clients_report_) == str(held.clients_report_)
    assert np.array_equal(streamed.coef_, held.coef_)
    assert streamed.client_model("fax") == held.client_model("fax")


@pytest.mark.parametrize(("screen", "passes"), [(None, 1), ("exclude", 2)])
def test_report_needs_no_pass_and_leaving_out_needs_one(
    paths, screen, passes, count_calls
):
    with count_calls("read_file") as called, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        FedCGSClassifier(screen=screen).server_aggregate(load_messages(paths))
    assert len(called) == passes * len(paths)


def test_what_is_kept_of_a_client_does_not_grow_with_its_message():
    """A thousand clients of 512 features and 100 classes fit in 40 MB."""
    means = {label: (5, np.full(512, float(label))) for label in range(100)}
    facts = ClientFacts.from_moments("A", 500, np.zeros(512), np.ones(512), means)
    parts = facts.mean, facts.variances, facts.sketches, facts.offsets
    assert 1000 * sum(part.nbytes for part in parts) < 40e6


# --------------------------------------------------------------------- the cap


def heavy(copies=9):
    """The same rows, those of one client many times."""
    rows = np.r_[np.arange(len(X)), np.tile(np.flatnonzero(IDS == "fax"), copies)]
    return X[rows], Y[rows], IDS[rows]


@pytest.mark.parametrize("classifier", CLOSED_FORMS, ids=str)
def test_a_cap_undoes_copies_of_rows(classifier):
    """They change neither means nor covariances of the client."""
    sizes = np.unique(IDS, return_counts=True)[1]
    rows, labels, ids = heavy()
    capped = clone(classifier).set_params(
        screen=ClientScreen(max_share=sizes.max() / len(IDS))
    )
    capped.fit(rows, labels, client_ids=ids)
    plain = clone(classifier).fit(X, Y, client_ids=IDS)
    same = capped.predict(X, client_ids=IDS) == plain.predict(X, client_ids=IDS)
    assert same.mean() > 0.98
    assert capped.clients_report_["fax"].share > 0.7  # as it was sent


def test_capped_statistics_are_those_of_fewer_rows():
    rows, labels, ids = heavy()
    capped = FedCGSClassifier(screen=ClientScreen(max_share=0.4)).fit(
        rows, labels, client_ids=ids
    )
    sizes = {c: np.sum(IDS == c) for c in CLIENTS}
    others = sum(size for c, size in sizes.items() if c != "fax")
    # two thirds of what the others have are two fifths of all
    factor = 2 / 3 * others / np.sum(ids == "fax")
    messages = [
        FedCGSClassifier().client_update(
            rows[ids == c], labels[ids == c], classes=np.unique(Y), client=c
        )
        for c in CLIENTS
    ]
    counts = sum(m.counts * (factor if m.client == "fax" else 1) for m in messages)
    np.testing.assert_allclose(capped.priors_, counts / counts.sum())


@each_aligner
def test_capped_aligner_is_the_same_by_rows_and_by_messages(aligner):
    rows, labels, ids = heavy()
    capped = clone(aligner).set_params(screen=ClientScreen(max_share=0.3))
    fitted = clone(capped).fit(rows, labels, client_ids=ids)
    messages = [
        aligner.client_update(rows[ids == c], labels[ids == c], client=c)
        for c in CLIENTS
    ]
    by_messages = clone(capped).server_aggregate(messages)
    np.testing.assert_allclose(
        by_messages.transform(X, client_ids=IDS),
        fitted.transform(X, client_ids=IDS),
        atol=1e-9,
    )
    if isinstance(aligner, FederatedOTAligner):
        assert fitted.weights_.max() == pytest.approx(0.3)


def partly_labelled(n_labelled):
    """Messages of five clients; only the first ones have labels."""
    classifier = FedCGSClassifier(aligner=FederatedOTAligner())
    rows = {"A": 100, "B": 500, "C": 100, "U": 900, "V": 500}
    messages = []
    for position, (client, n) in enumerate(rows.items()):
        some = np.random.default_rng(position).choice(len(X), n)
        y = Y[some] if position < n_labelled else None
        step = classifier if position < n_labelled else classifier.aligner
        messages.append(step.client_update(X[some], y, client=client))
    return messages


def test_a_cap_holds_among_all_and_among_those_with_labels():
    messages = partly_labelled(3)
    kinds = ClassStatistics, ClientStatistics
    received = receive(messages, *kinds, screen=ClientScreen(None, 0.4))
    weights = [message.n_samples for message in received]
    # two fifths of those with labels, then of all
    np.testing.assert_allclose(weights, [100, 400 / 3, 100, 5000 / 9, 500])
    received = receive(messages, Message, screen=ClientScreen(None, 0.26))
    shares = np.array([message.n_samples for message in received])
    assert (shares / shares.sum()).max() == pytest.approx(0.26)
    assert shares[1] == pytest.approx(shares[3])  # no labels are asked for


def test_a_cap_that_clients_with_labels_cannot_keep_says_so():
    classifier = FedCGSClassifier(
        aligner=FederatedOTAligner(), screen=ClientScreen(max_share=0.4)
    )
    with pytest.raises(ValueError, match="with labels: .*0.4 .* for 2 clients"):
        classifier.server_aggregate(partly_labelled(2))


@each_aligner
def test_capped_aligner_has_messages_as_they_were_sent(aligner):
    messages = messages_of(aligner)
    capped = (
        clone(aligner)
        .set_params(screen=ClientScreen(max_share=0.26))
        .server_aggregate(messages)
    )
    plain = clone(aligner).server_aggregate(messages)
    assert capped.statistics_ == plain.statistics_
    assert all(each.to_bytes() for each in capped.statistics_)


def test_one_left_out_of_mixed_effects_can_join_but_not_adapt():
    fitted = fit_leaving_out(MixedEffectsClassifier())
    with pytest.raises(ValueError, match="was left out .* add_client lets it join"):
        fitted.adapt_client(X[~HONEST], LIAR)
    fitted.add_client(X[~HONEST], LIAR, Y[~HONEST])
    assert fitted.score(X[~HONEST], Y[~HONEST], client_ids=LIAR) > 0.8


def test_a_cap_that_cannot_be_kept_names_parameter_and_remedy():
    with pytest.raises(ValueError, match="max_share=0.1 .* at least 0.25"):
        FedCGSClassifier(screen=ClientScreen(max_share=0.1)).fit(X, Y, client_ids=IDS)


@pytest.mark.parametrize("share", [0, 1.5, "half"])
def test_shares_are_numbers_up_to_one(share):
    with pytest.raises(ValueError, match="max_share must be .* at most 1, got"):
        ClientScreen(max_share=share)


# ------------------------------------------------------------------ odds and ends


@pytest.mark.parametrize("screen", [None, "exclude", ClientScreen(max_share=0.26)])
def test_an_aligner_inside_a_classifier_does_not_screen(screen):
    """It receives messages that the classifier has screened."""
    plain = FedCGSClassifier(aligner=FederatedOTAligner(), screen=None)
    expected = clone(plain).fit(POISONED, Y, client_ids=IDS)
    inside = clone(plain).set_params(aligner__screen=screen)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="client 'phone'")
        found = inside.fit(POISONED, Y, client_ids=IDS)
    assert np.array_equal(found.coef_, expected.coef_)
    assert list(found.aligner_.clients_) == list(expected.aligner_.clients_)


@pytest.mark.parametrize(
    "screen", [None, "warn", "exclude", ClientScreen("exclude", 0.5)], ids=str
)
def test_a_screen_survives_clone_pickle_and_get_params(screen):
    for estimator in (FedCGSClassifier(screen=screen), FederatedScaler(screen=screen)):
        for same in (clone(estimator), pickle.loads(pickle.dumps(estimator))):
            assert same.get_params()["screen"] == screen
            assert repr(same) == repr(estimator)


@pytest.mark.parametrize("action", ["leave_out", "ignore", False, 1])
def test_actions_of_a_screen_are_few(action):
    with pytest.raises(ValueError, match="action must be None, 'warn' or 'exclude'"):
        ClientScreen(action)


def test_other_screens_are_refused_by_estimators():
    with pytest.raises(ValueError, match="'screen' parameter of FedCGSClassifier"):
        FedCGSClassifier(screen="leave_out").fit(X, Y, client_ids=IDS)
    with pytest.raises(ValueError, match="action must be None"):
        receive([], Message, screen="leave_out")


def test_the_scaler_has_no_cap():
    scaler = FederatedScaler(screen=ClientScreen(max_share=0.5))
    with pytest.raises(ValueError, match="Set max_share of the screen to None"):
        scaler.fit(X, client_ids=IDS)


def test_clients_are_examined_without_an_action_but_not_unasked():
    messages = messages_of(FedCGSClassifier(), POISONED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = receive(messages, Message, screen=None).clients_report
        assert receive(messages, Message).clients_report is None
    assert list(report.outliers) == [LIAR]


def test_counts_that_nobody_can_have_are_found():
    messages = messages_of(FedCGSClassifier())
    messages[0] = replace(messages[0], counts=messages[0].counts * 10**6)
    with pytest.warns(UserWarning, match="left out: it says that it has 1e.08 rows"):
        fitted = FedCGSClassifier(screen="exclude").server_aggregate(messages)
    assert list(fitted.clients_report_.left_out) == [CLIENTS[0]]


def test_clients_without_names_have_numbers():
    messages = [
        replace(m, client=None) for m in messages_of(FedCGSClassifier(), POISONED)
    ]
    with pytest.warns(UserWarning, match="client 3 was left out"):
        fitted = FedCGSClassifier(screen="exclude").server_aggregate(messages)
    assert list(fitted.clients_report_.left_out) == [3]


def test_a_single_client_has_a_report():
    report = FedCGSClassifier().fit(X, Y).clients_report_
    assert report[None].share == 1
    assert report.outliers == {}


def test_messages_that_do_not_say_how_many_rows_cannot_be_weighed():
    aligner = FederatedOTAligner()
    reference = aligner.server_aggregate(messages_of(aligner)).reference_
    guarded = FederatedOTAligner(screen="exclude")
    with pytest.raises(ValueError, match="how many rows each client has"):
        guarded.server_aggregate([reference])


# ------------------------------------------------------------- columns of tables

rng = np.random.default_rng(0)
AGES = rng.normal([60, 100, 1], [10, 30, 1], size=(360, 3))
ILL, SITES = rng.integers(2, size=360), np.repeat(["A", "B", "C"], 120)


def described(rows, names):
    """What sites send of a table whose columns have these names."""
    site = MixedEffectsClassifier()
    fingerprint = names and feature_fingerprint(names)
    for client in np.unique(SITES):
        own = SITES == client
        message = site.client_update(rows[own], ILL[own], client=str(client))
        yield message.with_encoder(fingerprint)


@pytest.mark.parametrize("factor", [1 / 18, 18.0])
@pytest.mark.parametrize("make", [MixedEffectsClassifier, FedCGSClassifier])
def test_a_column_in_other_units_is_named(make, factor):
    rows = AGES.copy()
    rows[SITES == "B", 0] *= factor
    messages = list(described(rows, ["age", "glucose", "noise"]))
    with pytest.warns(UserWarning, match="'B' stands out: its column 'age' is about"):
        make().server_aggregate(messages)
    with pytest.warns(UserWarning, match="'B' was left out: its column 'age'"):
        found = make(screen="exclude").server_aggregate(messages)
    assert list(found.clients_report_.left_out) == ["B"]


def test_columns_that_differ_otherwise_are_left_alone():
    """Neither an offset, nor a column around zero, nor one that varies less only."""
    rows = AGES.copy()
    rows[SITES == "B"] += [0, 0, 4]
    rows[SITES == "C", 1] = 100 + (rows[SITES == "C", 1] - 100) / 20
    messages = list(described(rows, ["age", "glucose", "noise"]))
    found = MixedEffectsClassifier().server_aggregate(messages)
    assert not found.clients_report_.outliers


@pytest.mark.parametrize("names", [None, ["age"]])
def test_features_without_names_of_their_own_are_not_judged_one_by_one(names):
    """Those of an encoder have one unit, and too few names are forged."""
    rows = AGES.copy()
    rows[SITES == "B", 0] /= 18
    found = MixedEffectsClassifier().server_aggregate(list(described(rows, names)))
    assert not found.clients_report_.outliers
