# Sourced by run and check: makes .venv beside the checkout's files and installs what is missing. Says what it does.
# A stamp holds the digest of what the installation depends on; while it is the same, nothing is touched.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv="$root/.venv"
TORCH=2.13.0

say() { printf 'vst setup: %s\n' "$*" >&2; }

wanted() { # everything that decides what gets installed
    { cat "$root/pyproject.toml" "$root/launchers/install.sh"; printf '%s\n' "$root" "$1"; } | sha256sum | cut -d' ' -f1
}

make_venv() {
    local python=${PYTHON:-python3}
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { say "needs Python 3.10 or later; set PYTHON"; return 1; }
    say "making .venv with $("$python" --version)"
    # Debian ships venv without ensurepip; pip can install itself into the new environment then.
    "$python" -m venv "$venv" 2>/dev/null && return
    rm -rf "$venv"
    "$python" -m venv --without-pip "$venv" && "$python" -m pip --python "$venv/bin/python" install --quiet pip
}

pip_install() { "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check "$@"; }

install_torch_cpu() {
    say "installing torch $TORCH, CPU build (about 200 MB)"
    pip_install "torch==$TORCH+cpu" 2>"$venv/torch.log" && return
    # The configured index has no CPU build of torch: uv knows PyTorch's own index for it.
    say "not in the configured index; taking it from PyTorch's CPU index with uv"
    pip_install uv && "$venv/bin/python" -m uv pip install --quiet --python "$venv/bin/python" --torch-backend cpu "torch==$TORCH" \
        || { cat "$venv/torch.log" >&2; return 1; }
}

install_cpu() {
    install_torch_cpu || return 1
    say "installing the CPU build of vLLM and vst (some minutes the first time)"
    pip_install --editable "$root[$1]" || return 1
    # It pulls builds made for CUDA's torch; the first of them breaks every import of transformers.
    "$venv/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec 2>/dev/null
    return 0
}

install_gpu() {
    say "installing vLLM for GPUs and vst (some minutes the first time)"
    pip_install --editable "$root[$1]"
}

ensure() { # ensure KIND EXTRAS: KIND is cpu or gpu, EXTRAS as pip takes them
    local kind=$1 extras=$2 stamp want
    stamp="$venv/.vst-$extras"
    want=$(wanted "$extras")
    [ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && return
    exec 9>"$root/.venv.lock"
    flock -n 9 || { say "waiting for another installation"; flock 9; }
    if [ "$(cat "$stamp" 2>/dev/null)" != "$want" ]; then
        [ -x "$venv/bin/python" ] || make_venv || return 1
        "install_$kind" "$extras" || { say "the installation failed; run the command again after mending the cause"; return 1; }
        printf '%s\n' "$want" >"$stamp"
        say "done"
    fi
    exec 9>&-
}
