//! `TreeEnsemble`: sums, means or extremes over the leaves that a row reaches in each tree. The path of a
//! row depends on its values, so it is computed on the host.

use std::num::NonZero;

use tensor_core::{Error, Result};

use super::Row;
use crate::{
    context::Context,
    value::{HostData, HostTensor, Value},
};

pub(crate) const TABLE: &[Row] = &[("ai.onnx.ml", "TreeEnsemble", 5, tree_ensemble)];

/// The number of paths (rows times trees) for each thread: starting a thread takes as long as some hundreds
/// of paths, so that this many hide it.
const PATHS_PER_THREAD: usize = 1 << 12;

/// How the leaves of several trees become one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Mean,
    Sum,
    Least,
    Greatest,
}

/// The trees, as the attributes list them.
#[derive(Debug)]
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
    roots: Vec<i64>,
    /// The column and the weight of each leaf.
    leaves: Vec<(i64, f64)>,
    targets: usize,
    aggregate: Aggregate,
}

fn invalid(message: String) -> Error {
    Error::invalid("onnx", message)
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
        let weights = c.tensor_attribute("leaf_weights")?;
        let weights = weights.ok_or_else(|| c.error("leaf_weights is missing"))?.to_f64s()?;
        let targets = usize::try_from(c.int_or("n_targets", 1)?).ok().filter(|&n| n > 0 && n <= 1 << 20);
        if c.int_or("post_transform", 0)? != 0 {
            return Err(c.error("post_transform is not supported; apply it to the result"));
        }
        let forest = Forest {
            features,
            splits: splits.to_f64s()?,
            modes,
            next: [ints("nodes_truenodeids")?, ints("nodes_falsenodeids")?],
            leaf: [ints("nodes_trueleafs")?, ints("nodes_falseleafs")?],
            missing_holds: missing,
            members: sets,
            roots: ints("tree_roots")?,
            leaves: ints("leaf_targetids")?.into_iter().zip(weights).collect(),
            targets: targets.ok_or_else(|| c.error("n_targets is no count"))?,
            aggregate: match c.int_or("aggregate_function", 1)? {
                0 => Aggregate::Mean,
                1 => Aggregate::Sum,
                2 => Aggregate::Least,
                3 => Aggregate::Greatest,
                other => return Err(c.error(format!("aggregate_function {other} is not known"))),
            },
        };
        let lists = [&forest.modes, &forest.next[0], &forest.next[1], &forest.leaf[0], &forest.leaf[1]];
        let fits = lists.iter().all(|list| list.len() == count)
            && [forest.splits.len(), forest.missing_holds.len()] == [count; 2];
        if fits { Ok(forest) } else { Err(c.error("the lists of nodes differ in length")) }
    }

    /// The leaf that a row reaches from a root.
    fn leaf(&self, root: i64, row: &[f64]) -> Result<usize> {
        let number = |at: i64| usize::try_from(at).map_err(|_| invalid(format!("a node {at}")));
        let mut at = number(root)?;
        for _ in 0..=self.features.len() {
            let wrong = || invalid(format!("there is no node {at}, or no feature that it names"));
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
                mode => return Err(invalid(format!("a test of the mode {mode}, which is not known"))),
            };
            let side = usize::from(!(holds || x.is_nan() && self.missing_holds[at] != 0));
            let next = number(self.next[side][at])?;
            if self.leaf[side][at] != 0 {
                return Ok(next);
            }
            at = next;
        }
        Err(invalid("nodes follow each other in a cycle".into()))
    }

    /// The results of one row.
    fn row(&self, row: &[f64], results: &mut [f64]) -> Result<()> {
        let mut given = vec![false; results.len()];
        for &root in &self.roots {
            let leaf = self.leaf(root, row)?;
            let missing = || invalid(format!("there is no leaf {leaf}"));
            let &(target, weight) = self.leaves.get(leaf).ok_or_else(missing)?;
            let target = usize::try_from(target).ok().filter(|&target| target < results.len());
            let target = target.ok_or_else(missing)?;
            let before = results[target];
            results[target] = match self.aggregate {
                _ if !given[target] => weight,
                Aggregate::Mean | Aggregate::Sum => before + weight,
                Aggregate::Least => before.min(weight),
                Aggregate::Greatest => before.max(weight),
            };
            given[target] = true;
        }
        if self.aggregate == Aggregate::Mean {
            let trees = self.roots.len().max(1) as f64;
            results.iter_mut().for_each(|result| *result /= trees);
        }
        Ok(())
    }

    /// The results of rows of `width` numbers each, by several threads if there are many.
    fn rows(&self, rows: &[f64], width: usize, results: &mut [f64]) -> Result<()> {
        let useful = (results.len() / self.targets).saturating_mul(self.roots.len()) / PATHS_PER_THREAD;
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        self.rows_by(cores.min(useful).max(1), rows, width, results)
    }

    /// As [`Forest::rows`], by at most `threads` threads.
    fn rows_by(&self, threads: usize, rows: &[f64], width: usize, results: &mut [f64]) -> Result<()> {
        let one = |(row, results): (&[f64], &mut [f64])| {
            results
                .chunks_exact_mut(self.targets)
                .zip(row.chunks_exact(width))
                .try_for_each(|(results, row)| self.row(row, results))
        };
        let each = (results.len() / self.targets).div_ceil(threads).max(1);
        let mut parts = rows.chunks(each * width).zip(results.chunks_mut(each * self.targets));
        if threads == 1 {
            return parts.try_for_each(one);
        }
        std::thread::scope(|scope| {
            let running: Vec<_> = parts.map(|part| scope.spawn(|| one(part))).collect();
            let panicked = || Err(invalid("a thread that reads trees panicked".into()));
            running.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| panicked()))
        })
    }
}

/// The mode of a test for membership.
const MEMBER: i64 = 6;

fn tree_ensemble(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.host_data(0)?;
    let &[rows, width] = x.dims() else { return Err(c.error("the input is a matrix")) };
    let forest = c.parsed(|| Forest::of(c))?;
    let mut results = vec![0.0; c.table_len(&[rows, forest.targets])?];
    if width == 0 && rows > 0 {
        return Err(c.error("the rows of the input have no features"));
    }
    forest.rows(&x.to_f64s()?, width.max(1), &mut results)?;
    let y = HostTensor::new(x.data_type(), [rows, forest.targets], HostData::Float(results))?;
    Ok(vec![y.to_tensor(c.device())?.into()])
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = 3;

    /// Trees of two tests each, whose places and weights a linear congruential generator gives.
    fn forest(trees: usize, aggregate: Aggregate) -> Forest {
        let mut state = 7u32;
        let mut draw = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            i64::from((state >> 8) % below)
        };
        let nodes = 2 * trees;
        let number = |tree: usize, at: usize, each: usize| (tree * each + at) as i64;
        // The first test leads to a leaf or to the second, which leads to two leaves.
        let next = |first: usize, second: usize| {
            (0..trees).flat_map(|tree| [number(tree, first, 3), number(tree, second, 3)]).collect::<Vec<_>>()
        };
        let mut otherwise = next(0, 2);
        (0..trees).for_each(|tree| otherwise[2 * tree] = number(tree, 1, 2));
        Forest {
            features: (0..nodes).map(|_| draw(WIDTH as u32)).collect(),
            splits: (0..nodes).map(|_| draw(1000) as f64 / 500.0 - 1.0).collect(),
            modes: (0..nodes).map(|_| draw(4)).collect(),
            next: [next(0, 1), otherwise],
            leaf: [vec![1; nodes], (0..nodes).map(|node| (node % 2) as i64).collect()],
            missing_holds: (0..nodes).map(|_| draw(2)).collect(),
            members: vec![Vec::new(); nodes],
            roots: (0..trees).map(|tree| number(tree, 0, 2)).collect(),
            leaves: (0..3 * trees).map(|_| (draw(2), draw(1000) as f64 / 7.0)).collect(),
            targets: 2,
            aggregate,
        }
    }

    #[test]
    fn threads_share_rows_and_change_no_result() {
        const ROWS: usize = 1001;
        let rows: Vec<f64> = (0..ROWS * WIDTH)
            .map(|at| if at % 41 == 0 { f64::NAN } else { (at as f64 * 0.37).sin() })
            .collect();
        for aggregate in [Aggregate::Sum, Aggregate::Mean, Aggregate::Least, Aggregate::Greatest] {
            let forest = forest(17, aggregate);
            let of = |threads: usize| {
                let mut results = vec![0.0; ROWS * forest.targets];
                forest.rows_by(threads, &rows, WIDTH, &mut results).unwrap();
                results.into_iter().map(f64::to_bits).collect::<Vec<_>>()
            };
            let alone = of(1);
            let different: std::collections::HashSet<_> = alone.chunks(forest.targets).collect();
            assert!(different.len() > 10, "{aggregate:?}: {} different rows", different.len());
            for threads in [2, 3, 7, ROWS + 1] {
                assert_eq!(of(threads), alone, "{aggregate:?} by {threads} threads");
            }
        }
    }

    #[test]
    fn an_error_of_any_thread_is_reported() {
        let mut forest = forest(3, Aggregate::Sum);
        forest.leaf = [vec![0; 6], vec![0; 6]];
        forest.next = [vec![0; 6], vec![0; 6]];
        for threads in [1, 4] {
            let error = forest.rows_by(threads, &[0.0; 8 * WIDTH], WIDTH, &mut [0.0; 16]).unwrap_err();
            assert!(error.to_string().contains("cycle"), "{error}");
        }
    }
}
