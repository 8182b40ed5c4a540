//! The device of these tests: the reference backend, which is slow and exact and can be made to fail.
#![allow(unused_imports)]

pub(crate) use taper_testing::{assert_elements as assert_close, reference, reference as device};
