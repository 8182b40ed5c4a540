//! Operations along axes: sums, norms, statistics, running values, sorts, searches.

pub(crate) mod counts;
pub(crate) mod cumulative;
pub(crate) mod differences;
pub(crate) mod histogram;
pub(crate) mod moments;
pub(crate) mod norm;
pub(crate) mod quantile;
pub(crate) mod reduce;
pub(crate) mod search;
pub(crate) mod segment;
pub(crate) mod sort;
