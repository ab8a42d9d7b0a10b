"""Git as a tool that runs nothing of the repository's and changes nothing but what it is told to.

No hook and no fsmonitor program runs, no collection starts, no transport is allowed, the user's index is never
refreshed, and no variable of the caller redirects git to another repository. Clean and smudge filters do run: they
are the one kind of program that decides the bytes of a commit (Git LFS is one), so without them the snapshot would
not be what git would commit. They come from the user's own git configuration, never from a file of the tree, and
the manifest names them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from vst.errors import TransportError, VerificationError

TIMEOUT_S = 900

_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.splitIndex=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "i18n.commitEncoding=UTF-8",
    "log.showSignature=false",
    "color.ui=false",
)

_FIXED_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_AUTHOR_NAME": "vst snapshot",
    "GIT_AUTHOR_EMAIL": "vst-snapshot@invalid",
    "GIT_COMMITTER_NAME": "vst snapshot",
    "GIT_COMMITTER_EMAIL": "vst-snapshot@invalid",
    "LC_ALL": "C",
}

_KEPT_PREFIXES = ("GIT_CONFIG_", "GIT_LFS_")
"""Variables of git that stay: where the user's configuration is (it decides filters and safe.directory)."""


class GitError(VerificationError):
    """A git command ended with a status that was not expected."""


def base_environment() -> dict[str, str]:
    """The caller's environment without what would point git elsewhere."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith("GIT_") or key.startswith(_KEPT_PREFIXES)
    }
    return {**kept, **_FIXED_ENVIRONMENT}


@dataclass(frozen=True)
class Git:
    """Git in one directory; ``extra`` is added to the environment and ``options`` stand before the subcommand."""

    cwd: Path
    extra: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()

    def run(self, *args: str | bytes, stdin: bytes | None = b"", accept: tuple[int, ...] = (0,)) -> bytes:
        """Standard output of one command. GitError for another status, TransportError when git is missing or hangs."""
        return self._call(args, stdin, accept).stdout

    def line(self, *args: str | bytes) -> str:
        """Standard output as text without the final newline (a path that is not UTF-8 keeps its bytes)."""
        return os.fsdecode(self.run(*args)).removesuffix("\n")

    def succeeds(self, *args: str | bytes, stdin: bytes | None = b"") -> bool:
        """True for status 0, False for 1; GitError for any other."""
        return self._call(args, stdin, (0, 1)).returncode == 0

    def records(self, *args: str | bytes, stdin: bytes | None = b"") -> list[bytes]:
        """NUL-terminated records of a command that was given ``-z``."""
        return [record for record in self.run(*args, stdin=stdin).split(b"\0") if record]

    def using(self, **variables: str) -> Git:
        """The same git with more environment."""
        return replace(self, extra={**self.extra, **variables})

    def at(self, cwd: Path) -> Git:
        """The same git in another directory."""
        return replace(self, cwd=cwd)

    def _call(
        self, args: tuple[str | bytes, ...], stdin: bytes | None, accept: tuple[int, ...]
    ) -> subprocess.CompletedProcess[bytes]:
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        command = ["git", *settings, *self.options, *args]
        environment = {**base_environment(), **self.extra}
        try:
            done = subprocess.run(
                command, cwd=self.cwd, env=environment, input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False
            )
        except FileNotFoundError as error:
            missing = "git" if self.cwd.is_dir() else f"the directory {self.cwd}"
            raise TransportError(f"{missing} is not there; in a container without git give --root") from error
        except subprocess.TimeoutExpired as error:
            raise TransportError(f"`git {_words(args)}` in {self.cwd} did not end within {TIMEOUT_S} s") from error
        if done.returncode not in accept:
            said = os.fsdecode(done.stderr).strip() or "no message"
            raise GitError(f"`git {_words(args)}` in {self.cwd} ended with {done.returncode}: {said}")
        return done


def _words(args: tuple[str | bytes, ...]) -> str:
    return " ".join(arg if isinstance(arg, str) else os.fsdecode(arg) for arg in args)
