"""The command ``completion``."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union

import tyro
from tyro.conf import Positional, arg, subcommand

from .commands import commands, options_of
from .errors import Exit
from .usage import PARSER


@dataclass(frozen=True, kw_only=True)
class Completion:
    """Print a script by which a shell completes commands, options and choices at the Tab key.

    bash: surefoot completion bash > ~/.local/share/bash-completion/completions/surefoot

    zsh: surefoot completion zsh > DIR/_surefoot, with a DIR of $fpath

    fish: surefoot completion fish > ~/.config/fish/completions/surefoot.fish"""

    shell: Annotated[Positional[Literal["bash", "zsh", "fish"]], arg(help="Which shell.")]

    def run(self, held: ExitStack) -> int:
        arguments = ["--tyro-print-completion", self.shell]
        try:
            tyro.cli(_group(""), prog="surefoot", args=arguments, config=PARSER)
        except SystemExit as done:
            return int(done.code or Exit.YES)
        raise AssertionError("a script ends in an exit")


def _group(prefix: str) -> Any:
    """The union of the commands whose names start so, each with its options, or those that come next."""
    members = []
    for name, command in commands().items():
        last = name.removeprefix(prefix)
        if name.startswith(prefix) and " " not in last:
            kind = options_of(command) if command.options else _holding(_group(f"{name} "))
            members.append(Annotated[kind, subcommand(last, description=command.summary)])
    return Union[tuple(members)]  # noqa: UP007 - made of a list


def _holding(choice: Any) -> type:
    return dataclass(type("Group", (), {"__annotations__": {"name": choice}}))
