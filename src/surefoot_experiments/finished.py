"""Finished parts of experiments, kept in files and read again where all that decides them is the same; the ranks of a job share
the parts that are missing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from surefoot._core.io import RunDirectoryError, read_json, write_json
from surefoot._core.team import Memory, Message, Team, member, name_of, team
from surefoot._learning.run import TrainRun, TrainStatus

from .result import Progress

FORMAT = 1
"""Of the files of finished parts; raised whenever the same settings would give other numbers."""

Result = dict[str, Any]
"""Of a part, in plain values."""


def completed(run: TrainRun) -> TrainRun:
    """``run``, unless a signal ended it: a part of a training must not be kept as the whole of it."""
    if run.status is TrainStatus.INTERRUPTED:
        raise KeyboardInterrupt
    return run


def hashed(key: Mapping[str, Any]) -> str:
    """A name for plain values, in any order: 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]


def kept(cache: Path | None, name: str, key: Mapping[str, Any], compute: Callable[[], Result]) -> Result:
    """What ``compute`` returns, or what it returned before for the same key: from a file in ``cache`` that is written by rename.

    Args:
        cache: directory; ``None`` keeps nothing.
        name: first part of the file's name.
        key: all that decides the result, in plain values.
        compute: its result in plain values.
    """
    result = _stored(cache, name, key)
    if result is None:
        result = compute()
        if cache is not None:
            cache.mkdir(parents=True, exist_ok=True)
            write_json(_file(cache, name, key), {"key": _whole(key), "result": result})
    return result


@dataclass(frozen=True)
class Part:
    """A part of an experiment that depends on no other one.

    Attributes:
        text: said before it is begun or read.
        key: all that decides its result, in plain values.
        arguments: what it is computed from, by name, in plain values: tuples may arrive as lists.
        data: tensors that it is computed from, by name.
    """

    text: str
    key: Mapping[str, Any]
    arguments: Mapping[str, Any]
    data: Mapping[str, Tensor] = field(default_factory=dict)


def kept_all(
    cache: Path | None, name: str, parts: Iterable[Part], compute: Callable[..., Result], progress: Progress
) -> list[Result]:
    """The results of all parts in order, each as ``kept`` has it. Where there is a team, every rank computes one of the missing
    parts at a time, as one process would, and keeps it; the next ones are dealt out when all are done.

    Args:
        cache, name: as for ``kept``. Where the ranks have no file system in common, rank 0 keeps the results that it is sent.
        parts: made as they are needed.
        compute: of a part's arguments and data; at the top level of its module.
        progress: told the text of each part.

    Raises:
        RankLostError: a rank ended; parts that were finished are kept.
        Exception: what ``compute`` raises.
    """
    ranks = team()
    results: dict[int, Result] = {}
    waiting: dict[int, Part] = {}
    for number, part in enumerate(parts):
        progress(part.text)
        if ranks is None:
            results[number] = kept(cache, name, part.key, partial(compute, **part.arguments, **part.data))
            continue
        stored = _stored(cache, name, part.key)
        if stored is not None:
            results[number] = stored
            continue
        waiting[number] = part
        if len(waiting) == ranks.size:
            results |= _dealt(ranks, cache, name, waiting, compute)
            waiting = {}
    if ranks is not None and waiting:
        results |= _dealt(ranks, cache, name, waiting, compute)
    return [results[number] for number in sorted(results)]


def _dealt(
    ranks: Team, cache: Path | None, name: str, parts: Mapping[int, Part], compute: Callable[..., Result]
) -> dict[int, Result]:
    """Results of at most as many parts as there are ranks."""
    common = {"cache": None if cache is None else str(cache.absolute()), "name": name, "compute": name_of(compute)}
    requests = [Message({**common, "key": part.key, "arguments": part.arguments}, part.data) for part in parts.values()]
    answers = ranks.call(compute_part, requests + [Message()] * (ranks.size - len(requests)))
    results = [answer.facts["result"] for answer in answers[: len(requests)]]
    return {
        number: kept(cache, name, part.key, lambda result=result: result)
        for (number, part), result in zip(parts.items(), results, strict=True)
    }


def compute_part(request: Message, _: Memory) -> Message:
    """On a rank: one part, or none."""
    facts = request.facts
    if not facts:
        return Message()
    cache = None if facts["cache"] is None else Path(facts["cache"])
    compute = partial(member(facts["compute"]), **facts["arguments"], **request.tensors)
    return Message({"result": kept(cache, facts["name"], facts["key"], compute)})


def _stored(cache: Path | None, name: str, key: Mapping[str, Any]) -> Result | None:
    """The result in the file; ``None`` where there is none."""
    if cache is not None and _file(cache, name, key).exists():
        try:
            record = read_json(_file(cache, name, key))
            if record["key"] == _whole(key):
                return record["result"]
        except (RunDirectoryError, KeyError, TypeError):
            pass  # damaged: computed and written again
    return None


def _file(cache: Path, name: str, key: Mapping[str, Any]) -> Path:
    return cache / f"{name}-{hashed(_whole(key))}.json"


def _whole(key: Mapping[str, Any]) -> dict[str, Any]:
    return {"format": FORMAT, **key}
