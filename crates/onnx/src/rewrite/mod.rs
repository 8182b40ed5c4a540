//! Rewrites: parts of a graph that stand for one operation are found when a file is loaded, and replaced by
//! that operation.
//!
//! A rewrite is a name, [patterns](pattern::Pattern), and a function that makes the new step from the nodes
//! that were found, or refuses. [`TABLE`] lists them in the order in which they are tried; to add one, write
//! a file with its row. The search never takes a value that is an output of the graph, that an inner graph
//! reads, or that is read outside the pattern ([`Editor::find`]).
//!
//! A new step computes what the replaced ones did, with gradients, for all inputs: if its inputs turn out not
//! to be of the form that its fast way needs, it computes the replaced steps one by one.

mod attention;
mod batch_norm;
mod editor;
mod gelu;
mod integer_products;
mod layer_norm;
mod linear;
mod pattern;
mod weights_in_blocks;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use tensor_core::{Error, Result, Tensor};

use self::{
    editor::{Editor, Found},
    pattern::Pattern,
};
use crate::{
    compile::{Draft, Rewriter},
    context::Context,
    graph::{Constants, Node},
    weights::Weights,
};

/// One rewrite.
struct Rewrite {
    /// The name in [`Rewrites`].
    name: &'static str,
    /// Patterns, each tried on the whole graph before the next one.
    patterns: &'static [&'static str],
    /// Replaces what was found, or refuses and gives false.
    apply: fn(&mut Editor<'_, '_>, &Found) -> bool,
}

/// All rewrites, in order.
const TABLE: &[Rewrite] = &[
    weights_in_blocks::REWRITE,
    integer_products::REWRITE,
    batch_norm::REWRITE,
    gelu::BY_ERF,
    gelu::BY_TANH,
    layer_norm::REWRITE,
    attention::REWRITE,
    linear::REWRITE,
];

/// The name under which values that depend on weights alone are kept from run to run; it has no pattern.
const STATIC_VALUES: &str = "static_values";

/// The patterns of [`TABLE`], read once; a test reads all of them.
static PATTERNS: LazyLock<Vec<Vec<Pattern>>> = LazyLock::new(|| {
    let read = |rewrite: &Rewrite| rewrite.patterns.iter().filter_map(|text| Pattern::read(text)).collect();
    TABLE.iter().map(read).collect()
});

/// The rewrites that a file is loaded with; all by default.
///
/// | name | effect |
/// |---|---|
/// | `weights_in_blocks` | 8-bit weights that become floats for a product or a gather stay in 8 bits |
/// | `integer_products` | `MatMulInteger` and `ConvInteger` with a constant weight are computed in f32 |
/// | `batch_norm` | a batch norm becomes part of the weight and bias of the convolution before it |
/// | `gelu`, `gelu_tanh` | GELU by erf or tanh, written out, becomes one operation |
/// | `layer_norm` | mean, deviation and quotient, written out, become one operation |
/// | `attention` | product, scale, mask, softmax, product become `scaled_dot_product_attention` |
/// | `linear` | a product with a weight, and a bias, become one step |
/// | `static_values` | results of weights alone are kept, unless gradients are recorded |
///
/// Numbers that a rewrite contains (½, √2, an epsilon) are no longer parameters, and neither are the scales
/// of weights in blocks; all other weights keep their names and gradients. Results agree up to rounding. One
/// case differs by intent: attention gives zeros for a query that sees no key, where a softmax gives NaN.
///
/// ```
/// use onnx::{LoadOptions, Rewrites};
///
/// # fn main() -> tensor_core::Result<()> {
/// let none = LoadOptions { rewrites: Rewrites::none(), ..Default::default() };
/// let all_but_one = Rewrites::default().without("batch_norm")?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrites {
    on: BTreeSet<&'static str>,
}

impl Default for Rewrites {
    fn default() -> Rewrites {
        Rewrites { on: Rewrites::names().collect() }
    }
}

impl Rewrites {
    /// No rewrites: each node of the file is one step.
    pub fn none() -> Rewrites {
        Rewrites { on: BTreeSet::new() }
    }

    /// The names of all rewrites.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TABLE.iter().map(|rewrite| rewrite.name).chain([STATIC_VALUES])
    }

    /// These rewrites with another one.
    ///
    /// # Errors
    /// No rewrite has this name.
    pub fn with(mut self, name: &str) -> Result<Rewrites> {
        self.on.insert(known(name)?);
        Ok(self)
    }

    /// These rewrites without one.
    ///
    /// # Errors
    /// No rewrite has this name.
    pub fn without(mut self, name: &str) -> Result<Rewrites> {
        self.on.remove(known(name)?);
        Ok(self)
    }
}

fn known(name: &str) -> Result<&'static str> {
    Rewrites::names().find(|known| *known == name).ok_or_else(|| {
        let names: Vec<&str> = Rewrites::names().collect();
        Error::invalid("onnx", format!("there is no rewrite \"{name}\"; there are {}", names.join(", ")))
    })
}

/// The rewriting of a file's graphs.
pub(crate) struct Rewriting<'a> {
    rewrites: &'a Rewrites,
    /// How many places each rewrite has changed.
    pub(crate) counts: BTreeMap<&'static str, usize>,
}

impl<'a> Rewriting<'a> {
    pub(crate) fn new(rewrites: &'a Rewrites) -> Rewriting<'a> {
        Rewriting { rewrites, counts: BTreeMap::new() }
    }
}

impl Rewriter for Rewriting<'_> {
    fn rewrite(&mut self, draft: Draft<'_>, weights: &mut Weights<'_>) -> (Vec<Node>, Constants, usize) {
        let mut editor = Editor::new(draft, weights);
        for (rewrite, patterns) in TABLE.iter().zip(&*PATTERNS) {
            if !self.rewrites.on.contains(rewrite.name) {
                continue;
            }
            for pattern in patterns {
                for root in editor.steps_of(&pattern.roots()) {
                    if let Some(found) = editor.find(pattern, root)
                        && (rewrite.apply)(&mut editor, &found)
                    {
                        *self.counts.entry(rewrite.name).or_default() += 1;
                    }
                }
            }
        }
        editor.finish()
    }

    fn keeps_static_values(&self) -> bool {
        self.rewrites.on.contains(STATIC_VALUES)
    }
}

/// The attribute with the least number of axes of a result, if constants that are part of the step had
/// several.
const RANK: &str = "rank";

/// A result with leading axes of size 1, as the broadcast with the replaced constants gave.
fn with_rank(c: &Context<'_>, y: Tensor) -> Result<Tensor> {
    let rank = usize::try_from(c.int_or(RANK, 0)?).unwrap_or(0);
    if y.rank() >= rank {
        return Ok(y);
    }
    let mut shape = vec![1; rank - y.rank()];
    shape.extend(y.dims());
    y.reshape(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_patterns_can_be_read_and_have_a_root() {
        for (rewrite, patterns) in TABLE.iter().zip(&*PATTERNS) {
            assert_eq!(patterns.len(), rewrite.patterns.len(), "{}", rewrite.name);
            assert!(patterns.iter().all(|pattern| !pattern.roots().is_empty()), "{}", rewrite.name);
        }
    }

    #[test]
    fn names_are_known() {
        let all = Rewrites::default();
        let less = all.clone().without("gelu").unwrap();
        assert_ne!(all, less);
        assert_eq!(less.with("gelu").unwrap(), all);
        let error = Rewrites::none().with("gellu").unwrap_err().to_string();
        assert!(error.contains("gellu") && error.contains("layer_norm"), "{error}");
    }
}
