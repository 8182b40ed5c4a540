#!/bin/sh
# What a Linux machine with a GPU can answer of Taper in ten minutes, without Rust, a compiler or a network.
#
#   scripts/on_gpu.sh --build FOLDER          where Rust is: the programs, PyTorch's script and this one into FOLDER
#   sh FOLDER/on_gpu.sh --run OUT             on the machine with the GPU: results into OUT
#   python3 scripts/on_gpu_report.py OUT docs/benchmarks/gpu.md      back home: the table of the GPU
#
# FOLDER may have a folder `loader` with a libvulkan.so.1 for a machine that has a driver and no loader. Settings of --run:
#   SECONDS_IN_ALL=540   after so many seconds nothing more is started
#   BUDGET=0.3           seconds for each case of the bench
#   CASES="matmul …"     parts of the names of the bench's cases
#   PYTHON=python3       a Python; with torch on CUDA, PyTorch's times stand beside ours
set -eu

usage() { sed -n '2,13p' "$0" | cut -c3-; exit 2; }

build() {
    folder=$1
    mkdir -p "$folder/taper/tests" "$folder/loader"
    cargo build --release -p taper-bench
    cargo build --release -p taper --example digits
    # The program of a crate's integration tests is the one whose target is called "it".
    for crate in taper backend-wgpu; do
        cargo test -p "$crate" --test it --no-run --message-format=json |
            sed -n 's/.*"name":"it".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1 |
            while read -r program; do cp "$program" "$folder/$crate-tests"; done
    done
    cp target/release/taper-bench target/release/examples/digits "$folder/"
    strip "$folder/taper-tests" "$folder/backend-wgpu-tests" "$folder/taper-bench" "$folder/digits"
    cp -r crates/taper/tests/fixtures "$folder/taper/tests/"
    cp scripts/bench_torch.py scripts/on_gpu.sh "$folder/"
    git rev-parse --short HEAD > "$folder/commit"
    du -sh "$folder"
}

# step NAME SECONDS COMMAND…: its output into OUT/NAME.txt, and a line about it into OUT/steps.txt.
step() {
    name=$1 most=$2
    shift 2
    left=$((started + SECONDS_IN_ALL - $(date +%s)))
    if [ "$left" -lt 10 ]; then
        echo "$name: not started, the time is up" | tee -a "$out/steps.txt"
        return 0
    fi
    [ "$most" -lt "$left" ] || most=$left
    begun=$(date +%s)
    status=0
    timeout "$most" "$@" > "$out/$name.txt" 2>&1 || status=$?
    case $status in 0) said=passed ;; 124) said="stopped after $most s" ;; *) said="failed ($status)" ;; esac
    echo "$name: $said, $(($(date +%s) - begun)) s$(sed -n 's/^test result: [a-zA-Z]*\. \(.*failed\).*/, \1/p' "$out/$name.txt" | tail -n 1)" |
        tee -a "$out/steps.txt"
}

run() {
    mkdir -p "$1"
    out=$(cd "$1" && pwd)
    here=$(cd "$(dirname "$0")" && pwd)
    started=$(date +%s)
    : "${SECONDS_IN_ALL:=540}" "${BUDGET:=0.3}" "${PYTHON:=python3}"
    : "${CASES:=matmul elementwise_chain unary sum_axis softmax layer_norm transpose_copy simplenet small_add first_step hundredth_step conv2d}"
    : > "$out/steps.txt"
    if [ -e "$here/loader/libvulkan.so.1" ]; then
        export LD_LIBRARY_PATH="$here/loader${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    fi
    # Of its own, so that the first step is a first one.
    TAPER_CACHE_DIR=$(mktemp -d)
    export TAPER_CACHE_DIR TAPER_TEST_REQUIRE_WGPU=1 TAPER_TEST_DEVICE=wgpu:0 CARGO_MANIFEST_DIR="$here/taper"
    cp "$here/commit" "$out/commit.txt"
    {
        uname -srm
        nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2> /dev/null || true
    } > "$out/machine.txt"

    # shellcheck disable=SC2086 # The names of cases are words.
    filters=$(for case in $CASES; do printf -- '--filter %s ' "$case"; done)
    step ieee 60 "$here/taper-tests" ieee::
    step digits 60 "$here/digits" --device wgpu:0
    # shellcheck disable=SC2086
    step bench 150 "$here/taper-bench" --device wgpu:0 --json --budget "$BUDGET" $filters
    if "$PYTHON" -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; then
        # shellcheck disable=SC2086
        step torch 100 "$PYTHON" "$here/bench_torch.py" --device cuda --budget "$BUDGET" $CASES
    else
        echo "torch: no $PYTHON here has torch with CUDA" | tee -a "$out/steps.txt"
    fi
    # What autotuning chooses, and what that is worth beside the fixed table's choices in bench.txt.
    step autotune 60 env TAPER_WGPU_AUTOTUNE=1 "$here/taper-bench" --device wgpu:0 --json --budget "$BUDGET" --filter matmul --filter bmm
    find "$TAPER_CACHE_DIR" -type f -name '*tuning*' -exec cat {} + > "$out/tuned.txt" 2> /dev/null || true
    step suite 150 "$here/taper-tests"
    step suite-direct 100 env TAPER_TEST_WGPU="form=direct immediates=off storage_buffers=8" "$here/taper-tests"
    step suite-windows 100 env TAPER_TEST_WGPU=binding_bytes=131072 "$here/taper-tests"
    step suite-tiled 100 env TAPER_TEST_WGPU=form=tiled "$here/taper-tests"
    step backend 120 "$here/backend-wgpu-tests"
    rm -rf "$TAPER_CACHE_DIR"
    echo "$out:"
    cat "$out/steps.txt"
}

case ${1:-} in
--build) [ $# -eq 2 ] || usage; build "$2" ;;
--run) [ $# -eq 2 ] || usage; run "$2" ;;
*) usage ;;
esac
