"""``skslot predict``: labels at a site, by a model from the server."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from four_sites import (
    CLIENTS,
    NAMES,
    SITES,
    X,
    Y,
    error_of,
    message_of,
    read_predictions,
    run,
    write_table,
)

from skslot import FedCGSClassifier, FederatedOTAligner, MixedEffectsClassifier
from skslot.datasets import load_digit_scanners
from skslot.exchange import AlignedModel, LinearModel, MixedEffectsModel


def test_reordered_columns_are_refused(server, capsys):
    for client in SITES:
        write_table(f"{client}.csv", client)
        command = f"summarize {client}.csv --labels diagnosis --client {client}"
        assert run(f"{command} --min-samples 1 -o {client}.slot --force") == 0
    assert run("aggregate ?.slot --site-models models") == 0
    command = "predict {} --labels diagnosis --model models/A.model.slot -o out.csv"
    write_table("new.csv", columns=NAMES[::-1])
    error = error_of(command.format("new.csv"), capsys)
    assert "in another order" in error
    assert run(command.format("A.csv")) == 0
    n_rows = (CLIENTS == "A").sum()
    assert re.search(
        rf"accuracy: \d\d\.\d\d% of {n_rows} rows", capsys.readouterr().out
    )


def test_predictions_stand_beside_what_identifies_the_rows(server):
    assert run("aggregate *.slot --site-models models") == 0
    np.savez("all.npz", X=X, client=CLIENTS, path=np.char.add("p", CLIENTS))
    assert run("predict all.npz --model models/B.model.slot -o out.csv") == 0
    frame = pd.read_csv("out.csv")
    assert list(frame)[:4] == ["row", "client", "path", "prediction"]
    assert list(frame)[4:] == [f"probability_{label}" for label in np.unique(Y)]
    assert np.array_equal(frame["row"], np.flatnonzero(CLIENTS == "B") + 1)
    assert set(frame["path"]) == {"pB"}


def test_names_of_columns_are_not_about_rows(server):
    """Although there may be as many."""
    assert run("aggregate *.slot --model global.slot --dtype float64") == 0
    np.savez("six.npz", X=X[:6], columns=np.array(NAMES))
    command = "predict six.npz --model global.slot --statistics A.slot -o six.csv"
    assert run(command) == 0
    assert "columns" not in pd.read_csv("six.csv")


@pytest.mark.parametrize("name", ["prediction", "probability_cat"])
def test_columns_of_the_predictions_are_not_taken_by_others(server, name, capsys):
    assert run("aggregate *.slot --site-models .") == 0
    capsys.readouterr()
    rows = CLIENTS == "A"
    np.savez("A.npz", X=X[rows], **{name: np.arange(rows.sum())})
    error = error_of("predict A.npz --model A.model.slot -o out.csv", capsys)
    assert f"has a column {name!r} already" in error


def test_client_that_is_a_number(site):
    rows = CLIENTS == "A"
    classifier = FedCGSClassifier(aligner=FederatedOTAligner())
    message = classifier.client_update(X[rows], Y[rows], client=3)
    message.save("3.slot", min_samples=1)
    assert run("aggregate 3.slot --model global.slot --site-models .") == 0
    np.savez("all.npz", X=X[rows], client=np.full(rows.sum(), 3))
    command = "predict all.npz --client 3 -o {}.csv --model {}"
    assert run(command.format("a", "global.slot --statistics 3.slot")) == 0
    assert run(command.format("b", "3.model.slot")) == 0
    assert np.array_equal(read_predictions("a.csv")[0], read_predictions("b.csv")[0])


def test_model_of_another_client_is_refused(server, capsys):
    assert run("aggregate *.slot --site-models models") == 0
    capsys.readouterr()
    np.save("f.npy", X)
    command = "predict f.npy --model models/B.model.slot --client A -o out.csv"
    assert "is for client 'B', not for 'A'" in error_of(command, capsys)


@pytest.fixture
def global_model(server, capsys):
    """The model of all sites, beside the features of all of them."""
    command = "aggregate ?.slot --method fedcgs --model global.slot --dtype float64"
    assert run(command) == 0
    np.savez("all.npz", X=X, client=CLIENTS)
    capsys.readouterr()
    return AlignedModel.load("global.slot")


def test_model_of_all_sites_takes_the_map_of_the_rows(global_model, capsys):
    assert run("predict all.npz --model global.slot --client B -o rows.csv") == 0
    n_rows = (CLIENTS == "B").sum()
    assert f"alignment estimated from {n_rows} rows of all.npz" in (
        capsys.readouterr().out
    )
    command = "predict all.npz --model global.slot --statistics B.slot -o sent.csv"
    assert run(command) == 0
    assert "estimated" not in capsys.readouterr().out
    of_rows, of_sent = read_predictions("rows.csv"), read_predictions("sent.csv")
    np.testing.assert_allclose(of_rows[1], of_sent[1], atol=1e-6)
    assert len(of_rows[0]) == n_rows


def test_accuracy_of_each_part_of_a_split(global_model, capsys):
    """However its parts are spelled."""
    split = np.where(np.arange(len(X)) % 2, "Training", "dev")
    np.savez("split.npz", X=X, y=Y, client=CLIENTS, split=split)
    command = "predict split.npz --model global.slot --labels --client B -o out.csv"
    assert run(command) == 0
    printed = capsys.readouterr().out
    n_train = (split[CLIENTS == "B"] == "Training").sum()
    assert re.search(rf"accuracy of split train: .*% of {n_train} rows", printed)
    assert "accuracy of split validation: " in printed
    assert set(pd.read_csv("out.csv")["split"]) == {"Training", "dev"}


def test_new_rows_are_moved_by_the_map_of_what_was_sent(global_model):
    rows = X[CLIENTS == "B"]
    np.savez("few.npz", X=rows[:3])
    np.savez("many.npz", X=rows)
    for name in ("few", "many"):
        command = f"predict {name}.npz --model global.slot --statistics B.slot"
        assert run(f"{command} -o {name}.csv") == 0
    few, many = read_predictions("few.csv"), read_predictions("many.csv")
    np.testing.assert_allclose(few[1], many[1][:3], atol=1e-12)


def test_rows_that_the_statistics_do_not_describe_are_noticed(global_model, capsys):
    np.savez("same.npz", X=X[CLIENTS == "B"])
    np.savez("other.npz", X=5 * X[CLIENTS == "B"])
    for name in ("same", "other"):
        command = f"predict {name}.npz --model global.slot --statistics B.slot"
        assert run(f"{command} -o {name}.csv") == 0
        printed = capsys.readouterr()
        assert f"client B: {(CLIENTS == 'B').sum()} rows\n" in printed.out
        assert ("times as much" in printed.err) == (name == "other")


@pytest.mark.parametrize("method", ["mixed", "fedcgs"])
def test_rows_of_another_site_are_noticed(tmp_path, monkeypatch, capsys, method):
    """They spread as the right ones do, but around another mean."""
    monkeypatch.chdir(tmp_path)
    data = load_digit_scanners()
    X, y, sites = data.data, data.target, data.client_ids
    aligner = FederatedOTAligner()
    for site in np.unique(sites):
        rows = np.flatnonzero(sites == site)
        sent, later = rows[::2], rows[1::2]
        classifier = FedCGSClassifier(aligner=aligner)
        message = classifier.client_update(X[sent], y[sent], client=str(site))
        message.save(f"{site}.slot")
        np.savez(f"{site}.npz", X=X[later])
        np.savez(f"{site}-skewed.npz", X=X[later[y[later] < 3]])
    assert run(f"aggregate *.slot --model m.slot --method {method}") == 0
    capsys.readouterr()
    for rows, warned in {"microfilm": 0, "microfilm-skewed": 0, "fax": 1}.items():
        command = f"predict {rows}.npz --model m.slot --statistics microfilm.slot"
        assert run(f"{command} -o {rows}.csv") == 0
        assert capsys.readouterr().err.count("are they of client 'microfilm'") == warned


def test_site_that_sent_nothing_uses_the_model_of_all(global_model):
    newcomer = X[CLIENTS == "A"] * 2 + 5
    np.savez("new.npz", X=newcomer)
    assert run("predict new.npz --model global.slot -o new.csv") == 0
    aligner = FederatedOTAligner(tau=0.4)
    statistics = aligner.client_update(newcomer)
    aligned = aligner.client_map(statistics, global_model.reference).transform(newcomer)
    scores = aligned @ global_model.coef.T + global_model.intercept
    expected = np.array(global_model.classes)[scores.argmax(axis=1)]
    assert np.array_equal(read_predictions("new.csv")[0], expected.astype(str))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("all.npz --model global.slot", "rows of several clients .*choose one by --cl"),
        ("few.npz --model global.slot", "has 3 rows to estimate .*--statistics FILE"),
        ("few.npz --model global.slot --statistics B.slot --client A", "from client"),
        ("few.npz --model B.slot", "kind 'class statistics', not a model"),
        ("few.npz --model B.model.slot --statistics B.slot", "leave --statistics out"),
        ("few.npz --model global.slot --statistics global.slot", "aligned model"),
    ],
)
def test_wrong_use_of_a_model(global_model, options, expected, capsys):
    np.savez("few.npz", X=X[:3])
    assert run("aggregate B.slot --site-models .") == 0
    capsys.readouterr()
    assert re.search(expected, error_of(f"predict {options} -o out.csv", capsys))
    assert not Path("out.csv").exists()


# ------------------------------------------------------------- mixed effects


@pytest.fixture
def mixed_model(tmp_path, monkeypatch, capsys):
    """The model of A, B and C, beside the features of all."""
    monkeypatch.chdir(tmp_path)
    for client in SITES:
        message_of(client).save(f"{client}.slot", "float64", min_samples=1)
    command = "aggregate A.slot B.slot C.slot --model global.slot --site-models ."
    assert run(f"{command} --dtype float64") == 0
    np.savez("all.npz", X=X, client=CLIENTS)
    capsys.readouterr()
    return MixedEffectsModel.load("global.slot")


def test_site_predicts_as_the_server_would(mixed_model, capsys):
    command = "predict all.npz --model global.slot --statistics B.slot -o sent.csv"
    assert run(command) == 0
    printed = capsys.readouterr()
    assert "estimated" not in printed.out
    assert printed.err == ""
    assert run("predict all.npz --model B.model.slot -o server.csv") == 0
    sent, server = read_predictions("sent.csv"), read_predictions("server.csv")
    assert np.array_equal(sent[0], server[0])
    np.testing.assert_allclose(sent[1], server[1], rtol=0, atol=1e-12)


def test_site_that_joins_by_what_it_summarizes(mixed_model):
    """With labels, for a model that was learned without it."""
    command = "predict all.npz --model global.slot --statistics D.slot -o out.csv"
    assert run(command) == 0
    classifier = MixedEffectsClassifier.from_model(mixed_model)
    classifier.add_client(X[CLIENTS == "D"], "D", Y[CLIENTS == "D"])
    expected = classifier.predict_proba(X[CLIENTS == "D"], client_ids="D")
    np.testing.assert_allclose(read_predictions("out.csv")[1], expected, atol=1e-12)


@pytest.mark.parametrize("name", ["--client D", ""])
def test_site_that_sent_nothing_is_estimated_from_its_rows(mixed_model, name, capsys):
    rows = X[CLIENTS == "D"]
    np.savez("new.npz", X=rows)
    assert run(f"predict new.npz --model global.slot {name} -o out.csv") == 0
    printed = capsys.readouterr().out
    assert f"alignment estimated from {len(rows)} rows of new.npz" in printed
    assert "learned from client" not in printed
    classifier = MixedEffectsClassifier.from_model(mixed_model)
    classifier.add_client(rows, "D")
    expected = classifier.predict_proba(rows, client_ids="D")
    np.testing.assert_allclose(read_predictions("out.csv")[1], expected, atol=1e-12)


def test_known_site_is_told_to_hand_over_what_it_sent(mixed_model, capsys):
    assert run("predict all.npz --model global.slot --client B -o out.csv") == 0
    printed = capsys.readouterr().out
    assert "the model was learned from client B too" in printed
    assert "--statistics FILE.slot" in printed


def test_known_site_with_a_number_for_a_name(site):
    rows = CLIENTS == "A"
    message = MixedEffectsClassifier().client_update(X[rows], Y[rows], client=3)
    message.save("3.slot", "float64", min_samples=1)  # without a part for alignment
    assert run("aggregate 3.slot --model global.slot --dtype float64") == 0
    command = "--model global.slot --client 3 --statistics 3.slot"
    assert run(f"predict features.npz {command} -o out.csv") == 0
    assert run(f"adapt features.npz {command} -o 3-model.slot") == 0
    assert LinearModel.load("3-model.slot").client == 3


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("all.npz --model global.slot", "rows of several clients .*choose one by --cl"),
        ("few.npz --model global.slot", "has 3 rows to estimate .*--statistics FILE"),
        ("few.npz --model global.slot --statistics B.slot --client A", "from client"),
        ("few.npz --model global.slot --statistics bare.slot", "without --labels"),
        ("few.npz --model global.slot --statistics other.slot", "encoder 'v2'"),
        (
            "few.npz --encoder v2 --model global.slot",
            "encoder is 'v2', and that of global",
        ),
    ],
)
def test_wrong_use_of_a_model_of_mixed_effects(mixed_model, options, expected, capsys):
    np.savez("few.npz", X=X[:3])
    message_of("B", labels=False).save("bare.slot")
    message_of("B").with_encoder("v2").save("other.slot", min_samples=1)
    assert re.search(expected, error_of(f"predict {options} -o out.csv", capsys))
    assert not Path("out.csv").exists()
