#!/bin/sh
# Tests and measures Taper on a Linux machine with a GPU in ten minutes, without Rust, compiler or network.
#
#   scripts/on_gpu.sh --build FOLDER     where Rust is: puts the programs and scripts into FOLDER
#   sh FOLDER/on_gpu.sh --run OUT        on the machine with the GPU: puts the results into OUT
#   python3 scripts/on_gpu_report.py OUT PAGE.md                     back home: the table of the GPU
#
# FOLDER may have a folder `loader` with a libvulkan.so.1, if the machine has a driver but no loader, and with
# what the driver needs: NVIDIA's has no adapter without libGLX, libGLdispatch, libX11, libXext and what those
# load.
# Settings of --run:
#   SECONDS_IN_ALL=540     nothing more is started after this time
#   TEST_SECONDS=330       the time for the tests; a test that is not finished then has no result
#   DEAL=tiled@20785       only the cases of this form and day, in the suite's tests with many cases
#   ONLY='^sort::|ieee'    only tests whose names match this extended regular expression; no benchmark
#   BUDGET=0.1             seconds for each case of the bench
#   CASES="matmul …"       parts of the names of the bench's cases
#   PROFILED="gpt_step …"  the same of those whose kernels are timed
#   PYTHON=python3         a Python; if it has torch with CUDA, PyTorch is measured too
set -eu

usage() { sed -n '2,19p' "$0" | cut -c3-; exit 2; }

# Integration tests are a target called "it"; the unit tests of the wgpu backend open a device too.
test_programs() {
    cat << END
crates/taper it taper-tests
crates/backend-wgpu it backend-wgpu-tests
crates/backend-wgpu backend_wgpu backend-wgpu-unit-tests
crates/linalg it linalg-tests
examples/custom_op rotate custom-op-tests
END
}

build() {
    folder=$1
    mkdir -p "$folder/taper/tests" "$folder/loader"
    cargo build --profile dist -p taper-bench -p taper-examples --bin taper-bench --example digits
    cp target/dist/taper-bench target/dist/examples/digits "$folder/"
    # The whole workspace: with fewer packages, other features would compile its dependencies once more.
    cargo test --workspace --lib --test it --test rotate --no-run --message-format=json > "$folder/built.json"
    test_programs | while read -r package target name; do
        program=$(sed -n "s|.*/$package#.*\"name\":\"$target\".*\"executable\":\"\([^\"]*\)\".*|\1|p" "$folder/built.json" | tail -n 1)
        cp "$program" "$folder/$name"
    done
    rm "$folder/built.json"
    strip "$folder"/*-tests "$folder/taper-bench" "$folder/digits"
    cp -r crates/taper/tests/fixtures "$folder/taper/tests/"
    cp scripts/on_gpu.sh "$folder/"
    git rev-parse --short HEAD > "$folder/commit"
    du -sh "$folder"
}

now() { date +%s; }

# step NAME SECONDS COMMAND…: its output into OUT/NAME.txt, and a line about it into OUT/steps.txt.
step() {
    name=$1 most=$2
    shift 2
    left=$((started + SECONDS_IN_ALL - $(now)))
    if [ "$left" -lt 10 ]; then
        echo "$name: not started, the time is up" | tee -a "$out/steps.txt"
        return 0
    fi
    [ "$most" -lt "$left" ] || most=$left
    begun=$(now)
    status=0
    timeout "$most" "$@" > "$out/$name.txt" 2>&1 || status=$?
    case $status in 0) said=passed ;; 124) said="stopped after $most s" ;; *) said="failed ($status)" ;; esac
    echo "$name: $said, $(($(now) - begun)) s" | tee -a "$out/steps.txt"
}

# suite NAME PROGRAM AMONG APART VARIABLE=VALUE…: queues the tests of a program whose names match AMONG and
# not APART, in an environment. A device compiles its kernels one after the other, which is most of the time
# of a test. So each process gets six tests. Neighbours in the list have the same topic, so they go to
# different processes.
suite() {
    name=$1 program=$here/$2 among=$3 apart=$4
    shift 4
    [ -x "$program" ] || return 0
    suites="$suites $name"
    "$program" --list --format terse 2> "$out/$name.txt" | sed -n 's/: test$//p' | grep -Ev "$apart" |
        grep -E "$among" | grep -E "${ONLY:-.}" > "$out/$name.names" || true
    order=$(printf %02d "$(echo "$suites" | wc -w)")
    parts=$((($(wc -l < "$out/$name.names") + 5) / 6))
    # Tests of the whole table of operations take the longest: each has its own process, and they start
    # first.
    awk -v parts="$parts" -v first="$queue/0-$name" -v path="$queue/$order-$name" \
        '{ print > ($0 ~ /^(operations|third_party|epilogue)::/ ? sprintf("%s.%04d", first, NR) : sprintf("%s.%04d", path, NR % parts)) }' \
        "$out/$name.names"
    echo "$program" > "$queue/$name.program"
    for variable in "$@"; do echo "export '$variable'"; done > "$queue/$name.variables"
}

# tests FILE: runs the tests that a file of the queue names, until the time of all tests is up.
tests() {
    left=$((TESTS_END - $(now)))
    [ "$left" -ge 5 ] || return 0
    name=$(basename "$1" | sed 's/^[0-9]*-//; s/\.[0-9]*$//')
    folder=$(dirname "$1")
    # shellcheck disable=SC1090 # Assignments that `suite` wrote.
    . "$folder/$name.variables"
    status=0
    # shellcheck disable=SC2046 # The names of tests are words.
    RUSTC_BOOTSTRAP=1 RUST_TEST_THREADS=6 timeout "$left" "$(cat "$folder/$name.program")" \
        -Z unstable-options --report-time --exact $(cat "$1") > "$1.out" 2>&1 || status=$?
    [ "$status" -eq 0 ] || echo "==== status $status of $(tr '\n' ' ' < "$1")" >> "$1.out"
}

# Runs the queue, with as many processes at once as there are processors, and counts.
run_queue() {
    begun=$(now)
    TESTS_END=$((begun + TEST_SECONDS))
    export TESTS_END
    find "$queue" -name '*-*.[0-9]*' | sort | xargs -P "$(getconf _NPROCESSORS_ONLN)" -I FILE sh "$0" --tests FILE
    for name in $suites; do
        find "$queue" \( -name "0-$name.*.out" -o -name "[0-9][0-9]-$name.*.out" \) -exec cat {} + >> "$out/$name.txt"
        sed -n 's/^test \([^ ]*\).* \.\.\. \([a-zA-Z]*\).*/\2 \1/p' "$out/$name.txt" | sort > "$out/$name.done"
        passed=$(grep -c '^ok' "$out/$name.done") || true
        failed=$(grep -c '^FAILED' "$out/$name.done") || true
        cut -d' ' -f2 "$out/$name.done" | sort > "$queue/done"
        sort "$out/$name.names" | comm -23 - "$queue/done" > "$queue/missing"
        missing=$(wc -l < "$queue/missing")
        case $failed,$missing in 0,0) said=passed ;; *) said=failed ;; esac
        echo "$name: $said, $passed passed, $failed failed, $missing without a result" | tee -a "$out/steps.txt"
        sed -n 's/^FAILED /    /p' "$out/$name.done" | head -n 60
        head -n 20 "$queue/missing" | sed 's/^/    no result: /'
        rm "$out/$name.names" "$out/$name.done"
    done
    echo "tests: done, $(($(now) - begun)) s" | tee -a "$out/steps.txt"
}

run() {
    mkdir -p "$1"
    out=$(cd "$1" && pwd)
    here=$(cd "$(dirname "$0")" && pwd)
    started=$(now)
    queue=$(mktemp -d)
    suites=
    : "${SECONDS_IN_ALL:=540}" "${TEST_SECONDS:=330}" "${BUDGET:=0.1}" "${PYTHON:=python3}"
    : "${CASES:=matmul bmm elementwise_chain unary add_10M sum_ softmax layer_norm transpose_copy simplenet_step small_add chain1000 \
        first_step hundredth_step conv2d attention gpt_step_8x128 gpt_generate embedding cumsum}"
    : "${PROFILED:=gpt_step_8x128 resnet20_step_32 mnist_cnn_step_64 attention_causal_4x8x512x64_fwd_bwd lstm_64x32 \
        matmul_2048 matmul_f16_1024 matmul_bf16_2048 softmax_4096x1000 conv2d_3x3_8x64x56x56}"
    : > "$out/steps.txt"
    if [ -e "$here/loader/libvulkan.so.1" ]; then
        export LD_LIBRARY_PATH="$here/loader${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    fi
    # A new cache folder, so that the first step has to compile its kernels.
    TAPER_CACHE_DIR=$(mktemp -d)
    base=require=wgpu,device=wgpu:0
    tests=$base${DEAL:+,deal=$DEAL}
    day=$(($(date +%s) / 86400))
    export TAPER_CACHE_DIR TAPER_TEST=$tests CARGO_MANIFEST_DIR="$here/taper"
    cp "$here/commit" "$out/commit.txt"
    {
        uname -srm
        nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2> /dev/null || true
    } > "$out/machine.txt"
    cat "$out/machine.txt"

    # One test reads the sources, which are not here. Tests that no form of kernels changes run once, as in
    # xtask/src/test_all_backends/reruns.rs.
    sources='^errors::no_error_is_made_by_a_function_that_is_handed_on$'
    once="$sources|^(attention|checkpoint|devices|distributions|errors|fft|flat|func|layers|logical_devices|lost_training|memory_lines)::"
    once="$once|^(movement|networks|optimizers|parallel|probability|pytorch|recurrent|registered|settings|shared_leaves|third_party)::"
    once="$once|^operations::(bad_input|jacobians|vmap|every_layout_and_shape|pytorch_gives_the_same)"
    # Matrix units, also where the tests have not passed on them and they are off.
    products='^(matrix_units|matmul|epilogue|epilogues|conv|attention|layers|networks|autocast|einsum|halves_and_floors)::'
    suite units backend-wgpu-tests "$products" '^$' TAPER_WGPU_MATRIX_UNITS=1
    suite suite-units taper-tests "$products" "$sources" TAPER_WGPU_MATRIX_UNITS=1
    suite suite taper-tests . "$sources"
    suite backend backend-wgpu-tests . '^$'
    suite backend-unit backend-wgpu-unit-tests . '^$'
    suite linalg linalg-tests . '^$'
    suite custom-op custom-op-tests . '^$'
    suite suite-direct taper-tests . "$once" \
        "TAPER_TEST=$base,deal=direct@$day,wgpu.form=direct,wgpu.immediates=off,wgpu.storage_buffers=8"
    suite suite-tiled taper-tests . "$once" "TAPER_TEST=$base,deal=tiled@$day,wgpu.form=tiled"
    suite suite-windows taper-tests . "$once" "TAPER_TEST=$base,deal=windows@$day,wgpu.binding_bytes=131072"
    run_queue
    [ -n "${ONLY:-}" ] || benchmarks
    rm -rf "$TAPER_CACHE_DIR" "$queue"
}

benchmarks() {
    # shellcheck disable=SC2086 # The names of cases are words.
    filters=$(for case in $CASES; do printf -- '--filter %s ' "$case"; done)
    step digits 60 "$here/digits" --device wgpu:0
    beside=
    if "$PYTHON" -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; then
        beside="--vs-torch --python $PYTHON"
    else
        echo "torch: no $PYTHON here has torch with CUDA" | tee -a "$out/steps.txt"
    fi
    # shellcheck disable=SC2086
    step bench 250 "$here/taper-bench" --device wgpu:0 --json --budget "$BUDGET" $beside $filters
    # The time of each kernel on the device.
    # shellcheck disable=SC2086
    step profile 60 "$here/taper-bench" --device wgpu:0 --profile $(for case in $PROFILED; do printf -- '--filter %s ' "$case"; done)
    # Products of f16 without matrix units, to compare with bench.txt.
    step bench-no-units 40 env TAPER_WGPU_MATRIX_UNITS=0 "$here/taper-bench" --device wgpu:0 --json --budget "$BUDGET" --filter f16
    # The choices of autotuning, to compare with the fixed table's choices in bench.txt.
    step autotune 60 env TAPER_WGPU_AUTOTUNE=1 "$here/taper-bench" --device wgpu:0 --json --budget "$BUDGET" --filter matmul --filter bmm
    find "$TAPER_CACHE_DIR" -type f -name '*tuning*' -exec cat {} + > "$out/tuned.txt" 2> /dev/null || true
}

case ${1:-} in
--build) [ $# -eq 2 ] || usage; build "$2" ;;
--run) [ $# -eq 2 ] || usage; run "$2" ;;
--tests) tests "$2" ;;
*) usage ;;
esac
