//! Sorting along an axis.
//!
//! | file | contents |
//! |---|---|
//! | `arg_sort` | the choice between the three forms by their work |
//! | `sort_keys` | elements as unsigned keys, and the lines of a sort |
//! | `merge_sort` | sorted blocks, and merges of runs |
//! | `radix_sort` | passes over the digits of the keys of long lines |
//! | `select` | the first few elements of long lines |

pub(crate) mod arg_sort;
pub(crate) mod merge_sort;
pub(crate) mod radix_sort;
pub(crate) mod select;
pub(crate) mod sort_keys;
