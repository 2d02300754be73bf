"""What an endpoint really does, measured: a matrix of guarantees, each with a verdict, an owner and an interval.

`catalogue` is the table of cells, `verdicts` what tries come to, `planning` what a run may take, `running` the only
part that sends, `results` the document that is written, `comparing` two of them. Where facts go is decided in
`profiles`.
"""

from mustcall.probe.catalogue import CELLS, cells_for
from mustcall.probe.comparing import Drift, compare
from mustcall.probe.facts import facts_of, profile_of
from mustcall.probe.planning import ProbePlan, plan_probe
from mustcall.probe.results import CellResult, ProbeResult, read_result
from mustcall.probe.running import Prober, Subject
from mustcall.probe.values import Cell, CellGroup, CellVerdict, Client, Level, Outcome, Owner

__all__ = [
    "CELLS",
    "Cell",
    "CellGroup",
    "CellResult",
    "CellVerdict",
    "Client",
    "Drift",
    "Level",
    "Outcome",
    "Owner",
    "ProbePlan",
    "ProbeResult",
    "Prober",
    "Subject",
    "cells_for",
    "compare",
    "facts_of",
    "plan_probe",
    "profile_of",
    "read_result",
]
