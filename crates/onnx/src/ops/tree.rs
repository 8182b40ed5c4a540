//! `TreeEnsemble`: sums, means or extremes over the leaves that a row reaches in each tree. The path of a
//! row depends on its values, so it is computed on the host.

use tensor_core::{Result, Tensor};

use super::{Row, one};
use crate::{context::Context, value::Value};

pub(crate) const TABLE: &[Row] = &[("ai.onnx.ml", "TreeEnsemble", 5, tree_ensemble)];

/// Inner nodes and leaves, as the attributes list them.
struct Forest {
    features: Vec<i64>,
    splits: Vec<f64>,
    modes: Vec<i64>,
    /// The next node where the test holds, and where it does not.
    next: [Vec<i64>; 2],
    /// Whether that is a leaf.
    leaf: [Vec<i64>; 2],
    missing_holds: Vec<i64>,
    /// The sets of membership tests, one for each such node.
    members: Vec<Vec<f64>>,
}

impl Forest {
    fn of(c: &Context<'_>) -> Result<Forest> {
        let ints = |name: &str| c.ints(name)?.ok_or_else(|| c.error(format!("{name} is missing")));
        let features = ints("nodes_featureids")?;
        let count = features.len();
        let modes =
            c.tensor_attribute("nodes_modes")?.ok_or_else(|| c.error("nodes_modes is missing"))?.to_i64s()?;
        let splits = c.tensor_attribute("nodes_splits")?.ok_or_else(|| c.error("nodes_splits is missing"))?;
        let missing = c.ints("nodes_missing_value_tracks_true")?.unwrap_or_else(|| vec![0; count]);
        let mut members = Vec::new();
        if let Some(values) = c.tensor_attribute("membership_values")? {
            let values = values.to_f64s()?;
            members = values.split(|value| value.is_nan()).map(<[f64]>::to_vec).collect();
        }
        // The number of the set of each node that tests for membership.
        let mut sets = Vec::with_capacity(count);
        let mut used = 0;
        for &mode in &modes {
            sets.push(if mode == MEMBER {
                members.get(used).cloned().unwrap_or_default()
            } else {
                Vec::new()
            });
            used += usize::from(mode == MEMBER);
        }
        let forest = Forest {
            features,
            splits: splits.to_f64s()?,
            modes,
            next: [ints("nodes_truenodeids")?, ints("nodes_falsenodeids")?],
            leaf: [ints("nodes_trueleafs")?, ints("nodes_falseleafs")?],
            missing_holds: missing,
            members: sets,
        };
        let lists = [&forest.modes, &forest.next[0], &forest.next[1], &forest.leaf[0], &forest.leaf[1]];
        let fits = lists.iter().all(|list| list.len() == count)
            && [forest.splits.len(), forest.missing_holds.len()] == [count; 2];
        if fits { Ok(forest) } else { Err(c.error("the lists of nodes differ in length")) }
    }

    /// The leaf that a row reaches from a root.
    fn leaf(&self, c: &Context<'_>, root: i64, row: &[f64]) -> Result<usize> {
        let number = |at: i64| usize::try_from(at).map_err(|_| c.error(format!("a node {at}")));
        let mut at = number(root)?;
        for _ in 0..=self.features.len() {
            let wrong = || c.error(format!("there is no node {at}, or no feature that it names"));
            let feature = *self.features.get(at).ok_or_else(wrong)?;
            let x = *usize::try_from(feature).ok().and_then(|feature| row.get(feature)).ok_or_else(wrong)?;
            let split = self.splits[at];
            let holds = match self.modes[at] {
                0 => x <= split,
                1 => x < split,
                2 => x >= split,
                3 => x > split,
                4 => x == split,
                5 => x != split,
                MEMBER => self.members[at].contains(&x),
                mode => return Err(c.error(format!("a test of the mode {mode}, which is not known"))),
            };
            let side = usize::from(!(holds || x.is_nan() && self.missing_holds[at] != 0));
            let next = number(self.next[side][at])?;
            if self.leaf[side][at] != 0 {
                return Ok(next);
            }
            at = next;
        }
        Err(c.error("nodes follow each other in a cycle"))
    }
}

/// The mode of a test for membership.
const MEMBER: i64 = 6;

fn tree_ensemble(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.host(0)?;
    let &[rows, width] = x.dims() else { return Err(c.error("the input is a matrix")) };
    let numbers = x.to_f64s()?;
    let forest = Forest::of(c)?;
    let roots = c.ints("tree_roots")?.ok_or_else(|| c.error("tree_roots is missing"))?;
    let leaves = c.ints("leaf_targetids")?.ok_or_else(|| c.error("leaf_targetids is missing"))?;
    let weights =
        c.tensor_attribute("leaf_weights")?.ok_or_else(|| c.error("leaf_weights is missing"))?.to_f64s()?;
    let targets = usize::try_from(c.int_or("n_targets", 1)?).ok().filter(|&n| n > 0 && n <= 1 << 20);
    let targets = targets.ok_or_else(|| c.error("n_targets is no count"))?;
    if c.int_or("post_transform", 0)? != 0 {
        return Err(c.error("post_transform is not supported; apply it to the result"));
    }
    let aggregate = c.int_or("aggregate_function", 1)?;
    let mut results = Vec::with_capacity(c.table_len(&[rows, targets])?);
    for row in 0..rows {
        let row = &numbers[row * width..][..width];
        let mut sums: Vec<Option<f64>> = vec![None; targets];
        for &root in &roots {
            let leaf = forest.leaf(c, root, row)?;
            let target = leaves.get(leaf).and_then(|&target| usize::try_from(target).ok());
            let (Some(slot), Some(&weight)) = (target.and_then(|t| sums.get_mut(t)), weights.get(leaf))
            else {
                return Err(c.error(format!("there is no leaf {leaf}")));
            };
            *slot = Some(match (*slot, aggregate) {
                (None, _) => weight,
                (Some(sum), 0 | 1) => sum + weight,
                (Some(least), 2) => least.min(weight),
                (Some(greatest), 3) => greatest.max(weight),
                (_, other) => return Err(c.error(format!("aggregate_function {other} is not known"))),
            });
        }
        let trees = if aggregate == 0 { roots.len().max(1) as f64 } else { 1.0 };
        results.extend(sums.into_iter().map(|sum| (sum.unwrap_or(0.0) / trees) as f32));
    }
    let y = Tensor::from_vec(results, [rows, targets], c.device())?;
    let dtype = x.data_type().dtype().ok_or_else(|| c.error("texts have no trees"))?;
    one(y.to_dtype(dtype)?)
}
