"""``render-check --spec`` on every launch format: a right file passes, each broken property has its message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vst.errors import ConfigError, VerificationError
from vst.snapshot.render_check import render_check

from .conftest import Bench, make_repo, run_tool

DIGEST = "sha256:" + "a" * 64
IMAGE = f"registry.example/vllm@{DIGEST}"

COMPOSE_SHORT = """services:
  vllm:
    image: {image}
    command: ["python", "-m", "vst"]
    environment: {{PYTHONPATH: "{path}"}}
    volumes:
      - {source}:{root}:{mode}
      - /data/models:/models:ro{extra_short}
"""
COMPOSE_LONG = """services:
  vllm:
    image: {image}
    environment: ["PYTHONPATH={path}"]
    volumes:
      - {{type: bind, source: "{source}", target: "{root}", read_only: {flag}}}
      - {{type: volume, source: cache, target: /cache}}{extra_long}
volumes: {{cache: {{}}}}
"""
POD_SPEC = """
      containers:
        - name: vllm
          image: {image}
          env: [{{name: PYTHONPATH, value: "{path}"}}]
          volumeMounts:
            - {{name: source, mountPath: "{root}", readOnly: {flag}}}
            - {{name: scratch, mountPath: /scratch}}{extra_pod}
      volumes:
        - {{name: source, hostPath: {{path: "{source}"}}}}
        - {{name: scratch, emptyDir: {{}}}}
        - {{name: original, hostPath: {{path: "{original}"}}}}
"""
JOB = "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: check}}\nspec:\n  template:\n    spec:" + POD_SPEC
DEPLOYMENT = JOB.replace("batch/v1", "apps/v1").replace("Job", "Deployment")
POD = "apiVersion: v1\nkind: Pod\nmetadata: {{name: check}}\nspec:" + POD_SPEC.replace("\n    ", "\n")
CRONJOB = (
    "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: check}}\nspec:\n"
    "  jobTemplate:\n   spec:\n    template:\n     spec:" + POD_SPEC
)
PYXIS_DIRECTIVES = """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --container-image=docker://{image}
#SBATCH --container-mounts={source}:{root}:{mode},/data:/data:ro{extra_comma}
export PYTHONPATH={path}
python -m vst
"""
PYXIS_SRUN = """#!/bin/bash
#SBATCH --nodes=1
# don't stop at an apostrophe
export PYTHONPATH="{path}"
srun -N 1 --exclusive --container-image "{image}" \\
    --container-mounts={source}:{root}:{mode},/data:/data:ro{extra_comma} \\
    bash -c 'python -m vst | tee log'
"""
APPTAINER = """#!/bin/sh
srun apptainer exec --containall --bind {source}:{root}:{mode} -B /data:/data:ro{extra_comma} \\
    --env PYTHONPATH={path} docker://{image} python -m vst
"""
APPTAINER_MOUNT = """#!/bin/sh
singularity exec -C --mount type=bind,source={source},destination={root}{ro_word}{extra_bind} --env PYTHONPATH={path} \\
    docker://{image} python -m vst
"""
DOCKER_V = """#!/bin/sh
set -e
docker run --rm -it --gpus all -e PYTHONPATH={path} -v {source}:{root}:{mode} --volume=/data:/data{extra_v} \\
    {image} python -m vst
"""
DOCKER_MOUNT = """docker run --rm --mount type=bind,source={source},target={root}{ro_word}{extra_v} \\
    --env=PYTHONPATH={path} {image} sh
"""
FORMATS = {
    "compose short": COMPOSE_SHORT, "compose long": COMPOSE_LONG, "pod": POD, "job": JOB, "deployment": DEPLOYMENT,
    "cron job": CRONJOB, "pyxis directives": PYXIS_DIRECTIVES, "pyxis srun": PYXIS_SRUN, "apptainer bind": APPTAINER,
    "apptainer mount": APPTAINER_MOUNT, "docker -v": DOCKER_V, "docker --mount": DOCKER_MOUNT,
}  # fmt: skip


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """One snapshot for all: judging a launch file changes nothing."""
    folder = tmp_path_factory.mktemp("launch")
    bench = Bench(folder, make_repo(folder / "repo"))
    bench.prepare(image=IMAGE)
    return bench


def rendered(bench: Bench, text: str, extra: tuple[str, str] | None = None, **changes: str) -> Path:
    values = {
        "image": IMAGE, "source": str(bench.worktree), "root": "/src", "mode": "ro", "flag": "true", "path": "/src",
        "ro_word": ",readonly", "original": str(bench.repo), **changes,
    }  # fmt: skip
    if values["mode"] == "rw":
        values.update({"flag": "false", "ro_word": ""})
    source, target = extra or ("", "")
    values["extra_short"] = f"\n      - {source}:{target}" if extra else ""
    values["extra_long"] = f'\n      - {{type: bind, source: "{source}", target: "{target}"}}' if extra else ""
    values["extra_comma"] = f",{source}:{target}" if extra else ""
    values["extra_bind"] = f" --bind {source}:{target}" if extra else ""
    values["extra_v"] = f" -v {source}:{target}" if extra else ""
    values["extra_pod"] = f'\n            - {{name: original, mountPath: "{target}"}}' if extra else ""
    values["original"] = source if extra else str(bench.repo)
    if extra and text == POD:
        values["extra_pod"] = f'\n        - {{name: original, mountPath: "{target}"}}'
    path = bench.folder / "launch"
    path.write_text(text.format(**values))
    return path


def check(bench: Bench, spec: Path, *only: str) -> bytes:
    return render_check(bench.manifest, "/src", spec, only)


@pytest.mark.parametrize("name", FORMATS)
def test_a_right_launch_passes_and_the_script_is_printed(ready: Bench, name: str) -> None:
    assert check(ready, rendered(ready, FORMATS[name])).startswith(b"#!/bin/sh")


CHANGES: dict[str, tuple[dict[str, str], str]] = {
    "writable": ({"mode": "rw"}, r"/src is mounted read-write, expected read-only; add ro"),
    "elsewhere": ({"root": "/other"}, r"nothing is mounted at /src, expected the snapshot worktree"),
    "another tree": ({"source": "/opt/code"}, r"/src is mounted from /opt/code, expected the worktree"),
    "tag": ({"image": "registry.example/vllm:v1"}, rf"vllm:v1 is not pinned by digest, expected NAME@{DIGEST}"),
    "other image": (
        {"image": f"registry.example/vllm@sha256:{'b' * 64}"},
        rf"is sha256:{'b' * 64}, the manifest records {DIGEST}",
    ),
    "python path": ({"path": "/opt/lib:/src"}, r"PYTHONPATH=/opt/lib:/src puts /opt/lib first, expected /src"),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("change", CHANGES)
def test_each_broken_property_has_its_message_in_each_format(ready: Bench, name: str, change: str) -> None:
    changes, message = CHANGES[change]
    with pytest.raises(VerificationError, match=message):
        check(ready, rendered(ready, FORMATS[name], **changes))


EXTRAS: dict[str, tuple[Callable[[Bench], str], str, str]] = {
    "repository": (lambda bench: str(bench.repo), "/orig", r"it is the original repository"),
    "parent": (lambda bench: str(bench.folder), "/orig", r"it is a parent of the original repository"),
    "top": (lambda bench: "/", "/host", r"it is a parent of the original repository"),
    "part": (lambda bench: str(bench.repo / "pkg"), "/orig", r"it is part of the original repository"),
    "git": (lambda bench: str(bench.repo / ".git"), "/orig", r"it is part of the original repository"),
    "below": (lambda bench: "/opt/x", "/src/pkg", r"/opt/x is mounted at /src/pkg, below /src; mount it elsewhere"),
    "below, unclean": (lambda bench: "/opt/x", "/src/./a/../pkg", r"is mounted at /src/pkg, below /src"),
    "on": (lambda bench: "/opt/x", "/src/", r"2 mounts land on /src, expected one"),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("extra", EXTRAS)
def test_each_wrong_mount_has_its_message_in_each_format(ready: Bench, name: str, extra: str) -> None:
    source, target, message = EXTRAS[extra]
    with pytest.raises(VerificationError, match=message):
        check(ready, rendered(ready, FORMATS[name], (source(ready), target)))


def test_a_link_to_the_repository_is_seen_through(ready: Bench) -> None:
    (ready.folder / "alias").symlink_to(ready.repo)
    with pytest.raises(VerificationError, match=r"alias is mounted at /orig, and it is the original repository"):
        check(ready, rendered(ready, DOCKER_V, (str(ready.folder / "alias"), "/orig")))


@pytest.mark.parametrize("name", ["pyxis srun", "apptainer bind"])
def test_a_later_mount_of_a_parent_hides_the_root(ready: Bench, name: str) -> None:
    with pytest.raises(VerificationError, match=r"/opt/x is mounted at / after /src and hides it; put it first"):
        check(ready, rendered(ready, FORMATS[name], ("/opt/x", "/")))


LINES: dict[str, tuple[str, str]] = {
    "variable": ('docker run -v "$PWD:/x" -v {source}:/src:ro {image} sh', r"\$PWD holds a variable"),
    "relative": ("docker run -v ./x:/x -v {source}:/src:ro {image} sh", r"\./x depends on where it is launched"),
    "from host": (
        "docker run -e PYTHONPATH -v {source}:/src:ro {image} sh",
        r"PYTHONPATH is taken from outside the file",
    ),
    "in command": (
        "docker run -v {source}:/src:ro {image} sh -c 'PYTHONPATH=/evil:/src python -m vst'",
        r"PYTHONPATH=/evil:/src puts /evil first",
    ),
    "empty first": ("docker run -w /opt -e PYTHONPATH=:/src -v {source}:/src:ro {image} sh", r"puts /opt first"),
    "volumes from": ("docker run --volumes-from x -v {source}:/src:ro {image} sh", r"--volumes-from brings mounts"),
    "tmpfs": (
        "docker run --tmpfs /src/tmp -v {source}:/src:ro {image} sh",
        r"tmpfs is mounted at /src/tmp, below /src",
    ),
    "env file": ("docker run --env-file absent -v {source}:/src:ro {image} sh", r"--env-file absent cannot be read"),
    "wrapped": ("timeout 60 sudo podman run -v {source}:/src {image} sh", r"/src is mounted read-write"),
    "home": ("apptainer exec -B {source}:/src:ro docker://{image} sh", r"Apptainer mounts the home and the current"),
    "bind variable": (
        "export APPTAINER_BIND={original}:/orig\napptainer exec -C -B {source}:/src:ro docker://{image} sh",
        r"it is the original repository",
    ),
    "apptainer variable": (
        "export APPTAINERENV_PYTHONPATH=/evil\napptainer exec -C -B {source}:/src:ro docker://{image} sh",
        r"PYTHONPATH=/evil puts /evil first",
    ),
    "overlay": (
        "apptainer run -C --overlay x.img -B {source}:/src:ro docker://{image}",
        r"--overlay may lay other files",
    ),
    "pyxis home": (
        "srun --container-mount-home --container-image={image} --container-mounts={source}:/src:ro sh",
        r"--container-mount-home mounts",
    ),
    "pyxis environment": (
        "srun --container-env=PYTHONPATH --container-image={image} --container-mounts={source}:/src:ro sh",
        r"PYTHONPATH is taken from outside the file",
    ),
    "pyxis export": (
        "srun --export=ALL,PYTHONPATH=/evil --container-image={image} --container-mounts={source}:/src:ro sh",
        r"PYTHONPATH=/evil puts /evil first",
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_what_a_command_line_can_hide_is_refused(ready: Bench, name: str) -> None:
    line, message = LINES[name]
    with pytest.raises(VerificationError, match=message):
        check(ready, rendered(ready, "#!/bin/sh\n" + line + "\n"))


def test_an_unset_pythonpath_and_an_enroot_reference_pass(ready: Bench) -> None:
    text = (
        "#!/bin/bash\nexport PYTHONPATH=/evil  # don't keep\nunset PYTHONPATH\n"
        "srun --container-image=registry.example#vllm@{digest} --container-mounts={source}:/src:ro+rprivate sh\n"
    )
    check(ready, rendered(ready, text, digest=DIGEST))


COMPOSE_LINES: dict[str, tuple[str, str]] = {
    "extends": ("    extends: {{service: x}}\n", r"extends is set, so its mounts are not in this file"),
    "volumes_from": ("    volumes_from: [x]\n", r"volumes_from is set"),
    "tmpfs": ("    tmpfs: /src/tmp\n", r"tmpfs is mounted at /src/tmp, below /src"),
    "configs": ("    configs: [{{source: c, target: /src/c.py}}]\n", r"configs is mounted at /src/c.py, below /src"),
    "env_file": ("    env_file: absent.env\n", r"env_file .*absent.env cannot be read"),
    "env_file path": ("    env_file: [{{path: evil.env}}]\n", r"PYTHONPATH=/evil puts /evil first"),
}


@pytest.mark.parametrize("name", COMPOSE_LINES)
def test_what_a_compose_file_can_hide_is_refused(ready: Bench, name: str) -> None:
    (ready.folder / "evil.env").write_text("# comment\nPYTHONPATH=/evil\n")
    line, message = COMPOSE_LINES[name]
    text = "services:\n  vllm:\n    image: {image}\n    volumes: ['{source}:/src:ro']\n" + line
    with pytest.raises(VerificationError, match=message):
        check(ready, rendered(ready, text))


def test_a_named_volume_that_is_a_bind_mount_is_seen_through(ready: Bench) -> None:
    text = (
        "services:\n  vllm:\n    image: {image}\n    volumes: ['{source}:/src:ro', 'orig:/orig']\n"
        "volumes:\n  orig:\n    driver_opts: {{type: none, o: bind, device: '{original}'}}\n"
    )
    with pytest.raises(VerificationError, match="it is the original repository"):
        check(ready, rendered(ready, text))


def test_environment_from_elsewhere_in_kubernetes_is_refused(ready: Bench) -> None:
    path = rendered(ready, POD)
    path.write_text(
        path.read_text().replace('env: [{name: PYTHONPATH, value: "/src"}]', "envFrom: [{configMapRef: {name: x}}]")
    )
    with pytest.raises(VerificationError, match="envFrom may set PYTHONPATH"):
        check(ready, path)


def test_every_container_must_comply_unless_some_are_named(ready: Bench) -> None:
    text = COMPOSE_SHORT + "  database:\n    image: postgres:16\n    volumes: ['{other}:/x']\n"
    spec = rendered(ready, text, other="/data")
    with pytest.raises(VerificationError, match=r"service database: nothing is mounted at /src"):
        check(ready, spec)
    check(ready, spec, "vllm")
    with pytest.raises(
        ConfigError, match=r"no container of .* is called nobody; it has service vllm, service database"
    ):
        check(ready, spec, "nobody")
    with pytest.raises(VerificationError, match=r"service database: .* it is the original repository"):
        check(ready, rendered(ready, text, other=str(ready.repo)), "vllm")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#!/bin/sh\necho nothing\n", "the script starts no container"),
        ("a: 1\n", "is YAML but neither a Compose file"),
        ("kind: Service\nmetadata: {}\n", r"no pod in the file \(found Service\)"),
        ("services: [a]\n", "services of the Compose file must be a mapping"),
    ],
)
def test_a_file_that_launches_nothing_is_wrong_usage(ready: Bench, text: str, message: str) -> None:
    path = ready.folder / "launch"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        check(ready, path)


def test_image_files_are_hashed_and_compared(bench: Bench) -> None:
    image = bench.folder / "vllm.sqsh"
    image.write_bytes(b"hsqs" + b"\0" * 200)
    bench.prepare(image=str(image))
    text = "#!/bin/sh\nsrun --container-image={image} --container-mounts={source}:/src:ro python -m vst\n"
    check(bench, rendered(bench, text, image=str(image)))
    image.write_bytes(b"hsqs" + b"\1" * 200)
    with pytest.raises(VerificationError, match=r"vllm.sqsh is sha256:\w+, the manifest records"):
        check(bench, rendered(bench, text, image=str(image)))
    with pytest.raises(VerificationError, match=r"absent.sqsh is not pinned by digest"):
        check(bench, rendered(bench, text, image="/absent.sqsh"))


def test_a_manifest_without_image_cannot_vouch_for_one(bench: Bench) -> None:
    bench.prepare()
    with pytest.raises(VerificationError, match="the manifest records no image digest"):
        check(bench, rendered(bench, DOCKER_V))


def test_the_program_lists_all_violations_and_refuses(ready: Bench) -> None:
    spec = rendered(ready, DOCKER_V, (str(ready.repo), "/src/x"), mode="rw", image="vllm:latest", path="/evil")
    done = run_tool("render-check", "--manifest", ready.manifest, "--source-root", "/src", "--spec", spec)
    assert done.returncode == 11 and done.stdout == "" and "5 violation(s)" in done.stderr, done.stderr
    right = rendered(ready, DOCKER_V)
    done = run_tool("render-check", "--manifest", ready.manifest, "--source-root", "/src", "--spec", right)
    assert done.returncode == 0 and done.stdout.startswith("#!/bin/sh") and "launches this snapshot" in done.stderr
