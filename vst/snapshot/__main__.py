"""Pin, prove and remove source snapshots. Exit codes: 0 done, 11 refused, 2 wrong usage."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from vst.errors import ConfigError, VerificationError, VstError
from vst.snapshot import image, snapshot_verify
from vst.snapshot.cleanup import cleanup
from vst.snapshot.facts import as_vst_errors, facts_of, load_and_verify, read_manifest
from vst.snapshot.prepare import Request, prepare
from vst.snapshot.render_check import render_check

EXIT_OK, EXIT_USAGE, EXIT_REFUSED = 0, 2, 11


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    arguments = _parser().parse_args(argv)
    snapshot_verify.plain_output()
    try:
        arguments.run(arguments)
    except ConfigError as error:
        print(f"usage: {error}", file=sys.stderr)
        return EXIT_USAGE
    except (VstError, OSError) as error:
        print(f"refused: {error}", file=sys.stderr)
        return EXIT_REFUSED
    return EXIT_OK


def _prepare(arguments: argparse.Namespace) -> None:
    request = Request(
        repo=arguments.repo,
        run_id=arguments.run_id,
        result_dir=arguments.result_dir,
        worktree_root=arguments.worktree_root,
        base=arguments.base,
        patch_stack=arguments.patch_stack,
        include_untracked=tuple(arguments.include_untracked),
        image=arguments.image,
    )
    path = prepare(request)
    manifest = read_manifest(path)
    facts = facts_of(manifest)
    rows = {"manifest": path, "digest": facts.manifest_digest, "commit": facts.commit, "ref": facts.ref}
    for name, value in {**rows, "worktree": facts.worktree, "image": facts.image or "none recorded"}.items():
        print(f"{name:9} {value}")
    _notes(manifest)


def _notes(manifest: snapshot_verify.Manifest) -> None:
    data = manifest.data
    empty = [item for item in data["submodules"] if not item["populated"]]
    notes = {
        "Git LFS pointer(s) stand in the worktree instead of their objects": data["lfs_pointers"],
        "submodule(s) are not initialised and stay empty in the worktree": empty,
    }
    for text, items in notes.items():
        if items:
            print(f"note: {len(items)} {text}", file=sys.stderr)


def _verify(arguments: argparse.Namespace) -> None:
    facts = load_and_verify(arguments.manifest, arguments.root)
    root = arguments.root or facts.worktree
    with as_vst_errors():
        listing = read_manifest(arguments.manifest).artifact("tree") or ""
        known = [entry.path for entry in snapshot_verify.read_entries(listing)]
        problems = [
            problem
            for request in arguments.imports
            for problem in snapshot_verify.import_problems(request, str(root), known)
        ]
        snapshot_verify.Report(0, tuple(problems)).require("what is imported")
    where = f"files under {root}" if arguments.root else f"{facts.ref}, commit, tree, patch, artifacts and {root}"
    print(f"verified: snapshot {facts.id}, commit {facts.commit}: {where}, {len(arguments.imports)} import(s)")


def _render_check(arguments: argparse.Namespace) -> None:
    script = render_check(arguments.manifest, arguments.source_root, arguments.spec, arguments.container)
    sys.stdout.buffer.write(script)
    if arguments.spec:
        print(f"verified: {arguments.spec} launches this snapshot", file=sys.stderr)


def _image_digest(arguments: argparse.Namespace) -> None:
    if arguments.manifest is None and arguments.image is None:
        raise ConfigError(
            "image-digest needs --manifest (print what was recorded), --image (compute), or both (compare)"
        )
    recorded = facts_of(read_manifest(arguments.manifest)).image if arguments.manifest else None
    if arguments.image is None:
        if recorded is None:
            raise VerificationError(f"{arguments.manifest} records no image; prepare with --image")
        print(recorded)
        return
    found = image.compute(arguments.image)
    if arguments.manifest and found.digest != recorded:
        raise VerificationError(f"{arguments.image} is {found.digest}, the manifest records {recorded or 'no image'}")
    print(found.digest)
    print(f"digest of the image's {found.kind}", file=sys.stderr)


def _cleanup(arguments: argparse.Namespace) -> None:
    facts = cleanup(arguments.manifest, arguments.confirm)
    print(f"removed: worktree {facts.worktree} and {facts.ref}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m vst.snapshot", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    made = commands.add_parser("prepare", help="pin the current state of a worktree, uncommitted changes included")
    made.set_defaults(run=_prepare)
    made.add_argument("--repo", type=Path, required=True, help="the git worktree")
    made.add_argument("--run-id", required=True, help="names the ref and the worktree; used once")
    made.add_argument("--result-dir", type=Path, required=True, help="receives source-manifest.json and its artifacts")
    made.add_argument("--worktree-root", type=Path, required=True, help="receives the clean worktree RUN_ID")
    made.add_argument(
        "--base", metavar="REV", help="the patch starts here (default: the patch stack's base, else HEAD)"
    )
    made.add_argument(
        "--patch-stack", type=Path, metavar="FILE", help="YAML: base and ordered patches, checked and locked"
    )
    made.add_argument(
        "--include-untracked", action="append", default=[], metavar="PATH", help="take in this file or folder"
    )
    made.add_argument(
        "--image", metavar="REF", help="NAME@sha256:..., an OCI layout, an archive, a squashfs or SIF file"
    )
    checked = _with_manifest(commands, "verify", "prove that a snapshot is unchanged", required=True)
    checked.set_defaults(run=_verify)
    checked.add_argument("--root", type=Path, help="only the files mounted here (in a container: no git is needed)")
    checked.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE=PATH")
    rendered = _with_manifest(commands, "render-check", "print a shell script; check a launch file", required=True)
    rendered.set_defaults(run=_render_check)
    rendered.add_argument("--source-root", required=True, metavar="DIR", help="where the snapshot is mounted")
    rendered.add_argument(
        "--spec", type=Path, metavar="FILE", help="rendered Compose, Kubernetes, sbatch or shell file"
    )
    rendered.add_argument(
        "--container", action="append", default=[], metavar="NAME", help="judge only these (default: all)"
    )
    digest = _with_manifest(commands, "image-digest", "print or compute an image digest", required=False)
    digest.set_defaults(run=_image_digest)
    digest.add_argument("--image", metavar="REF|DIR|FILE", help="compute; with --manifest it must be the recorded one")
    removed = _with_manifest(commands, "cleanup", "remove a snapshot's worktree and ref", required=True)
    removed.set_defaults(run=_cleanup)
    removed.add_argument("--confirm", action="store_true", help="really remove")
    return parser


def _with_manifest(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str, required: bool
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text)
    command.add_argument("--manifest", type=Path, required=required, help="source-manifest.json")
    return command


if __name__ == "__main__":
    sys.exit(main())
