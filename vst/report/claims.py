"""What each check and each lane proves, in one sentence of plain words; data, read by the run page."""

from __future__ import annotations

from fnmatch import fnmatchcase

LANES = {
    "L0": "The checkpoint files are whole, agree with their index and config, and did not change during the run.",
    "L1": "The server is the one that was declared, it generates, and it answers alike when asked twice.",
    "L2": "Pushing the same weights again changes no answer.",
    "L3": "A push of B makes the server answer like a cold start of B, and a push of A brings A back.",
    "L4": "Pausing, sleeping and waking around an update lose nothing and end at the reference.",
    "L5": "The quality measured after an update is that of a cold start, question by question.",
    "L6": "Updates under load and after failures stay right, or leave the server not serving.",
    "publish": "The weights left this machine whole and the server acknowledged them.",
    "record": "A reference of the checkpoint was taken from a fresh server.",
    "compare": "The two stored records answer alike.",
    "lifecycle": "The whole chain around an update was driven in its legal order.",
    "eval": "Every question of the evaluation was answered and scored.",
    "snapshot": "The code that ran is the code that the snapshot pins.",
    "selftest": "Every fault that was planted in a server was caught.",
}

CHECKS = (
    ("snapshot.verified", "the code comes from the pinned snapshot"),
    ("files.format", "every shard is whole safetensors"),
    ("files.index", "shards, headers and index agree"),
    ("files.config", "the config fits the tensors"),
    ("files.pair", "A and B have one layout and different contents"),
    ("files.trusted", "the files are those of a trusted manifest"),
    ("files.finite", "no weight is NaN or infinite"),
    ("files.storage", "the files lie on a local disk"),
    ("files.stable", "no file changed during the run"),
    ("server.reachable", "the server answers"),
    ("server.dialect", "its vLLM is known and equals the publisher's"),
    ("server.routes", "it has the routes of weight transfer"),
    ("server.model", "it serves the declared model"),
    ("server.transfer", "it was started with the declared backend"),
    ("server.world", "it has as many ranks as declared"),
    ("server.state", "it is awake and not paused"),
    ("server.devices", "the publisher's GPU is none of the server's"),
    ("server.alive", "it really generates"),
    ("server.answers", "it answered every question of the lane"),
    ("server.same", "one process served from start to end"),
    ("oracle.repeatable", "the same state gives the same answers twice"),
    ("oracle.finite", "all log-probabilities are finite"),
    ("transfer.completed", "every transaction came to its own end"),
    ("identity.record", "A pushed over A changes no answer"),
    ("identity.weights", "the server's own weight digests stay"),
    ("reference.comparable", "cold and warm server were started alike"),
    ("reference.distinct", "the probes can tell A from B"),
    ("transition.to_b", "after a push of B it answers like a cold B"),
    ("transition.back", "after a push of A it answers like A again"),
    ("transition.label", "the weight version moves with the content"),
    ("transition.final", "it ends at the checkpoint that was asked for"),
    ("cache.cold", "no cache of the old weights was used"),
    ("control.*", "stale weights of this family would be noticed"),
    ("pause.keep", "a frozen stream goes on without losing a token"),
    ("pause.abort", "pausing by abort ends what runs, and nothing else"),
    ("pause.wait", "pausing by wait lets what runs finish"),
    ("pause.admission", "what comes while paused is treated as declared"),
    ("sleep.state", "flag, metric and scheduler agree while asleep"),
    ("sleep.memory", "sleep gives memory back, and waking takes it again"),
    ("wake.orders", "every order of waking ends at the reference"),
    ("wake.level2_needs_push", "after level 2 only a full push is allowed"),
    ("update.asleep_refused", "no push into a sleeping server"),
    ("lifecycle.legal", "the chain asks for legal moves only"),
    ("lifecycle.steps", "every step ended in the state that it must"),
    ("lifecycle.order", "the whole chain ends at the reference"),
    ("lifecycle.idempotent", "a repeated step changes nothing"),
    ("eval.complete", "no question was dropped"),
    ("eval.records", "an identity push changes no evaluated answer"),
    ("eval.reference", "evaluated answers equal those of a cold B"),
    ("eval.paired", "the paired difference is what the sample can show"),
    ("eval.pinned", "dataset, prompt and rule are pinned by digest"),
    ("eval.comparable", "cold and warm server of the evaluation were started alike"),
    ("eval.final", "the lane ends at the checkpoint that was asked for"),
    ("eval.accuracy", "the share of right answers, told and not judged"),
    ("eval.distinct", "the questions can tell A from B"),
    ("cycles.all", "every cycle was judged and held"),
    ("cycles.final", "the cycles end at the checkpoint that was asked for"),
    ("load.clean", "traffic saw A or B, never a mixture"),
    ("memory.trend", "memory does not grow over the cycles"),
    ("fault.*", "this failure leaves the server not serving"),
    ("recovery.full_push", "a full push brings a failed server back"),
    ("draft.acceptance", "the draft model follows the model that it drafts for"),
    ("replicas.each", "every rank and replica was judged"),
    ("selftest.complete", "every planted fault was tried"),
    ("selftest.faults", "every planted fault was caught"),
    ("selftest.healthy", "no healthy server was accused"),
    ("selftest.*", "this planted fault was caught"),
    ("ladder.*", "this rung of the ladder was climbed"),
    ("run.completed", "the run came to its own end"),
    ("compare.*", "what was stored answers alike"),
)


def claim(id: str) -> str:
    """What the check ``id`` proves when it passes; empty for one that the table does not know."""
    return next((text for pattern, text in CHECKS if fnmatchcase(id, pattern)), "")


def lane_claim(lane: str) -> str:
    """What a lane proves when it passes; empty for one that the table does not know."""
    return LANES.get(lane, "")
