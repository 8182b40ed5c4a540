//! The behaviour suite: what a user of the library relies on, on the device of `TAPER_TEST_DEVICE`. One module a topic, one program for all:
//! it links once.

mod async_reads;
mod attention;
mod bad_index;
mod common;
mod conv;
mod cumulative;
mod einsum;
mod elementwise;
mod endurance;
mod errors;
mod flat;
mod fusion;
mod gradients;
mod halves_and_floors;
mod ieee;
mod interface;
mod long_loops;
mod lost_training;
mod memory_faults;
mod ndarray;
mod networks;
mod numerics;
mod optimizers;
mod pytorch;
mod reduce;
mod resume;
mod settings;
mod several_results;
mod shapes;
mod shared_leaves;
mod sort;
mod third_party;
mod transfers;
