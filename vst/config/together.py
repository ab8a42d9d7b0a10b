"""What several values say together that cannot be: a server of two kinds, a chain that leads nowhere, drafts twice."""

from __future__ import annotations

from collections.abc import Iterator

from vst.config.needs import evaluates
from vst.config.schema import LANES, ServerConf, VstConf
from vst.errors import ConfigError
from vst.selftest.fault import parse
from vst.server.address import base_url_problem
from vst.server.launch import SCRIPTED, reserved
from vst.server.plan import parse_all


def contradictions(conf: VstConf) -> list[str]:
    """One line for each pair of values that cannot both be, with what to set instead."""
    return [
        *_server_problems(conf.server),
        *_chain_problems(conf),
        *_model_problems(conf),
        *_run_problems(conf),
    ]


def _chain_problems(conf: VstConf) -> list[str]:
    """What is wrong with the chain, wherever it would begin; whether it is legal is judged on the server's state."""
    if conf.lane.plan is not None and conf.lane.name != "lifecycle":
        return ["lane.plan is replayed by lane=lifecycle: set it"]
    try:
        steps = parse_all(conf.lifecycle.chain)
    except ConfigError as error:
        return [f"lifecycle.chain: {error}"]
    if conf.lane.name == "lifecycle" and (conf.server.replicas > 1 or len(conf.server.base_urls) > 1):
        return ["lane=lifecycle moves one server: name it with server.base_url, or set server.replicas=1"]
    return [] if steps else ["lifecycle.chain is empty: name its steps, or use lifecycle=offload or lifecycle=keep"]


def _run_problems(conf: VstConf) -> Iterator[str]:
    """A lane, a launcher, a snapshot or a transfer that lacks what belongs to it."""
    if conf.transfer.backend == "vst_gloo" and conf.transfer.bucket_bytes is None:
        yield "transfer.bucket_bytes is not set; the gloo backend needs it"
    if conf.launch.dry_run:
        yield "launch.dry_run needs a launcher: hydra/launcher=slurm, or -m for local processes"
    if conf.snapshot.manifest is None and (conf.snapshot.root or conf.snapshot.imports):
        yield "snapshot.root and snapshot.imports say where a snapshot is: set snapshot.manifest too"
    if conf.lane.name in LANES and conf.lane.upto != conf.lane.name:
        yield f"lane.upto={conf.lane.upto} contradicts lane={conf.lane.name}: use lane=ladder lane.upto=…"
    if conf.transfer.backend == "nccl" and conf.publisher.device == "cpu":
        yield "transfer=nccl sends from a GPU: set publisher.device=cuda:N (a GPU that the server does not use)"


def _model_problems(conf: VstConf) -> list[str]:
    """Evaluations and drafts that exclude each other."""
    found = []
    if conf.eval.resume and conf.lane.name != "eval":
        found.append("eval.resume goes on with the evaluation of lane=eval; any other lane evaluates from the start")
    if conf.eval.kind == "lm_eval" and conf.lane.name != "eval" and evaluates(conf.lane):
        found.append("eval=lm_eval runs in lane=eval; compare two of its evaluations with lane=compare")
    if conf.transfer.mtp and conf.model.draft_path:
        found.append("transfer.mtp and model.draft_path exclude each other: a server drafts in one way")
    given = [arg for arg in conf.server.args if arg.replace("_", "-").startswith("--speculative-config")]
    if given and conf.model.draft_path:
        found.append(f"server.args={given[0]}: vst sets this itself from model.draft_path")
    return found


def _server_problems(server: ServerConf) -> list[str]:
    found = [
        f"server.args={arg}: vst sets this itself; use the key of the server group that stands for it"
        for arg in reserved(server.args)
    ]
    attached = server.kind == "attach"
    addresses = {"server.base_url": server.base_url} if server.base_url else {}
    addresses |= {f"server.base_urls[{number}]": url for number, url in enumerate(server.base_urls)}
    problems = {key: base_url_problem(url) for key, url in addresses.items()} if attached else {}
    found += [f"{key}: {problem}" for key, problem in problems.items() if problem]
    if server.faults and server.kind != SCRIPTED:
        found.append("server.faults belong to a scripted server: set server=scripted")
    for text in server.faults:
        parse(text)
    return found + list(_fleet_problems(server, attached))


def _fleet_problems(server: ServerConf, attached: bool) -> Iterator[str]:
    if server.base_urls and (server.base_url or not attached):
        yield "server.base_urls is for server=attach, instead of server.base_url: set one of them"
    if len(set(server.base_urls)) != len(server.base_urls):
        yield "server.base_urls names a server twice"
    if server.capabilities.kill and attached:
        yield "server.capabilities.kill=true: a server that this run did not start is not killed"
    if server.replicas > 1 and attached:
        yield "server.replicas is how many servers the run starts: name running ones with server.base_urls"
    if server.replicas > 1 and server.launch_prefix and server.kind != SCRIPTED:
        yield "server.launch_prefix spreads one server over nodes: server.replicas must be 1 with it"
    if len(server.devices) % max(server.replicas, 1):
        yield f"server.devices={server.devices}: cannot be divided among server.replicas={server.replicas}"
