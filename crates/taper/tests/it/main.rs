//! The behaviour suite: what a user of the library relies on, on the device of `TAPER_TEST=device=…`. One
//! module a topic, one program for all: it links once. A folder has related topics; the name of a test has
//! only its topic.

mod common;

// Operations.
#[path = "ops/blocks.rs"]
mod blocks;
#[path = "ops/conv.rs"]
mod conv;
#[path = "ops/counting.rs"]
mod counting;
#[path = "ops/cumulative.rs"]
mod cumulative;
#[path = "ops/einsum.rs"]
mod einsum;
#[path = "ops/elementwise.rs"]
mod elementwise;
#[path = "ops/fft.rs"]
mod fft;
#[path = "ops/formulas.rs"]
mod formulas;
#[path = "ops/grid.rs"]
mod grid;
#[path = "ops/interface.rs"]
mod interface;
#[path = "ops/movement.rs"]
mod movement;
#[path = "ops/operations.rs"]
mod operations;
#[path = "ops/pointwise.rs"]
mod pointwise;
#[path = "ops/read_at_indices.rs"]
mod read_at_indices;
#[path = "ops/reduce.rs"]
mod reduce;
#[path = "ops/scalars.rs"]
mod scalars;
#[path = "ops/several_results.rs"]
mod several_results;
#[path = "ops/shapes.rs"]
mod shapes;
#[path = "ops/short_forms.rs"]
mod short_forms;
#[path = "ops/sort.rs"]
mod sort;

// Numbers: their types, their rounding, and kernels that compute several operations.
#[path = "numbers/autocast.rs"]
mod autocast;
#[path = "numbers/beyond.rs"]
mod beyond;
#[path = "numbers/element_types.rs"]
mod element_types;
#[path = "numbers/epilogues.rs"]
mod epilogues;
#[path = "numbers/fusion.rs"]
mod fusion;
#[path = "numbers/halves_and_floors.rs"]
mod halves_and_floors;
#[path = "numbers/ieee.rs"]
mod ieee;
#[path = "numbers/long_loops.rs"]
mod long_loops;
#[path = "numbers/ndarray.rs"]
mod ndarray;
#[path = "numbers/numerics.rs"]
mod numerics;
#[path = "numbers/range.rs"]
mod range;
#[path = "numbers/tails.rs"]
mod tails;

// Layers, distributions, and operations with kernels of their own.
#[path = "nn/attention.rs"]
mod attention;
#[path = "nn/distributions.rs"]
mod distributions;
#[path = "nn/layers.rs"]
mod layers;
#[path = "nn/native_kernels.rs"]
mod native_kernels;
#[path = "nn/networks.rs"]
mod networks;
#[path = "nn/options.rs"]
mod options;
#[cfg(feature = "distributions")]
#[path = "nn/probability.rs"]
mod probability;
#[path = "nn/pytorch.rs"]
mod pytorch;
#[path = "nn/quantize.rs"]
mod quantize;
#[path = "nn/recurrent.rs"]
mod recurrent;
#[path = "nn/registered.rs"]
mod registered;
#[path = "nn/third_party.rs"]
mod third_party;

// Gradients and training.
#[path = "training/checkpoint.rs"]
mod checkpoint;
#[path = "training/compiled.rs"]
mod compiled;
#[path = "training/func.rs"]
mod func;
#[path = "training/gradients.rs"]
mod gradients;
#[path = "training/lost_training.rs"]
mod lost_training;
#[path = "training/offload.rs"]
mod offload;
#[path = "training/optimizers.rs"]
mod optimizers;
#[path = "training/parallel.rs"]
mod parallel;
#[path = "training/resume.rs"]
mod resume;
#[path = "training/shared_leaves.rs"]
mod shared_leaves;

// Devices, memory and errors.
#[path = "devices/async_reads.rs"]
mod async_reads;
#[path = "devices/bad_index.rs"]
mod bad_index;
#[path = "devices/devices.rs"]
mod devices;
#[path = "devices/endurance.rs"]
mod endurance;
#[path = "devices/errors.rs"]
mod errors;
#[path = "devices/flat.rs"]
mod flat;
#[path = "devices/lines.rs"]
mod lines;
#[path = "devices/logical_devices.rs"]
mod logical_devices;
#[path = "devices/memory_faults.rs"]
mod memory_faults;
#[path = "devices/memory_lines.rs"]
mod memory_lines;
#[path = "devices/read_once.rs"]
mod read_once;
#[path = "devices/settings.rs"]
mod settings;
#[path = "devices/transfers.rs"]
mod transfers;
