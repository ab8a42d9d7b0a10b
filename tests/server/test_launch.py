from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from vst.server.launch import ServerSpec, command, environment, flags, reserved

SPEC = ServerSpec("cpu", "vst_gloo", 2, 3, 4, 256, "bfloat16", ("--enforce-eager",), {"VLLM_CPU_KVCACHE_SPACE": "1"})


def value(argv: list[str], flag: str) -> str:
    assert argv.count(flag) == 1
    return argv[argv.index(flag) + 1]


def test_the_command_names_model_address_sizes_and_backend() -> None:
    argv = command(SPEC, Path("/ckpt/a b"), "127.0.0.1", 8123, "tiny")
    expected = {
        "--model": "/ckpt/a b",
        "--served-model-name": "tiny",
        "--host": "127.0.0.1",
        "--port": "8123",
        "--tensor-parallel-size": "2",
        "--pipeline-parallel-size": "3",
        "--data-parallel-size": "4",
        "--max-model-len": "256",
        "--dtype": "bfloat16",
    }
    assert {flag: value(argv, flag) for flag in expected} == expected
    assert json.loads(value(argv, "--weight-transfer-config")) == {"backend": "vst_gloo"}
    assert argv[-1] == "--enforce-eager" and "--enable-prompt-tokens-details" in argv
    assert SPEC.world_size == 24


def test_what_is_not_set_is_left_to_vllm() -> None:
    found = flags(replace(SPEC, max_model_len=None, dtype=None))
    assert "--max-model-len" not in found and "--dtype" not in found


def test_flags_say_nothing_about_checkpoint_or_place_so_that_references_can_be_keyed_by_them() -> None:
    assert not {"--model", "--host", "--port", "--served-model-name"} & set(flags(SPEC))


def test_the_schedulers_variables_and_a_foreign_key_do_not_reach_the_server() -> None:
    inherited = {
        "PATH": "/bin",
        "SLURM_JOB_ID": "1",
        "SLURM_NTASKS": "8",
        "SBATCH_PARTITION": "gpu",
        "SRUN_DEBUG": "3",
        "VLLM_API_KEY": "secret",
        "HF_HUB_OFFLINE": "0",
    }
    env = environment(SPEC, inherited)
    assert not [key for key in env if key.startswith(("SLURM", "SBATCH", "SRUN"))]
    assert "secret" not in env.values()
    assert env["PATH"] == "/bin" and env["VLLM_SERVER_DEV_MODE"] == "1" and env["HF_HUB_OFFLINE"] == "1"
    assert env["VLLM_TARGET_DEVICE"] == "cpu"
    assert "VLLM_TARGET_DEVICE" not in environment(replace(SPEC, kind="gpu"), inherited)


def test_what_the_user_sets_for_the_server_wins() -> None:
    env = environment(replace(SPEC, env={"VLLM_API_KEY": "mine", "HF_HUB_OFFLINE": "0"}), {"VLLM_API_KEY": "other"})
    assert (env["VLLM_API_KEY"], env["HF_HUB_OFFLINE"]) == ("mine", "0")


@pytest.mark.parametrize(
    "arg",
    [
        "--model",
        "--model=/other",
        "--port",
        "--port=1",
        "--host",
        "--served-model-name",
        "--served_model_name=x",
        "--served-model",
        "--weight-transfer-config",
        '--weight_transfer_config={"backend":"nccl"}',
        "--weight-transfer-config.backend",
        "--weight-transfer-conf",
        "--tensor-parallel-size",
        "--tensor_parallel_size=2",
        "-tp",
        "-tp=2",
        "-tp2",
        "-dp",
        "-pp",
        "--data-parallel-size=2",
        "--config",
        "--uds",
        "--api-key=x",
    ],
)
def test_an_argument_that_would_replace_one_of_ours_is_found_in_every_spelling(arg: str) -> None:
    assert reserved(["--enforce-eager", arg]) == [arg]


@pytest.mark.parametrize(
    "arg",
    [
        "--enforce-eager",
        "--model-impl",
        "-dpn",
        "-ep",
        "--data-parallel-size-local",
        "--hf-overrides",
        "8000",
        "--",
        "-O3",
    ],
)
def test_other_arguments_are_left_to_the_user(arg: str) -> None:
    assert reserved([arg]) == []


def test_a_draft_is_named_in_the_command_and_only_its_kind_in_the_flags_that_references_are_keyed_by() -> None:
    drafting = replace(SPEC, speculative={"method": "draft_model", "num_speculative_tokens": 2})
    argv = command(drafting, Path("/a"), "127.0.0.1", 1, "tiny", Path("/draft"))
    expected = {"model": "/draft", "method": "draft_model", "num_speculative_tokens": 2}
    assert json.loads(value(argv, "--speculative-config")) == expected
    assert "model" not in json.loads(value(flags(drafting), "--speculative-config"))
    assert "--speculative-config" not in command(SPEC, Path("/a"), "127.0.0.1", 1, "tiny")


def test_a_scripted_server_is_our_own_module_with_the_same_flags() -> None:
    argv = command(replace(SPEC, kind="scripted"), Path("/ckpt/a"), "127.0.0.1", 8123, "tiny")
    real = command(SPEC, Path("/ckpt/a"), "127.0.0.1", 8123, "tiny")
    assert argv[argv.index("-m") + 1] == "vst.selftest"
    assert argv[argv.index("--model") :] == real[real.index("--model") :]
