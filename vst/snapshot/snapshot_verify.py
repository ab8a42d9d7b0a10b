"""Verify a source snapshot with nothing but a Python 3.9+ standard library.

This file is both a module of the package (every other part of ``vst.snapshot`` uses it to judge files) and a
program that works when it is copied alone into a container::

    python snapshot_verify.py --manifest source-manifest.json --root /src [--import vst=/src/vst]

It checks that the artifacts beside the manifest are the recorded ones, that every tracked file under the root has
the recorded type, mode and SHA-256, that nothing under the root could be imported in place of a tracked file, that
nothing is mounted below the root, and that each named module really imports from where it should. Paths are bytes
throughout, because a file name need not be text. Exit codes: 0 verified, 11 refused, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.util
import io
import json
import marshal
import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

SCHEMA = "vst.source-manifest/1"
MANIFEST_NAME = "source-manifest.json"
EXIT_OK, EXIT_USAGE, EXIT_REFUSED = 0, 2, 11
IMPORT_TIMEOUT_S = 300
SHOWN = 50

IMPORTABLE_SUFFIXES = (".py", ".pyc", ".so", ".pyd", ".pth", ".egg", ".egg-link")
"""Endings of files that an interpreter can load code from, or that change where it loads from."""

_ENTRY_POINTS = re.compile(rb"\.(dist|egg)-info/entry_points\.txt$")
_CACHED = re.compile(rb"^(?P<stem>.+)\.(?P<tag>[A-Za-z]+\w*-\d+\w*)(\.opt-(?P<opt>[12]))?\.pyc$")


class Refused(Exception):
    """What was read is not what the manifest says; the message names it and what to do."""


class Usage(Exception):
    """The arguments are wrong; nothing was verified."""


@dataclass(frozen=True)
class Entry:
    """One line of the tree listing: what must be at ``path`` (relative to the root).

    ``kind`` is file, symlink, submodule or (in the list of changes) deleted; ``sha256`` covers the bytes of a file or
    the target of a symlink; ``oid`` is git's own object name; ``owner`` is the submodule that a file belongs to.
    """

    path: bytes
    kind: str
    mode: str | None = None
    sha256: str | None = None
    size: int | None = None
    oid: str | None = None
    target: bytes | None = None
    owner: bytes | None = None

    def to_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {"type": self.kind, **named_bytes("path", self.path)}
        plain = {"mode": self.mode, "sha256": self.sha256, "bytes": self.size, "oid": self.oid}
        record.update({key: value for key, value in plain.items() if value is not None})
        if self.target is not None:
            record.update(named_bytes("target", self.target))
        if self.owner is not None:
            record.update(named_bytes("submodule", self.owner))
        return record


@dataclass(frozen=True)
class Manifest:
    """A parsed ``source-manifest.json``; ``digest`` is the SHA-256 of its bytes."""

    path: str
    digest: str
    data: dict[str, Any]

    def artifact(self, role: str) -> str | None:
        """The path of the artifact with this role, None when the snapshot has none."""
        for item in self.data["artifacts"]:
            if item["role"] == role:
                return os.path.join(os.path.dirname(os.path.abspath(self.path)), item["name"])
        return None


@dataclass(frozen=True)
class Report:
    """What a verification found; it holds when ``problems`` is empty. ``extra`` are files nobody recorded."""

    files: int
    problems: tuple[str, ...]
    extra: tuple[bytes, ...] = ()

    def require(self, subject: str) -> None:
        """Raise Refused with every problem (the first ones in full) unless there is none."""
        if not self.problems:
            return
        lines = [f"{subject} does not match its manifest: {len(self.problems)} problem(s)"]
        lines += [f"  {problem}" for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"  ... and {len(self.problems) - SHOWN} more")
        raise Refused("\n".join(lines))


def named_bytes(key: str, value: bytes) -> dict[str, str]:
    """``{key: text}`` for UTF-8, ``{key_base64: ...}`` for any other bytes, so that plain JSON loses nothing."""
    try:
        return {key: value.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{key}_base64": base64.b64encode(value).decode("ascii")}


def bytes_named(record: dict[str, Any], key: str) -> bytes | None:
    """The inverse of ``named_bytes``; None when neither key is there."""
    if f"{key}_base64" in record:
        return base64.b64decode(record[f"{key}_base64"])
    value = record.get(key)
    return value.encode("utf-8") if isinstance(value, str) else None


def show(path: bytes) -> str:
    """A path for a message: one line, quoted when it holds anything but plain characters."""
    text = path.decode("utf-8", "backslashreplace")
    return text if text.isprintable() and not set(text) & set(" '\"\\") else json.dumps(text)


def file_digest(path: bytes | str) -> tuple[str, int]:
    """SHA-256 and size in bytes of a regular file; a symlink is not followed."""
    digest, size = hashlib.sha256(), 0
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    try:
        while chunk := os.read(handle, 1 << 20):
            digest.update(chunk)
            size += len(chunk)
    finally:
        os.close(handle)
    return digest.hexdigest(), size


def load_manifest(path: str) -> Manifest:
    """Read the manifest; Usage when it cannot be read, Refused when it is not a source manifest."""
    try:
        with open(path, "rb") as handle:
            raw = handle.read()
    except OSError as error:
        raise Usage(f"cannot read the manifest {path}: {error.strerror}") from error
    try:
        data = json.loads(raw)
    except ValueError as error:
        raise Refused(f"{path} is not JSON ({error}); expected a {MANIFEST_NAME} written by prepare") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise Refused(f"{path} has schema {found!r}, expected {SCHEMA!r}; use the verifier beside that manifest")
    missing = [key for key in ("run_id", "snapshot", "artifacts", "repository") if key not in data]
    if missing:
        raise Refused(f"{path} lacks {', '.join(missing)}; it was cut or edited, prepare again")
    return Manifest(path, hashlib.sha256(raw).hexdigest(), data)


def artifact_problems(manifest: Manifest) -> list[str]:
    """Every artifact beside the manifest that is missing or has other bytes than recorded."""
    problems = []
    for item in manifest.data["artifacts"]:
        if os.path.basename(item["name"]) != item["name"]:
            problems.append(f"artifact {item['name']!r} is not beside the manifest")
            continue
        path = os.path.join(os.path.dirname(os.path.abspath(manifest.path)), item["name"])
        try:
            found, _ = file_digest(path)
        except OSError as error:
            problems.append(f"artifact {item['name']}: {error.strerror}; copy it beside the manifest")
            continue
        if found != item["sha256"]:
            problems.append(f"artifact {item['name']} has sha256 {found}, the manifest says {item['sha256']}")
    return problems


def read_entries(path: str) -> list[Entry]:
    """The lines of a listing artifact; Refused for a line that is malformed or names a path outside the root."""
    entries = []
    with open(path, "rb") as handle:
        for number, line in enumerate(handle, 1):
            try:
                record = json.loads(line)
                name = bytes_named(record, "path") or b""
                kind = record["type"]
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise Refused(f"{path}, line {number}: not a listing line ({error})") from error
            if not name or name.startswith(b"/") or {b"", b".", b".."} & set(name.split(b"/")):
                raise Refused(f"{path}, line {number}: {show(name)} is not a path below the root")
            entries.append(
                Entry(
                    name,
                    kind,
                    record.get("mode"),
                    record.get("sha256"),
                    record.get("bytes"),
                    record.get("oid"),
                    bytes_named(record, "target"),
                    bytes_named(record, "submodule"),
                )
            )
    return entries


def scan(root: bytes) -> Iterator[tuple[bytes, os.DirEntry[bytes]]]:
    """Everything under the root with its relative path; symlinks are not followed, the root's own .git is skipped."""
    pending = [b""]
    while pending:
        prefix = pending.pop()
        with os.scandir(os.path.join(root, prefix) if prefix else root) as listing:
            for item in listing:
                if not prefix and item.name == b".git":
                    continue
                path = prefix + item.name
                if item.is_dir(follow_symlinks=False):
                    pending.append(path + b"/")
                yield path, item


def entry_problem(entry: Entry, found: os.DirEntry[bytes] | None) -> str | None:
    """How what is on disk differs from one entry, None when it agrees."""
    name = show(entry.path)
    if found is None:
        return f"{name} is missing, expected a {entry.kind}"
    status = found.stat(follow_symlinks=False)
    kind = _kind_of(status.st_mode)
    expected = "directory" if entry.kind == "submodule" else entry.kind
    if kind != expected:
        return f"{name} is a {kind}, expected a {expected}"
    if kind == "directory":
        return None
    if kind == "symlink":
        target = os.readlink(found.path)
        if hashlib.sha256(target).hexdigest() == entry.sha256:
            return None
        return f"{name} points to {show(target)}, expected {show(entry.target or b'?')}"
    executable = bool(status.st_mode & stat.S_IXUSR)
    if executable != (entry.mode == "100755"):
        return f"{name} is {'' if executable else 'not '}executable, expected mode {entry.mode}"
    digest, size = file_digest(found.path)
    if digest != entry.sha256:
        return f"{name} has sha256 {digest} ({size} bytes), expected {entry.sha256} ({entry.size} bytes)"
    return None


def _kind_of(mode: int) -> str:
    for kind, test in (("file", stat.S_ISREG), ("symlink", stat.S_ISLNK), ("directory", stat.S_ISDIR)):
        if test(mode):
            return kind
    return "special file"


def extra_problem(path: bytes, found: os.DirEntry[bytes], known: dict[bytes, Entry], root: bytes) -> str | None:
    """Why a file that nobody recorded must not be there, None when it cannot be imported."""
    name = show(path)
    if found.is_dir(follow_symlinks=False):
        return None
    if b"/__pycache__/" in b"/" + path:
        return _cached_problem(path, known, root)
    if found.is_symlink() and os.path.isdir(found.path):
        return f"{name} is an extra link to a directory, which can be imported as a package; remove it"
    if path.lower().endswith(tuple(suffix.encode() for suffix in IMPORTABLE_SUFFIXES)):
        return f"{name} is not in the snapshot and could be imported in place of its files; remove it"
    if _ENTRY_POINTS.search(path):
        return f"{name} is not in the snapshot and declares entry points; remove its directory"
    return None


def _cached_problem(path: bytes, known: dict[bytes, Entry], root: bytes) -> str | None:
    folder, _, name = path.rpartition(b"/")
    match = _CACHED.match(name)
    source = folder[: -len(b"__pycache__")] + (match["stem"] + b".py" if match else b"")
    if match is None or source not in known:
        return None  # an interpreter loads a cached file only beside its source
    if match["tag"].decode() != sys.implementation.cache_tag:
        return f"{show(path)} is bytecode for another interpreter and cannot be judged by this one; remove it"
    if bytecode_matches(os.path.join(root, path), os.path.join(root, source), int(match["opt"] or b"0")):
        return None
    return f"{show(path)} does not hold the code of {show(source)}, and an interpreter may load it instead; remove it"


def bytecode_matches(cached: bytes | str, source: bytes | str, optimize: int) -> bool:
    """True when a ``.pyc`` of this interpreter holds exactly what compiling the source gives."""
    with open(cached, "rb") as handle:
        raw = handle.read()
    with open(source, "rb") as handle:
        text = handle.read()
    if raw[:4] != importlib.util.MAGIC_NUMBER:
        return True  # rejected on import, so it is never loaded
    try:
        code = marshal.loads(raw[16:])
        filename = code.co_filename
        expected = compile(text, filename, "exec", dont_inherit=True, optimize=optimize)
    except (EOFError, ValueError, TypeError, AttributeError, SyntaxError):
        return False
    return bool(code == expected)


def mounts_below(root: bytes, table: str = "/proc/self/mountinfo") -> list[bytes]:
    """Mount points strictly below the root; empty where the system has no mount table."""
    try:
        with open(table, "rb") as handle:
            lines = handle.read().splitlines()
    except OSError:
        return []
    prefix = os.path.realpath(root).rstrip(b"/") + b"/"
    points = (_unescaped(line.split(b" ")[4]) for line in lines if line.count(b" ") > 4)
    return sorted({point for point in points if point.startswith(prefix)})


def _unescaped(field: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), field)


def verify_root(manifest: Manifest, root: str) -> Report:
    """Compare everything under a mounted root with the manifest. Usage when the root is no directory."""
    if not os.path.isdir(root):
        raise Usage(f"the root {root} is not a directory; give the place where the snapshot is mounted")
    problems = artifact_problems(manifest)
    listing = manifest.artifact("tree")
    if listing is None or not os.path.isfile(listing):
        return Report(0, tuple(problems or ["the manifest names no tree listing; prepare again"]))
    base = os.fsencode(root)
    known = {entry.path: entry for entry in read_entries(listing)}
    try:
        found = dict(scan(base))
        problems += _tree_problems(known, found, base)
    except OSError as error:
        problems.append(f"cannot read {error.filename!r}: {error.strerror}")
        return Report(len(known), tuple(problems))
    problems += [f"something is mounted on {show(point)}, below the root; unmount it" for point in mounts_below(base)]
    extra = (path for path, item in found.items() if path not in known and not item.is_dir(follow_symlinks=False))
    return Report(len(known), tuple(problems), tuple(sorted(extra)))


def _tree_problems(known: dict[bytes, Entry], found: dict[bytes, os.DirEntry[bytes]], root: bytes) -> list[str]:
    checks = [entry_problem(entry, found.get(path)) for path, entry in sorted(known.items())]
    checks += [extra_problem(path, item, known, root) for path, item in sorted(found.items()) if path not in known]
    return [problem for problem in checks if problem]


_PROBE = r"""
import importlib, json, os, sys
name, descriptor = sys.argv[1], int(sys.argv[2])
top = name.partition(".")[0]
early = top in sys.modules
site_path = list(sys.path)
finder = None
for candidate in sys.meta_path:
    if not early and getattr(candidate, "find_spec", None) and candidate.find_spec(top, None):
        finder = getattr(candidate, "__name__", None) or type(candidate).__name__
        finder = "%s.%s" % (getattr(candidate, "__module__", "?"), finder)
        break
pth = []
for entry in site_path:
    if entry and os.path.isdir(entry):
        for item in sorted(os.listdir(entry)):
            if item.endswith(".pth"):
                with open(os.path.join(entry, item), "rb") as handle:
                    pth.append([os.path.join(entry, item), handle.read().decode("utf-8", "replace").splitlines()])
facts = {"early": early, "finder": finder, "pth": pth, "sys_path": site_path, "cwd": os.getcwd(),
         "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
         "custom": [getattr(sys.modules.get(m), "__file__", None) for m in ("sitecustomize", "usercustomize")]}
try:
    module = importlib.import_module(name)
    spec = getattr(module, "__spec__", None)
    facts["origin"] = getattr(module, "__file__", None) or getattr(spec, "origin", None)
    facts["path"] = [str(item) for item in getattr(module, "__path__", [])]
    facts["cached"] = getattr(module, "__cached__", None)
except BaseException as error:
    facts["error"] = "%s: %s" % (type(error).__name__, error)
with os.fdopen(descriptor, "w") as out:
    json.dump(facts, out)
"""


def probe_import(module: str) -> dict[str, Any]:
    """Import ``module`` in a fresh interpreter, started here with this environment, and say where it came from."""
    with tempfile.TemporaryFile() as answer:
        command = [sys.executable, "-B", "-c", _PROBE, module, str(answer.fileno())]
        try:
            done = subprocess.run(
                command, pass_fds=[answer.fileno()], capture_output=True, timeout=IMPORT_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise Refused(f"importing {module} did not end within {IMPORT_TIMEOUT_S} s; import it by hand") from error
        answer.seek(0)
        raw = answer.read()
    if not raw:
        tail = done.stderr.decode("utf-8", "replace").strip()[-500:]
        raise Refused(f"the interpreter ended (exit {done.returncode}) while importing {module}: {tail}")
    facts: dict[str, Any] = json.loads(raw)
    return facts


def import_problems(request: str, root: str | None = None, known: Iterable[bytes] = ()) -> list[str]:
    """Judge one ``MODULE=PATH``; PATH (from the root) is the module's file, its package or the tree it lies in."""
    module, _, place = request.partition("=")
    if not place or not all(part.isidentifier() for part in module.split(".")):
        raise Usage(f"--import {request!r} is not MODULE=PATH, for example vst=/src/vst")
    expected = os.path.realpath(os.path.join(root or "", place))
    facts = probe_import(module)
    if "error" in facts:
        return [f"module {module} cannot be imported: {facts['error']}"]
    origin = facts["origin"] and os.path.realpath(facts["origin"])
    parts = module.split(".")
    packages = {expected, os.path.join(expected, *parts)}
    good = _origin_fits(origin, expected, packages, parts) if origin else bool(facts["path"])
    strange = [item for item in facts["path"] if os.path.realpath(item) not in packages and origin != expected]
    if not good or (strange and good):
        found = origin if not good and origin else ", ".join(strange) or "nowhere"
        return [f"module {module} is imported from {found}, expected {expected}: {_reason(module, found, facts)}"]
    return _origin_problems(module, origin, facts, root, known)


def _origin_fits(origin: str, expected: str, packages: set[str], parts: list[str]) -> bool:
    folder, _, name = origin.rpartition("/")
    stem = name.partition(".")[0]
    if origin == expected or (stem == "__init__" and folder in packages):
        return True
    return stem == parts[-1] and folder in {expected, os.path.join(expected, *parts[:-1])}


def _origin_problems(
    module: str, origin: str | None, facts: dict[str, Any], root: str | None, known: Iterable[bytes]
) -> list[str]:
    if origin is None:
        return []
    problems = []
    top = os.path.realpath(root) + "/" if root else None
    if top and origin.startswith(top) and os.fsencode(origin[len(top) :]) not in set(known):
        problems.append(f"module {module} is imported from {origin}, which is not a file of the snapshot")
    cached = facts["cached"]
    if cached and origin.endswith(".py") and os.path.isfile(cached):
        match = _CACHED.match(os.fsencode(os.path.basename(cached)))
        if not bytecode_matches(cached, origin, int((match and match["opt"]) or b"0")):
            problems.append(f"module {module} is loaded from {cached}, which does not hold the code of {origin}")
    return problems


def _holds(entry: str, module: str, origin: str) -> bool:
    return origin.startswith(os.path.join(entry, module.partition(".")[0]))


def _reason(module: str, found: str, facts: dict[str, Any]) -> str:
    if facts["early"]:
        customs = [item for item in facts["custom"] if item] or ["a .pth file"]
        return f"it was imported before the program started, by {' or '.join(customs)}; remove that"
    if facts["finder"] and not facts["finder"].endswith("PathFinder"):
        return f"the import hook {facts['finder']} (an editable install) answers first; uninstall it"
    holders = [entry for entry in facts["sys_path"] if _holds(entry or facts["cwd"], module, facts["origin"] or found)]
    if not holders:
        return "no entry of sys.path holds it"
    entry = holders[0]
    where = f"sys.path[{facts['sys_path'].index(entry)}] is {entry or facts['cwd']!r}"
    for name, lines in facts["pth"]:
        wanted = os.path.realpath(entry or ".")
        if any(os.path.realpath(os.path.join(os.path.dirname(name), line.strip())) == wanted for line in lines if line):
            return f"{where}, put there by {name}; remove that file"
    if entry and entry in facts["PYTHONPATH"].split(os.pathsep):
        return f"{where}, put there by PYTHONPATH; unset it or put the snapshot first"
    return f"{where}; start from the root of the snapshot or put it first"


def run(manifest_path: str, root: str, imports: Iterable[str]) -> str:
    """Verify a root and modules; the line to print when all hold, Refused or Usage otherwise."""
    manifest = load_manifest(manifest_path)
    report = verify_root(manifest, root)
    report.require(f"the tree under {root}")
    listing = manifest.artifact("tree")
    known = [entry.path for entry in read_entries(listing)] if listing else []
    requests = list(imports)
    problems = [problem for request in requests for problem in import_problems(request, root, known)]
    Report(0, tuple(problems)).require("what is imported")
    snapshot = manifest.data["snapshot"]
    note = f", {len(report.extra)} other file(s) that cannot be imported" if report.extra else ""
    return (
        f"verified: snapshot {manifest.data['run_id']}, commit {snapshot['commit']}, "
        f"{report.files} file(s) under {root}, {len(requests)} import(s){note}"
    )


def plain_output() -> None:
    """Let a path that is not text be printed (escaped) instead of ending the program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def main(argv: list[str] | None = None) -> int:
    """The program; see the module's text."""
    parser = argparse.ArgumentParser(prog="snapshot_verify.py", description="Verify a mounted source snapshot.")
    parser.add_argument("--manifest", required=True, help=f"{MANIFEST_NAME}, with its artifacts beside it")
    parser.add_argument("--root", required=True, help="directory where the snapshot is mounted")
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE=PATH")
    arguments = parser.parse_args(argv)
    plain_output()
    try:
        print(run(arguments.manifest, arguments.root, arguments.imports))
    except Refused as error:
        print(f"refused: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except Usage as error:
        print(f"usage: {error}", file=sys.stderr)
        return EXIT_USAGE
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
