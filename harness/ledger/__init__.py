"""The ledger: what each request of a trajectory bills under each update policy, from token ids alone.

Knows transcripts, bars and a chat template; knows no engine, no file and no run.
"""

from harness.ledger.bill import Arm, Bill, Step, arms_of, bill
from harness.ledger.rows import Row
from harness.ledger.totals import Crossing, NamedPrice, Total, crossing, cumulative, money, totals

__all__ = [
    "Arm",
    "Bill",
    "Crossing",
    "NamedPrice",
    "Row",
    "Step",
    "Total",
    "arms_of",
    "bill",
    "crossing",
    "cumulative",
    "money",
    "totals",
]
