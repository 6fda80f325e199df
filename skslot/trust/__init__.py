"""What stands out among the clients of a server step, and caps on their weight."""

from ._screening import (
    ClientFacts,
    ClientFinding,
    ClientScreen,
    ClientsReport,
    cap_shares,
    examine_clients,
    guard_clients,
)

__all__ = [
    "ClientFacts",
    "ClientFinding",
    "ClientScreen",
    "ClientsReport",
    "cap_shares",
    "examine_clients",
    "guard_clients",
]
