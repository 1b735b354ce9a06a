"""Scorers: recorded data in, verdicts out. They know no model, no prompt and no condition.

`call_limit` scores rules that limit calls; `outcomes` is its one table of side × behaviour → outcome;
`prose` judges what a reply says about the action; `values` decides whether a stated name means the target;
`words` holds the vocabulary of each tool's action. `ask` reads the answer to a question about the state.
"""

from harness.scorers.ask import score_ask
from harness.scorers.base import Scorer
from harness.scorers.call_limit import score_act, score_choose, score_record
from harness.scorers.outcomes import TABLE, table_markdown
from harness.scorers.prose import Judgement, judge

__all__ = [
    "TABLE",
    "Judgement",
    "Scorer",
    "judge",
    "score_act",
    "score_ask",
    "score_choose",
    "score_record",
    "table_markdown",
]
