#!/bin/sh
# Runs `taper fine-tune` on the small random model in examples/language/tiny: the loss falls, and a
# training that is stopped after an epoch and continued gives the same adapter, to the bit.
#
#     scripts/fine_tune_check.sh cpu target/release/taper        # or wgpu
set -eu
device=$1
program=$2
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
run() {
    "$program" fine-tune examples/language/tiny --random --data examples/language/ships_log.jsonl \
        --device "$device" --rank 4 --batch 4 --max-new-tokens 4 --lr 1e-2 "$@"
}
run --epochs 2 --save "$folder/whole" | tee "$folder/losses"
run --epochs 1 --checkpoint "$folder/state" > /dev/null
run --epochs 2 --checkpoint "$folder/state" --save "$folder/parts" > /dev/null
cmp "$folder/whole/adapter_model.safetensors" "$folder/parts/adapter_model.safetensors"
run --epochs 1 --dora --states 8bit --save "$folder/dora" > /dev/null
awk '/^epoch 1:/ { first = $4 } /^epoch 2:/ { last = $4 } END { exit !(last + 0 < first + 0) }' "$folder/losses"
echo "taper fine-tune on $device: the loss falls, and a continued training is the same"
