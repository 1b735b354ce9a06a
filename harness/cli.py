"""The console command `tailgauge`: parses the verb, calls its module, turns errors into one line.

Imported by nobody, and imports nothing heavy: `--help` answers before any of the machinery is loaded.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence

from harness import __version__
from harness.errors import TailgaugeError

_OVERRIDES = """\
overrides (Hydra): group=choice, group=[a,b] or key=value, e.g.
  model=qwen2.5-coder-0.5b   experiment=xfinity_small   condition=[control,agent_status]
  model.path=/a/folder       probe=[act]                seed=11
The groups are experiment, model, scenario, condition and probe; `tailgauge doctor` lists their choices.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tailgauge",
        description="Measure what a status bar at the tail of the context does to the model that reads it.",
    )
    parser.add_argument("--version", action="version", version=f"tailgauge {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, summary: str, *, overrides: bool = False) -> argparse.ArgumentParser:
        sub = verbs.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=_OVERRIDES if overrides else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if overrides:
            sub.add_argument("overrides", nargs="*", metavar="OVERRIDE")
        return sub

    run = verb(
        "run", "run an experiment and write its results folder; resumes when called again", overrides=True
    )
    run.add_argument("-m", "--multirun", action="store_true", help="sweep over comma-separated choices")
    verb("ablate", "the main job: choose a profile for this machine, say why, and run it", overrides=True)
    plan = verb(
        "plan", "what a run will cost and which difference it can resolve; needs no model", overrides=True
    )
    plan.add_argument(
        "--pilot", action="append", default=[], metavar="RUN", help="take speed and spread from this run"
    )
    plan.add_argument("--json", metavar="FILE", help="write the same numbers as JSON")
    plan.add_argument("--sd", type=float, help="assumed spread of the clusters' differences, in logits")
    plan.add_argument("--rate", type=float, help="assumed rate of free answers that keep the rule")
    plan.add_argument("--icc", type=float, help="assumed correlation of answers within a cluster")
    _looked_at(verb)
    score = verb("score", "parse and score a run's recorded replies anew; needs no model")
    score.add_argument("run", metavar="RUN", help="a run folder")
    report = verb("report", "rebuild a run's tables, figures and report.html from its records")
    report.add_argument("run", metavar="RUN", help="a run folder")
    _published(verb)
    attention = verb(
        "attention", "replay a finished run and draw where the model looks, with and without the bar"
    )
    attention.add_argument("run", metavar="RUN", help="a run folder")
    attention.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="keys of conf/attention.yaml, e.g. clusters=4"
    )
    doctor = verb(
        "doctor", "what this machine has and lacks, and what a chat template does to bars", overrides=True
    )
    doctor.add_argument("--template", metavar="FOLDER", help="look at this tokenizer folder's chat template")
    models = verb("models", "which models are embedded, cached and reachable")
    models.add_argument("--probe", action="store_true", help="ask the network what could be fetched")
    return parser


def _looked_at(verb: Callable[..., argparse.ArgumentParser]) -> None:
    """The verbs that look at bars and need no model."""
    preview = verb(
        "preview",
        "show every condition's prompt with the bar marked, and its bill; needs no model",
        overrides=True,
    )
    preview.add_argument("--samples", type=int, default=1, help="how many samples to show (default 1)")
    preview.add_argument(
        "--trace",
        metavar="FILE[:N]",
        help="show the last requests of a recorded trajectory (its number, from 0)",
    )
    preview.add_argument(
        "--bar", metavar="NAME", help="this bar beside the control and its own placebo (conf/bar)"
    )
    preview.add_argument(
        "--set",
        dest="options",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of that bar, e.g. rendering=json; may be given again",
    )
    preview.add_argument("--placement", metavar="NAME", help="where it stands (conf/placement; default tail)")
    preview.add_argument("--policy", metavar="NAME", help="when it comes (conf/policy; default replace)")
    preview.add_argument("--html", metavar="FILE", help="also write it as one page")
    lint = verb(
        "lint",
        "find what is volatile, unstable, forgeable or leaking in a bar; leaves with 1 when it finds errors, 0 otherwise",
    )
    lint.add_argument("bar", metavar="BAR", help="a name in conf/bar, or the path of a class")
    lint.add_argument("options", nargs="*", metavar="KEY=VALUE", help="options of the bar, e.g. date=second")
    lint.add_argument(
        "--trace",
        metavar="FILE[:N]",
        help="draw it over recorded trajectories too: all of a file, or its N-th, from 0",
    )
    lint.add_argument("--json", action="store_true", help="print the findings as JSON")
    ledger = verb("ledger", "what a bar costs under each update policy, from token ids alone; needs no model")
    ledger.add_argument("--trace", metavar="FILE[:N]", help="a recorded trajectory (its number, from 0)")
    ledger.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="keys of conf/ledger.yaml, e.g. bar=work_state requests=200 'policies=[replace,append]'",
    )


def _published(verb: Callable[..., argparse.ArgumentParser]) -> None:
    """The verbs that read finished runs and make something for others to read."""
    view = verb("view", "browse every cell of a run on a local page")
    view.add_argument("run", metavar="RUN", help="a run folder")
    view.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: a free one)")
    view.add_argument("--no-browser", action="store_true", help="print the address and open nothing")
    compare = verb("compare", "models and conditions of several runs side by side, small against large")
    compare.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="run folders, the smaller model first; latency runs join their model",
    )
    compare.add_argument("--out", metavar="FOLDER", help="where to write (default results/compare/…)")
    for size in ("small", "large"):
        compare.add_argument(
            f"--{size}", action="append", default=[], metavar="NAME",
            help=f"a {size}er model (name, run id or folder); may be repeated".replace("largeer", "larger"),
        )  # fmt: skip
    compare.add_argument(
        "--margins-of", metavar="NAME", help="the run whose equivalence margins hold, where they differ"
    )
    compare.add_argument(
        "--different-scenarios", action="store_true", help="compare runs of different scenarios, unpaired"
    )
    publish = verb("publish", "figures, tables, captions and a methods paragraph for a paper")
    publish.add_argument("runs", nargs="+", metavar="RUN", help="run folders")
    publish.add_argument("--out", metavar="FOLDER", help="where to write (default publication/…)")
    publish.add_argument("--incomplete", action="store_true", help="publish runs that are not finished")
    export = verb("export", "hand a run to another tool: Inspect's log format, MLflow, trackio")
    export.add_argument("run", metavar="RUN", help="a run folder")
    export.add_argument("--to", required=True, choices=("inspect", "mlflow", "trackio"))
    export.add_argument("--out", metavar="FILE", help="inspect: the log file (default RUN/inspect.eval)")
    export.add_argument("--uri", help="mlflow: tracking address (default: a local store)")
    export.add_argument("--experiment", help="mlflow: experiment (default: the run's)")
    export.add_argument("--project", help="trackio: project (default: the run's experiment)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 2 something for the user to mend (one line on stderr), 3 a run that max_time or max_spend
    stopped (what is finished is kept; the same command goes on), 130 stopped by Ctrl-C."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    parsed = _parser().parse_args(arguments)
    try:
        module = importlib.import_module(f"harness.commands.{parsed.verb}")
        code: int = module.main(parsed)
        sys.stdout.flush()
        return code
    except TailgaugeError as error:
        print(f"tailgauge: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "\ntailgauge: stopped; nothing finished is lost, the same command goes on from here",
            file=sys.stderr,
        )
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`tailgauge preview | head`): not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
