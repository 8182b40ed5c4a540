#!/usr/bin/env bash
# cargo for wasm32-unknown-unknown with Debian's own toolchain, where rustup cannot have the target. Debian ships the sources of std, which
# are built on the way:
#
#     apt-get install --no-install-recommends rustc-web cargo-web rust-web-src lld-22
#     cargo xtask browser --cargo scripts/wasm_cargo_debian.sh
set -euo pipefail

# Those of rustup, which lead `cargo` elsewhere, and flags for another machine.
unset RUSTUP_TOOLCHAIN CARGO RUSTFLAGS
export RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc RUSTC_BOOTSTRAP=1 CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld-22
exec /usr/bin/cargo "$1" -Zbuild-std=std,panic_abort "${@:2}"
