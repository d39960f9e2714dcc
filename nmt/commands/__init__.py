"""The commands, as `nmt --help` lists them. What each may be asked is in `make`, `use`, `judge`, `show` and `measure`."""

from typing import Annotated

import typer

import nmt
from nmt import ranks
from nmt.commands import judge, make, measure, show, use
from nmt.errors import UsageError
from nmt.options import option

app = typer.Typer(
    name="nmt",
    help="Train a translator, translate files with it, score the result.",
    epilog="First steps: nmt preprocess train.en train.de -o data; nmt train data -o run; nmt translate run < test.en > test.out",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"nmt {nmt.__version__}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Show the version and exit.", metavar=""),
    ] = False,
    debug: Annotated[bool, option("Show the traceback of an error.", "--debug")] = False,
) -> None:
    if context.invoked_subcommand not in ("train", "translate") and ranks.size() > 1:
        raise UsageError(f"{context.invoked_subcommand} works in one process: start it without torchrun, or unset WORLD_SIZE")


app.command(
    epilog="Example: nmt preprocess train.en train.de -o data --valid-source dev.en --valid-target dev.de --vocab-size 8000"
)(make.preprocess)
app.command(
    epilog="Example: nmt train data -o run --size small --max-epochs 20 --set train.learning_rate=1e-3. On 4 GPUs: torchrun "
    "--nproc-per-node 4 -m nmt train data -o run"
)(make.train)
app.command(epilog="Example: nmt translate run test.en -o test.out --beam-size 4 --length-penalty 0.6")(use.translate)
app.command(epilog="Example: nmt score test.out -r test.de -m bleu -m chrf")(judge.score)
app.command(epilog="Example: nmt logprob run test.en test.de")(use.logprob)
app.command(epilog="Example: nmt average run --last 5 -o averaged")(make.average)
app.command(epilog="Example: nmt export run --format ctranslate2 -o exported")(make.export)
app.command(epilog="Example: nmt info run")(use.info)
app.command(epilog="Example: nmt report run -o run.html; nmt report run rnn -o both.html")(show.report)
app.command(epilog="Example: nmt bench data --size tiny; nmt bench run test.en; nmt bench --curve width -o width.svg")(
    measure.bench
)
