"""What a run needs to be told, which depends on the lane and on the rest of what was said."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from vst.config.schema import LANES, LaneConf, VstConf

EVALUATING = ("L5",)

HINTS = {
    "model.path": "the directory of checkpoint A, which the server is started from",
    "checkpoint.path": "the directory of checkpoint B, which is pushed",
    "server.base_url": "the address of the running server, such as http://host:8000 (several: server.base_urls=[…])",
    "model.draft_path": "the directory of the draft that the server was started with",
    "checkpoint.draft_path": "the directory of the draft that is pushed after checkpoint B",
    "eval.dataset": "a file of questions, JSON lines with question and answer",
    "eval.shots_dataset": "a file of questions to take the examples from, such as GSM8K's train.jsonl; or eval.shots=0",
    "eval.task": "a task of lm-eval",
    "lane.left": "the record or evaluation that was taken",
    "lane.right": "the record or evaluation that it must equal",
}

NAMING = (
    "model.path",
    "model.draft_path",
    "checkpoint.path",
    "checkpoint.draft_path",
    "oracle.reference",
    "eval.reference",
    "lane.plan",
    "provenance.sign",
    "provenance.previous",
    "snapshot.manifest",
)
"""Keys that name a file or a directory; without a value each of them makes a run do something else."""


def empty_keys(cfg: DictConfig) -> list[str]:
    """The keys that were given an empty text, as an unset variable of a shell leaves it."""
    return [key for key in NAMING if OmegaConf.select(cfg, key, throw_on_missing=False) == ""]


def needs_checkpoint(lane: LaneConf) -> bool:
    """Whether a lane reads checkpoint B; L1, L2 and ``record`` look at A alone, ``selftest`` has pairs of its own."""
    return lane.name not in ("record", "compare", "eval", "selftest") and not (
        lane.name in LANES + ("ladder",) and lane.upto in ("L1", "L2")
    )


def evaluates(lane: LaneConf) -> bool:
    """Whether a lane asks the questions of the eval group."""
    climbed = LANES[: LANES.index(lane.upto) + 1] if lane.upto in LANES else ()
    return lane.name == "eval" or (lane.name in (*LANES, "ladder") and any(name in EVALUATING for name in climbed))


def missing_keys(cfg: DictConfig) -> set[str]:
    """The keys that this run needs and that nobody has set."""
    missing = set(OmegaConf.missing_keys(cfg))
    if not evaluates(cfg.lane):
        missing = {key for key in missing if not key.startswith("eval.")}
    missing |= _missing_beside(cfg)
    if cfg.model.generate is not None or not needs_checkpoint(cfg.lane):
        missing -= {"checkpoint.path"}
    if cfg.model.generate is not None or cfg.lane.name in ("compare", "selftest"):
        missing -= {"model.path"}
    if derives(cfg):
        missing -= {"model.path"}
    if cfg.server.kind == "attach" and cfg.server.base_urls:
        missing -= {"server.base_url"}
    elif cfg.server.kind == "attach" and (OmegaConf.is_missing(cfg.server, "base_url") or not cfg.server.base_url):
        missing.add("server.base_url")
    if cfg.lane.name == "compare":
        missing |= {f"lane.{side}" for side in ("left", "right") if not cfg.lane[side]}
    return missing


def derives(cfg: DictConfig | VstConf) -> bool:
    """Whether A is made from B: nothing but B is given, and the server that is started on A is the run's own."""
    if isinstance(cfg, DictConfig):
        given = not OmegaConf.is_missing(cfg.checkpoint, "path") and bool(cfg.checkpoint.path)
    else:
        given = bool(cfg.checkpoint.path)
    own = cfg.server.kind != "attach" and needs_checkpoint(cfg.lane)
    return bool(given and own and cfg.model.derive and cfg.model.draft_path is None)


def _missing_beside(cfg: DictConfig) -> set[str]:
    """What is missing because of another value: the other draft, the file of the examples, the task."""
    missing = set()
    drafts = cfg.model.draft_method is not None or cfg.model.draft_path is not None
    if drafts and not cfg.model.draft_path:
        missing.add("model.draft_path")
    if drafts and needs_checkpoint(cfg.lane) and not cfg.checkpoint.draft_path:
        missing.add("checkpoint.draft_path")
    if evaluates(cfg.lane) and cfg.eval.kind == "lm_eval" and not cfg.eval.task:
        missing.add("eval.task")
    given = not OmegaConf.is_missing(cfg.eval, "dataset") and cfg.eval.dataset is not None
    if evaluates(cfg.lane) and given and cfg.eval.kind == "questions" and cfg.eval.shots and not cfg.eval.shots_dataset:
        missing.add("eval.shots_dataset")
    return missing


def filled(cfg: DictConfig) -> DictConfig:
    """Paths that this run does not need, or that are generated later, become empty instead of missing."""
    filled = cfg.copy()
    for key in ("model.path", "checkpoint.path", "eval.dataset", "server.base_url"):
        group, _, name = key.partition(".")
        if OmegaConf.is_missing(filled[group], name):
            OmegaConf.update(filled, key, "" if name == "path" else None)
    return filled
