"""The signature of a bundle: that it is there when it must be, that it verifies, and whose it is."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from vst.errors import VerificationError
from vst.provenance.bundle import Bundle
from vst.provenance.report import Report
from vst.provenance.rundir import RUN
from vst.provenance.sidecar import SUFFIX
from vst.provenance.signing import ENVELOPE, check_envelope, keyid


def check_signature(bundle: Bundle, run: Mapping[str, Any], report: Report, key: bytes | None) -> None:
    """Verify with ``key`` when it is given, otherwise with the key that the run itself names."""
    stated = run.get("signing")
    if stated is None:
        if key is not None:
            report.wrong(ENVELOPE, f"{RUN} names no signing key: the run was not signed")
        return
    if ENVELOPE not in bundle.files:
        report.wrong(ENVELOPE, "is missing: the run was signed")
        return
    if find_spec("cryptography") is None:
        report.notes.append(f"{ENVELOPE} was not looked at: the package cryptography is not installed")
        return
    own = _public(stated)
    if own is None:
        report.wrong(RUN, "names a signing key that is none")
        return
    try:
        check_envelope(bundle.read(ENVELOPE), bundle.read(RUN + SUFFIX), own if key is None else key)
    except VerificationError as error:
        report.wrong(ENVELOPE, str(error))
        return
    if key is None:
        report.notes.append(f"signed by {keyid(own)}, the key that {RUN} itself names; give --key to know whose it is")


def _public(stated: Any) -> bytes | None:
    try:
        public = base64.b64decode(stated["public_key"], validate=True)
    except (KeyError, TypeError, binascii.Error, ValueError):
        return None
    return public if len(public) == 32 and stated.get("keyid") == keyid(public) else None
