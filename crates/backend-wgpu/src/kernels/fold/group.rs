//! The division of a workgroup that reduces: `lanes` invocations share the elements of a result, and the
//! workgroup makes `columns` results. Both are parameters, so one text serves every division.

use crate::codegen::{dispatch::Params, wgsl::Code};

/// Invocations of a workgroup that reduces.
pub(crate) const GROUP_INVOCATIONS: usize = 256;
/// Invocations of a workgroup each of which makes a result alone.
const ALONE_INVOCATIONS: usize = 64;
/// The most results of a workgroup whose neighbouring invocations read neighbouring results.
const MAX_COLUMNS: usize = 32;
/// Elements of a row that neighbouring invocations read at least: a whole memory transaction.
const TRANSACTION: usize = 32;
/// The least elements of a result for a workgroup in which neighbouring invocations share it.
const MIN_ALONG: usize = 128;
/// The least elements of a result for a workgroup in which neighbouring invocations read neighbouring
/// results.
const MIN_ACROSS: usize = 16;
/// Elements (or vectors of them) that each invocation reads at least if a reduction is split.
const MIN_STEPS: usize = 8;
/// Elements (or vectors of them) that an invocation reads without a split in less time than a second
/// dispatch takes: it has four loads under way, so these are 16 times the latency of memory.
const STEPS_OF_A_DISPATCH: usize = 64;
/// Parts of a reduction for each invocation that keeps the device busy: the largest devices have four times
/// as many, and smaller ones lose little.
const PARTS_PER_INVOCATION: usize = 4;

/// The division of a workgroup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    /// The results of a workgroup, a power of two.
    pub(crate) columns: usize,
    /// Whether neighbouring invocations read neighbouring elements of one result, not of neighbouring
    /// results.
    along: bool,
}

impl Group {
    /// The division if neighbours in memory are reduced together, for `results` results of `steps` steps
    /// (elements, or vectors of `width`); None if each result is too short.
    pub(crate) fn along(results: usize, steps: usize, width: usize, busy: usize) -> Option<Group> {
        if steps * width < MIN_ALONG {
            return None;
        }
        let mut lanes = steps.div_ceil(4).next_power_of_two().clamp(MAX_COLUMNS, GROUP_INVOCATIONS);
        // More lanes for a result if there are too few results to keep the device busy.
        while lanes < steps.min(GROUP_INVOCATIONS) && results * lanes < busy {
            lanes *= 2;
        }
        Some(Group { columns: GROUP_INVOCATIONS / lanes, along: true })
    }

    /// The division if neighbours in memory belong to neighbouring results (or vectors of `width`), `row` of
    /// which are neighbours; None if there are enough results for one invocation each, or each is too short.
    pub(crate) fn across(
        results: usize,
        row: usize,
        steps: usize,
        width: usize,
        busy: usize,
    ) -> Option<Group> {
        if results >= busy || steps < MIN_ACROSS {
            return None;
        }
        // A lane has at least two steps.
        let least = GROUP_INVOCATIONS / (steps.next_power_of_two() / 2).min(GROUP_INVOCATIONS);
        let mut columns = row.next_power_of_two().clamp(least, MAX_COLUMNS);
        // More lanes for a result if there are too few results to keep the device busy.
        while columns > least.max(TRANSACTION / width) && results * (GROUP_INVOCATIONS / columns) < busy {
            columns /= 2;
        }
        Some(Group { columns, along: false })
    }

    /// The invocations that share a result.
    pub(crate) fn lanes(&self) -> usize {
        GROUP_INVOCATIONS / self.columns
    }

    /// The parts into which results of `steps` steps are split, so that the device is busy.
    pub(crate) fn splits(&self, results: usize, steps: usize, busy: usize) -> usize {
        if steps <= self.lanes() * STEPS_OF_A_DISPATCH {
            return 1;
        }
        let blocks = results.div_ceil(self.columns).max(1);
        let enough = (busy * PARTS_PER_INVOCATION / GROUP_INVOCATIONS).div_ceil(blocks);
        (steps / (self.lanes() * MIN_STEPS)).clamp(1, enough.max(1))
    }

    /// Adds the parameters: the division, the number of `results`, the `blocks` of results that a workgroup
    /// makes, and the `total` of workgroups.
    fn params(&self, results: usize, splits: usize, params: &mut Params) {
        let blocks = results.div_ceil(self.columns);
        let sizes = [
            ("columns", self.columns),
            ("lanes", self.lanes()),
            ("results", results),
            ("blocks", blocks),
            ("total", blocks * splits),
        ];
        sizes.into_iter().for_each(|(name, size)| params.size(name, size));
    }

    /// The number of workgroups.
    fn workgroups(&self, results: usize, splits: usize) -> usize {
        results.div_ceil(self.columns) * splits
    }

    /// The start of an invocation: the `part` of the elements and the `result` that it works on, its `lane`
    /// there, and its `slot` in workgroup memory. The slots of a lane are neighbours.
    ///
    /// Every invocation stays to the end because of the barriers; surplus workgroups repeat the last one,
    /// and surplus columns the last result.
    fn begin(&self, c: &mut Code) {
        c.bind("g", "min(workgroup_index, params.total - 1u)");
        c.bind("part", "g / params.blocks");
        c.bind("first", "(g - part * params.blocks) * params.columns");
        if self.along {
            c.bind("lane", "local_index & (params.lanes - 1u)");
            c.bind("column", "local_index / params.lanes");
            c.bind("slot", "lane * params.columns + column");
        } else {
            c.bind("lane", "local_index / params.columns");
            c.bind("column", "local_index & (params.columns - 1u)");
            c.bind("slot", "local_index");
        }
        c.bind("result", "min(first + column, params.results - 1u)");
    }

    /// Combines the slots of each result in workgroup memory; `combine` combines those of `local_index` and
    /// `local_index + half`. Only the invocations go on that have a result to store: its number in its part
    /// is `made`, its slot `local_index`.
    pub(crate) fn tree(combine: impl FnOnce(&mut Code), c: &mut Code) {
        c.line("workgroupBarrier();");
        c.block("for (var half = 128u; half >= params.columns; half >>= 1u)", |c| {
            c.when("local_index < half", combine);
            c.line("workgroupBarrier();");
        });
        c.bind("made", "first + local_index");
        c.return_if(
            "local_index >= params.columns || made >= params.results || workgroup_index >= params.total",
        );
    }
}

/// The division of the work of a reduction: workgroups that share results, or invocations that work alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Division(pub(crate) Option<Group>);

impl Division {
    /// Adds the parameters `results` and `total`, and those of [`Group::params`].
    pub(crate) fn params(&self, results: usize, splits: usize, params: &mut Params) {
        match &self.0 {
            Some(group) => group.params(results, splits, params),
            None => {
                params.size("results", results);
                params.size("total", results * splits);
            }
        }
    }

    /// The invocations of a workgroup.
    pub(crate) fn invocations(&self) -> usize {
        if self.0.is_some() { GROUP_INVOCATIONS } else { ALONE_INVOCATIONS }
    }

    /// The results that a workgroup works on.
    pub(crate) fn columns(&self) -> usize {
        self.0.map_or(ALONE_INVOCATIONS, |group| group.columns)
    }

    /// The number of workgroups.
    pub(crate) fn workgroups(&self, results: usize, splits: usize) -> usize {
        match &self.0 {
            Some(group) => group.workgroups(results, splits),
            None => (results * splits).div_ceil(ALONE_INVOCATIONS),
        }
    }

    /// [`Group::begin`]; an invocation that works alone has the number `g`, and ends if it is surplus.
    pub(crate) fn begin(&self, c: &mut Code) {
        let Some(group) = &self.0 else {
            c.bind("g", format_args!("workgroup_index * {ALONE_INVOCATIONS}u + local_index"));
            c.return_if("g >= params.total");
            c.bind("part", "g / params.results");
            return c.bind("result", "g - part * params.results");
        };
        group.begin(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_read_whole_transactions() {
        let across = |results, row, steps| Group::across(results, row, steps, 1, 65_536).map(|g| g.columns);
        assert_eq!(across(768, 768, 4096), Some(32));
        assert_eq!(across(3, 3, 40_000), Some(4));
        assert_eq!(across(3, 3, 16), Some(32));
        assert_eq!(across(65_536, 65_536, 4096), None);
        assert_eq!(across(768, 768, 15), None);
        // Few results have more lanes each, as long as neighbours read a whole transaction.
        let fours = |results, steps| Group::across(results, 32, steps, 4, 65_536).map(|g| g.columns);
        assert_eq!(fours(32, 1024), Some(8));
        assert_eq!(fours(4096, 1024), Some(16));
        assert_eq!(fours(16_384, 1024), Some(32));
        let along = |results, steps, width| Group::along(results, steps, width, 65_536).map(|g| g.columns);
        assert_eq!(along(1, 1 << 20, 4), Some(1));
        assert_eq!(along(1 << 20, 128, 1), Some(8));
        assert_eq!(along(1 << 20, 127, 1), None);
        // Few results have more lanes each.
        assert_eq!(along(1500, 128, 1), Some(4));
        assert_eq!(along(100, 128, 1), Some(2));
    }

    #[test]
    fn parts_have_work_for_every_lane() {
        let group = Group { columns: 32, along: false };
        assert_eq!(group.splits(192, 4096, 65_536), 64);
        assert_eq!(group.splits(192, 1 << 20, 65_536), 171);
        assert_eq!(group.splits(192, 513, 65_536), 8);
        assert_eq!(group.splits(192, 512, 65_536), 1);
        assert_eq!(group.splits(192, 15, 65_536), 1);
        assert_eq!(group.splits(1 << 16, 1 << 20, 65_536), 1);
    }
}
