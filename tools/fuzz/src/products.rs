//! Products of views: matrices, vectors and batches in every memory layout, with small whole numbers, so
//! that every correct device gives the same result. The expected numbers are summed here, by indices into
//! the operands' buffers.

use std::panic::{AssertUnwindSafe, catch_unwind};

use taper::{AffineBits, DType, Device, Result, Scalar, Tensor};
use taper_testing::{of_scalars, to_scalars};

use crate::{Report, modes, rng::Rng};

/// How one axis of an operand is made of one of its base tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Plain,
    /// Every `step`-th element from `start` on, and `after` more elements behind.
    Step {
        start: usize,
        step: usize,
        after: usize,
    },
    Flip,
    /// Expanded from a base of size 1.
    Expand,
}

/// A view of a base tensor.
#[derive(Clone, Debug, PartialEq)]
struct Operand {
    sizes: Vec<usize>,
    /// Axis `i` of the base is axis `order[i]` of the view.
    order: Vec<usize>,
    ways: Vec<Way>,
    /// One slice, and the number of slices, of an extra axis in front.
    select: Option<(usize, usize)>,
    evaluated: bool,
    /// The zero point of small integers that a float base tensor is stored as.
    blocks: Option<i64>,
    seed: u64,
}

#[derive(Clone, Debug, PartialEq)]
struct Product {
    dtype: DType,
    /// Whether 3 times the product and the number of its column is wanted, instead of the product itself.
    scaled: bool,
    left: Operand,
    right: Operand,
}

/// One random product.
///
/// # Errors
/// Runs one case; an error reports the smallest failing product.
pub fn product_case(seed: u64, case: u64, device: &Device) -> Result<(), Report> {
    let mut rng = Rng::new(seed ^ 0x9d, case);
    let product = random(&mut rng, device);
    let Err(mut what) = product.check(device) else { return Ok(()) };
    let mut best = product;
    loop {
        let smaller = best.smaller().into_iter().find_map(|p| p.check(device).err().map(|what| (p, what)));
        let Some((product, found)) = smaller else { break };
        (best, what) = (product, found);
    }
    Err(Report { what, code: best.rust() })
}

fn random(rng: &mut Rng, device: &Device) -> Product {
    // Results are exact in types that have the small whole numbers of these products.
    let is_exact = |dtype: &DType| dtype.float_format().is_none_or(|format| format.digits >= 8);
    let dtypes: Vec<DType> =
        device.info().dtypes.iter().copied().filter(|d| !d.is_bool() && is_exact(d)).collect();
    let dtype = if rng.below(3) > 0 { DType::F32 } else { *rng.pick(&dtypes) };
    let size = |rng: &mut Rng| match rng.below(8) {
        0 => 1,
        1 => *rng.pick(&[31, 33, 64, 100]),
        _ => rng.below(18),
    };
    let (m, n, k) = (size(rng), size(rng), size(rng));
    let batch: Vec<usize> = (0..rng.below(8).saturating_sub(5)).map(|_| 1 + rng.below(3)).collect();
    let lead = |rng: &mut Rng| -> Vec<usize> {
        let skip = if rng.one_in(3) { rng.below(batch.len() + 1) } else { 0 };
        batch[skip..].iter().map(|&b| if rng.one_in(3) { 1 } else { b }).collect()
    };
    let vector = |rng: &mut Rng| rng.one_in(8);
    let left = if vector(rng) { vec![k] } else { [lead(rng), vec![m, k]].concat() };
    let right = if vector(rng) { vec![k] } else { [lead(rng), vec![k, n]].concat() };
    Product { dtype, scaled: rng.one_in(2), left: operand(rng, left), right: operand(rng, right) }
}

fn operand(rng: &mut Rng, sizes: Vec<usize>) -> Operand {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    match rng.below(3) {
        0 => rng.shuffle(&mut order),
        1 if sizes.len() > 1 => order.swap(sizes.len() - 1, sizes.len() - 2),
        _ => {}
    }
    let ways = sizes
        .iter()
        .map(|_| match rng.below(9) {
            0 => Way::Flip,
            1 => Way::Expand,
            2 | 3 => Way::Step { start: rng.below(3), step: 1 + rng.below(3), after: rng.below(3) },
            _ => Way::Plain,
        })
        .collect();
    let select = rng.one_in(5).then(|| {
        let of = 1 + rng.below(3);
        (of, rng.below(of))
    });
    let evaluated = rng.one_in(3);
    let blocks = rng.one_in(5).then(|| rng.between(-9, 9));
    Operand { sizes, order, ways, select, evaluated, blocks, seed: rng.bits() }
}

impl Operand {
    /// The sizes of the base tensor; the axis that is selected from comes first.
    fn base(&self) -> Vec<usize> {
        let sizes = self.order.iter().map(|&axis| match self.ways[axis] {
            Way::Plain | Way::Flip => self.sizes[axis],
            Way::Expand => 1,
            Way::Step { start, step, after } => {
                start + self.sizes[axis].saturating_sub(1) * step + self.sizes[axis].min(1) + after
            }
        });
        self.select.iter().map(|s| s.0).chain(sizes).collect()
    }

    fn numbers(&self, dtype: DType) -> Vec<Scalar> {
        let mut rng = Rng::new(self.seed, 0);
        let (low, high) = match dtype {
            DType::BF16 => (-1, 1),
            _ if !dtype.is_signed() => (0, 8),
            _ => (-4, 4),
        };
        (0..self.base().iter().product()).map(|_| Scalar::Int(rng.between(low, high))).collect()
    }

    /// The base tensor, in blocks if it is to be.
    fn stored(&self, dtype: DType, device: &Device) -> Result<Tensor> {
        let numbers = self.numbers(dtype);
        let Some(zero) = self.blocks.filter(|_| dtype.is_float()) else {
            return of_scalars(&numbers, &self.base(), dtype, device);
        };
        let integers: Vec<Scalar> = numbers.iter().map(|n| Scalar::Int(n.as_i64() + zero)).collect();
        let integers = of_scalars(&integers, &self.base(), DType::I32, device)?;
        let (scale, zero) = (Tensor::ones((), device)?, Tensor::full((), zero as f32, device)?);
        Tensor::affine(&integers, &scale, Some(&zero), 0, AffineBits::I8)?.to_dtype(dtype)
    }

    fn tensor(&self, dtype: DType, device: &Device) -> Result<Tensor> {
        let mut t = self.stored(dtype, device)?;
        if let Some((_, index)) = self.select {
            t = t.select(0, index as isize)?;
        }
        for (i, &axis) in self.order.iter().enumerate() {
            let at = i as isize;
            t = match self.ways[axis] {
                Way::Plain => t,
                Way::Flip => t.flip(at)?,
                Way::Expand => {
                    let mut sizes = t.dims().to_vec();
                    sizes[i] = self.sizes[axis];
                    t.expand(sizes)?
                }
                Way::Step { start, step, .. } => {
                    let end = start + self.sizes[axis] * step;
                    t.slice_step(at, start..end, step)?.narrow(at, 0, self.sizes[axis])?
                }
            };
        }
        let t = t.permute(self.inverse())?;
        if self.evaluated {
            t.eval()?;
        }
        Ok(t)
    }

    fn inverse(&self) -> Vec<usize> {
        let mut inverse = vec![0; self.order.len()];
        self.order.iter().enumerate().for_each(|(i, &axis)| inverse[axis] = i);
        inverse
    }

    fn rust(&self, name: &str, dtype: DType) -> String {
        let base = self.base();
        let numbers: Vec<String> = self.numbers(dtype).iter().map(ToString::to_string).collect();
        let mut code = format!(
            "let {name} = Tensor::from_vec(vec![{}], [{}], &device)?.reshape({base:?})?.to_dtype(DType::{dtype:?})?",
            numbers.join("i64, ") + if numbers.is_empty() { "0i64; 0" } else { "i64" },
            numbers.len()
        );
        if let Some(zero) = self.blocks.filter(|_| dtype.is_float()) {
            code = format!(
                "{code};\nlet {name} = Tensor::affine(&{name}.to_dtype(DType::I32)?.add_scalar({zero}), &Tensor::ones((), &device)?, \
                 Some(&Tensor::full((), {zero}f32, &device)?), 0, AffineBits::I8)?.to_dtype(DType::{dtype:?})?"
            );
        }
        if let Some((_, index)) = self.select {
            code += &format!(".select(0, {index})?");
        }
        for (i, &axis) in self.order.iter().enumerate() {
            let size = self.sizes[axis];
            code += &match self.ways[axis] {
                Way::Plain => String::new(),
                Way::Flip => format!(".flip({i})?"),
                Way::Expand => {
                    let sizes: Vec<isize> =
                        (0..self.order.len()).map(|j| if i == j { size as isize } else { -1 }).collect();
                    format!(".expand({sizes:?})?")
                }
                Way::Step { start, step, .. } => {
                    format!(
                        ".slice_step({i}, {start}..{}, {step})?.narrow({i}, 0, {size})?",
                        start + size * step
                    )
                }
            };
        }
        if self.order.iter().enumerate().any(|(i, &a)| i != a) {
            code += &format!(".permute({:?})?", self.inverse());
        }
        code += ";\n";
        if self.evaluated {
            code += &format!("{name}.eval()?;\n");
        }
        code
    }

    /// The position in the base of an element of the view.
    fn place(&self, index: &[usize]) -> usize {
        let base = self.base();
        let mut flat = self.select.map_or(0, |s| s.1);
        let skip = usize::from(self.select.is_some());
        for (i, &axis) in self.order.iter().enumerate() {
            let at = index[axis];
            let at = match self.ways[axis] {
                Way::Plain => at,
                Way::Flip => self.sizes[axis] - 1 - at,
                Way::Expand => 0,
                Way::Step { start, step, .. } => start + at * step,
            };
            flat = flat * base[skip + i] + at;
        }
        flat
    }

    /// The operand with one thing less about it.
    fn smaller(&self) -> Vec<Operand> {
        let mut out = Vec::new();
        let mut plain = self.clone();
        plain.order = (0..self.sizes.len()).collect();
        out.push(plain);
        out.push(Operand { select: None, ..self.clone() });
        out.push(Operand { evaluated: false, ..self.clone() });
        out.push(Operand { blocks: None, ..self.clone() });
        for axis in 0..self.ways.len() {
            let mut plain = self.clone();
            plain.ways[axis] = Way::Plain;
            out.push(plain);
        }
        out.retain(|o| o != self);
        out
    }
}

impl Product {
    fn check(&self, device: &Device) -> Result<(), String> {
        let run = || -> Result<Vec<Scalar>> {
            let (a, b) = (self.left.tensor(self.dtype, device)?, self.right.tensor(self.dtype, device)?);
            let product = a.matmul(&b)?;
            if !self.scaled {
                return to_scalars(&product);
            }
            let columns = Tensor::arange(0, self.columns(), 1, (self.dtype, device))?;
            columns.eval()?;
            to_scalars(&product.mul_scalar(3).add(&columns)?)
        };
        let found = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(result) => result.map_err(|e| e.to_string())?,
            Err(panic) => return Err(format!("panicked: {}", modes::message(panic.as_ref()))),
        };
        modes::compare(&found, &self.expected(), &[])
    }

    /// The size of the result's last axis, or of a vector in its place.
    fn columns(&self) -> usize {
        let (l, r) = (&self.left.sizes, &self.right.sizes);
        let rows = if l.len() > 1 { l[l.len() - 2] } else { 1 };
        if r.len() > 1 { r[r.len() - 1] } else { rows }
    }

    fn expected(&self) -> Vec<Scalar> {
        let (a, b) = (self.left.numbers(self.dtype), self.right.numbers(self.dtype));
        let (l, r) = (&self.left.sizes, &self.right.sizes);
        let k = l[l.len() - 1];
        // Rows and columns, none of vectors; batches aligned at the right.
        let m = if l.len() > 1 { l[l.len() - 2] } else { 1 };
        let n = if r.len() > 1 { r[r.len() - 1] } else { 1 };
        let (lead_l, lead_r) = (&l[..l.len().saturating_sub(2)], &r[..r.len().saturating_sub(2)]);
        let rank = lead_l.len().max(lead_r.len());
        let size = |lead: &[usize], i: usize| (i + lead.len()).checked_sub(rank).map_or(1, |at| lead[at]);
        let batch: Vec<usize> =
            (0..rank).map(|i| if size(lead_l, i) == 1 { size(lead_r, i) } else { size(lead_l, i) }).collect();
        let index = |lead: &[usize], mut flat: usize| -> Vec<usize> {
            let mut out = vec![0; rank];
            for i in (0..rank).rev() {
                out[i] = if size(lead, i) == 1 { 0 } else { flat % batch[i] };
                flat /= batch[i];
            }
            out[rank - lead.len()..].to_vec()
        };
        let mut out = Vec::new();
        for flat in 0..batch.iter().product() {
            let (at_l, at_r) = (index(lead_l, flat), index(lead_r, flat));
            for i in 0..m {
                for j in 0..n {
                    let mut sum = 0i64;
                    for x in 0..k {
                        let left = if l.len() > 1 { [&at_l[..], &[i, x]].concat() } else { vec![x] };
                        let right = if r.len() > 1 { [&at_r[..], &[x, j]].concat() } else { vec![x] };
                        sum += a[self.left.place(&left)].as_i64() * b[self.right.place(&right)].as_i64();
                    }
                    let column = if r.len() > 1 { j } else { i };
                    let wanted = if self.scaled { 3 * sum + column as i64 } else { sum };
                    out.push(Scalar::Int(wanted).cast(self.dtype));
                }
            }
        }
        out
    }

    fn rust(&self) -> String {
        self.left.rust("a", self.dtype)
            + &self.right.rust("b", self.dtype)
            + &match self.scaled {
                true => format!(
                    "let columns = Tensor::arange(0, {}, 1, (DType::{:?}, &device))?;\ncolumns.eval()?;\n\
                     println!(\"{{}}\", a.matmul(&b)?.mul_scalar(3).add(&columns)?);\n",
                    self.columns(),
                    self.dtype
                ),
                false => "println!(\"{}\", a.matmul(&b)?);\n".to_string(),
            }
    }

    fn smaller(&self) -> Vec<Product> {
        let mut out: Vec<Product> = Vec::new();
        if self.scaled {
            out.push(Product { scaled: false, ..self.clone() });
        }
        if self.dtype != DType::F32 {
            out.push(Product { dtype: DType::F32, ..self.clone() });
        }
        let (l, r) = (self.left.sizes.len(), self.right.sizes.len());
        let mut shrink = |left: Option<usize>, right: Option<usize>| {
            let size = left.map_or_else(|| right.map_or(0, |a| self.right.sizes[a]), |a| self.left.sizes[a]);
            for less in [1, size / 2, size.saturating_sub(1)] {
                if less < size && less > 0 {
                    let mut product = self.clone();
                    left.iter().for_each(|&a| product.left.sizes[a] = less);
                    right.iter().for_each(|&a| product.right.sizes[a] = less);
                    out.push(product);
                }
            }
        };
        shrink(Some(l - 1), Some(r.saturating_sub(2)));
        if l > 1 {
            shrink(Some(l - 2), None);
        }
        if r > 1 {
            shrink(None, Some(r - 1));
        }
        if l > 2 {
            let lead = Operand {
                sizes: self.left.sizes[l - 2..].to_vec(),
                order: vec![0, 1],
                ways: self.left.ways[l - 2..].to_vec(),
                ..self.left.clone()
            };
            out.push(Product { left: lead, ..self.clone() });
        }
        if r > 2 {
            let lead = Operand {
                sizes: self.right.sizes[r - 2..].to_vec(),
                order: vec![0, 1],
                ways: self.right.ways[r - 2..].to_vec(),
                ..self.right.clone()
            };
            out.push(Product { right: lead, ..self.clone() });
        }
        out.extend(self.left.smaller().into_iter().map(|left| Product { left, ..self.clone() }));
        out.extend(self.right.smaller().into_iter().map(|right| Product { right, ..self.clone() }));
        out
    }
}
