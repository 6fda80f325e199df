"""What stands out among clients, from what is known of each."""

import numpy as np
import pytest

from skslot import FedCGSClassifier
from skslot.statistics import class_means
from skslot.trust import ClientFacts, ClientsReport, examine_clients

RNG = np.random.default_rng(0)


def rows_of(n_clients, n_rows=60, n_features=6, seed=0):
    """Rows and labels of honest clients that differ a little."""
    rng = np.random.default_rng(seed)
    centres = 3 * rng.normal(size=(3, n_features))
    clients = {}
    for client in range(n_clients):
        y = rng.integers(3, size=n_rows)
        shift = rng.normal(size=n_features) + 5
        clients[client] = rng.normal(size=(n_rows, n_features)) + centres[y] + shift, y
    return clients


def facts_of(clients):
    return [
        ClientFacts.from_moments(
            client, len(X), X.mean(axis=0), X.var(axis=0), class_means(X, y)
        )
        for client, (X, y) in clients.items()
    ]


@pytest.mark.parametrize("n_clients", [1, 2, 3, 4, 10])
def test_honest_clients_do_not_stand_out(n_clients):
    report = examine_clients(facts_of(rows_of(n_clients)))
    assert report.outliers == {}
    assert sum(each.share for each in report) == pytest.approx(1)
    assert "no client stands out" in str(report)


POISON = {
    "larger": (lambda X, y: 1000 * X, "about .* times larger.*other units"),
    "smaller": (lambda X, y: X / 1000, "about .* times smaller.*other units"),
    "moved": (lambda X, y: X + 60, "ordinary distances away"),
    "one class": (lambda X, y: X + 1e3 * (y == 0)[:, None], "distances away|larger"),
}


@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("n_clients", [3, 4, 10])
def test_a_poisoned_client_stands_out_alone_and_with_the_reason(poison, n_clients):
    change, words = POISON[poison]
    clients = rows_of(n_clients)
    X, y = clients[1]
    clients[1] = change(X, y), y
    report = examine_clients(facts_of(clients))
    assert list(report.outliers) == [1]
    assert report[1].stands_out
    with pytest.warns(UserWarning, match=words):
        examine_clients(facts_of(clients), "warn")


@pytest.mark.parametrize("n_clients", [3, 5])
def test_a_class_mean_of_few_rows_stands_out_by_its_class(n_clients):
    clients = rows_of(n_clients, n_rows=500)
    facts = facts_of(clients)
    means = class_means(*clients[0])
    count, mean = means[2]
    means[2] = 3, mean + 60  # too few rows to move the mean of the client
    X = clients[0][0]
    facts[0] = ClientFacts.from_moments(0, len(X), X.mean(axis=0), X.var(axis=0), means)
    report = examine_clients(facts)
    assert list(report.outliers) == [0]
    assert "mean of class 2" in report.outliers[0]


def test_a_class_that_nobody_else_holds_is_measured_by_its_own_client():
    clients = rows_of(4, n_rows=500)
    facts = facts_of(clients)
    X, y = clients[0]
    means = {**class_means(X, y), "own": (1, X.mean(axis=0) + 200)}
    facts[0] = ClientFacts.from_moments(0, len(X), X.mean(axis=0), X.var(axis=0), means)
    assert "'own'" in examine_clients(facts).outliers[0]


def test_sketches_of_class_means_keep_distances():
    clients = rows_of(5, n_features=400)
    facts = facts_of(clients)
    first, second = (facts[each].sketches[0] for each in (0, 1))
    means = [class_means(*clients[each])[0][1] for each in (0, 1)]
    assert len(first) == 32
    expected = np.linalg.norm(means[0] - means[1])
    assert np.linalg.norm(first - second) == pytest.approx(expected, rel=0.4)


@pytest.mark.parametrize("n_clients", [2, 3, 8])
def test_a_wrong_count_stands_out(n_clients):
    facts = [ClientFacts(client, 50) for client in range(n_clients)]
    facts[1] = ClientFacts(1, 10**8)
    report = examine_clients(facts)
    assert list(report.outliers) == [1]
    assert "a wrong count?" in report.outliers[1]
    assert np.isnan(report[1].distance)


def test_ten_times_as_many_rows_are_no_wrong_count():
    facts = [ClientFacts(client, 10) for client in range(4)]
    assert examine_clients([*facts, ClientFacts(4, 400)]).outliers == {}


@pytest.mark.parametrize(("factor", "words"), [(1e3, "larger"), (1e-3, "smaller")])
def test_weights_of_a_head_stand_out(factor, words):
    heads = [RNG.normal(size=(3, 5)) for _ in range(4)]
    heads[2] = factor * heads[2]
    facts = [
        ClientFacts.from_moments(k, 10, head=(head, np.ones(3)))
        for k, head in enumerate(heads)
    ]
    report = examine_clients(facts)
    assert list(report.outliers) == [2]
    assert words in report.outliers[2]


def test_an_intercept_stands_out():
    head = RNG.normal(size=(3, 5))
    facts = [
        ClientFacts.from_moments(k, 10, head=(head, np.full(3, 1e6 if k == 1 else 1)))
        for k in range(4)
    ]
    assert list(examine_clients(facts).outliers) == [1]


def test_heads_of_a_single_class_are_zero_and_honest():
    head = RNG.normal(size=(3, 5))
    facts = [
        ClientFacts.from_moments(k, 10, head=(head * (k != 1), np.ones(3)))
        for k in range(4)
    ]
    assert examine_clients(facts).outliers == {}


def test_two_liars_of_five_do_not_hide_each_other():
    clients = rows_of(5)
    for client, factor in ((0, 1e3), (3, 1e6)):
        X, y = clients[client]
        clients[client] = factor * X, y
    assert list(examine_clients(facts_of(clients)).outliers) == [0, 3]


def test_those_that_remain_do_not_stand_out_when_looked_at_again():
    clients = rows_of(7)
    for client, factor in ((0, 50), (3, 1e6)):
        X, y = clients[client]
        clients[client] = factor * X, y
    facts = facts_of(clients)
    report = examine_clients(facts)
    kept = [each for each in facts if each.client not in report.outliers]
    again = examine_clients(kept)
    assert again.outliers == {}
    for each in again:
        assert each.distance == pytest.approx(report[each.client].distance)


def test_of_two_clients_the_larger_is_named_and_the_other_suspected_too():
    clients = rows_of(2)
    clients[1] = 1000 * clients[1][0], clients[1][1]
    report = examine_clients(facts_of(clients))
    assert list(report.outliers) == [1]
    assert "the other of the two" in report.outliers[1]


@pytest.mark.parametrize("n_clients", [2, 3, 6])
def test_clients_with_one_row_or_constant_rows_do_not_stand_out(n_clients):
    clients = rows_of(n_clients)
    clients["one row"] = clients[0][0][:1], clients[0][1][:1]
    clients["constant"] = np.ones((20, 6)), np.zeros(20, dtype=int)
    assert examine_clients(facts_of(clients)).outliers == {}


def test_clients_that_are_all_the_same_constant_do_not_stand_out():
    clients = {k: (np.zeros((5, 2)), np.zeros(5, dtype=int)) for k in range(4)}
    assert examine_clients(facts_of(clients)).outliers == {}


@pytest.mark.parametrize("n_clients", [2, 4])
def test_no_majority_is_an_error_to_leave_out(n_clients):
    clients = rows_of(n_clients)
    for client in range(n_clients // 2):
        X, y = clients[client]
        clients[client] = 1000.0 ** (client + 1) * X, y
    with pytest.raises(ValueError, match="would leave .* no measure .*features are"):
        examine_clients(facts_of(clients), "exclude")


def test_a_site_with_other_classes_does_not_stand_out():
    """Label shift moves means by what classes are apart, which is no error."""
    clients = rows_of(4, n_rows=200)
    for client, (X, y) in list(clients.items()):
        keep = y == (0 if client < 3 else 2)
        clients[client] = X[keep], y[keep]
    assert examine_clients(facts_of(clients)).outliers == {}


def test_report_survives_as_plain_data():
    report = examine_clients(facts_of(rows_of(3)))
    again = ClientsReport.from_dicts(report.to_dicts())
    assert str(again) == str(report)
    assert report.to_dicts()[0]["head_ratio"] is None


def test_later_figures_and_all_reasons_are_in_a_merged_report():
    features = examine_clients(facts_of(rows_of(3)))
    heads = [
        ClientFacts.from_moments(k, 10, head=(np.full((2, 2), 1e4 if k else 1.0),))
        for k in range(3)
    ]
    merged = features.merged(examine_clients(heads))
    assert merged[1].distance == features[1].distance
    assert "smaller" in merged[0].reason
    assert merged[0].head_ratio == pytest.approx(1e-4)


def test_messages_are_examined_as_the_server_step_does():
    clients = rows_of(4)
    clients[1] = 1000 * clients[1][0], clients[1][1]
    site = FedCGSClassifier(screen=None)
    messages = [site.client_update(*rows, client=c) for c, rows in clients.items()]
    report = examine_clients(iter(messages))
    assert list(report.outliers) == [1]
    assert str(report) == str(site.server_aggregate(messages).clients_report_)
    assert str(report) == str(examine_clients([m.facts() for m in messages]))


def test_names_that_would_break_lines_are_quoted():
    report = examine_clients([ClientFacts("a\nclient b", 5), ClientFacts("c", 5)])
    assert r"'a\nclient b'" in str(report)


def test_of_many_clients_those_that_stand_out_and_the_farthest_are_listed():
    clients = rows_of(60)
    clients[7] = 1000 * clients[7][0], clients[7][1]
    text = str(examine_clients(facts_of(clients))).splitlines()
    assert len(text) == 1 + 20 + 2
    assert sum(line.split()[0] == "7" for line in text) == 1
    assert text[-2] == "and 40 clients that are nearer to the others"
