"""Render the check of a mounted snapshot as a script for a container that has only a POSIX shell.

The script needs ``sh``, ``readlink`` and one of ``sha256sum``, ``shasum`` and ``openssl``. Names are bytes inside
single quotes or, when they are plain, lines of a here-document, so spaces, quotes, newlines and names that are not
text are safe. It is stricter than the Python verifier in one point: bytecode that is not in the snapshot is
refused, because a shell cannot judge it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from vst.snapshot.snapshot_verify import IMPORTABLE_SUFFIXES, Entry, Manifest

_PLAIN = re.compile(rb"^[A-Za-z0-9_.,+@%=/ ~#:-]+$")

_ENTRY_POINTS = (".dist-info/entry_points.txt", ".egg-info/entry_points.txt")

_PREAMBLE = rb"""#!/bin/sh
# Checks that a mounted source snapshot is the recorded one. Exit: 0 it is, 11 it is not.
set -u
LC_ALL=C; export LC_ALL
root=%(root)s
bad=0
say() { printf '%%s\n' "refused: $1" >&2; bad=$((bad + 1)); }
if command -v sha256sum >/dev/null 2>&1; then digest() { sha256sum; }
elif command -v shasum >/dev/null 2>&1; then digest() { shasum -a 256; }
elif command -v openssl >/dev/null 2>&1; then digest() { openssl dgst -sha256 -r; }
else say 'sha256sum, shasum and openssl are missing; add one of them to the image'; exit 11; fi
cd "$root" 2>/dev/null || { say "the root $root is not there; mount the snapshot"; exit 11; }
directory() { if [ -L "$1" ] || [ ! -d "$1" ]; then say "$1 is not a directory of the snapshot"; fi; }
kind() {
  if [ -L "$1" ] || [ ! -f "$1" ]; then say "$1 is missing or not a regular file"; return 1; fi
  if [ "$2" = x ] && [ ! -x "$1" ]; then say "$1 is not executable (or the mount is noexec)"; fi
  if [ "$2" = - ] && [ -x "$1" ]; then say "$1 is executable, expected it is not"; fi
  return 0
}
file() {
  kind "$1" "$2" || return 0
  sum=$(digest <"$1") || sum=unreadable
  if [ "${sum%%%% *}" != "$3" ]; then say "$1 has sha256 ${sum%%%% *}, expected $3"; fi
}
link() {
  if [ ! -L "$1" ]; then say "$1 is not a symlink"; return 0; fi
  to=$(readlink "$1" && printf x) || { say "the target of $1 cannot be read"; return 0; }
  to=${to%%?x}
  sum=$(printf %%s "$to" | digest)
  if [ "${sum%%%% *}" != "$2" ]; then say "$1 points to $to, expected another target"; fi
}
count=0
naming=0
walk() {
  for item in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    if [ "$item" = ./.git ]; then continue; fi
    if [ -d "$item" ] && [ ! -L "$item" ]; then walk "$item"; continue; fi
    if [ -L "$item" ]; then
      count=$((count + 1))
      if [ "$naming" = 0 ]; then continue; fi
      if [ -d "$item" ]; then known "$item"; continue; fi
    fi
    case $item in %(importable)s)
      if [ ! -L "$item" ]; then
        if [ ! -e "$item" ]; then continue; fi
        count=$((count + 1))
      fi
      if [ "$naming" = 1 ]; then known "$item"; fi ;;
    esac
  done
}
kinds() { while read -r sum mode name; do kind "./$name" "$mode"; done; }
sums() {
  while read -r sum mode name; do
    if [ -f "./$name" ] && [ ! -L "./$name" ]; then printf '%%s  ./%%s\n' "$sum" "$name"; fi
  done
}
each() { while read -r sum mode name; do file "./$name" "$mode" "$sum"; done; }
many() {
  if ! command -v sha256sum >/dev/null 2>&1; then plain each; return 0; fi
  plain kinds
  answer=$(plain sums | sha256sum -c - 2>/dev/null) && return 0
  while IFS= read -r line; do
    case $line in *': OK') ;; *) say "$line, expected the recorded sha256" ;; esac
  done <<ANSWER
$answer
ANSWER
}
"""

_ENDING = rb"""
walk .
if [ "$count" -gt %(expected)d ]; then naming=1; walk .; fi
if [ -r /proc/self/mountinfo ]; then
  here=$(pwd -P)
  case $here in *[!A-Za-z0-9_./-]*) here=%(mountinfo)s ;; esac
  while read -r a b c d point rest; do
    case $point in "$here"/*) say "something is mounted on $point, below the root" ;; esac
  done </proc/self/mountinfo
fi
if [ "$bad" -gt 0 ]; then printf '%%s\n' "refused: $bad problem(s) with snapshot "%(id)s" under $root" >&2; exit 11; fi
printf '%%s\n' "verified: snapshot "%(id)s", %(files)d file(s) under $root"
"""


def quoted(value: bytes) -> bytes:
    """One shell word that stands for exactly these bytes."""
    return b"'" + value.replace(b"'", b"'\\''") + b"'"


def render(manifest: Manifest, entries: list[Entry], root: bytes) -> bytes:
    """The script; ``root`` is where the snapshot is mounted in the container."""
    files = [entry for entry in entries if entry.kind == "file"]
    plain = [entry for entry in files if _is_plain(entry.path)]
    others = [
        entry for entry in entries if entry.kind == "symlink" or (entry.kind == "file" and not _is_plain(entry.path))
    ]
    patterns = b"|".join(b"*" + suffix.encode() for suffix in (*IMPORTABLE_SUFFIXES, *_ENTRY_POINTS))
    expected = [entry for entry in entries if _counts(entry)]
    values: dict[bytes, object] = {
        b"root": quoted(root),
        b"importable": patterns,
        b"expected": len(expected),
        b"mountinfo": quoted(_mount_table_form(root.rstrip(b"/"))),
        b"id": quoted(manifest.data["run_id"].encode()),
        b"files": len(entries),
    }
    parts = [_PREAMBLE % values, _known(expected), _directories(entries), _plain_files(plain, manifest.digest)]
    parts += [_call(entry) for entry in others]
    return b"\n".join(parts) + _ENDING % values


def _is_plain(path: bytes) -> bool:
    return bool(_PLAIN.match(path)) and path == path.strip(b" ")


def _counts(entry: Entry) -> bool:
    """Which entries the walk counts: importable files, and every symlink, because where it leads is not known here."""
    endings = tuple(suffix.encode() for suffix in (*IMPORTABLE_SUFFIXES, *_ENTRY_POINTS))
    return entry.kind == "symlink" or (entry.kind == "file" and (b"/" + entry.path).endswith(endings))


def _known(expected: Iterable[Entry]) -> bytes:
    names = b"".join(b"  " + quoted(b"./" + entry.path) + b") ;;\n" for entry in expected)
    return (
        b"known() {\n  case $1 in\n"
        + names
        + b'  *) say "$1 is not in the snapshot and could be imported" ;;\n  esac\n}'
    )


def _directories(entries: Iterable[Entry]) -> bytes:
    entries = list(entries)
    folders = {entry.path[:end] for entry in entries for end in _slashes(entry.path)}
    folders |= {entry.path for entry in entries if entry.kind == "submodule"}
    return b"\n".join(b"directory " + quoted(b"./" + folder) for folder in sorted(folders))


def _slashes(path: bytes) -> list[int]:
    return [position for position, byte in enumerate(path) if byte == ord("/")]


def _plain_files(files: list[Entry], digest: str) -> bytes:
    """Files with plain names in one here-document, so that one sha256sum process can check them all."""
    if not files:
        return b""
    end = b"END-" + digest.encode()
    lines = b"".join(b"%s %s %s\n" % ((entry.sha256 or "").encode(), _mode(entry), entry.path) for entry in files)
    return b'plain() {\n  "$@" <<\'' + end + b"'\n" + lines + end + b"\n}\nmany"


def _call(entry: Entry) -> bytes:
    name, digest = quoted(b"./" + entry.path), (entry.sha256 or "").encode()
    return (
        b"link %s %s" % (name, digest) if entry.kind == "symlink" else b"file %s %s %s" % (name, _mode(entry), digest)
    )


def _mode(entry: Entry) -> bytes:
    return b"x" if entry.mode == "100755" else b"-"


def _mount_table_form(path: bytes) -> bytes:
    return re.sub(rb"[ \t\n\\]", lambda match: b"\\%03o" % match[0][0], path)
