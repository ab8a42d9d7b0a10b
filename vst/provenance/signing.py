"""Signing a run: a DSSE envelope over the statement about ``run.json``, which covers every other file by digest.

Source: Dead Simple Signing Envelope, ``protocol.md`` and ``envelope.md`` of secure-systems-lab/dsse; Ed25519 is RFC
8032.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vst.errors import ConfigError, VerificationError
from vst.provenance.encoding import to_bytes

PAYLOAD_TYPE = "application/vnd.in-toto+json"
ENVELOPE = "run.json.dsse.json"
INSTALL = "install the extra: pip install 'vllm-state-transition-verifier[sign]'"


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: what is really signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True)
class Signer:
    """A private Ed25519 key with its public half (32 bytes)."""

    key: Any
    public: bytes

    def describe(self) -> dict[str, str]:
        """What ``run.json`` says about the signature that will follow."""
        return {"keyid": keyid(self.public), "public_key": base64.b64encode(self.public).decode()}

    def envelope(self, payload: bytes) -> bytes:
        """The envelope file for a statement's bytes."""
        return _envelope(payload, keyid(self.public), self.key.sign(pae(PAYLOAD_TYPE, payload)))


def keyid(public: bytes) -> str:
    return "sha256:" + hashlib.sha256(public).hexdigest()


def _envelope(payload: bytes, key: str, signature: bytes) -> bytes:
    return to_bytes(
        {
            "payloadType": PAYLOAD_TYPE,
            "payload": base64.b64encode(payload).decode(),
            "signatures": [{"keyid": key, "sig": base64.b64encode(signature).decode()}],
        }
    )


def load_signer(path: str) -> Signer:
    """The signer of a PEM file with an unencrypted Ed25519 private key; ConfigError says what is wrong with it."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise ConfigError(f"provenance.sign={path} needs the package cryptography; {INSTALL}") from error
    try:
        key = load_pem_private_key(Path(path).expanduser().read_bytes(), password=None)
    except OSError as error:
        raise ConfigError(f"provenance.sign={path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"provenance.sign={path} is not an unencrypted private key in PEM form: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(
            f"provenance.sign={path} is not an Ed25519 key: make one with openssl genpkey -algorithm ed25519"
        )
    return Signer(key, key.public_key().public_bytes_raw())


def load_public(path: str) -> bytes:
    """The 32 bytes of a PEM file with an Ed25519 public key (or the private key that holds it); ConfigError if not."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        raise ConfigError(f"--key {path} needs the package cryptography; {INSTALL}") from error
    try:
        pem = Path(path).expanduser().read_bytes()
        if b"PRIVATE KEY" in pem:
            return load_signer(path).public
        key = load_pem_public_key(pem)
    except OSError as error:
        raise ConfigError(f"--key {path} cannot be read: {error.strerror}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"--key {path} is not a public key in PEM form: {error}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError(f"--key {path} is not an Ed25519 public key")
    return key.public_bytes_raw()


def check_envelope(raw: bytes, payload: bytes, public: bytes) -> None:
    """VerificationError unless ``raw`` is an envelope of exactly ``payload``, signed by ``public``."""
    key, sent, signature = _parts(raw)
    if sent != payload:
        raise VerificationError("it signs another statement than run.json.meta.json")
    if key != keyid(public):
        raise VerificationError(f"it is signed by the key {key}, expected {keyid(public)}")
    if raw != _envelope(sent, key, signature):
        raise VerificationError("it is not written as the run wrote it")
    if not _signed(public, signature, pae(PAYLOAD_TYPE, sent)):
        raise VerificationError(f"the signature does not verify with {keyid(public)}")


def _parts(raw: bytes) -> tuple[str, bytes, bytes]:
    try:
        content: Mapping[str, Any] = json.loads(raw)
        if content["payloadType"] != PAYLOAD_TYPE:
            raise VerificationError(f"its payload type is {content['payloadType']!r}, expected {PAYLOAD_TYPE!r}")
        (one,) = content["signatures"]
        return str(one["keyid"]), base64.b64decode(content["payload"], validate=True), base64.b64decode(one["sig"])
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise VerificationError(f"it is not a DSSE envelope with one signature: {error}") from error


def _signed(public: bytes, signature: bytes, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True
