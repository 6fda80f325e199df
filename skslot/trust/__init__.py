"""Screening of clients: outliers, and limits on the share of one client."""

from ._screening import (
    ClientFacts,
    ClientFinding,
    ClientScreen,
    ClientsReport,
    cap_shares,
    examine_clients,
)

__all__ = [
    "ClientFacts",
    "ClientFinding",
    "ClientScreen",
    "ClientsReport",
    "cap_shares",
    "examine_clients",
]
