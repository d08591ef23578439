"""What a run directory may be given besides what a run writes: one generator for every system.

Nothing that a directory adds may weaken what its ``certificate.json`` promised, or make a report say more than was proved. A
family yields changed runs, from a run of a system, another run of the same system, and runs of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from added_content import metadata, more_fields, more_inputs, more_state, odd_headers
from added_files import odd_checkpoints, other_files, read_files
from added_phases import (
    failing_first,
    failing_first_and_more,
    failing_first_of_another,
    foreign_phases,
    late_violations,
    odd_names,
    several_phases,
    true_phases,
    weaker_phases,
)
from adding import Family, iterations
from every_system import copied
from tamper import StoredRun, Tampering, encoded, safetensors

REFUSED: dict[str, Family] = {
    family.__name__: family
    for family in (
        *(
            weaker_phases,
            late_violations,
            several_phases,
            odd_names,
            foreign_phases,
            failing_first_and_more,
            failing_first_of_another,
        ),
        *(more_fields, more_inputs, odd_headers, read_files, odd_checkpoints),
    )
}
"""These must not be accepted."""
JUDGED: dict[str, Family] = {family.__name__: family for family in (true_phases, failing_first)}
"""These may be, where what the directory claims is true by ``claims.untrue``."""
IGNORED: dict[str, Family] = {family.__name__: family for family in (more_state, metadata, other_files)}
"""These add what is not read: they are accepted, with the report of the run without them."""


def applied(cases: Sequence[Tampering], run: StoredRun) -> dict[str, bytes]:
    """The files of a run that several additions of content change, by path."""
    before, after = copied(run), copied(run)
    for case in cases:
        case.change(after)
    contents = [
        {name: encoded(record, each.indent) for name, record in each.certificates.items()}
        | {path: safetensors(arrays) for path, arrays in each.arrays.items()}
        for each in (before, after)
    ]
    return {path: content for path, content in contents[1].items() if contents[0].get(path) != content}


def sparse(run: StoredRun) -> StoredRun:
    """The run with three checkpoints: the first, one in the middle, and the last one."""
    times = [t for t in iterations(run) if t]
    kept = {times[0], times[len(times) // 2], times[-1]} if times else set()
    arrays = {
        path: a for path, a in run.arrays.items() if not path.startswith("checkpoints/") or int(a["iteration"]) in kept
    }
    return copied(StoredRun(run.certificates, arrays))
