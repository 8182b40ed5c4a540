//! Programs that read at indices, as kernels, for the tests of each backend.

use tensor_core::{
    BinaryOp, DType, Kernel, Layout, ReduceOp, Scalar, Shape,
    kernel::{IndexedAxis, Instr, Program},
};

use crate::numbers;

/// A kernel whose program reads at indices, and the inputs of its launch.
#[derive(Clone, Debug)]
pub struct LoadAtCase {
    /// A description of the kernel.
    pub what: String,
    /// The kernel. Its operands are the indices, a table that is read at them, and another tensor of the
    /// table's dtype.
    pub kernel: Kernel,
    /// The scalars of its launch.
    pub scalars: Vec<Scalar>,
    /// The buffers of the operands.
    pub inputs: Vec<(DType, Vec<f64>)>,
}

/// The layouts of the table and the indices over a space of two axes.
#[derive(Clone, Copy, Debug)]
enum Read {
    /// Row `index[i]` of a contiguous table.
    Rows,
    /// Every other element of row `index[i]`, in reverse order.
    StridedRows,
    /// Column `index[i][j]` of row i.
    AlongRows,
    /// Row `index[i][j]` of column j.
    AlongColumns,
    /// Element `index[i][j]` of the flat table, counted from its end, with transposed indices.
    Flipped,
    /// Element `index[i / 2]`, where the indices are from an expanded axis of the other order.
    Expanded,
}

const READS: [Read; 6] =
    [Read::Rows, Read::StridedRows, Read::AlongRows, Read::AlongColumns, Read::Flipped, Read::Expanded];

/// The size of the indexed axis.
const SIZE: usize = 11;

impl Read {
    /// The layout of the indices, the layout of the table, and the indexed axis.
    fn layouts(self, [rows, columns]: [usize; 2]) -> (Layout, Layout, IndexedAxis) {
        let over = |strides: [isize; 2], offset| Layout::new([rows, columns], &strides, offset);
        let (r, c, n) = (rows as isize, columns as isize, SIZE as isize);
        let of = |axis, stride| IndexedAxis { axis, size: SIZE, stride };
        match self {
            Read::Rows => (over([1, 0], 2), over([0, 1], 3), of(0, c)),
            Read::StridedRows => {
                (over([1, 0], 0), over([0, -2], 2 * columns.saturating_sub(1)), of(0, 2 * c + 1))
            }
            Read::AlongRows => (over([c, 1], 0), over([n, 0], 1), of(1, 1)),
            Read::AlongColumns => (over([c, 1], 0), over([0, 1], 0), of(0, c)),
            Read::Flipped => (over([1, r], 0), over([0, 0], SIZE - 1), of(0, -1)),
            Read::Expanded => (over([0, 1], 0), over([n, 0], 0), of(1, 1)),
        }
    }
}

/// The computation of a kernel on the loaded elements.
#[derive(Clone, Copy, Debug)]
enum Made {
    /// A map of the elements and another tensor, with the elements themselves as a second output.
    Map,
    /// The elements at indices computed from the read ones, and at those themselves.
    Computed,
    /// Their sum along axes.
    Sum(&'static [usize]),
    /// The difference of the elements from the maximum of their row, and that maximum.
    Rows,
    /// One element per row, at the index at the row's start, with the element there of the other tensor.
    OneARow,
}

const MADE: [Made; 7] = [
    Made::Map,
    Made::Computed,
    Made::Sum(&[0]),
    Made::Sum(&[1]),
    Made::Sum(&[0, 1]),
    Made::Rows,
    Made::OneARow,
];

fn case(read: Read, made: Made, space: [usize; 2], table: DType, index: DType) -> LoadAtCase {
    let (mut index_layout, mut table_layout, axis) = read.layouts(space);
    if let Made::OneARow = made {
        let still = |layout: &Layout| Layout::new(space, &[layout.strides()[0], 0], layout.offset());
        (index_layout, table_layout) = (still(&index_layout), still(&table_layout));
    }
    let other = Layout::contiguous([space[1], space[0]]).permute(&[1, 0]);
    let add = if table == DType::Bool { BinaryOp::Or } else { BinaryOp::Add };
    let subtract = if table == DType::Bool { BinaryOp::Xor } else { BinaryOp::Sub };
    let greatest = if table == DType::Bool { ReduceOp::Any } else { ReduceOp::Max };
    let load_at = |register| Instr::LoadAt { input: 1, index: register };
    let mut steps = vec![(Instr::Load(0), index), (load_at(0), table), (Instr::Load(2), table)];
    let mut scalars = Vec::new();
    let wide = table.compute();
    let (a, b) = match table.is_reduced_float() {
        true => {
            steps.extend([(Instr::Cast(1), wide), (Instr::Cast(2), wide)]);
            (3, 4)
        }
        false => (1, 2),
    };
    let next = steps.len() as u16;
    let outputs = match made {
        Made::Map => {
            steps.push((Instr::Binary(add, a, b), wide));
            vec![next, 1]
        }
        Made::Computed => {
            // The last position minus the index, which is within the axis as well.
            scalars.push(Scalar::Int(SIZE as i64 - 1).cast(index));
            steps.push((Instr::Scalar(0), index));
            steps.push((Instr::Binary(BinaryOp::Sub, next, 0), index));
            steps.push((load_at(next + 1), table));
            steps.push((Instr::Cast(next + 2), wide));
            steps.push((Instr::Binary(subtract, a, next + 3), wide));
            vec![next + 4]
        }
        Made::Sum(_) => {
            steps.push((Instr::Binary(add, a, b), wide));
            vec![next]
        }
        Made::Rows | Made::OneARow => {
            steps.push((Instr::Fold(greatest, a), wide));
            steps.push((Instr::Binary(subtract, a, next), wide));
            steps.push((Instr::Binary(add, next + 1, b), wide));
            vec![next + 2, next]
        }
    };
    let program = Program {
        instrs: steps.iter().map(|&(instr, _)| instr).collect(),
        dtypes: steps.iter().map(|&(_, dtype)| dtype).collect(),
        inputs: vec![index, table, table],
        scalars: scalars.iter().map(|_| index).collect(),
        outputs,
    };
    let layouts = [index_layout, table_layout, other];
    let shape = Shape::from(space);
    let kernel = match made {
        Made::Map | Made::Computed => Kernel::map(shape, layouts, program),
        Made::Sum(axes) => {
            let op = if table == DType::Bool { ReduceOp::Any } else { ReduceOp::Sum };
            Kernel::reduce(op, shape, axes, layouts, program)
        }
        Made::Rows | Made::OneARow => Kernel::rows(shape, 1, layouts, program, &[false, true]),
    };
    let kernel = kernel.with_indexed([None, Some(axis), None]);
    let inputs = kernel.operands.iter().zip(31..).map(|(operand, seed)| {
        let numel = operand.reach().span().1.max(1);
        let values = numbers(numel, seed);
        let values = match operand.dtype {
            _ if seed == 31 => {
                values.iter().map(|x| ((x + 2.0) / 4.0 * (SIZE as f64 - 0.01)).floor()).collect()
            }
            DType::Bool => values.iter().map(|&x| f64::from(u8::from(x > 0.0))).collect(),
            dtype if dtype.is_float() => values,
            _ => values.iter().map(|x| (x.abs() * 20.0).round()).collect(),
        };
        (operand.dtype, values)
    });
    let inputs = inputs.collect();
    let what = format!("{made:?} of {read:?} of {table} at {index} over {space:?}");
    LoadAtCase { what, kernel, scalars, inputs }
}

/// Kernels of every kind that read a table of one dtype at indices of another: maps, reductions and row
/// kernels, for tables and indices in every layout, over spaces of short and long rows, of one element
/// and of none. No row is longer than the reference backend allows.
pub fn load_at_cases(table: DType, index: DType) -> Vec<LoadAtCase> {
    let mut cases = Vec::new();
    for space in [[5, 7], [6, 64], [33, 4], [1, 1], [0, 4], [40, 37]] {
        for read in READS {
            for made in MADE {
                cases.push(case(read, made, space, table, index));
            }
        }
    }
    // Rows that span several blocks.
    for read in READS {
        cases.push(case(read, Made::Map, [3, 1500], table, index));
        cases.push(case(read, Made::Sum(&[1]), [3, 1500], table, index));
        cases.push(case(read, Made::Sum(&[0]), [50, 300], table, index));
    }
    cases
}

/// Cases with one bad index among good ones, and the bad index, for a table of the given index dtype's
/// cases.
pub fn bad_load_at_cases(index: DType) -> Vec<(LoadAtCase, i64)> {
    let mut cases = Vec::new();
    for read in READS {
        for made in MADE {
            for bad in [SIZE as i64, -1, i64::from(i32::MAX), i64::MAX, i64::MIN] {
                let fits = match index {
                    DType::I64 => true,
                    DType::I32 => i32::try_from(bad).is_ok(),
                    _ => u8::try_from(bad).is_ok(),
                };
                if !fits {
                    continue;
                }
                let mut case = case(read, made, [6, 40], DType::F32, index);
                // The index at the start of row 3.
                let layout = &case.kernel.operands[0].layout;
                let at = layout.offset() as isize + 3 * layout.strides()[0];
                case.inputs[0].1[at as usize] = bad as f64;
                cases.push((case, bad));
            }
        }
    }
    cases
}
