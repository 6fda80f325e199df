"""The app that runs at each site."""

from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp

from digit_sums.task import CLASSES, MODEL, load_site, scale_sums


class Site(NumPyClient):
    """Sends the sums of one site to ``secaggplus_mod``, which masks them."""

    def __init__(self, context):
        self.context = context

    def fit(self, parameters, config):
        """Return the scaled sums with weight 1, as Flower sends weights unmasked."""
        X, y = load_site(self.context)
        message = MODEL.client_update(X, y, classes=CLASSES)
        message.check_disclosure()
        return scale_sums(message), 1, {}


app = ClientApp(lambda context: Site(context).to_client(), mods=[secaggplus_mod])
