//! Contractions: matrix products, and other sums of products.
//!
//! | file | contents |
//! |---|---|
//! | `contract` | the choice of a form, and the direct form with blocks in registers |
//! | `matrices` | the operands as two matrices |
//! | `tile` | tiles in workgroup memory |
//! | `matrix` | tiles on matrix units |
//! | `staging` | the loop that both kinds of tiles share |
//! | `few_rows` | products of few rows |
//! | `parts` | products whose terms are cut into parts |
//! | `epilogue` | the stores of results, through an elementwise program if there is one |

pub(crate) mod contract;
pub(crate) mod epilogue;
pub(crate) mod few_rows;
pub(crate) mod matrices;
pub(crate) mod matrix;
pub(crate) mod parts;
pub(crate) mod staging;
pub(crate) mod tile;
