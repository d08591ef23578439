"""Files, folders and links that a run did not write."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from added_phases import ODD
from adding import CONTROLS, FINAL, Runs, case, checkpoint, iterated, iterations, later, stored, with_arrays
from tamper import Tampering, encoded

from surefoot_check.arrays import digest

OTHER_NAMES = (
    *(
        "Certificate.json",
        "CERTIFICATE.JSON",
        "certificate.JSON",
        "certificate.json ",
        "certificate.json~",
        "certificate",
    ),
    *(".certificate.json", ".certificate-000000005.json", "certificate.json.tmp", "certificate-000000005.json.tmp"),
    *("certificate-000000005.jsonl", "xcertificate-000000005.json", "\u0441ertificate-000000005.json", "cert.json"),
    *(
        "config.json",
        "report.html",
        "plots",
        "LICENSE",
        "Final.safetensors",
        "final.safetensors.tmp",
        ".final.safetensors",
    ),
    *("final-000000012.safetensors", "final.pt", "checkpoint.safetensors", "Problem.safetensors", "problem.json.tmp"),
    *("checkpoints.json", "Checkpoints", "trace.jsonl.tmp", "trace.json", "initial.safetensors.bak", "note\x1b[2J.txt"),
    *("note\n.txt", "\u202etxt.exe", "note\udcff", "accept", "outcome: accept"),
)
"""What is not a file of a run, though some look like one."""


def other_files(system: str, runs: Runs) -> Iterator[Tampering]:
    """Files, folders and links under names that are not those of a run, whatever they hold.

    Ignored: the checker reads the files of a run by their names, and no others.
    """
    lie = {**runs.run.certificate, "claims": ["L1", "L2", "L3"], "suggestion": CONTROLS}
    text = encoded(lie, 1)
    for number, name in enumerate(OTHER_NAMES):
        made: list[tuple[str, Callable[[Path], object]]] = [
            ("a file", lambda file: _write(file, text)),
            ("a folder", _folder),
            ("a link", _link),
            ("a hard link", _hard_link),
            ("a pipe", _pipe),
        ]
        what, make = made[number % 5]
        yield case(system, f"{what} {name!r}", after=lambda folder, n=name, m=make: m(folder / n) and None)
    for name in (
        "checkpoints/000000005.safetensors.tmp",
        "checkpoints/.x",
        "checkpoints/000000005.pt",
        "checkpoints/x\x1b.txt",
    ):
        yield case(system, f"a file {name!r}", after=lambda folder, n=name: _write(folder / n, text))
    yield case(system, "a thousand files", after=_thousand)
    yield case(system, "a run inside", after=_nested("inner"))
    yield case(system, "a run in checkpoints/", after=_nested("checkpoints/inner"))
    yield case(system, "a certificate inside", after=_nested("certificate"))
    rows = '{"iteration": 0, "step": 1e300, "gap": -1}\n' * 3 + "\x1b[2J\nnot json"
    for name in ("trace.jsonl", "config.json", "report.html", "plots/gap.png"):
        for content in (rows, "", "{}", "\x00" * 100, json.dumps({"claims": ["L3"], "outcome": "accept"})):
            yield case(
                system,
                f"{name} is {content[:12]!r}",
                after=lambda folder, n=name, c=content: _write(folder / n, c.encode()),
            )


def read_files(system: str, runs: Runs) -> Iterator[Tampering]:
    """Files under names that are read, which the run did not write: of another kind, of other content, links and pipes.

    Refused: the data of a problem are in one place, and what is read is a regular file of its format.
    """
    run = runs.run
    declared = {name: {"dtype": "F64", "shape": list(A.shape), "sha256": digest(A)} for name, A in run.problem.items()}
    for content in ({"format": "surefoot-problem/1", "arrays": declared}, {}, [], None, {CONTROLS: CONTROLS}):
        text = json.dumps(content).encode()
        yield case(
            system, f"problem.json {content!r}"[:60], after=lambda folder, t=text: _write(folder / "problem.json", t)
        )
    special: dict[str, Callable[[Path], object]] = {
        "a folder": lambda file: file.mkdir(parents=True),
        "a link": _link,
        "a broken link": lambda file: file.symlink_to("nowhere"),
        "a link to itself": lambda file: file.symlink_to(file.name),
        "a pipe": lambda file: os.mkfifo(file),
        "empty": lambda file: file.write_bytes(b""),
    }
    names = [
        *("problem.json", later(5), later("x"), later(CONTROLS.replace("\x00", "")), checkpoint(7)),
        *(f"checkpoints/{name}.safetensors" for name in ("x", "final", "\x1b[2J\n", "0000000012")),
    ]
    for name in names:
        for what, make in special.items():
            yield case(system, f"{name!r} {what}", after=lambda folder, n=name, m=make: _special(folder / n, m))


def _special(file: Path, make: Callable[[Path], object]) -> None:
    file.parent.mkdir(exist_ok=True)
    make(file)


@iterated
def odd_checkpoints(system: str, runs: Runs) -> Iterator[Tampering]:
    """True weights under a name in ``checkpoints/`` that is none of their iteration, and as final weights of an older one.

    Refused: a checkpoint is named by its iteration, in nine digits.
    """
    run = runs.run
    last = iterations(run)[-1]
    content = run.arrays[checkpoint(last)]
    for name in (*ODD, f"{last:010d}", f"{last:08d}", f"{last + 1:09d}", "final", "initial", "1e9"):
        if "/" not in name:
            yield case(system, f"a checkpoint {name!r}", with_arrays(f"checkpoints/{name}.safetensors", content))
    older = stored(run, run.weights, 0)
    yield case(system, "final weights of the start", with_arrays(FINAL, older))


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)


def _gone(file: Path) -> None:
    if file.is_file():
        file.unlink()


def _folder(file: Path) -> None:
    _gone(file)
    file.mkdir(exist_ok=True)


def _link(file: Path) -> None:
    _gone(file)
    file.symlink_to(file.parent / "certificate.json")


def _hard_link(file: Path) -> None:
    _gone(file)
    os.link(file.parent / "certificate.json", file)


def _pipe(file: Path) -> None:
    _gone(file)
    os.mkfifo(file)


def _thousand(folder: Path) -> None:
    for number in range(500):
        (folder / f"note-{number}.txt").touch()
        _write(folder / "checkpoints" / f"{number:09d}.json", b"")


def _nested(name: str) -> Callable[[Path], None]:
    def after(folder: Path) -> None:
        inner = folder / name
        inner.mkdir(parents=True)
        for file in list(folder.glob("*.json")) + list(folder.glob("*.safetensors")):
            (inner / file.name).write_bytes(file.read_bytes())
        (inner / later(5)).write_bytes((folder / "certificate.json").read_bytes())

    return after
