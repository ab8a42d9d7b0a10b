"""Check ``files.pair``: A and B are one model with different weights."""

from __future__ import annotations

from collections import Counter
from typing import Any

from vst.checkpoint.families import family
from vst.checkpoint.findings import Findings, judge
from vst.checkpoint.manifest import Manifest, TensorEntry
from vst.verdict import Check, Outcome

CHECK = "files.pair"
EXPECTED = "same names, dtypes and shapes, different contents"


def pair_check(a: Manifest, b: Manifest, config: dict[str, Any] | None = None) -> Check:
    """Compares two manifests; without tensor digests the contents stay unknown and the check is ``inconclusive``."""
    found = Findings(_digests(a, b), layout_problems(a, b), _different_files(a, b))
    if not found.problems and (a.content_digest is None or b.content_digest is None):
        found.observed["contents"] = "not compared"
        reason = "contents were not compared, because digests were switched off"
        warnings = tuple(found.warnings)
        return Check(CHECK, Outcome.INCONCLUSIVE, found.observed, EXPECTED, reason=reason, warnings=warnings)
    if not found.problems:
        _compare_contents(a, b, config, found)
    return judge(CHECK, found, EXPECTED)


def _digests(a: Manifest, b: Manifest) -> dict[str, Any]:
    return {
        "layout_digest": {"model": a.layout_digest, "checkpoint": b.layout_digest},
        "content_digest": {"model": a.content_digest, "checkpoint": b.content_digest},
    }


def layout_problems(a: Manifest, b: Manifest) -> list[str]:
    """Every tensor that only one side has, or that has another dtype or shape on the other side."""
    if a.layout_digest == b.layout_digest:
        return []
    only_a = [f"tensor {name!r} is only in {a.path}" for name in a.by_name if name not in b.by_name]
    only_b = [f"tensor {name!r} is only in {b.path}" for name in b.by_name if name not in a.by_name]
    common = [(entry, b.by_name[entry.name]) for entry in a.tensors if entry.name in b.by_name]
    return only_a + only_b + [_mismatch(x, y) for x, y in common if (x.dtype, x.shape) != (y.dtype, y.shape)]


def _mismatch(a: TensorEntry, b: TensorEntry) -> str:
    return f"tensor {a.name!r} is {a.dtype} {list(a.shape)} in A and {b.dtype} {list(b.shape)} in B"


def _different_files(a: Manifest, b: Manifest) -> list[str]:
    names = sorted(name for name in a.files.keys() | b.files.keys() if a.files.get(name) != b.files.get(name))
    return [f"{name} of A and B differ; a push changes weights only, the server keeps A's" for name in names]


def _compare_contents(a: Manifest, b: Manifest, config: dict[str, Any] | None, found: Findings) -> None:
    pairs = list(zip(a.tensors, b.tensors, strict=True))
    differing = [entry for entry, other in pairs if entry.digest != other.digest]
    equal = [entry for entry, other in pairs if entry.digest == other.digest]
    found.observed |= {
        "differing_tensors": len(differing),
        "differing_bytes": sum(entry.nbytes for entry in differing),
        "tensors": len(pairs),
        "bytes": a.total_bytes,
        "equal_by_family": dict(sorted(Counter(family(entry.name, config) for entry in equal).items())),
    }
    if not differing:
        found.problems.append(f"nothing to observe: A and B have the same content, {a.content_digest}")
    elif equal:
        found.warnings.append(f"{len(equal)} of {len(pairs)} tensors are equal in A and B; no push can be seen in them")
