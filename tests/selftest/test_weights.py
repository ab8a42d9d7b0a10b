from __future__ import annotations

from pathlib import Path

import torch

from vst.selftest.account import resident
from vst.selftest.arena import Arena
from vst.selftest.checkpoint import load
from vst.selftest.fault import Fault, make
from vst.selftest.replica import Memory, Replica
from vst.selftest.weights import RankWeights, assemble, cut

MIB = 1 << 20
EXPERT = "model.layers.0.mlp.up_proj.weight"


def replica(path: Path, *faults: Fault, ranks: int = 1) -> Replica:
    checkpoint = load(path)
    return Replica(0, checkpoint.shape, checkpoint.tensors, ranks, Memory(MIB, MIB, 64), faults)


def push(target: Replica, tensors: dict[str, torch.Tensor]) -> None:
    target.start()
    for rank in range(len(target.ranks)):
        for name, value in tensors.items():
            target.load(rank, name, value)
    target.finish()


def test_dropped_memory_really_goes_back_and_comes_back() -> None:
    before = resident()
    arena = Arena(64 * MIB)
    held = resident()
    arena.drop(keep=True)
    dropped = resident()
    assert held - before > 60 * MIB
    assert held - dropped > 60 * MIB
    assert arena.restore()
    assert resident() - dropped > 60 * MIB


def test_level_1_keeps_the_bytes_and_level_2_does_not(a: Path) -> None:
    one = replica(a)
    before = one.ranks[0].checksum(EXPERT)
    one.sleep(1)
    assert one.asleep == ("weights", "kv_cache")
    one.wake(("weights",))
    assert one.ranks[0].checksum(EXPERT) == before
    one.sleep(2)
    one.wake(("weights", "kv_cache"))
    assert one.ranks[0].checksum(EXPERT) != before
    assert one.asleep == ()


def test_every_tensor_is_whole_again_from_the_slices_of_all_ranks(a: Path) -> None:
    tensors = load(a).tensors
    ranks = [RankWeights(tensors, 2, rank, 0) for rank in range(2)]
    assert all(torch.equal(assemble(ranks, name), value) for name, value in tensors.items())
    assert ranks[0].get(EXPERT).shape[0] * 2 == tensors[EXPERT].shape[0]


def test_a_tensor_that_cannot_be_cut_is_held_whole() -> None:
    odd = torch.zeros(3, 4)
    assert cut(odd, 2, 1) is odd


def test_a_push_replaces_everything(a: Path, b: Path) -> None:
    one = replica(a, ranks=2)
    push(one, dict(load(b).tensors))
    assert all(torch.equal(assemble(one.ranks, name), value) for name, value in load(b).tensors.items())
    assert one.unusable() is None


def test_a_stale_tensor_keeps_its_old_bytes_and_nothing_else_does(a: Path, b: Path) -> None:
    one = replica(a, make("stale", match=f"^{EXPERT}$"))
    push(one, dict(load(b).tensors))
    kept = [name for name in one.ranks[0].names if torch.equal(assemble(one.ranks, name), load(a).tensors[name])]
    assert kept == [EXPERT]


def test_a_stale_buffer_leaves_the_bytes_new_and_the_answers_old(a: Path, b: Path) -> None:
    one, whole = replica(a, make("stale", of="buffer", match=f"^{EXPERT}$")), replica(a)
    old = one.runtime[EXPERT]
    for target in (one, whole):
        push(target, dict(load(b).tensors))
    assert one.ranks[0].checksum(EXPERT) == whole.ranks[0].checksum(EXPERT)
    assert torch.equal(one.runtime[EXPERT], old)
    assert not torch.equal(whole.runtime[EXPERT], old)


def test_a_fault_waits_for_its_update(a: Path, b: Path) -> None:
    one = replica(a, make("zero", match=EXPERT, first=2))
    push(one, dict(load(b).tensors))
    assert bool(one.ranks[0].get(EXPERT).any())
    push(one, dict(load(b).tensors))
    assert not bool(one.ranks[0].get(EXPERT).any())


def test_experts_are_swapped_with_each_other_only(checkpoints: Path) -> None:
    from vst.selftest.pairs import make_pair

    path = make_pair("experts", checkpoints)[0]
    one = replica(path, make("swap", match=r"\.experts\.0\.", with_match=".experts.2."))
    tensors = dict(load(path).tensors)
    push(one, tensors)
    moved = {name for name in tensors if not torch.equal(one.ranks[0].get(name), tensors[name])}
    assert moved == {name for name in tensors if ".experts.0." in name or ".experts.2." in name}
    first = "model.layers.1.block_sparse_moe.experts.0.w1.weight"
    assert torch.equal(one.ranks[0].get(first), tensors[first.replace("experts.0", "experts.2")])


def test_the_forward_pass_is_refused_while_an_update_is_open_or_torn(a: Path) -> None:
    one = replica(a)
    one.start()
    assert "open" in str(one.unusable())
    one.tear()
    assert "failed" in str(one.unusable())
    push(one, dict(load(a).tensors))
    assert one.unusable() is None
