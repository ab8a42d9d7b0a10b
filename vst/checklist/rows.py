"""The rows of the checklist and the checks that each is filled from. Data; nothing is judged here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One row: all ``needs`` must be there, each a check or a pattern of checks that must all hold.

    ``unless`` names a fact of the run that makes the row not applicable, ``besides`` checks that are looked at where
    they are there and not asked for where they are not.
    """

    id: str
    title: str
    means: str
    needs: tuple[str, ...]
    unless: str = ""
    besides: tuple[str, ...] = ()


ROWS = (
    Row("cold", "Cold start repeats", "one state gives one record; the spread is the noise floor",
        ("oracle.repeatable", "oracle.finite")),
    Row("identity", "Identity", "A pushed over A changes nothing", ("identity.record",), besides=("identity.weights",)),
    Row("to_b", "A → B", "a push of B answers like a cold start of B",
        ("reference.comparable", "reference.distinct", "transition.to_b", "transition.label"),
        besides=("transition.final",)),
    Row("back", "B → A", "a push of A brings the first answers back", ("transition.back",)),
    Row("cycles", "Cycles", "many updates under load, each judged, without growth of memory",
        ("cycles.all",), besides=("load.clean", "memory.trend")),
    Row("sleep", "Sleep levels", "each level frees memory, gives it back, and says so truly",
        ("sleep.state", "sleep.memory", "wake.level2_needs_push", "update.asleep_refused")),
    Row("wake", "Wake orders", "every order of waking around a push ends at the reference",
        ("wake.orders", "lifecycle.order"), besides=("lifecycle.idempotent",)),
    Row("families", "Every tensor family observable", "a stale family would be noticed through the probes",
        ("control.*",)),
    Row("tied", "Tied head", "embedding and head move together",
        ("transition.to_b", "control.embedding"), unless="untied"),
    Row("scales", "Quantised scales", "stale scales would be noticed", ("transition.to_b", "control.scale"),
        unless="unscaled"),
    Row("draft", "Draft and MTP acceptance", "the draft model is updated with the model that it drafts for",
        ("draft.acceptance",), unless="draftless"),
    Row("caches", "Caches cold", "no cached state of old weights is used after a change", ("cache.cold",)),
    Row("pause", "Pause modes with work in flight", "keep, abort and wait treat running requests as declared",
        ("pause.keep", "pause.abort", "pause.wait", "pause.admission")),
    Row("replicas", "Every rank and replica", "each one is judged; the worst counts",
        ("replicas.each",), unless="alone"),
    Row("failure", "A failure leaves it not serving", "no finish and no resume after a failure; a full push recovers",
        ("fault.publisher_killed", "fault.control_plane_cut", "fault.update_refused", "fault.hang",
         "fault.server_killed", "recovery.full_push")),
    Row("quality", "Quality", "GSM8K before and after, question by question",
        ("eval.complete", "eval.paired", "eval.pinned"),
        besides=("eval.comparable", "eval.distinct", "eval.records", "eval.reference")),
    Row("provenance", "Provenance", "every bundle verifies: all digests and the chain hold", ()),
)  # fmt: skip
