//! Products and sums over labelled axes: `einsum`, `outer` and `tensordot`.

use smallvec::SmallVec;

use crate::tensor::Tensor;
use crate::{
    base::{
        axes::Axes,
        error::{Error, Result},
        shape::Shape,
    },
    elements::dtype::DType,
    graph::op::Subscripts,
    tensor::autocast,
};

/// The label of an axis: a letter, or beyond the letters an axis of the ellipsis, counted from the last.
type Label = u8;
type Labels = SmallVec<[Label; 8]>;

/// The first label of the ellipsis's axes; smaller ones are the letters `A` to `Z` and `a` to `z`.
const ELLIPSIS: Label = 52;
const OP: &str = "einsum";

/// A factor, and the labels of its axes.
struct Factor {
    tensor: Tensor,
    labels: Labels,
}

#[track_caller]
fn wrong(equation: &str, message: impl std::fmt::Display) -> Error {
    Error::invalid(OP, format!("\"{equation}\": {message}")).here()
}

/// The labels of one operand or of the result, in which an ellipsis has `ellipsis` axes.
#[track_caller]
fn labels(equation: &str, term: &str, ellipsis: usize) -> Result<Labels> {
    let mut out = Labels::new();
    let mut rest = term;
    let mut seen = false;
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        match letter {
            ' ' => {}
            'A'..='Z' => out.push(letter as u8 - b'A'),
            'a'..='z' => out.push(letter as u8 - b'a' + 26),
            '.' if rest.starts_with("..") && !seen => {
                seen = true;
                rest = &rest[2..];
                out.extend((0..ellipsis).rev().map(|i| ELLIPSIS + i as u8));
            }
            '.' => return Err(wrong(equation, format!("\"{term}\" may have one ellipsis, of three dots"))),
            other => {
                return Err(wrong(
                    equation,
                    format!("{other:?} is no subscript; axes are named by the letters a-z and A-Z"),
                ));
            }
        }
    }
    Ok(out)
}

/// The number of letters of a term.
fn letters(term: &str) -> usize {
    term.chars().filter(char::is_ascii_alphabetic).count()
}

fn name(label: Label) -> String {
    match label {
        0..=25 => char::from(b'A' + label).to_string(),
        26..ELLIPSIS => char::from(b'a' + label - 26).to_string(),
        _ => format!("...[-{}]", label - ELLIPSIS + 1),
    }
}

impl Tensor {
    /// Einstein summation: products of tensors whose axes are labelled by letters, summed over the
    /// labels that the result lacks. `torch.einsum`.
    ///
    /// `"bij,bjk->bik"` is a batch of matrix products, `"ii"` a trace, `"i,j->ij"` an outer product,
    /// `"...ij->...ji"` a transpose. Without `->` the result has the ellipsis's axes followed by the
    /// labels that occur once, in alphabetical order (capitals first). A label that occurs twice in one
    /// operand takes its diagonal. Axes of size 1 broadcast. Operands are multiplied from left to right,
    /// each pair as one contraction. Products of integers are summed in their dtype, a single operand as
    /// in [`Tensor::sum_axis`]. With several bool operands, the result says whether any product is true.
    ///
    /// # Errors
    /// An equation with characters other than letters, `,`, `->`, `...` and spaces; a number of operands
    /// or axes other than it has; a result's label that no operand has, or that occurs twice; different
    /// sizes for one label; several dtypes or devices.
    ///
    /// ```
    /// # use tensor_core::{Device, Tensor, Result};
    /// # fn f(q: &Tensor, k: &Tensor) -> Result<()> {
    /// // Attention scores: queries [batch, time, heads, features] with keys of the same form.
    /// let scores = Tensor::einsum("bqhd,bkhd->bhqk", &[q, k])?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn einsum(equation: &str, operands: &[impl AsRef<Tensor>]) -> Result<Tensor> {
        let operands: SmallVec<[&Tensor; 4]> = operands.iter().map(AsRef::as_ref).collect();
        let Some(first) = operands.first() else {
            return Err(wrong(equation, "there are no operands"));
        };
        Tensor::same_device(OP, &operands)?;
        if let Some((operands, _as_one)) = autocast::cast_all(OP, &operands)? {
            return Tensor::einsum(equation, &operands);
        }
        if operands.len() > 1 && operands.iter().all(|t| t.dtype() == DType::Bool) {
            let numbers: Vec<Tensor> = operands.iter().map(|t| t.cast_unchecked(DType::I32)).collect();
            return Ok(Tensor::einsum(equation, &numbers)?.ne_scalar(0));
        }
        for other in &operands[1..] {
            crate::tensor::product::linear::check_factors(OP, first, other)?;
        }
        let (terms, result) = match equation.split_once("->") {
            Some((terms, result)) => (terms, Some(result)),
            None => (equation, None),
        };
        let terms: SmallVec<[&str; 4]> = terms.split(',').collect();
        if terms.len() != operands.len() {
            let (named, given) = (terms.len(), operands.len());
            return Err(wrong(equation, format!("{named} operands are named, and {given} given")));
        }
        let mut ellipsis = 0;
        for (term, tensor) in terms.iter().zip(&operands) {
            // Checked first: an invalid equation has no number of axes.
            labels(equation, term, 0)?;
            let (named, rank) = (letters(term), tensor.rank());
            let dots = term.contains("...");
            if named > rank || (named < rank && !dots) {
                return Err(wrong(
                    equation,
                    format!("\"{term}\" names {named} axes of shape {}", tensor.shape()),
                ));
            }
            ellipsis = ellipsis.max(rank - named);
        }
        if ellipsis > usize::from(u8::MAX - ELLIPSIS) {
            return Err(wrong(equation, format!("an ellipsis of {ellipsis} axes")));
        }
        let mut factors: SmallVec<[Factor; 4]> = SmallVec::new();
        for (term, tensor) in terms.iter().zip(&operands) {
            let labels = labels(equation, term, tensor.rank() - letters(term))?;
            factors.push(Factor { tensor: (*tensor).clone(), labels });
        }
        let out = match result {
            Some(result) => labels(equation, result, if result.contains("...") { ellipsis } else { 0 })?,
            None => implied(&factors),
        };
        for (i, label) in out.iter().enumerate() {
            if out[..i].contains(label) {
                return Err(wrong(equation, format!("the result has {} twice", name(*label))));
            }
            if !factors.iter().any(|factor| factor.labels.contains(label)) {
                return Err(wrong(equation, format!("no operand has the result's {}", name(*label))));
            }
        }
        for factor in &mut factors {
            factor.take_diagonals(equation)?;
        }
        broadcast(equation, &mut factors)?;
        let mut rest = factors.into_iter();
        let Some(mut product) = rest.next() else { return Err(wrong(equation, "there are no operands")) };
        while let Some(next) = rest.next() {
            let later = rest.as_slice();
            let kept = |label: Label| {
                out.contains(&label) || later.iter().any(|factor| factor.labels.contains(&label))
            };
            product = product.times(next, kept)?;
        }
        let dtype = product.tensor.dtype();
        product.sum_out(|label| out.contains(&label))?;
        if operands.len() > 1 {
            product.tensor = product.tensor.cast_if(dtype)?;
        }
        let order = out.iter().filter_map(|label| product.labels.iter().position(|l| l == label));
        product.tensor.permute(order.collect::<SmallVec<[usize; 8]>>().as_slice())
    }

    /// The products of each element of one vector with each of another: `[m]` and `[n]` give `[m, n]`.
    /// `torch.outer`.
    ///
    /// # Errors
    /// Operands that are not vectors, several dtypes or devices.
    #[track_caller]
    #[doc(alias = "ger")]
    pub fn outer(&self, rhs: &Tensor) -> Result<Tensor> {
        for t in [self, rhs] {
            if t.rank() != 1 {
                return Err(
                    Error::invalid("outer", format!("shape {} is no vector; flatten it", t.shape())).here()
                );
            }
        }
        self.unsqueeze(1)?.mul(rhs)
    }

    /// The sum of products over several axes at once: axis `lhs_axes[i]` of this tensor is summed with
    /// axis `rhs_axes[i]` of the other; an axis of size 1 is broadcast. The result has this tensor's
    /// remaining axes, then the other's. `torch.tensordot`.
    ///
    /// # Errors
    /// Lists of different lengths, repeated axes or axes out of range, sizes that differ, several dtypes
    /// or devices.
    #[track_caller]
    pub fn tensordot(
        &self,
        rhs: &Tensor,
        lhs_axes: impl Into<Axes>,
        rhs_axes: impl Into<Axes>,
    ) -> Result<Tensor> {
        const OP: &str = "tensordot";
        let cast = autocast::cast(OP, [self, rhs], [])?;
        let ([this, rhs], []) = cast.tensors();
        let axes = [
            self.shape().axes_in_order(&lhs_axes.into(), OP)?,
            rhs.shape().axes_in_order(&rhs_axes.into(), OP)?,
        ];
        let [left, right] = &axes;
        if left.len() != right.len() {
            let (l, r) = (left.len(), right.len());
            return Err(Error::invalid(OP, format!("{l} axes of one tensor for {r} of the other")).here());
        }
        if self.rank() + rhs.rank() > usize::from(Label::MAX) {
            return Err(Error::invalid(OP, format!("{} and {} axes", self.rank(), rhs.rank())).here());
        }
        let (mut this, mut rhs) = (this.clone(), rhs.clone());
        for (&l, &r) in left.iter().zip(right) {
            // Beside a single element the elements of the other tensor are added.
            match (this.dims()[l], rhs.dims()[r]) {
                (m, n) if m == n => {}
                (1, _) => rhs = rhs.sum_axis(r, true)?.cast_unchecked(rhs.dtype()),
                (_, 1) => this = this.sum_axis(l, true)?.cast_unchecked(this.dtype()),
                // The contraction refuses them.
                _ => {}
            }
        }
        let mut of_lhs: Labels = (0..self.rank() as u8).collect();
        let mut of_rhs: Labels = (0..rhs.rank() as u8).map(|axis| self.rank() as u8 + axis).collect();
        for (&l, &r) in left.iter().zip(right) {
            of_rhs[r] = of_lhs[l];
        }
        let kept = of_lhs.iter().enumerate().filter(|(axis, _)| !left.contains(axis)).map(|(_, &l)| l);
        let kept =
            kept.chain(of_rhs.iter().enumerate().filter(|(axis, _)| !right.contains(axis)).map(|(_, &r)| r));
        let out: Labels = kept.collect();
        // If an operand is summed completely, it is stored in the other's axis order, so that both are
        // read sequentially.
        if right.len() == rhs.rank() {
            rhs = rhs.laid_out_as(&mut of_rhs, &of_lhs)?;
        } else if left.len() == this.rank() {
            this = this.laid_out_as(&mut of_lhs, &of_rhs)?;
        }
        this.contract(&rhs, Subscripts { lhs: of_lhs, rhs: of_rhs, out })
    }

    /// The factor stored with its axes in the order in which their labels occur in `others`.
    #[track_caller]
    fn laid_out_as(&self, labels: &mut Labels, others: &[Label]) -> Result<Tensor> {
        let place = |label: &Label| others.iter().position(|other| other == label);
        if labels.is_sorted_by_key(place) {
            return Ok(self.clone());
        }
        let mut order: Vec<usize> = (0..labels.len()).collect();
        order.sort_by_key(|&axis| place(&labels[axis]));
        *labels = order.iter().map(|&axis| labels[axis]).collect();
        Ok(self.permute(order)?.contiguous_copy())
    }
}

/// The result's labels if none are written: the ellipsis's, and those that occur once, in order.
fn implied(factors: &[Factor]) -> Labels {
    let all = factors.iter().flat_map(|factor| factor.labels.iter().copied());
    let count = |label: Label| all.clone().filter(|&other| other == label).count();
    let mut ellipsis: Labels = all.clone().filter(|&label| label >= ELLIPSIS).collect();
    ellipsis.sort_unstable_by(|a, b| b.cmp(a));
    ellipsis.dedup();
    let mut once: Labels = all.clone().filter(|&label| label < ELLIPSIS && count(label) == 1).collect();
    once.sort_unstable();
    ellipsis.into_iter().chain(once).collect()
}

/// Removes axes of size 1 whose label has another size elsewhere, and checks that the others agree.
#[track_caller]
fn broadcast(equation: &str, factors: &mut [Factor]) -> Result<()> {
    let mut sizes = [1usize; Label::MAX as usize + 1];
    for factor in factors.iter() {
        for (&label, &size) in factor.labels.iter().zip(factor.tensor.dims()) {
            let known = &mut sizes[usize::from(label)];
            if size != 1 && *known != 1 && size != *known {
                let name = name(label);
                return Err(wrong(
                    equation,
                    format!("{name} is of size {known} in one operand, {size} in another"),
                ));
            }
            if size != 1 {
                *known = size;
            }
        }
    }
    for factor in factors {
        let dropped = |(&label, &size): (&Label, &usize)| size == 1 && sizes[usize::from(label)] != 1;
        let axes: SmallVec<[usize; 5]> = (0..factor.labels.len())
            .filter(|&axis| dropped((&factor.labels[axis], &factor.tensor.dims()[axis])))
            .collect();
        if !axes.is_empty() {
            let shape = factor.tensor.shape().reduced(&axes, false);
            factor.tensor = factor.tensor.reshape_unchecked(shape);
            let kept = factor.labels.iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
            factor.labels = kept.map(|(_, &label)| label).collect();
        }
    }
    Ok(())
}

impl Factor {
    /// Takes the diagonal of axes with the same label: the elements whose indices along them are equal.
    #[track_caller]
    fn take_diagonals(&mut self, equation: &str) -> Result<()> {
        while let Some((first, second)) = self.repeated() {
            let (n, m) = (self.tensor.dims()[first], self.tensor.dims()[second]);
            if n != m {
                let name = name(self.labels[first]);
                return Err(wrong(
                    equation,
                    format!("{name} is of sizes {n} and {m} in shape {}", self.tensor.shape()),
                ));
            }
            let rank = self.tensor.rank();
            let others = (0..rank).filter(|&axis| axis != first && axis != second);
            let order: SmallVec<[usize; 8]> = others.clone().chain([first, second]).collect();
            let lead: SmallVec<[usize; 8]> = others.clone().map(|axis| self.tensor.dims()[axis]).collect();
            let flat: Shape = lead.iter().copied().chain([n * n]).collect();
            let lines = self.tensor.permute(order.as_slice())?.reshape_unchecked(flat);
            self.tensor = lines.slice_step(rank - 2, .., n + 1)?;
            self.labels = others.chain([first]).map(|axis| self.labels[axis]).collect();
        }
        Ok(())
    }

    fn repeated(&self) -> Option<(usize, usize)> {
        let earlier = |second: usize| self.labels[..second].iter().position(|l| *l == self.labels[second]);
        (1..self.labels.len()).find_map(|second| earlier(second).map(|first| (first, second)))
    }

    /// Sums over the axes whose labels are not `kept`; integers are summed in the dtype of sums.
    #[track_caller]
    fn sum_out(&mut self, kept: impl Fn(Label) -> bool) -> Result<()> {
        let axes: SmallVec<[usize; 5]> =
            (0..self.labels.len()).filter(|&axis| !kept(self.labels[axis])).collect();
        if !axes.is_empty() {
            self.tensor = self.tensor.sum_axis(axes.as_slice(), false)?;
            self.labels.retain(|label| kept(*label));
        }
        Ok(())
    }

    /// The product with another factor, summed over the names that are not `kept`.
    #[track_caller]
    fn times(mut self, mut rhs: Factor, kept: impl Fn(Label) -> bool) -> Result<Factor> {
        let (left, right, dtype) = (self.labels.clone(), rhs.labels.clone(), self.tensor.dtype());
        self.sum_out(|label| kept(label) || right.contains(&label))?;
        rhs.sum_out(|label| kept(label) || left.contains(&label))?;
        (self.tensor, rhs.tensor) = (self.tensor.cast_if(dtype)?, rhs.tensor.cast_if(dtype)?);
        let shared = |label: &Label| rhs.labels.contains(label);
        // Labels that both have and the result keeps come first: they are a batch of products.
        let batch = self.labels.iter().copied().filter(|label| shared(label) && kept(*label));
        let rows = self.labels.iter().copied().filter(|label| !shared(label));
        let columns = rhs.labels.iter().copied().filter(|label| !self.labels.contains(label));
        let labels: Labels = batch.chain(rows).chain(columns).collect();
        if self.labels.iter().all(|label| labels.contains(label)) {
            // Nothing is summed: an elementwise product, which can be fused into its readers.
            let over = |factor: &Factor| -> Result<Tensor> {
                let places = labels.iter().map(|label| factor.labels.iter().position(|l| l == label));
                let order: SmallVec<[usize; 8]> = places.clone().flatten().collect();
                let sizes = places.map(|at| at.map_or(1, |axis| factor.tensor.dims()[axis]));
                Ok(factor.tensor.permute(order.as_slice())?.reshape_unchecked(sizes.collect()))
            };
            return Ok(Factor { tensor: over(&self)?.mul(&over(&rhs)?)?, labels });
        }
        let subscripts = Subscripts { lhs: self.labels, rhs: rhs.labels, out: labels.clone() };
        Ok(Factor { tensor: self.tensor.contract(&rhs.tensor, subscripts)?, labels })
    }
}
