#!/usr/bin/env bash
# cargo for wasm32-unknown-unknown with Debian's own toolchain, for machines where rustup cannot install the
# target. Debian ships the sources of std, which are compiled too:
#
#     apt-get install --no-install-recommends rustc-web cargo-web rust-web-src lld-22
#     cargo xtask browser --cargo scripts/wasm_cargo_debian.sh
set -euo pipefail

# rustup's variables, which select another `cargo`, and flags for another machine.
unset RUSTUP_TOOLCHAIN CARGO RUSTFLAGS
export RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc RUSTC_BOOTSTRAP=1 CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld-22
exec /usr/bin/cargo "$1" -Zbuild-std=std,panic_abort "${@:2}"
