"""A grid without a network, which hands messages to real ClientApps."""

import itertools

import numpy as np
import pytest

from skslot.datasets import load_digit_scanners
from skslot.flower import FederationReport, make_client_app, make_server_app
from skslot.flower._common import flower_modules

pytest.importorskip("flwr")
collect_ignore = [  # parts of apps, imported by Flower, and a program
    "attentive_supernode.py",
    "faulty_client_app.py",
    "faulty_server_app.py",
]

SITES = ("fax", "flatbed", "microfilm", "phone")


class LocalGrid:
    """Delivers each message at once; an app that is None never answers.

    A node whose app is "gone" cannot be sent anything.
    """

    def __init__(self, apps):
        flower = flower_modules()[0]
        self.apps = apps
        self.flower = flower
        self.replies = {}
        self.ids = map(str, itertools.count())
        self.contexts = {
            node: flower.Context(7, node, {}, flower.RecordDict(), {}) for node in apps
        }

    def get_node_ids(self):
        return list(self.apps)

    def push_messages(self, messages):
        for message in messages:
            message_id, node = next(self.ids), message.metadata.dst_node_id
            if self.apps[node] == "gone":
                yield ""  # as Flower does
                continue
            message.metadata.__dict__["_message_id"] = message_id
            if self.apps[node] is not None:
                self.replies[message_id] = self.call(node, message)
            yield message_id

    def call(self, node, message):
        try:
            return self.apps[node](message, self.contexts[node])
        except Exception as error:  # as Flower does
            failure = self.flower.Error(2, f"{type(error)}:<'{error}'>")
            return self.flower.Message(failure, reply_to=message)

    def pull_messages(self, message_ids):
        found = [name for name in message_ids if name in self.replies]
        return [self.replies.pop(name) for name in found]


@pytest.fixture(autouse=True, scope="session")
def _identity():
    """Flower tells its processes who they are before it runs an app."""
    flower_modules()
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 7, 1, 1


@pytest.fixture(scope="session")
def digits():
    """Rows, labels and clients of the embedded data set."""
    data = load_digit_scanners()
    return data.data, data.target, data.client_ids


@pytest.fixture
def rows_of(digits):
    """Function that returns what ``load_data`` of a site returns."""
    X, y, site = digits

    def rows(name):
        return X[site == name], y[site == name], name

    return rows


@pytest.fixture
def federate(rows_of, tmp_path):
    """Function that runs an estimator over a local grid.

    ``sites`` are names of honest sites, or apps. Returns the report, the folder with
    the result and what each site received.
    """

    def run(
        estimator, sites=SITES, *, fails=False, client=None, run_config=None, **settings
    ):
        received, apps = {}, {}
        for node, site in enumerate(sites, start=11):
            if not isinstance(site, str) or site == "gone":
                apps[node] = site
                continue

            def receive(message, context, site=site):
                received[site] = message

            apps[node] = make_client_app(
                lambda context, site=site: rows_of(site),
                estimator,
                **{"receive": receive, **(client or {})},
            )
        grid = LocalGrid(apps)
        settings = {"n_clients": len(apps), "timeout": 1.0, **settings}
        server = make_server_app(estimator, output_dir=tmp_path, **settings)
        flower = grid.flower
        context = flower.Context(7, 1, {}, flower.RecordDict(), run_config or {})
        if fails:
            with pytest.raises((ValueError, RuntimeError)):
                server(grid, context)
        else:
            server(grid, context)
        folder = tmp_path / "run-7"
        report = FederationReport.from_json((folder / "report.json").read_text())
        return report, folder, received

    return run


@pytest.fixture
def request_of():
    """Function that makes a request as it arrives at a client."""
    flower = flower_modules()[0]

    def make(step, contents=None):
        record = flower.ConfigRecord(contents or {})
        content = flower.RecordDict({"skslot": record})
        message = flower.Message(content, 11, step, ttl=60.0)
        message.metadata.__dict__["_message_id"] = "0"
        return message

    return make


@pytest.fixture
def context():
    """Context of one node in one run."""
    flower = flower_modules()[0]
    return flower.Context(7, 11, {}, flower.RecordDict(), {})


def scores(model, X):
    """Decision scores of a linear model."""
    return X @ model.coef.T + model.intercept


@pytest.fixture(name="scores")
def scores_fixture():
    """Function for the decision scores of a linear model."""
    return scores


@pytest.fixture(scope="session")
def sites():
    """Names of the sites."""
    return np.array(SITES)
