"""Secrets reach no file of a run, and what is no secret stays readable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from http_server import Call, HttpServer, Reply

from vst.provenance.redaction import MASK, Scrubber, looks_secret
from vst.provenance.rundir import RunDir
from vst.provenance.runtime import server_facts, shown_environment
from vst.provenance.sidecar import Request
from vst.provenance.verify import verify

from .conftest import Run, run_vst


def found_in(path: Path, *secrets: str) -> list[str]:
    """The files below ``path`` that hold one of the secrets, with it."""
    files = [one for one in path.rglob("*") if one.is_file()]
    assert len(files) > 5
    return [f"{one.name}: {secret}" for one in files for secret in secrets if secret.encode() in one.read_bytes()]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose command line, configuration and environment are full of secrets."""
    return run_vst(
        tmp_path_factory.mktemp("planted") / "run",
        "lane=L0",
        "server=attach",
        "server.base_url=http://127.0.0.1:9/",
        "checkpoint.revision='https://admin:url-pass-4711@hub.example/b'",
        "server.api_key_env=PLANTED_NAME",
        "+server.env.VLLM_API_KEY=in-the-env-4712",
        "+server.env.SECRETARY=shown",
        "server.args=[--hf-token,in-the-args-4713,'--hf-overrides=https://u:arg-url-4714@h/x']",
        "oracle.reference='https://hub.example/?access_token=in-a-query-4715'",
        HF_TOKEN="in-the-shell-4716",
        PLANTED_NAME="by-declaration-4717",
        HTTPS_PROXY="http://me:proxy-pass-4718@proxy:8080",
        VLLM_PLUGINS="seen-by-value in-the-shell-4716",
    )


def test_planted_secrets_are_in_no_file_of_a_run(planted: Run) -> None:
    assert planted.code == 0, planted.output
    secrets = [f"-{number}" for number in range(4711, 4719)]
    assert found_in(planted.path, *secrets) == []
    assert not any(secret in planted.output for secret in secrets)
    assert verify(planted.path).holds


def test_what_is_no_secret_stays_where_it_was(planted: Run) -> None:
    overrides = planted.json("run.json")["request"]["overrides"]
    assert f"checkpoint.revision='https://{MASK}@hub.example/b'" in overrides
    assert f"+server.env.VLLM_API_KEY={MASK}" in overrides and "+server.env.SECRETARY=shown" in overrides
    assert "server.api_key_env=PLANTED_NAME" in overrides
    text = (planted.path / ".hydra/resolved.yaml").read_text()
    assert "min_tokens: 4" in text and "api_key_env: PLANTED_NAME" in text and "SECRETARY: shown" in text
    assert planted.predicate()["runtime"]["environment"]["VLLM_PLUGINS"] == f"seen-by-value {MASK}"


def test_an_address_with_a_password_is_refused_and_written_nowhere(tmp_path: Path) -> None:
    options = ("server=attach", "server.base_url=http://admin:url-pass-4720@127.0.0.1:9/")
    run = run_vst(tmp_path / "run", "lane=publish", *options)
    assert run.code == 2 and "url-pass-4720" not in run.output
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"url-pass-4720" in path.read_bytes()]


def test_a_server_that_repeats_the_key_and_shows_its_own_puts_neither_into_a_file(tmp_path: Path) -> None:
    def repeat(call: Call) -> Reply:
        heard = call.headers["authorization"]
        assert heard == "Bearer key-of-the-run-5001"
        own = {"VLLM_API_KEY": "of-the-server-5002", "hub": "https://x:hub-pass-5003@hub/", "AUTH": f"{heard}"}
        return Reply(500, {"vllm_env": own, "said": "Bearer somebody-else-5004"})

    with HttpServer({"/server_info": repeat}) as server:
        options = (f"server.base_url={server.url}", "server.api_key_env=THE_KEY")
        run = run_vst(tmp_path / "run", "lane=publish", "server=attach", *options, THE_KEY="key-of-the-run-5001")
    assert run.code == 20, run.output
    assert found_in(run.path, "run-5001", "server-5002", "pass-5003", "else-5004") == []
    events = [json.loads(line) for line in (run.path / "events.jsonl").read_text().splitlines()]
    assert any(event["kind"] == "http" and "vllm_env" in event["answer"] for event in events), (
        "the answer itself is kept"
    )
    assert verify(run.path).holds


def test_a_log_of_another_process_is_masked_when_the_run_ends(tmp_path: Path) -> None:
    scrubber = Scrubber.of({"server": {"env": {"MY_SECRET": "told-to-the-server"}}}, {})
    run = RunDir(tmp_path / "run", Request((), (), "sha256:" + "0" * 64), scrubber)
    printed = (
        b"args: {'api_key': ['k1-6001'], 'seed': 0}\ngot told-to-the-server \xff\nGET http://a:b-6002@h/\nplain line\n"
    )
    (run / "server-model.log").write_bytes(printed)
    server = {"state": "unknown", "holds": "unknown", "left": "stopped"}
    verdict = {"verdict": "FAIL_CLOSED", "lane": "L1", "cause": "error", "exit_code": 20, "server": server, "lanes": []}
    run.finish(verdict, {"exit_code": 20, "attempt": 1})
    log = (run / "server-model.log").read_bytes()
    assert log == b"args: {'api_key': [***], 'seed': 0}\ngot *** \xff\nGET http://***@h/\nplain line\n"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("VLLM_API_KEY", True),
        ("api-key", True),
        ("--hf-token", True),
        ("apiKey", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("AWS_ACCESS_KEY_ID", True),
        ("db.password", True),
        ("GIT_CREDENTIALS", True),
        ("max_tokens", False),
        ("cached_tokens", False),
        ("token_changes", False),
        ("tokenizer", False),
        ("api_key_env", False),
        ("KEYBOARD", False),
        ("return_token_ids", False),
    ],
)
def test_a_name_says_secret_or_does_not(name: str, secret: bool) -> None:
    assert looks_secret(name) is secret


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("server.env={HF_TOKEN:abc,B:c}", "server.env={HF_TOKEN:***,B:c}"),
        ("server.args=[--api-key,zzz,--seed,1]", "server.args=[--api-key,***,--seed,1]"),
        ("vllm --api-key zzz --seed 1", "vllm --api-key *** --seed 1"),
        ("vllm --api-key --seed 1", "vllm --api-key --seed 1"),
        ("https://u:p@h/x?api_key=q&b=1", "https://***@h/x?api_key=***&b=1"),
        ("http://u:p%40ss@[::1]:80/", "http://***@[::1]:80/"),
        ("authorization: Basic dXNlcjpwYXNz", "authorization: *** ***"),
        ("curl -H 'Authorization: Bearer abcdef12'", "curl -H 'Authorization: *** ***'"),
        ("got hf_abcdefghijklmnopqrstuvwxyz", "got ***"),
        ("a token difference at probe 3, max_tokens=5", "a token difference at probe 3, max_tokens=5"),
        ('{"token_changes": 8, "prompt_tokens": 4}', '{"token_changes": 8, "prompt_tokens": 4}'),
        ("observed {'token': 123}, expected {'token': 45}", "observed {'token': 123}, expected {'token': 45}"),
        ("MY_TOKEN=123 PASSWORD: 99", "MY_TOKEN=*** PASSWORD: ***"),
        ("mail a@b.example and http://h/x@y", "mail a@b.example and http://h/x@y"),
    ],
)
def test_text_of_others_loses_its_secrets_and_nothing_else(text: str, clean: str) -> None:
    assert Scrubber().foreign(text) == clean


def test_a_secret_is_found_by_its_value_in_every_spelling() -> None:
    scrubber = Scrubber.of({"a": {"password": 'quo"te\u00e9d'}, "url": "http://me:p%40ssword@h"}, {"X_TOKEN": "short"})
    for text in ('quo"te\u00e9d', 'quo\\"te\u00e9d', 'quo\\"te\\u00e9d', "p%40ssword", "p@ssword", "bWU6cEBzc3dvcmQ="):
        assert scrubber.text(f"x {text} y") == "x *** y"
    assert scrubber.text("a short word") == "a short word", "a value that turns up by chance is not replaced"


def test_only_allowed_variables_and_those_of_the_configuration_are_shown() -> None:
    environment = {
        "LANG": "C",
        "HOME": "/home/me",
        "SSH_AUTH_SOCK": "/x",
        "MINE": "1",
        "MY_TOKEN": "abc",
        "PATH": "/bin",
    }
    shown = shown_environment(environment, Scrubber(), ("MINE", "MY_TOKEN", "ABSENT"))
    assert shown == {"LANG": "C", "MINE": "1", "MY_TOKEN": MASK}
    facts = server_facts("model", ["vllm", "--hf-token", "abc"], environment, (), Scrubber())
    assert facts == {
        "label": "model",
        "argv": ["vllm", "--hf-token", MASK],
        "environment": {"LANG": "C"},
        "unknown": {},
    }


def test_what_json_cannot_spell_becomes_text_and_a_verdict_is_written_all_the_same() -> None:
    content = {"a": float("nan"), "b": [float("-inf"), 1.5, True, None], "c": Path("/x"), 4: (1, "http://u:p@h")}
    assert Scrubber().tree(content) == {
        "a": "nan", "b": ["-inf", 1.5, True, None], "c": "/x", "4": [1, "http://***@h"],
    }  # fmt: skip
