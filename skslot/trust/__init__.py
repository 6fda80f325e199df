"""What stands out among the clients of a server step, and caps on their weight."""

from ._examine import examine_clients
from ._facts import ClientFacts
from ._guard import guard_clients
from ._report import ClientFinding, ClientsReport
from ._screen import ClientScreen
from ._shares import cap_shares

__all__ = [
    "ClientFacts",
    "ClientFinding",
    "ClientScreen",
    "ClientsReport",
    "cap_shares",
    "examine_clients",
    "guard_clients",
]
