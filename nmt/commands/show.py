"""The command that shows: report.

torch and the rest are imported inside the command, so that `--help` answers at once.
"""

import os
from pathlib import Path
from typing import Annotated

from nmt.options import OUTPUT, ConfigFile, Debug, Device, Overwrite, Quiet, Threads, argument, option


def report(
    runs: Annotated[list[str], argument("What train made; several are compared.", "RUN")],
    output: Annotated[str, option("The page; -: stdout.", "--output", "-o", panel=OUTPUT, metavar="FILE")] = "report.html",
    data: Annotated[
        str | None, option("Where the validation text is (default: where the run found it).", panel="Translations", metavar="DATA")
    ] = None,
    lines: Annotated[
        int, option("Lines of it that are translated, the first ones; 0: none.", panel="Translations", metavar="N", least=0)
    ] = 300,
    overwrite: Overwrite = False,
    device: Device = "auto",
    threads: Threads = None,
    config: ConfigFile = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Make a web page of a run: its scores, curves, translations, settings; of several runs, side by side.

    The page is one file, and needs no network.
    """
    from nmt.console import Console
    from nmt.data.files import check_outside_runs
    from nmt.data.text import check_output, open_text

    check_outside_runs(output)
    check_output(output, overwrite)

    from nmt.allocator import keep_freed_memory
    from nmt.device import choose_device, set_threads
    from nmt.report.gather import gather
    from nmt.report.page import page
    from nmt.report.samples import open_data, translated

    console = Console(quiet, output)
    keep_freed_memory()
    # What was asked for and cannot be is an error; what a run turns out to lack is told on its page.
    choose_device(device)
    set_threads(threads)
    text = None if data is None else open_data(Path(data))
    found = [gather(Path(path), name) for path, name in zip(runs, _names(runs), strict=True)]
    samples = [each for run in found if (each := translated(run, text, lines, device, threads, console)) is not None]
    with open_text(output, overwrite) as writer:
        for line in page(found, samples).split("\n"):
            writer.write(line)
    for run in found:
        for sentence in run.missing:
            console.warn(f"{run.name}: {sentence[:1].lower()}{sentence[1:].removesuffix('.')}")
    if output != "-":
        console.say(f"the page is {output}")


def _names(paths: list[str]) -> list[str]:
    """The ends of the paths: as short as tells them apart, whatever the locale."""
    from nmt.data.files import shown

    parts = [Path(os.path.abspath(path)).parts for path in paths]
    depth = next((depth for depth in range(1, max(map(len, parts))) if len({part[-depth:] for part in parts}) == len(parts)), 1)
    return [shown(os.path.join(*part[-depth:])) for part in parts]
