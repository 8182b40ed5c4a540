//! Products of few rows, such as those that generate a token: the other operand, the *wide* one, is read
//! once, and everything else is small beside it. A workgroup computes a few columns for up to eight rows;
//! its invocations share k, and add up their sums: in their subgroups first, if the adapter has them and the
//! whole workgroup computes the same columns, or else in workgroup memory.
//!
//! If the wide operand is contiguous along k, neighbouring invocations read neighbours along k, or
//! neighbouring slices of its blocks (`codegen/blocks.rs`). If it is contiguous along its columns, they read
//! neighbouring columns. If there are few workgroups, k is cut into parts, which `parts.rs` adds up.

use tensor_core::{Result, kernel::Kernel};

use crate::{
    codegen::{
        blocks::Slices,
        capabilities::Capabilities,
        dispatch::Dispatches,
        dtypes::{FIELDS, storage_size},
        wgsl::Code,
    },
    kernels::product::{
        epilogue::Store,
        matrices::{Dense, Product, Side},
        parts,
    },
};

/// The most rows of such a product.
pub(super) const MAX_ROWS: usize = 8;
/// Shorter sums are not shared between invocations.
const MIN_TERMS: usize = 16;
/// The most bytes of workgroup memory: the least that WebGPU grants.
const WORKGROUP_BYTES: usize = 16 << 10;

/// The built-in values of subgroups.
const SUBGROUPS: [&str; 3] = ["subgroup_invocation_id", "subgroup_id", "num_subgroups"];

/// How invocations read the wide operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reads {
    /// Neighbours along k, this many at once.
    Terms(usize),
    /// Slices of blocks along k.
    Slices(Slices),
    /// Neighbouring columns, this many at once.
    Columns(usize),
}

impl Reads {
    /// The positions along k that an invocation processes in one round.
    fn unit(self) -> usize {
        match self {
            Reads::Terms(width) => width,
            Reads::Slices(slices) => slices.block / slices.per_block,
            Reads::Columns(_) => 4,
        }
    }
}

/// A product of few rows.
pub(crate) struct FewRows<'a> {
    of: &'a Product,
    /// The operand with few rows, and its number of rows.
    few: (&'a Side, usize),
    /// The other operand, and its number of rows or columns.
    wide: (&'a Side, usize),
    reads: Reads,
    /// The rows and columns that an invocation has sums of.
    sums: [usize; 2],
    /// The invocations of a workgroup that share k, and the groups of them.
    shape: [usize; 2],
    /// Whether sums are added up in subgroups first.
    in_subgroups: bool,
}

impl<'a> FewRows<'a> {
    /// The product as one of few rows, if it is.
    pub(crate) fn of(of: &'a Product, capabilities: &Capabilities) -> Option<FewRows<'a>> {
        let (lhs, rhs) = ((&of.lhs, of.m), (&of.rhs, of.n));
        let (few, wide) = if of.m <= of.n { (lhs, rhs) } else { (rhs, lhs) };
        if !(1..=MAX_ROWS).contains(&few.1) || wide.1 < 4 || of.k < MIN_TERMS {
            return None;
        }
        let reads = reads(wide.0, of.k);
        let columns = if matches!(reads, Reads::Slices(Slices { fours: 8, .. })) { 2 } else { 4 };
        let sums = [few.1.next_power_of_two(), columns];
        let mut made = FewRows { of, few, wide, reads, sums, shape: [1, 1], in_subgroups: false };
        made.shape = made.choose(capabilities);
        made.in_subgroups = capabilities.subgroups && made.shape[1] == 1 && storage_size(of.dtype) <= 4;
        Some(made)
    }

    fn lanes(&self) -> usize {
        self.shape[0] * self.shape[1]
    }

    /// Rounds of an invocation if no others shared k with it.
    fn units(&self) -> usize {
        self.of.k.div_ceil(self.reads.unit())
    }

    /// Workgroups along the wide operand and along the few rows.
    fn blocks(&self) -> [usize; 2] {
        [self.wide.1.div_ceil(self.shape[1] * self.sums[1]), self.few.1.div_ceil(self.sums[0])]
    }

    fn workgroups(&self) -> usize {
        self.blocks().iter().product::<usize>() * self.of.batch
    }

    /// The shape of a workgroup: at least 64 invocations, and more if there are few workgroups.
    fn choose(&self, capabilities: &Capabilities) -> [usize; 2] {
        const LANES: usize = 64;
        let [rows, columns] = self.sums;
        let shape = match self.reads {
            Reads::Columns(_) => {
                let groups = self.wide.1.div_ceil(columns).next_power_of_two().min(16);
                [LANES / groups, groups]
            }
            Reads::Terms(_) | Reads::Slices(_) => {
                let sharing = self.units().next_power_of_two().min(LANES);
                [sharing, LANES / sharing]
            }
        };
        let mut made = FewRows { shape, ..*self };
        let bytes = rows * columns * storage_size(self.of.dtype).max(4);
        while made.lanes() < 256
            && made.lanes() * 2 * bytes <= WORKGROUP_BYTES
            && made.workgroups() * made.lanes() * 2 <= capabilities.invocations
            && made.units() >= made.shape[0] * 4
        {
            made.shape[0] *= 2;
        }
        made.shape
    }

    /// The dispatches of the product.
    pub(crate) fn dispatches(&self, kernel: &Kernel, capabilities: &Capabilities) -> Result<Dispatches> {
        let [sharing, _] = self.shape;
        let whole = self.workgroups();
        let most = self.units() / (sharing * 4);
        let split = parts::Split::new(kernel, whole * self.lanes(), self.units(), most, capabilities);
        let mut d = self.of.dispatch();
        let [across, down] = self.blocks();
        d.workgroups = whole * split.count;
        let end = self.of.k;
        for (name, size) in [
            ("across", across),
            ("down", down),
            ("workgroups", d.workgroups),
            ("parts", split.count),
            ("chunk", split.chunk * self.reads.unit()),
            ("pitch", split.pitch),
            ("end", end),
        ] {
            d.params.size(name, size);
        }
        let store = split.store(kernel, &mut d, capabilities)?;
        store.bind(false, &mut d);
        self.write(&store, &mut d.code);
        d.work =
            self.lanes() * self.sums[0] * self.sums[1] * (split.chunk * self.reads.unit() / sharing).max(1);
        split.joined(kernel, d, capabilities)
    }

    /// Each row and column that an invocation has sums of.
    fn each(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let [rows, columns] = self.sums;
        (0..rows).flat_map(move |r| (0..columns).map(move |c| (r, c)))
    }

    fn write(&self, store: &Store, c: &mut Code) {
        let ([rows, columns], [sharing, groups], lanes) = (self.sums, self.shape, self.lanes());
        let (few, wide) = (self.few.0.name, self.wide.0.name);
        let size = |name: &str| if name == "lhs" { "params.m" } else { "params.n" };
        c.line(format_args!("var<workgroup> sums: array<T, {}>;", lanes * rows * columns));
        let builtins: &[&str] = if self.in_subgroups { &SUBGROUPS } else { &[] };
        c.entry_with(lanes, builtins, |c| {
            // Whole workgroups leave or stay, so all invocations of a workgroup reach the barriers below.
            c.return_if("workgroup_index >= params.workgroups");
            c.bind("part", "workgroup_index % params.parts");
            c.bind("block", "workgroup_index / params.parts");
            c.bind("batch", "block / (params.across * params.down)");
            c.bind("first_row", format_args!("(block / params.across) % params.down * {rows}u"));
            c.bind("first_column", format_args!("block % params.across * {}u", groups * columns));
            let (y, x) = match self.reads {
                Reads::Columns(_) => (format!("local_index / {groups}u"), format!("local_index % {groups}u")),
                Reads::Terms(_) | Reads::Slices(_) => {
                    (format!("local_index % {sharing}u"), format!("local_index / {sharing}u"))
                }
            };
            c.bind("y", y);
            c.bind("x", x);
            c.bind("begin", "part * params.chunk");
            c.bind("end", "min(begin + params.chunk, params.end)");
            // Positions beyond the edge repeat the last one; their results are not written.
            for r in 0..rows {
                let at = format!("min(first_row + {r}u, {} - 1u)", size(few));
                c.bind(format_args!("few{r}"), format_args!("{few}_batch(batch) + {few}_outer({at})"));
            }
            self.columns(size(wide), c);
            self.each().for_each(|(r, q)| c.var(format_args!("sum{r}_{q}"), "T()"));
            match self.reads {
                Reads::Terms(4) => self.fours_of_terms(c),
                Reads::Terms(_) => self.terms(c),
                Reads::Slices(slices) => self.slices(slices, c),
                Reads::Columns(width) => self.columns_of_terms(width, c),
            }
            if self.in_subgroups {
                self.add_up_in_subgroups(size(few), size(wide), store, c);
            } else {
                self.add_up(c);
                c.when("y == 0u", |c| self.write_out(size(few), size(wide), store, c));
            }
        });
    }

    /// The columns `column<q>` of an invocation, and the offsets `wide<q>` of those that it loads.
    fn columns(&self, size: &str, c: &mut Code) {
        let ([_, columns], [_, groups], wide) = (self.sums, self.shape, self.wide.0.name);
        let single = self.reads == Reads::Columns(1);
        for q in 0..columns {
            c.bind(
                format_args!("column{q}"),
                match single {
                    true => format!("first_column + {}u + x", q * groups),
                    false => format!("first_column + x * {columns}u + {q}u"),
                },
            );
            let (many, loads) = match self.reads {
                Reads::Columns(4) => (4, q == 0),
                Reads::Columns(_) | Reads::Terms(_) | Reads::Slices(_) => (1, true),
            };
            if loads {
                let at = format!("min(column{q}, {size} - {many}u)");
                c.bind(format_args!("wide{q}"), format_args!("{wide}_batch(batch) + {wide}_outer({at})"));
            }
        }
    }

    /// Binds `f<r>`, four terms of each row from `k` on.
    fn four_terms(&self, c: &mut Code) {
        let few = self.few.0;
        let name = few.name;
        if few.dense == Dense::Inner {
            c.bind("few_k", format_args!("{name}_inner(k)"));
            for r in 0..self.sums[0] {
                c.bind(format_args!("f{r}"), format_args!("load4_{name}(few{r} + few_k)"));
            }
            return;
        }
        (0..4).for_each(|i| c.bind(format_args!("few_k{i}"), format_args!("{name}_inner(k + {i}u)")));
        for r in 0..self.sums[0] {
            let four = [0, 1, 2, 3].map(|i| format!("load_{name}(few{r} + few_k{i})")).join(", ");
            c.bind(format_args!("f{r}"), format_args!("vec4<T>({four})"));
        }
    }

    /// Adds the products of four terms of a row, `f<r>`, and of a column, `w<q>`.
    fn add_four(&self, c: &mut Code) {
        for (r, q) in self.each() {
            for x in FIELDS {
                c.line(format_args!("sum{r}_{q} += f{r}.{x} * w{q}.{x};"));
            }
        }
    }

    fn fours_of_terms(&self, c: &mut Code) {
        let wide = self.wide.0.name;
        let step = format!("{}u", self.shape[0] * 4);
        c.count("k", ["begin + y * 4u", "end", &step], |c| {
            c.bind("wide_k", format_args!("{wide}_inner(k)"));
            for q in 0..self.sums[1] {
                c.bind(format_args!("w{q}"), format_args!("load4_{wide}(wide{q} + wide_k)"));
            }
            self.four_terms(c);
            self.add_four(c);
        });
    }

    fn terms(&self, c: &mut Code) {
        let (few, wide) = (self.few.0.name, self.wide.0.name);
        c.count("k", ["begin + y", "end", &format!("{}u", self.shape[0])], |c| {
            c.bind("wide_k", format_args!("{wide}_inner(k)"));
            c.bind("few_k", format_args!("{few}_inner(k)"));
            for q in 0..self.sums[1] {
                c.bind(format_args!("w{q}"), format_args!("load_{wide}(wide{q} + wide_k)"));
            }
            for r in 0..self.sums[0] {
                c.bind(format_args!("f{r}"), format_args!("load_{few}(few{r} + few_k)"));
            }
            self.each().for_each(|(r, q)| c.line(format_args!("sum{r}_{q} += f{r} * w{q};")));
        });
    }

    /// Counts slices: slice s begins at term 4 s of its block.
    fn slices(&self, Slices { block, per_block, fours, apart }: Slices, c: &mut Code) {
        let wide = self.wide.0.name;
        let unit = block / per_block;
        let bounds =
            [format!("begin / {unit}u + y"), format!("end / {unit}u"), format!("{}u", self.shape[0])];
        c.count("s", [&bounds[0], &bounds[1], &bounds[2]], |c| {
            c.bind("first", format_args!("s / {per_block}u * {block}u + s % {per_block}u * 4u"));
            for q in 0..self.sums[1] {
                c.bind(format_args!("slice{q}"), format_args!("load_slice_{wide}(wide{q} + first)"));
            }
            for v in 0..fours {
                c.block("", |c| {
                    c.bind("k", format_args!("first + {}u", v * apart));
                    for q in 0..self.sums[1] {
                        c.bind(format_args!("w{q}"), format_args!("slice{q}[{v}]"));
                    }
                    self.four_terms(c);
                    self.add_four(c);
                });
            }
        });
    }

    /// Four terms in each round, then the rest.
    fn columns_of_terms(&self, width: usize, c: &mut Code) {
        let (few, wide, [rows, columns]) = (self.few.0.name, self.wide.0.name, self.sums);
        let add = |wide_k: &str, term: &dyn Fn(usize) -> String, c: &mut Code| {
            c.block("", |c| {
                if width == 4 {
                    c.bind("w", format_args!("load4_{wide}(wide0 + {wide_k})"));
                } else {
                    for q in 0..columns {
                        c.bind(format_args!("w{q}"), format_args!("load_{wide}(wide{q} + {wide_k})"));
                    }
                }
                for (r, q) in self.each() {
                    let w = if width == 4 { format!("w.{}", FIELDS[q]) } else { format!("w{q}") };
                    c.line(format_args!("sum{r}_{q} += {} * {w};", term(r)));
                }
            });
        };
        c.bind("whole", "begin + (end - begin) / 4u * 4u");
        c.count("k", ["begin + y * 4u", "whole", &format!("{}u", self.shape[0] * 4)], |c| {
            self.four_terms(c);
            for (i, x) in FIELDS.iter().enumerate() {
                add(&format!("{wide}_inner(k + {i}u)"), &|r| format!("f{r}.{x}"), c);
            }
        });
        c.count("k", ["whole + y", "end", &format!("{}u", self.shape[0])], |c| {
            c.bind("few_k", format_args!("{few}_inner(k)"));
            (0..rows).for_each(|r| c.bind(format_args!("f{r}"), format_args!("load_{few}(few{r} + few_k)")));
            add(&format!("{wide}_inner(k)"), &|r| format!("f{r}"), c);
        });
    }

    /// Adds up the sums of the invocations that share k, in a tree; those with `y == 0` have the results.
    fn add_up(&self, c: &mut Code) {
        let ([_, columns], [sharing, groups], lanes) = (self.sums, self.shape, self.lanes());
        let place = |(r, q): (usize, usize)| format!("{}u + slot", (r * columns + q) * lanes);
        c.bind("slot", format_args!("y * {groups}u + x"));
        for sum @ (r, q) in self.each() {
            c.set(format_args!("sums[{}]", place(sum)), format_args!("sum{r}_{q}"));
        }
        c.line("workgroupBarrier();");
        c.block(format_args!("for (var half = {}u; half > 0u; half >>= 1u)", sharing / 2), |c| {
            c.when("y < half", |c| {
                for sum in self.each() {
                    let place = place(sum);
                    c.line(format_args!("sums[{place}] += sums[{place} + half * {groups}u];"));
                }
            });
            c.line("workgroupBarrier();");
        });
    }

    /// Adds up sums in subgroups, then those of all subgroups: one invocation for each result. A workgroup
    /// cannot have more subgroups than invocations.
    fn add_up_in_subgroups(&self, rows: &str, size: &str, store: &Store, c: &mut Code) {
        let ([rows_of, columns], lanes) = (self.sums, self.lanes());
        for (r, q) in self.each() {
            c.bind(format_args!("all{r}_{q}"), format_args!("subgroupAdd(sum{r}_{q})"));
        }
        c.when("subgroup_invocation_id == 0u", |c| {
            for (r, q) in self.each() {
                let place = format!("{}u + subgroup_id", (r * columns + q) * lanes);
                c.set(format_args!("sums[{place}]"), format_args!("all{r}_{q}"));
            }
        });
        c.line("workgroupBarrier();");
        c.when(format_args!("local_index < {}u", rows_of * columns), |c| {
            c.var("sum", format_args!("sums[local_index * {lanes}u]"));
            c.count("i", ["1u", "num_subgroups", "1u"], |c| {
                c.line(format_args!("sum += sums[local_index * {lanes}u + i];"));
            });
            c.bind("row", format_args!("first_row + local_index / {columns}u"));
            c.bind("column", format_args!("first_column + local_index % {columns}u"));
            self.store(["row", rows], ["column", size], "sum", store, c);
        });
    }

    fn write_out(&self, rows: &str, size: &str, store: &Store, c: &mut Code) {
        let ([_, columns], lanes) = (self.sums, self.lanes());
        for (r, q) in self.each() {
            let sum = format!("sums[{}u + slot]", (r * columns + q) * lanes);
            self.store([&format!("(first_row + {r}u)"), rows], [&format!("column{q}"), size], &sum, store, c);
        }
    }

    /// Stores a sum, if its row and column are below these sizes.
    fn store(
        &self,
        [row, rows]: [&str; 2],
        [column, size]: [&str; 2],
        sum: &str,
        store: &Store,
        c: &mut Code,
    ) {
        c.when(format_args!("{row} < {rows} && {column} < {size}"), |c| {
            let (m, n) = if self.few.0.name == "lhs" { (row, column) } else { (column, row) };
            c.bind("at", format_args!("part * params.pitch + (batch * params.m + {m}) * params.n + {n}"));
            store.one("at", sum, c);
        });
    }
}

/// How the wide operand is read best.
fn reads(wide: &Side, k: usize) -> Reads {
    if wide.dense == Dense::Inner
        && let Some(slices) = wide.slices
        && k.is_multiple_of(slices.block)
        && wide.begins_at(slices.block)
    {
        return Reads::Slices(slices);
    }
    match wide.dense {
        Dense::Inner => Reads::Terms(4),
        Dense::Outer => Reads::Columns(4),
        Dense::Neither if wide.runs_along_outer() => Reads::Columns(1),
        Dense::Neither => Reads::Terms(1),
    }
}

#[cfg(test)]
mod words_read;
