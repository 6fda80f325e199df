"""Secure aggregation: the server learns sums, they are right, and it learns no more."""

import logging

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chisquare
from sklearn.pipeline import make_pipeline

from skslot import (
    FedAvgClassifier,
    FedCGSClassifier,
    FedCOFClassifier,
    FederatedOTAligner,
    FedPFTClassifier,
    FedRidgeClassifier,
    MixedEffectsAligner,
    MixedEffectsClassifier,
)
from skslot.exchange import ClassStatistics, LinearModel
from skslot.flower import SecureAggregation, make_client_app, make_server_app
from skslot.flower._secure import SECRETS, STEPS, VECTOR, FixedPoint, SecureSteps

SETTINGS = SecureAggregation(clip_norm=100.0, max_samples=10_000)
SITES = ["fax", "flatbed", "microfilm", "phone"]
OTHERS = SITES[1:]


@pytest.fixture
def secure(federate):
    """Function that runs a classifier with secure aggregation over a local grid."""

    def run(sites=SITES, *, settings=SETTINGS, client=None, **options):
        client = {
            "classes": range(10),
            "secure_aggregation": settings,
            **(client or {}),
        }
        estimator = options.pop("estimator", FedCGSClassifier())
        options = {"secure_aggregation": settings, **options}
        return federate(estimator, sites, client=client, **options)

    return run


@pytest.fixture
def app_of(rows_of):
    """Function that makes the app of a site, with other options than the rest."""

    def make(name="fax", load_data=None, **options):
        options = {"classes": range(10), "secure_aggregation": SETTINGS, **options}
        load_data = load_data or (lambda context: rows_of(name))
        return make_client_app(load_data, FedCGSClassifier(), **options)

    return make


@pytest.fixture
def plain(digits):
    """Function that fits a classifier to the rows of some sites."""
    X, y, site = digits

    def fit(names=SITES, estimator=None, clip_norm=np.inf):
        rows = np.isin(site, names)
        norms = np.linalg.norm(X[rows], axis=1, keepdims=True)
        clipped = X[rows] * np.minimum(1.0, clip_norm / norms)
        return (estimator or FedCGSClassifier()).fit(clipped, y[rows])

    return fit


def check_model(model, expected):
    """The model is the expected one, but for rounding."""
    unit = np.abs(expected.coef_).max()
    assert model.classes == expected.classes_.tolist()
    assert_allclose(model.coef / unit, expected.coef_ / unit, rtol=0, atol=1e-10)
    assert_allclose(model.intercept, expected.intercept_, rtol=1e-9)


# ----------------------------------------------------------------- it is right


@pytest.mark.parametrize(
    "estimator",
    [
        FedCGSClassifier(),
        FedCGSClassifier("within", wire_dtype="float16"),
        FedCGSClassifier("identity", priors="uniform"),
        FedRidgeClassifier(),
        FedRidgeClassifier.as_fed3r(),
    ],
)
def test_all_get_the_classifier_of_a_plain_run(estimator, secure, plain):
    report, folder, received = secure(estimator=estimator, client={"encoder": "pixels"})
    expected = plain(estimator=estimator.set_params(wire_dtype="float64"))
    assert [record.status for record in report.clients] == ["done"] * 4
    assert not (folder / "reference.slot").exists()
    for name in SITES:
        assert (received[name].client, received[name].encoder) == (name, "pixels")
        check_model(received[name], expected)
    check_model(LinearModel.load(folder / "model.slot"), expected)


def test_report_has_what_sums_are_of(secure):
    report, _, _ = secure()
    assert report.note == (
        "secure aggregation: 1797 rows of 4 clients, 0 of them shortened to norm 100; "
        "off by rounding: class sums by 3.6e-12 and second moments by 4.7e-10 at most"
    )
    assert str(report).endswith(report.note)


def test_long_rows_are_shortened_and_counted(secure, plain, caplog):
    settings = SecureAggregation(clip_norm=70.0, max_samples=10_000)
    with caplog.at_level(logging.WARNING):
        report, folder, _ = secure(settings=settings)
    expected = plain(clip_norm=70.0)
    check_model(LinearModel.load(folder / "model.slot"), expected)
    assert "260 of them shortened to norm 70" in report.note
    assert "251 of 449 rows were longer than clip_norm=70" in caplog.text


@pytest.mark.parametrize("clip_norm", [1e-3, 1.0, 3.0, 1e6])
def test_sums_are_off_by_no_more_than_stated(clip_norm):
    rng = np.random.default_rng(0)
    settings = SecureAggregation(clip_norm=clip_norm, max_samples=2**30)
    numbers = FixedPoint(settings, n_clients=5, n_classes=2, n_features=3)
    classifier, total, exact = FedCGSClassifier(), 0, [0, 0, 0]
    for _ in range(5):
        X = rng.normal(size=(50, 3))
        X *= clip_norm / np.linalg.norm(X, axis=1, keepdims=True)
        message = classifier.client_update(X, np.arange(50) % 2)
        total = total + numbers.encode(message, 7)
        exact = [a + b for a, b in zip(exact, message.sums(), strict=True)]
    counts, n_clipped, sums, moment = numbers.decode(total)
    bounds = settings.rounding(5)
    assert n_clipped == 35
    assert (counts == exact[0]).all()
    for found, expected, bound in (
        (sums, exact[1], bounds["class sums"]),
        (moment, exact[2], bounds["second moments"]),
    ):
        error = np.abs(found - expected).max()
        assert 0.05 * bound < error <= bound * (1 + 1e-6)


class Extreme:
    """Sums of a client that has as many rows as may be, all of them as long."""

    def __init__(self, settings, direction):
        self.size = settings.max_samples
        self.row = settings.clip_norm * np.array(direction)

    def sums(self):
        moment = self.size * np.outer(self.row, self.row)
        return np.array([self.size]), self.size * self.row[None, :], moment


@pytest.mark.parametrize("n_clients", [3, 200])
@pytest.mark.parametrize("max_samples", [1, 1000, 2**20, 2**40])
@pytest.mark.parametrize("clip_norm", [2.0, 2.1, 1e-4])
def test_largest_sums_do_not_wrap(n_clients, max_samples, clip_norm):
    settings = SecureAggregation(clip_norm, max_samples)
    numbers = FixedPoint(settings, n_clients, 1, 2)
    for direction in ([1, 0], [-1, 0], [0.6, -0.8]):
        one = Extreme(settings, direction)
        total = numbers.encode(one, max_samples) * np.uint64(n_clients)
        found = numbers.decode(total)
        for sums, of_one in zip((found[0], *found[2:]), one.sums(), strict=True):
            assert_allclose(sums, n_clients * of_one, rtol=1e-12)


def test_rows_whose_squares_overflow_are_shortened_too():
    steps = SecureSteps(SecureAggregation(10.0, 100), [0, 1])
    X = np.array([[3e200, -4e200], [0.0, 1e308], [3.0, 4.0]])
    clipped, n_clipped = steps.clip(X)
    assert_allclose(clipped, [[6.0, -8.0], [0.0, 10.0], [3.0, 4.0]], rtol=1e-12)
    assert n_clipped == 2


def test_features_that_do_not_vary_are_no_trouble(secure, app_of, rows_of):
    """Rounding must not make their variance negative."""

    def with_constants(name):
        def load_data(context):
            X, y, _ = rows_of(name)
            return np.hstack([X, np.full((len(X), 3), [0.1, 17.3, 1e-3])]), y, name

        return app_of(load_data=load_data)

    report, folder, _ = secure([with_constants(name) for name in SITES])
    assert report.status == "completed"
    model = LinearModel.load(folder / "model.slot")
    unit = np.abs(model.coef).max()
    assert_allclose(model.coef[:, 64:] / unit, 0.0, atol=1e-6)


# -------------------------------------------------------------- who is missing


def failing_from(step, app):
    """The app, which breaks down when it is asked for a step, and stays so."""
    broken = []

    def answer(message, context):
        if broken or message.metadata.message_type == f"query.{step}":
            broken.append(step)
            raise RuntimeError("gone")
        return app(message, context)

    return answer


@pytest.mark.parametrize("step", STEPS)
def test_site_that_drops_out_is_left_out_of_the_sum(step, secure, app_of, plain):
    """But for one that has sent its numbers already."""
    site = failing_from(step, app_of("fax"))
    report, folder, received = secure([*OTHERS, site], min_clients=3)
    expected = plain(SITES if step == "reveal" else OTHERS)
    check_model(LinearModel.load(folder / "model.slot"), expected)
    (record,) = report.left_out
    assert (record.node, record.step, record.code) == ("14", step, "app_failed")
    assert sorted(received) == OTHERS
    assert f"of {3 + (step == 'reveal')} clients" in report.note


def test_sites_may_drop_out_one_after_the_other(secure, app_of, digits):
    """Of six that join, four are enough."""
    X, y, _ = digits

    def part(number):
        def load_data(context):
            return X[number::7], y[number::7], f"part {number}"

        return app_of(load_data=load_data)

    sites = [part(number) for number in range(7)]
    for number, step in ((1, "keys"), (3, "shares"), (5, "masked")):
        sites[number] = failing_from(step, sites[number])
    report, folder, _ = secure(sites, min_clients=3)
    assert [record.step for record in report.left_out] == ["keys", "shares", "masked"]
    rows = np.isin(np.arange(len(y)) % 7, [0, 2, 4, 6])
    expected = FedCGSClassifier().fit(X[rows], y[rows])
    check_model(LinearModel.load(folder / "model.slot"), expected)


@pytest.mark.parametrize("step", STEPS)
def test_too_many_drop_outs_end_the_run(step, secure, app_of):
    """Of four clients, three must answer whatever min_clients is."""
    broken = [failing_from(step, app_of(name)) for name in SITES[:2]]
    report, folder, received = secure([*broken, *SITES[2:]], min_clients=1, fails=True)
    assert report.status == "aborted"
    assert report.reason == (
        f"2 of 4 clients answered the step {step!r} with what can be used, but 3 are "
        "needed to add up and to take off masks."
    )
    assert not (folder / "model.slot").exists()
    assert received == {}


def test_all_must_answer_unless_said_otherwise(secure, app_of):
    site = failing_from("masked", app_of("fax"))
    report, _, _ = secure([*OTHERS, site], fails=True)
    assert "3 of 4 clients answered the step 'masked'" in report.reason


def test_two_clients_are_too_few(secure):
    report, _, received = secure(["fax", "phone"], fails=True)
    assert report.reason == (
        "secure aggregation takes 3 to 200 clients, but 2 are there."
    )
    assert received == {}


def test_shares_that_do_not_fit_end_the_run(secure, app_of):
    def liar(message, context):
        reply = app(message, context)
        if message.metadata.message_type == "query.reveal":
            data = reply.content["skslot"]["message"]
            reply.content["skslot"]["message"] = bytes(reversed(data))
        return reply

    app = app_of("fax")
    report, folder, _ = secure([liar, *OTHERS], fails=True)
    assert "shares that clients revealed do not fit together" in report.reason
    assert not (folder / "model.slot").exists()


@pytest.mark.parametrize("step", STEPS[1:])
@pytest.mark.parametrize("data", [b"", b"short", bytes(60)])
def test_answers_of_another_length_leave_a_site_out(step, data, secure, app_of):
    def odd(message, context):
        reply = app(message, context)
        if message.metadata.message_type == f"query.{step}":
            reply.content["skslot"]["message"] = data
        return reply

    app = app_of("fax")
    report, _, _ = secure([odd, *OTHERS], min_clients=3)
    assert report.status == "completed"
    (record,) = report.left_out
    assert record.step == step
    assert record.code in ("refused", "malformed")


# ------------------------------------------------------- sums that cannot be used


@pytest.mark.parametrize("clip_norm", [1e9, 1e150])
def test_rounding_that_hides_how_rows_vary_ends_the_run(clip_norm, secure):
    settings = SecureAggregation(clip_norm, max_samples=10_000)
    report, folder, received = secure(settings=settings, fails=True)
    assert "the sums could not be read: rounding may be" in report.reason
    assert "Take a clip_norm and max_samples that are closer" in report.reason
    assert not (folder / "model.slot").exists()
    assert received == {}


def test_site_that_does_not_shorten_its_rows_ends_the_run(secure, monkeypatch):
    monkeypatch.setattr(SecureSteps, "clip", lambda self, X: (X, 0))
    settings = SecureAggregation(clip_norm=20.0, max_samples=10_000)
    report, folder, _ = secure(settings=settings, fails=True)
    assert "they are of rows longer than clip_norm=20" in report.reason
    assert not (folder / "model.slot").exists()


@pytest.mark.parametrize(
    ("sums", "moment", "match"),
    [
        ([[7.0, 8.0]], 50 * np.eye(2), "rows longer than clip_norm=1"),
        ([[0.0, 0.0]], 5.1 * np.eye(2), "rows longer than clip_norm=1"),
        ([[8.0, 0.0]], 5 * np.eye(2), "squares of feature 0 .* is -1.4"),
        ([[0.0, 0.0]], 1e-12 * np.eye(2), "rounding may be"),
    ],
)
def test_sums_of_no_rows_are_refused(sums, moment, match):
    class Forged:
        def sums(self):
            return np.array([10]), np.array(sums), moment

    numbers = FixedPoint(SecureAggregation(1.0, 2**20), 3, 1, 2)

    def read():
        counts, _, *found = numbers.decode(numbers.encode(Forged(), 0))
        return numbers.pooled([0], counts, *found)

    with pytest.raises(ValueError, match=match):
        read()


# ------------------------------------------------------------ what is agreed on


@pytest.mark.parametrize(
    ("options", "detail"),
    [
        ({"classes": range(11)}, "its list of classes is"),
        ({"encoder": "vit"}, "its encoder is 'vit'"),
        (
            {"secure_aggregation": SecureAggregation(99.0, 10_000)},
            "its settings is 'clip_norm=99.0, max_samples=10000, min_clients=3'",
        ),
    ],
)
def test_site_with_other_settings_is_left_out(options, detail, secure, app_of):
    report, _, _ = secure([*OTHERS, app_of("fax", **options)], min_clients=3)
    (record,) = report.left_out
    assert (record.client, record.step, record.code) == ("fax", "keys", "misfit")
    assert detail in record.detail


def test_server_with_other_settings_ends_the_run(secure):
    other = SecureAggregation(clip_norm=99.0, max_samples=10_000)
    report, _, _ = secure(fails=True, secure_aggregation=other)
    assert "the clients has clip_norm=100.0" in report.reason
    assert "the server has clip_norm=99.0" in report.reason


def test_settings_may_be_whole_or_decimal_numbers(secure):
    report, _, _ = secure(secure_aggregation=SecureAggregation(100, 1e4))
    assert report.status == "completed"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"min_samples": 400}, "too_few_rows"),
        ({"secure_aggregation": SecureAggregation(100.0, 400)}, "too_many_rows"),
    ],
)
def test_site_that_may_not_take_part_says_so_at_once(options, code, secure, app_of):
    report, _, _ = secure([*OTHERS, app_of("fax", **options)], min_clients=3)
    (record,) = report.left_out
    assert (record.step, record.code) == ("keys", code)


@pytest.mark.parametrize(
    ("estimator", "match"),
    [
        (FederatedOTAligner(), "with FederatedOTAligner: alignment needs mean and cov"),
        (MixedEffectsAligner(), "with MixedEffectsAligner: alignment needs"),
        (FedCGSClassifier(aligner=FederatedOTAligner()), "with FederatedOTAligner"),
        (
            make_pipeline(FederatedOTAligner(), FedCGSClassifier()),
            "with FederatedOTAligner",
        ),
        (
            MixedEffectsClassifier(),
            "with MixedEffectsClassifier: its server step",
        ),
        (FedPFTClassifier(), "with FedPFTClassifier: its server step"),
        (FedCOFClassifier(), "with FedCOFClassifier: its server step"),
        (FedAvgClassifier(), "with FedAvgClassifier: its server step"),
    ],
)
def test_what_needs_more_than_sums_is_refused_at_once(estimator, match):
    options = {"secure_aggregation": SETTINGS}
    with pytest.raises(ValueError, match=match):
        make_server_app(estimator, **options)
    with pytest.raises(ValueError, match=match):
        make_client_app(lambda context: None, estimator, classes=[0, 1], **options)


def test_classes_must_be_agreed_on():
    with pytest.raises(ValueError, match="secure_aggregation needs classes="):
        make_client_app(print, FedCGSClassifier(), secure_aggregation=SETTINGS)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"clip_norm": 0.0}, "clip_norm must be positive"),
        ({"clip_norm": np.inf}, "clip_norm must be positive"),
        ({"max_samples": 0}, "max_samples must be from 1"),
        ({"min_clients": 2}, "of two clients, each knows the other's"),
        ({"min_clients": 201}, "min_clients must be from 3 to 200"),
    ],
)
def test_settings_that_cannot_be(options, match):
    with pytest.raises(ValueError, match=match):
        SecureAggregation(**{"clip_norm": 1.0, "max_samples": 10, **options})


# ------------------------------------------------------- what the server sees


@pytest.fixture
def seen(monkeypatch):
    """All bytes that a server is sent, by the step that they answer."""
    from skslot.flower import _server

    read, log = _server.read_reply, {}

    def read_and_note(reply):
        answer = read(reply)
        step = reply.metadata.message_type.removeprefix("query.")
        log.setdefault(step, []).append(answer.data)
        return answer

    monkeypatch.setattr(_server, "read_reply", read_and_note)
    return log


def words_in(data):
    """All numbers of eight bytes in some bytes, wherever they begin."""
    n = len(data)
    parts = [np.frombuffer(data[i : n - (n - i) % 8], "<u8") for i in range(8)]
    return np.unique(np.concatenate(parts))


@pytest.fixture
def numbers_of(rows_of):
    """Function for all numbers of one client that a server could have seen."""

    def numbers(name):
        X, y, _ = rows_of(name)
        message = FedCGSClassifier().client_update(X, y, classes=range(10))
        _, sums, moment = message.sums()
        floats = [message.means, message.covariance, sums, moment, X[:10], message.mean]
        fixed = FixedPoint(SETTINGS, 4, 10, 64).encode(message, 0)[11:]
        words = [np.ravel(part).view(np.uint64) for part in floats]
        return np.unique(np.concatenate([fixed, *words])), fixed

    return numbers


def test_server_is_sent_no_number_of_a_client(secure, seen, numbers_of):
    _, folder, _ = secure()
    assert {step: len(data) for step, data in seen.items()} == {
        **dict.fromkeys(STEPS, 4),
        "result": 4,
    }
    sent = [data for step in STEPS for data in seen[step]]
    files = [path.read_bytes() for path in folder.iterdir()]
    assert {path.name for path in folder.iterdir()} == {"model.slot", "report.json"}
    for name in SITES:
        numbers, _ = numbers_of(name)
        assert len(numbers) > 5000
        for data in sent + files:
            assert not np.isin(words_in(data), numbers).any()


def test_a_plain_run_would_not_pass_that_test(federate, seen, numbers_of):
    federate(FedCGSClassifier(), client={"classes": range(10)})
    numbers, _ = numbers_of("fax")
    assert any(
        np.isin(words_in(data), numbers).sum() > 1000 for data in seen["summary"]
    )


def test_masked_vectors_look_like_noise(secure, seen, numbers_of):
    """All bytes are equally frequent, and nothing follows the numbers below."""
    secure()
    vectors = [VECTOR.from_bytes(data) for data in seen["masked"]]
    fixed = [numbers_of(name)[1].view(np.int64) for name in SITES]
    for vector in vectors:
        counts = np.bincount(vector.view(np.uint8), minlength=256)
        assert chisquare(counts).pvalue > 1e-6
        masked = vector[11:].view(np.int64).astype(np.float64)
        for plain in fixed:
            assert abs(np.corrcoef(masked, plain)[0, 1]) < 0.1
    # but for the sum, any of them look like noise together
    partial = vectors[0] + vectors[1] + vectors[2]
    counts = np.bincount(partial.view(np.uint8), minlength=256)
    assert chisquare(counts).pvalue > 1e-6


def test_no_mask_is_used_twice(secure, seen):
    secure()
    secure()
    first, second = seen["masked"][:4], seen["masked"][4:]
    for one, other in zip(first, second, strict=True):
        apart = VECTOR.from_bytes(one) - VECTOR.from_bytes(other)
        counts = np.bincount(apart.view(np.uint8), minlength=256)
        assert chisquare(counts).pvalue > 1e-6


@pytest.mark.parametrize("step", ["summary", "statistics", "scale", "training"])
def test_a_site_never_sends_its_message(step, app_of, request_of, context):
    reply = app_of()(request_of(f"query.{step}"), context)
    assert dict(reply.content["skslot"]) == {"code": "unknown_request"}


def test_server_without_secure_aggregation_gets_nothing(secure):
    report, _, received = secure(fails=True, secure_aggregation=None)
    assert [record.code for record in report.left_out] == ["unknown_request"] * 4
    assert received == {}


def test_masks_of_flower_still_come_from_32_bits():
    """If not, the guide is to be changed, and Flower's workflow looked at again."""
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

    keys = bytes(32), bytes(range(16)) * 2
    one, other = (pseudo_rand_gen(key, 2**32, [(100,)])[0] for key in keys)
    assert (one == other).all()


# ----------------------------------------------------- what a client looks out for


@pytest.fixture
def clients(rows_of):
    """Four clients that have joined, by the state that Flower keeps for each."""

    class Client:
        def __init__(self, name):
            self.steps, self.state = SecureSteps(SETTINGS, range(10)), {}
            X, y, _ = rows_of(name)
            self.message = FedCGSClassifier().client_update(
                X, y, classes=range(10), client=name
            )
            self.ask("keys")
            secrets = self.state[SECRETS]
            self.secrets = [secrets[name] for name in ("channel", "pair", "own")]

        def ask(self, step, **contents):
            def summarize():
                return self.message, 0

            return self.steps.answer(step, contents, summarize, self.state, dict)

        @property
        def numbers(self):
            from skslot.flower._masked_sum import Member

            return Member(**self.state[SECRETS]).public_numbers()

    return [Client(name) for name in SITES]


@pytest.fixture
def after_masked(clients):
    """The same after all have sent their masked vectors, and what they sent before."""
    members = np.stack([client.numbers for client in clients])
    sealed = np.stack(
        [
            np.frombuffer(client.ask("shares", members=members), np.uint8)
            for client in clients
        ]
    ).reshape(4, 4, -1)
    for index, client in enumerate(clients):
        client.ask("masked", sealed=sealed[:, index])
    return clients


def test_client_is_in_a_list_of_members_with_its_own_keys(clients):
    members = np.stack([client.numbers for client in clients])
    members[0, 1] = members[1, 1] ^ 1
    with pytest.raises(ValueError, match="keys of this client are not in the list"):
        clients[0].ask("shares", members=members)


@pytest.mark.parametrize("chosen", [[0, 1], [0, 1, 1], [0, 0, 1, 2]])
def test_client_is_in_no_sum_of_few_or_of_the_same(chosen, clients):
    members = np.stack([clients[index].numbers for index in chosen])
    with pytest.raises(ValueError, match="would be of 2|same key|not in the list"):
        clients[0].ask("shares", members=members)


def test_client_adds_no_mask_for_less_than_the_threshold(clients):
    members = np.stack([client.numbers for client in clients])
    data = [client.ask("shares", members=members) for client in clients]
    sealed = np.stack([np.frombuffer(d, np.uint8).reshape(4, -1)[0] for d in data])
    sealed[2:] = 0
    with pytest.raises(ValueError, match="2 members sent shares, 3 must"):
        clients[0].ask("masked", sealed=sealed)


def test_shares_that_were_changed_or_sent_back_are_refused(clients):
    from cryptography.exceptions import InvalidTag

    members = np.stack([client.numbers for client in clients])
    data = [client.ask("shares", members=members) for client in clients]
    sealed = np.stack([np.frombuffer(d, np.uint8).reshape(4, -1) for d in data])
    inbox = sealed[:, 0].copy()
    inbox[1] = sealed[0, 1]  # what it sent to the other itself
    with pytest.raises(InvalidTag):
        clients[0].ask("masked", sealed=inbox)


@pytest.mark.parametrize(
    ("arrived", "match"),
    [
        ([0, 1, 1, 1], "this client is said to be missing"),
        ([1, 1, 0, 0], "2 vectors arrived, 3 must"),
        ([1, 1, 1], "this client is said to be missing"),
    ],
)
def test_client_reveals_nothing_for_sums_of_few(arrived, match, after_masked):
    with pytest.raises(ValueError, match=match):
        after_masked[0].ask("reveal", arrived=np.array(arrived, bool))


def test_client_reveals_one_of_two_shares_and_forgets_its_secrets(after_masked):
    client = after_masked[0]
    held = np.frombuffer(client.state[SECRETS]["held"], np.uint8).reshape(4, 2, 16)
    data = client.ask("reveal", arrived=np.array([1, 1, 1, 0], bool))
    revealed = np.frombuffer(data, np.uint8).reshape(4, 16)
    assert (revealed[:3] == held[:3, 1]).all()
    assert (revealed[3] == held[3, 0]).all()
    assert client.state == {}
    with pytest.raises(KeyError):
        client.ask("reveal", arrived=np.ones(4, bool))


def test_secrets_are_not_sent(clients, seen, secure):
    """Neither as they are, nor to others than their shares need."""
    members = np.stack([client.numbers for client in clients])
    sent = members.tobytes() + clients[0].ask("shares", members=members)
    for secret in clients[0].secrets:
        assert len(secret) == 16
        assert secret not in sent


def test_pooled_message_is_an_ordinary_one(secure, monkeypatch):
    taken = []
    learn = FedCGSClassifier._learn

    def note(self, messages, seed):
        taken.extend(messages)
        return learn(self, messages, seed)

    monkeypatch.setattr(FedCGSClassifier, "_learn", note)
    secure(client={"encoder": "pixels"})
    (message,) = taken
    assert isinstance(message, ClassStatistics)
    assert (message.n_samples, message.client, message.encoder) == (
        1797,
        None,
        "pixels",
    )
