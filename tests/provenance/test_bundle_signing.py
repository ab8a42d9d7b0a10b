"""A signed run verifies with the public key, and with no other."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from vst.errors import ConfigError
from vst.provenance.__main__ import check_run, main
from vst.provenance.encoding import to_bytes
from vst.provenance.signing import ENVELOPE, load_public, load_signer, pae
from vst.provenance.verify import verify

from .conftest import Run, run_vst, verify_cli

Copied = Callable[[Run], Run]


def write_keys(folder: Path, name: str) -> tuple[Path, Path]:
    """A key pair as PEM files, private and public."""
    key = Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_keys(tmp_path_factory.mktemp("keys"), "mine")


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory, keys: tuple[Path, Path]) -> Run:
    return run_vst(tmp_path_factory.mktemp("signed") / "run", "lane=L0", f"provenance.sign={keys[0]}")


def test_the_pre_authentication_encoding_is_that_of_the_dsse_specification() -> None:
    expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert pae("http://example.com/HelloWorld", b"hello world") == expected


def test_a_signed_run_verifies_with_its_public_key(signed: Run, keys: tuple[Path, Path]) -> None:
    assert signed.code == 0, signed.output
    code, text = verify_cli(signed.path, "--key", str(keys[1]))
    assert code == 0 and text.startswith("verified:"), text


def test_the_envelope_is_dsse_over_the_statement_about_run_json(signed: Run, keys: tuple[Path, Path]) -> None:
    envelope = signed.json(ENVELOPE)
    payload = base64.b64decode(envelope["payload"])
    assert payload == (signed.path / "run.json.meta.json").read_bytes()
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    signature = base64.b64decode(envelope["signatures"][0]["sig"])
    public = Ed25519PublicKey.from_public_bytes(load_public(str(keys[1])))
    public.verify(signature, pae(envelope["payloadType"], payload))


def test_without_a_key_the_signature_is_checked_against_the_key_that_the_run_names(signed: Run) -> None:
    report = verify(signed.path)
    assert report.holds and "give --key to know whose it is" in report.notes[0]


def test_another_key_is_refused(signed: Run, tmp_path: Path) -> None:
    report = check_run(signed.path, str(write_keys(tmp_path, "other")[1]))
    assert report.exit_code == 10 and "run.json.dsse.json: it is signed by the key sha256:" in report.lines()[0]


def test_an_unsigned_run_does_not_hold_when_a_key_is_given(passing: Run, keys: tuple[Path, Path]) -> None:
    report = check_run(passing.path, str(keys[1]))
    assert report.lines() == [
        "does not hold: run.json.dsse.json: run.json names no signing key: the run was not signed"
    ]


def test_every_byte_of_the_envelope_counts(signed: Run, keys: tuple[Path, Path], copied: Copied) -> None:
    run = copied(signed)
    path = run.path / ENVELOPE
    before = path.read_bytes()
    last = len(before) - 1
    for at in [*range(0, last, last // 20), *range(last - 100, last + 1)]:
        path.write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1 :])
        report = check_run(run.path, str(keys[1]) if at % 2 else None)
        assert report.exit_code == 10 and report.findings[0].name == ENVELOPE, at
    path.unlink()
    assert str(verify(run.path).findings[0]) == "run.json.dsse.json: is missing: the run was signed"


def test_a_forger_who_makes_every_digest_fit_is_stopped_by_the_signature(
    signed: Run, keys: tuple[Path, Path], copied: Copied
) -> None:
    run = copied(signed)
    sidecar = run.json("run.json.meta.json")
    sidecar["predicate"]["machine"]["host"] = "elsewhere"
    (run.path / "run.json.meta.json").write_bytes(to_bytes(sidecar))
    found = [str(finding) for finding in check_run(run.path, str(keys[1])).findings]
    assert "run.json.dsse.json: it signs another statement than run.json.meta.json" in found


def test_a_key_that_cannot_sign_is_a_configuration_error_before_anything_is_written(tmp_path: Path) -> None:
    run = run_vst(tmp_path / "run", "lane=L0", f"provenance.sign={tmp_path / 'nothing.pem'}")
    assert run.code == 2 and "cannot be read: No such file" in run.output
    assert not list(run.path.glob("*"))


def test_every_unusable_key_file_is_named_with_what_is_wrong(
    tmp_path: Path, keys: tuple[Path, Path], capsys: pytest.CaptureFixture[str], passing: Run
) -> None:
    locked = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")
    )
    other = generate_private_key(SECP256R1())
    contents = {
        "text": b"not a key",
        "locked": locked,
        "curve": other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "public": keys[1].read_bytes(),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError, match=f"provenance.sign={tmp_path / name}"):
            load_signer(str(tmp_path / name))
    (tmp_path / "curve.pub").write_bytes(
        other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    for name in ("text", "curve.pub", "nothing"):
        assert main(["verify", str(passing.path), "--key", str(tmp_path / name)]) == 2
        assert f"--key {tmp_path / name}" in capsys.readouterr().err


def test_run_json_says_who_will_sign_it(signed: Run, keys: tuple[Path, Path]) -> None:
    named = json.loads((signed.path / "run.json").read_bytes())["signing"]
    assert named == load_signer(str(keys[0])).describe()
    assert base64.b64decode(named["public_key"]) == load_public(str(keys[0])) == load_public(str(keys[1]))
