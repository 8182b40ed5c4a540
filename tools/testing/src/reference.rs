//! A backend that is slow and simple: it computes one element at a time, rounds every intermediate to
//! its dtype, and evaluates real functions in f64. Other backends are compared with it, and it is the
//! shortest example of a backend.

use std::{
    any::Any,
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use tensor_core::{
    ArgReduceOp, Backend, BinaryOp, Buffer, CompareOp, CumulativeOp, DType, Device, DeviceInfo, DeviceKind,
    Error, ErrorKind, Launch, Layout, Limits, MemoryStats, RandomKind, ReduceOp, Result, Scalar, Storage,
    UnaryOp,
    kernel::{Body, IndexedAxis, Instr, Output, Program},
    philox,
};

/// The reference backend. A test may count its kernels, and make its allocations fail.
#[derive(Debug)]
pub struct Reference {
    info: DeviceInfo,
    live: Arc<AtomicU64>,
    /// The number of kernels run so far, by name.
    pub kernels: Mutex<HashMap<&'static str, usize>>,
    /// The number of the allocation from now on that fails, or 0.
    pub fail_in: AtomicU64,
}

#[derive(Debug)]
struct Memory {
    dtype: DType,
    numel: usize,
    data: Mutex<Vec<Scalar>>,
    live: Arc<AtomicU64>,
}

impl Buffer for Memory {
    fn dtype(&self) -> DType {
        self.dtype
    }
    fn numel(&self) -> usize {
        self.numel
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.live.fetch_sub((self.numel * self.dtype.size()) as u64, Ordering::Relaxed);
    }
}

/// A new device on a new reference backend, and that backend.
pub fn reference_backend() -> (Device, Arc<Reference>) {
    reference_with(&DType::ALL)
}

/// A reference backend with only these dtypes, which determine the dtype of integer sums.
pub fn reference_with(dtypes: &[DType]) -> (Device, Arc<Reference>) {
    made(dtypes, |_| {})
}

/// A reference backend with other limits, which determine what is fused.
pub fn reference_limited(change: impl FnOnce(&mut Limits)) -> (Device, Arc<Reference>) {
    made(&DType::ALL, change)
}

fn made(dtypes: &[DType], change: impl FnOnce(&mut Limits)) -> (Device, Arc<Reference>) {
    let mut backend = Reference {
        info: DeviceInfo {
            name: "reference".into(),
            description: "plain loops".into(),
            driver: "none".into(),
            kind: DeviceKind::Cpu,
            memory: None,
            dtypes: dtypes.to_vec(),
            limits: Limits {
                max_buffer_bytes: 1 << 30,
                max_indexed_bytes: 1 << 30,
                gathers_in_maps: true,
                max_inputs: 8,
                max_outputs: 4,
                max_instrs: 32,
                max_row: 64,
                max_epilogue: 16,
                min_framed_bytes: 1,
            },
        },
        live: Arc::default(),
        kernels: Mutex::default(),
        fail_in: AtomicU64::new(0),
    };
    change(&mut backend.info.limits);
    let backend = Arc::new(backend);
    (Device::new(backend.clone()), backend)
}

/// A new device on a new reference backend.
pub fn reference() -> Device {
    reference_backend().0
}

/// A reference device that each thread keeps.
pub fn reference_device() -> Device {
    thread_local! {
        static REFERENCE: Device = reference();
    }
    REFERENCE.with(Device::clone)
}

fn memory(storage: &Storage) -> &Memory {
    let any: &dyn Any = storage.as_ref();
    any.downcast_ref().expect("a buffer of this backend")
}

fn read(storage: &Storage) -> Vec<Scalar> {
    memory(storage).data.lock().unwrap().clone()
}

impl Backend for Reference {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&self, dtype: DType, numel: usize) -> Result<Storage> {
        if self.fail_in.load(Ordering::Relaxed) > 0 && self.fail_in.fetch_sub(1, Ordering::Relaxed) == 1 {
            return Err(Error::new(ErrorKind::OutOfMemory {
                device: "reference".into(),
                asked: numel as u64,
                in_use: self.live.load(Ordering::Relaxed),
                reserved: 0,
                limit: None,
            }));
        }
        self.live.fetch_add((numel * dtype.size()) as u64, Ordering::Relaxed);
        // Fresh memory is filled with junk, so that no test can rely on its contents.
        let junk = Scalar::Int(113).cast(dtype);
        let data = Mutex::new(vec![junk; numel]);
        Ok(Arc::new(Memory { dtype, numel, data, live: self.live.clone() }))
    }

    fn upload(&self, dtype: DType, bytes: &[u8]) -> Result<Storage> {
        let storage = self.allocate(dtype, bytes.len() / dtype.size())?;
        *memory(&storage).data.lock().unwrap() = Scalar::from_bytes(dtype, bytes);
        Ok(storage)
    }

    fn download(&self, storage: &Storage, start: usize, out: &mut [u8]) -> Result<()> {
        let dtype = storage.dtype();
        let n = out.len() / dtype.size();
        out.copy_from_slice(&Scalar::to_bytes(dtype, &read(storage)[start..start + n]));
        Ok(())
    }

    fn run(&self, launch: &Launch<'_>) -> Result<()> {
        launch.check()?;
        *self.kernels.lock().unwrap().entry(launch.kernel.name()).or_default() += 1;
        let elements = launch.inputs.iter().zip(&launch.kernel.operands).map(|(input, operand)| {
            let stored = read(input);
            let Some(format) = &operand.format else { return stored };
            let mut decoded = vec![0.0; format.elements(stored.len())];
            format.decode(&Scalar::to_bytes(DType::U8, &stored), 0, &mut decoded);
            decoded.into_iter().map(|x| Scalar::Float(x.into()).cast(operand.dtype)).collect()
        });
        let inputs: Vec<Vec<Scalar>> = elements.collect();
        let results = compute(&self.info.name, launch, &inputs)?;
        assert_eq!(results.len(), launch.outputs.len());
        for ((mut result, output), spec) in
            results.into_iter().zip(launch.outputs).zip(&launch.kernel.outputs)
        {
            let wanted = (spec.stored(), spec.dtype);
            assert_eq!((output.numel(), output.dtype()), wanted, "{}", launch.kernel.name());
            result.iter_mut().for_each(|v| *v = v.cast(spec.dtype));
            if let Some(frame) = spec.frame {
                let (layout, elements) = (frame.layout(&spec.shape), std::mem::take(&mut result));
                result = vec![Scalar::Int(0).cast(spec.dtype); spec.stored()];
                for (at, element) in indices(&spec.shape).iter().zip(elements) {
                    result[offset(&layout, at)] = element;
                }
            }
            *memory(output).data.lock().unwrap() = result;
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn memory(&self) -> MemoryStats {
        let allocated = self.live.load(Ordering::Relaxed);
        MemoryStats { allocated, reserved: allocated, peak: allocated, allocations: 0, limit: None }
    }

    fn reset_peak(&self) {}

    fn empty_cache(&self) {}
}

/// Every multi-index of a shape, in row-major order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let n = shape.iter().product();
    (0..n)
        .map(|mut flat: usize| {
            let mut index = vec![0; shape.len()];
            for axis in (0..shape.len()).rev() {
                index[axis] = flat % shape[axis];
                flat /= shape[axis];
            }
            index
        })
        .collect()
}

/// Visits every multi-index of a shape in row-major order: its flat number, and its memory position in
/// each of the layouts.
fn walk(shape: &[usize], layouts: &[&Layout], mut visit: impl FnMut(usize, &[usize])) {
    let n = shape.iter().product();
    let mut index = vec![0; shape.len()];
    let mut places: Vec<usize> = layouts.iter().map(|layout| layout.offset()).collect();
    for flat in 0..n {
        visit(flat, &places);
        // Increments the last axis that has a further position, and resets the axes after it.
        for axis in (0..shape.len()).rev() {
            let goes_on = index[axis] + 1 < shape[axis];
            let step = if goes_on { 1 } else { -(index[axis] as isize) };
            for (place, layout) in places.iter_mut().zip(layouts) {
                // Only the increment after the last position may leave the buffer, and that is never
                // visited.
                *place = place.wrapping_add_signed(layout.strides()[axis] * step);
            }
            index[axis] = index[axis].wrapping_add_signed(step);
            if goes_on {
                break;
            }
        }
    }
}

fn offset(layout: &Layout, index: &[usize]) -> usize {
    let delta: isize = index.iter().zip(layout.strides()).map(|(&i, &s)| i as isize * s).sum();
    (layout.offset() as isize + delta) as usize
}

fn compute(device: &str, launch: &Launch<'_>, inputs: &[Vec<Scalar>]) -> Result<Vec<Vec<Scalar>>> {
    let at = |k: usize, layout: &Layout, index: &[usize]| inputs[k][offset(layout, index)];
    let kernel = launch.kernel;
    if let Body::Custom(custom) = &kernel.body {
        // Its outputs do not follow the space.
        return Err(tensor_core::custom::unsupported(custom.as_ref(), kernel, device));
    }
    let (space, operands) = (&kernel.space, &kernel.operands);
    let layout = |k: usize| &operands[k].layout;
    // The element of operand `k` at its memory position for a position of the space, or at an index
    // along its indexed axis.
    let element = |place: usize, k: usize, along: Option<i64>| -> Result<Scalar> {
        let (Some(along), Some(IndexedAxis { size, stride, .. })) = (along, operands[k].indexed) else {
            return Ok(inputs[k][place]);
        };
        if !(0..size as i64).contains(&along) {
            return Err(launch.index_error(k, along));
        }
        Ok(inputs[k][(place as isize + along as isize * stride) as usize])
    };
    // Each output of a program at every position of the space.
    let elementwise = |program: &Program| -> Result<Vec<Vec<Scalar>>> {
        let layouts: Vec<&Layout> = operands.iter().map(|operand| &operand.layout).collect();
        let mut results: Vec<Vec<Scalar>> = vec![Vec::with_capacity(space.numel()); program.outputs.len()];
        let (mut regs, mut done) = (Vec::new(), Ok(()));
        walk(space, &layouts, |flat, places| {
            if done.is_err() {
                return;
            }
            let load = |k: usize, along| element(places[k], k, along);
            done = evaluate(program, &load, launch.scalars, flat as u64, &mut regs);
            if done.is_ok() {
                results.iter_mut().zip(&program.outputs).for_each(|(r, &reg)| r.push(regs[reg as usize]));
            }
        });
        done.map(|()| results)
    };
    // The memory position of output `o` for each position of the space.
    let over_space = |output: &Output| Layout::new(space.clone(), &output.strides_over(space.rank()), 0);
    let destinations: Vec<Layout> = kernel.outputs.iter().map(over_space).collect();
    let to = |o: usize, index: &[usize]| offset(&destinations[o], index);
    Ok(match &kernel.body {
        Body::Map(program) => elementwise(program)?,
        Body::Reduce { op, program } => {
            let values = elementwise(program)?.swap_remove(0);
            let mut groups: Vec<Vec<Scalar>> = vec![Vec::new(); kernel.outputs[0].shape.numel()];
            walk(space, &[&destinations[0]], |flat, places| groups[places[0]].push(values[flat]));
            vec![groups.iter().map(|g| reduce(*op, g, program.output_dtype(0))).collect()]
        }
        Body::Rows { row_axes, program } => {
            let length: usize = space[space.rank() - row_axes..].iter().product();
            assert!(length <= 64);
            // One instruction at a time over all positions, because a fold needs its whole row.
            let mut regs: Vec<Vec<Scalar>> = Vec::new();
            for (i, instr) in program.instrs.iter().enumerate() {
                let values = match instr {
                    Instr::Fold(op, a) => {
                        let rows = regs[*a as usize].chunks(length);
                        rows.flat_map(|row| vec![reduce(*op, row, program.dtypes[i]); length])
                            .map(|v| v.cast(program.dtypes[i].register()))
                            .collect()
                    }
                    _ => indices(space)
                        .iter()
                        .enumerate()
                        .map(|(flat, index)| {
                            let r = |reg: u16| regs[reg as usize][flat];
                            let load = |k, along| element(offset(layout(k), index), k, along);
                            instruction(program, i, r, &load, launch.scalars, flat as u64)
                        })
                        .collect::<Result<_>>()?,
                };
                regs.push(values);
            }
            let output = |(o, &reg): (usize, &u16)| {
                let mut out = vec![Scalar::Int(0); kernel.outputs[o].shape.numel()];
                let positions = indices(space);
                positions.iter().zip(&regs[reg as usize]).for_each(|(index, &v)| out[to(o, index)] = v);
                out
            };
            program.outputs.iter().enumerate().map(output).collect()
        }
        Body::ArgReduce { op, axis } => {
            let n = space[*axis];
            vec![
                indices(&kernel.outputs[0].shape)
                    .iter()
                    .map(|index| {
                        let value = |i: usize| {
                            let mut full = index.clone();
                            full.insert(*axis, i);
                            at(0, layout(0), &full)
                        };
                        let order = |a: Scalar, b: Scalar| match (a, b) {
                            (Scalar::Float(a), Scalar::Float(b)) => a.partial_cmp(&b),
                            _ => Some(whole(a).cmp(&whole(b))),
                        };
                        let better = |a: Scalar, b: Scalar| match op {
                            _ if b.as_f64().is_nan() => false,
                            _ if a.as_f64().is_nan() => true,
                            ArgReduceOp::ArgMax => order(a, b).is_some_and(|order| order.is_gt()),
                            ArgReduceOp::ArgMin => order(a, b).is_some_and(|order| order.is_lt()),
                        };
                        Scalar::Int(
                            (1..n).fold(0, |best, i| if better(value(i), value(best)) { i } else { best })
                                as i64,
                        )
                    })
                    .collect(),
            ]
        }
        Body::Cumulative { op, axis, reverse } => {
            let mut out = vec![Scalar::Int(0); space.numel()];
            for (line, places) in lines(space, *axis) {
                let value = |i: usize| at(0, layout(0), &place(&line, *axis, i));
                let n = places.len();
                let mut so_far: Option<Scalar> = None;
                for step in 0..n {
                    let i = if *reverse { n - 1 - step } else { step };
                    let state = cumulate(*op, operands[0].dtype, so_far, i, &value);
                    out[places[i]] = state;
                    so_far = Some(state);
                }
            }
            vec![out]
        }
        Body::ArgSort { axis, descending } => {
            let sizes = &kernel.outputs[0].shape;
            let mut out = vec![Scalar::Int(0); sizes.numel()];
            for ((line, _), (_, places)) in lines(space, *axis).iter().zip(lines(sizes, *axis)) {
                let value = |i: usize| at(0, layout(0), &place(line, *axis, i));
                let mut order: Vec<usize> = (0..space[*axis]).collect();
                order.sort_by(|&a, &b| {
                    let (a, b) = if *descending { (value(b), value(a)) } else { (value(a), value(b)) };
                    match (a, b) {
                        (Scalar::Float(a), Scalar::Float(b)) => {
                            a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
                        }
                        _ => whole(a).cmp(&whole(b)),
                    }
                });
                places.iter().zip(order).for_each(|(&to, i)| out[to] = Scalar::Int(i as i64));
            }
            vec![out]
        }
        Body::Contract(epilogue) => {
            let sums = kernel.without_epilogue();
            let output = &sums.outputs[0];
            let destination = Layout::new(space.clone(), &output.strides_over(space.rank()), 0);
            let layouts = [layout(0), layout(1), &destination];
            let is_float = operands[0].dtype.is_float();
            let mut sums = vec![(0.0, 0i64); output.shape.numel()];
            walk(space, &layouts, |_, places| {
                let (lhs, rhs, sum) = (inputs[0][places[0]], inputs[1][places[1]], &mut sums[places[2]]);
                if is_float {
                    sum.0 += lhs.as_f64() * rhs.as_f64();
                } else {
                    sum.1 = sum.1.wrapping_add(lhs.as_i64().wrapping_mul(rhs.as_i64()));
                }
            });
            let dtype = operands[0].dtype;
            let scalar = |(float, int): (f64, i64)| {
                if is_float { Scalar::Float(float) } else { integer(int.into(), dtype) }
            };
            let sums: Vec<Scalar> = sums.into_iter().map(scalar).collect();
            let (Some(program), Some(map)) = (epilogue, kernel.epilogue_map()) else {
                return Ok(vec![sums]);
            };
            let results = indices(&map.space)
                .iter()
                .zip(sums)
                .map(|(index, sum)| {
                    let wide = sum.cast(operands[0].dtype.register());
                    let others = map.operands.iter().enumerate().skip(1);
                    let others = others.map(|(k, operand)| at(k + 1, &operand.layout, index));
                    let inputs: Vec<Scalar> = std::iter::once(wide).chain(others).collect();
                    let mut regs = Vec::new();
                    evaluate(program, &|k, _| Ok(inputs[k]), launch.scalars, 0, &mut regs)?;
                    Ok(program.outputs.iter().map(|&o| regs[o as usize]).collect())
                })
                .collect::<Result<Vec<Vec<Scalar>>>>()?;
            (0..program.outputs.len()).map(|o| results.iter().map(|r| r[o]).collect()).collect()
        }
        Body::Gather { axis } => {
            let mut out = Vec::new();
            for index in indices(space) {
                let mut from = index.clone();
                from[*axis] = checked("gather", at(1, layout(1), &index), *axis, layout(0).shape()[*axis])?;
                out.push(at(0, layout(0), &from));
            }
            vec![out]
        }
        Body::Scatter { op, axis } => {
            let dtype = operands[0].dtype;
            let mut out: Vec<Scalar> = indices(space).iter().map(|i| at(0, layout(0), i)).collect();
            for index in indices(layout(1).shape()) {
                let mut place = index.clone();
                place[*axis] = checked(op.name(), at(1, layout(1), &index), *axis, space[*axis])?;
                let cell = &mut out[to(0, &place)];
                let src = at(2, layout(2), &index);
                let one = op.binary().map_or(src, |f| binary(f, *cell, src, dtype));
                *cell = one.cast(dtype.register());
            }
            vec![out.into_iter().map(|v| v.cast(dtype)).collect()]
        }
        Body::Copy { fill, regions } => {
            let fill = if *fill { launch.scalars[0] } else { Scalar::Int(77) };
            let mut out = vec![fill; space.numel()];
            for (i, region) in regions.iter().enumerate() {
                for index in indices(region.shape()) {
                    out[offset(region, &index)] = at(i, layout(i), &index);
                }
            }
            vec![out]
        }
        Body::Custom(custom) => {
            return Err(tensor_core::custom::unsupported(custom.as_ref(), kernel, device));
        }
    })
}

/// Every line along an axis: its multi-index without the axis, and the flat positions of its elements.
fn lines(shape: &[usize], axis: usize) -> Vec<(Vec<usize>, Vec<usize>)> {
    let whole = Layout::contiguous(shape);
    let mut others = shape.to_vec();
    others.remove(axis);
    let places = |line: &[usize]| (0..shape[axis]).map(|i| offset(&whole, &place(line, axis, i))).collect();
    indices(&others).into_iter().map(|line| (line.clone(), places(&line))).collect()
}

/// A line's multi-index with a position along the axis inserted.
fn place(line: &[usize], axis: usize, i: usize) -> Vec<usize> {
    let mut full = line.to_vec();
    full.insert(axis, i);
    full
}

/// Adds one more element, that at `i`, to the cumulative state.
fn cumulate(
    op: CumulativeOp,
    dtype: DType,
    so_far: Option<Scalar>,
    i: usize,
    value: &impl Fn(usize) -> Scalar,
) -> Scalar {
    let x = value(i);
    let Some(so_far) = so_far else {
        return if op.is_arg() { Scalar::Int(i as i64) } else { x };
    };
    let (a, b) = (so_far.as_f64(), x.as_f64());
    match op {
        CumulativeOp::Sum if dtype.is_float() => Scalar::Float(a + b),
        CumulativeOp::Sum => integer(whole(so_far) + whole(x), dtype),
        CumulativeOp::Prod if dtype.is_float() => Scalar::Float(a * b),
        CumulativeOp::Prod => integer(whole(so_far).wrapping_mul(whole(x)), dtype),
        CumulativeOp::LogSumExp => Scalar::Float(match a.max(b) {
            _ if a.is_nan() || b.is_nan() => f64::NAN,
            greater if greater.is_infinite() => greater,
            greater => greater + (-(a - b).abs()).exp().ln_1p(),
        }),
        CumulativeOp::ArgMax | CumulativeOp::ArgMin => {
            let best = value(so_far.as_i64() as usize);
            let better = match (best, x) {
                (_, Scalar::Float(x)) if x.is_nan() => true,
                (Scalar::Float(best), _) if best.is_nan() => false,
                (Scalar::Float(best), Scalar::Float(x)) => {
                    if op == CumulativeOp::ArgMax {
                        x >= best
                    } else {
                        x <= best
                    }
                }
                _ if op == CumulativeOp::ArgMax => whole(x) >= whole(best),
                _ => whole(x) <= whole(best),
            };
            if better { Scalar::Int(i as i64) } else { so_far }
        }
    }
}

fn checked(op: &'static str, index: Scalar, axis: usize, size: usize) -> Result<usize> {
    let index = index.as_i64();
    if (0..size as i64).contains(&index) {
        Ok(index as usize)
    } else {
        Err(Error::new(ErrorKind::IndexOutOfRange { op, index, axis, size }))
    }
}

/// The sum, which is +0 for no terms; the standard library's is −0.
fn total(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

fn reduce(op: ReduceOp, group: &[Scalar], dtype: DType) -> Scalar {
    let floats = || group.iter().map(|v| v.as_f64());
    let extreme = |pick: BinaryOp| {
        group.iter().copied().reduce(|a, b| binary(pick, a, b, dtype)).unwrap_or(Scalar::Float(f64::NAN))
    };
    match op {
        ReduceOp::Sum if dtype.is_float() => Scalar::Float(total(floats())),
        ReduceOp::Sum => integer(group.iter().map(|&v| whole(v)).sum(), dtype),
        ReduceOp::Mean => Scalar::Float(total(floats()) / group.len() as f64),
        ReduceOp::Prod if dtype.is_float() => Scalar::Float(floats().product()),
        ReduceOp::Prod => {
            let low_bits = group.iter().fold(1i64, |product, v| product.wrapping_mul(v.as_i64()));
            integer(low_bits.into(), dtype)
        }
        ReduceOp::Max => extreme(BinaryOp::Maximum),
        ReduceOp::Min => extreme(BinaryOp::Minimum),
        ReduceOp::Any => Scalar::Bool(group.iter().any(|v| v.as_bool())),
        ReduceOp::All => Scalar::Bool(group.iter().all(|v| v.as_bool())),
    }
}

/// Loads the element of an input at a position, or at an index along its indexed axis.
type Load<'a> = &'a dyn Fn(usize, Option<i64>) -> Result<Scalar>;

/// Computes the registers of a program at one position.
fn evaluate(
    program: &Program,
    load: Load<'_>,
    scalars: &[Scalar],
    flat: u64,
    regs: &mut Vec<Scalar>,
) -> Result<()> {
    regs.clear();
    for i in 0..program.instrs.len() {
        regs.push(instruction(program, i, |reg| regs[reg as usize], load, scalars, flat)?);
    }
    Ok(())
}

/// The value of instruction `i` at one position, from those of earlier ones.
fn instruction(
    program: &Program,
    i: usize,
    r: impl Fn(u16) -> Scalar,
    load: Load<'_>,
    scalars: &[Scalar],
    flat: u64,
) -> Result<Scalar> {
    let dtype = program.dtypes[i];
    let of = |reg: u16| program.dtypes[reg as usize];
    let value = match program.instrs[i] {
        Instr::Load(n) => load(n as usize, None)?,
        Instr::LoadAt { input, index } => load(input as usize, Some(r(index).as_i64()))?,
        Instr::Scalar(n) => scalars[n as usize],
        Instr::Arange { start, step } => {
            let (start, step) = (scalars[start as usize], scalars[step as usize]);
            if dtype.is_float() {
                let product = Scalar::Float(flat as f64).cast(dtype.register()).as_f64() * step.as_f64();
                Scalar::Float(Scalar::Float(product).cast(dtype.register()).as_f64() + start.as_f64())
            } else {
                let low_bits = start.as_i64().wrapping_add(step.as_i64().wrapping_mul(flat as i64));
                integer(low_bits.into(), dtype)
            }
        }
        Instr::Random { kind, seed, offset } => {
            let seed = scalars[seed as usize].as_i64() as u64;
            let offset = scalars[offset as usize].as_i64() as u64;
            random(kind, philox(seed, offset.wrapping_add(flat)), dtype)
        }
        Instr::Unary(op, a) => unary(op, r(a), of(a)),
        Instr::Powi(n, a) => {
            let (base, times) = (r(a), n.unsigned_abs());
            let one = Scalar::Int(1).cast(dtype);
            let product = (0..times).fold(one, |p, _| {
                if dtype.is_float() {
                    Scalar::Float(p.as_f64() * base.as_f64())
                } else {
                    binary(BinaryOp::Mul, p, base, dtype)
                }
            });
            if n < 0 { Scalar::Float(1.0 / product.as_f64()) } else { product }
        }
        Instr::Binary(op, a, b) => binary(op, r(a), r(b), dtype),
        Instr::Compare(op, a, b) => {
            let (a, b, float) = (r(a), r(b), of(a).is_float());
            let order =
                if float { a.as_f64().partial_cmp(&b.as_f64()) } else { Some(whole(a).cmp(&whole(b))) };
            Scalar::Bool(match op {
                CompareOp::Eq => order.is_some_and(|o| o.is_eq()),
                CompareOp::Ne => order.is_none_or(|o| o.is_ne()),
                CompareOp::Lt => order.is_some_and(|o| o.is_lt()),
                CompareOp::Le => order.is_some_and(|o| o.is_le()),
                CompareOp::Gt => order.is_some_and(|o| o.is_gt()),
                CompareOp::Ge => order.is_some_and(|o| o.is_ge()),
            })
        }
        Instr::Select(c, a, b) => {
            if r(c).as_bool() {
                r(a)
            } else {
                r(b)
            }
        }
        // A cast to a half type rounds.
        Instr::Cast(a) => r(a).cast(dtype),
        Instr::Fold(..) => panic!("a fold in a program that is not of rows"),
    };
    Ok(value.cast(dtype.register()))
}

fn random(kind: RandomKind, w: [u32; 4], dtype: DType) -> Scalar {
    let wide = |a: u32, b: u32| ((u64::from(a) << 32 | u64::from(b)) >> 11) as f64;
    let (e24, e53) = (2f64.powi(-24), 2f64.powi(-53));
    Scalar::Float(match (kind, dtype) {
        (RandomKind::Bits, _) => return Scalar::Int(i64::from(w[0])),
        (RandomKind::Uniform, DType::F64) => wide(w[0], w[1]) * e53,
        (RandomKind::Uniform, _) => f64::from(w[0] >> 8) * e24,
        (RandomKind::Normal, _) => {
            let (u1, u2) = if dtype == DType::F64 {
                ((wide(w[0], w[1]) + 1.0) * e53, wide(w[2], w[3]) * e53)
            } else {
                (f64::from((w[0] >> 8) + 1) * e24, f64::from(w[1] >> 8) * e24)
            };
            (-2.0 * u1.ln()).sqrt() * (std::f64::consts::TAU * u2).cos()
        }
    })
}

/// The exact value of an integer or bool.
fn whole(value: Scalar) -> i128 {
    match value {
        Scalar::Unsigned(v) => v.into(),
        Scalar::Int(_) | Scalar::Bool(_) | Scalar::Float(_) => value.as_i64().into(),
    }
}

/// The low 64 bits of an integer, as a signed or unsigned scalar according to the dtype.
fn integer(value: i128, dtype: DType) -> Scalar {
    if dtype.is_signed() { Scalar::Int(value as i64) } else { Scalar::from_u64(value as u64) }
}

/// The remainder with the sign of y.
fn modulo(x: i128, y: i128) -> i128 {
    let r = x % y;
    if r != 0 && (r < 0) != (y < 0) { r + y } else { r }
}

fn unary(op: UnaryOp, value: Scalar, dtype: DType) -> Scalar {
    use UnaryOp as U;
    if !dtype.is_float() {
        let v = whole(value);
        return match op {
            U::Neg => integer(-v, dtype),
            U::Abs => integer(v.abs(), dtype),
            U::Sign => integer(v.signum(), dtype),
            U::Relu => integer(v.max(0), dtype),
            U::Not if dtype == DType::Bool => Scalar::Bool(!value.as_bool()),
            U::Not => integer(!v, dtype),
            other => panic!("{other:?} of {dtype}"),
        };
    }
    let x = value.as_f64();
    Scalar::Float(match op {
        U::Neg => -x,
        U::Abs => x.abs(),
        U::Sign => {
            if x.is_nan() || x == 0.0 {
                0.0
            } else {
                x.signum()
            }
        }
        U::Exp => x.exp(),
        U::Expm1 => x.exp_m1(),
        U::Log => x.ln(),
        U::Log1p => x.ln_1p(),
        U::Sqrt => x.sqrt(),
        U::Rsqrt => 1.0 / x.sqrt(),
        U::Reciprocal => 1.0 / x,
        U::Sin => x.sin(),
        U::Cos => x.cos(),
        U::Tan => x.tan(),
        U::Tanh => x.tanh(),
        U::Sigmoid => {
            if x < 0.0 {
                x.exp() / (1.0 + x.exp())
            } else {
                1.0 / (1.0 + (-x).exp())
            }
        }
        U::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        U::Erf => erf(x),
        U::Ndtr => ndtr(x),
        U::Gaussian => gaussian(x),
        U::Floor => x.floor(),
        U::Ceil => x.ceil(),
        U::Round => x.round_ties_even(),
        U::Trunc => x.trunc(),
        U::IsNan => return Scalar::Bool(x.is_nan()),
        U::IsInf => return Scalar::Bool(x.is_infinite()),
        U::Not => panic!("not of a float"),
    })
}

/// The error function: its power series near 0, else the continued fraction of its complement (Lentz).
fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a < 2.5 {
        let mut term = a;
        let mut sum = a;
        for n in 1..80 {
            term *= -a * a / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return (sum * std::f64::consts::FRAC_2_SQRT_PI).copysign(x);
    }
    if a.is_nan() || a > 6.5 {
        return if a.is_nan() { x } else { 1f64.copysign(x) };
    }
    let mut tail = 0.0;
    for n in (1..120).rev() {
        tail = f64::from(n) / 2.0 / (a + tail);
    }
    (1.0 - (-a * a).exp() / (std::f64::consts::PI.sqrt() * (a + tail))).copysign(x)
}

/// e^(−x²/2), with x² split into two parts.
fn gaussian(x: f64) -> f64 {
    let a = if x.abs() > 40.0 { 40.0 } else { x.abs() };
    let high = (a * 1048576.0).floor() / 1048576.0;
    (-0.5 * high * high).exp() * (-0.5 * (a - high) * (a + high)).exp()
}

/// The normal distribution function: the error function near 0, else the continued fraction of Mills'
/// ratio.
fn ndtr(x: f64) -> f64 {
    if x.is_nan() || x.abs() < 1.5 {
        return 0.5 + 0.5 * erf(x * std::f64::consts::FRAC_1_SQRT_2);
    }
    let a = if x.abs() > 40.0 { 40.0 } else { x.abs() };
    let mut tail = 0.0;
    for n in (1..400).rev() {
        tail = f64::from(n) / (a + tail);
    }
    let beyond = gaussian(a) / ((2.0 * std::f64::consts::PI).sqrt() * (a + tail));
    if x > 0.0 { 1.0 - beyond } else { beyond }
}

/// Python's floor division, by PyTorch's algorithm.
macro_rules! floor_divide {
    ($x:expr, $y:expr, $t:ty) => {{
        let (x, y): ($t, $t) = ($x, $y);
        let r = x % y;
        let mut q = (x - r) / y;
        if r != 0.0 && (r < 0.0) != (y < 0.0) {
            q -= 1.0;
        }
        let floor = if q - q.floor() > 0.5 { q.floor() + 1.0 } else { q.floor() };
        f64::from(match (y == 0.0, q == 0.0) {
            (true, _) => x / y,
            (_, true) => (0.0 as $t).copysign(x / y),
            _ => floor,
        })
    }};
}

fn binary(op: BinaryOp, a: Scalar, b: Scalar, dtype: DType) -> Scalar {
    use BinaryOp as B;
    if !dtype.is_float() {
        let bits = dtype == DType::Bool;
        let (x, y) = (whole(a), whole(b));
        let v = match op {
            B::Add if bits => x | y,
            B::Mul if bits => x & y,
            B::Add => x + y,
            B::Sub => x - y,
            B::Mul => x.wrapping_mul(y),
            B::FloorDiv if y == 0 => 0,
            B::FloorDiv => (x - modulo(x, y)) / y,
            B::Remainder if y == 0 => 0,
            B::Remainder => modulo(x, y),
            B::Pow if y < 0 => match x {
                1 => 1,
                -1 => 1 - 2 * (y & 1),
                _ => 0,
            },
            B::Pow => {
                // By squaring: the exponent may be too large for `wrapping_pow`.
                let (mut power, mut base, mut left) = (1i128, x, y);
                while left > 0 {
                    if left & 1 == 1 {
                        power = power.wrapping_mul(base);
                    }
                    base = base.wrapping_mul(base);
                    left >>= 1;
                }
                power
            }
            B::Maximum => x.max(y),
            B::Minimum => x.min(y),
            B::And => x & y,
            B::Or => x | y,
            B::Xor => x ^ y,
            // Bits shifted out of 64 are shifted out of narrower types too.
            B::LeftShift => {
                if (0..64).contains(&y) {
                    x << y
                } else {
                    0
                }
            }
            B::RightShift => x >> if (0..64).contains(&y) { y } else { 64 },
            B::Gcd => {
                let (mut x, mut y) = (x.abs(), y.abs());
                while y != 0 {
                    (x, y) = (y, x % y);
                }
                x
            }
            B::Div | B::Atan2 => panic!("{op:?} of {dtype}"),
        };
        return if bits { Scalar::Bool(v != 0) } else { integer(v, dtype) };
    }
    let (x, y) = (a.as_f64(), b.as_f64());
    Scalar::Float(match op {
        B::Add => x + y,
        B::Sub => x - y,
        B::Mul => x * y,
        B::Div => x / y,
        // Computed in the dtype's own precision, because the intermediate steps round.
        B::FloorDiv if dtype == DType::F64 => floor_divide!(x, y, f64),
        B::FloorDiv => floor_divide!(x as f32, y as f32, f32),
        B::Remainder => {
            let r = x % y;
            if r != 0.0 && (r < 0.0) != (y < 0.0) { r + y } else { r }
        }
        B::Pow => x.powf(y),
        B::Maximum => {
            if x.is_nan() || y.is_nan() {
                f64::NAN
            } else {
                x.max(y)
            }
        }
        B::Minimum => {
            if x.is_nan() || y.is_nan() {
                f64::NAN
            } else {
                x.min(y)
            }
        }
        B::Atan2 => x.atan2(y),
        B::And | B::Or | B::Xor | B::LeftShift | B::RightShift | B::Gcd => panic!("{op:?} of a float"),
    })
}
