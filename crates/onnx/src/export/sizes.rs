//! Shape arithmetic: a size that differs between samples as a value that the graph computes. It is looked up
//! among the sizes of values in the graph, or else computed from one or two of them.

use super::{
    builder::int,
    exporter::{Emitted, Exporter, Failure},
    sample::{Size, Twin, fixed},
};

/// The number of known sizes that arithmetic is tried with.
const SOURCES: usize = 48;
/// The greatest divisor and shift of a size that is found by trying.
const DIVISORS: i64 = 64;

/// A size as arithmetic on others.
enum Rule {
    /// (scale · a + shift) / divisor, rounded down.
    Line { a: usize, scale: i64, shift: i64, divisor: i64 },
    /// scale · a · b / divisor.
    Product { a: usize, b: usize, scale: i64, divisor: i64 },
    /// a + sign · b + shift.
    Sum { a: usize, b: usize, sign: i64, shift: i64 },
}

impl Exporter {
    /// The name of a size, as a vector of one i64; it is searched first among the axes of `near`, if they
    /// are in the graph.
    pub(super) fn size(&mut self, size: &Size, near: &[&Twin]) -> Emitted {
        if let Some(size) = fixed(size) {
            return Ok(self.builder.ints(&[size as i64]));
        }
        if let Some(name) = self.sizes.get(size) {
            return Ok(name.clone());
        }
        let beside = near.iter().find_map(|twin| {
            let axis = (0..twin.rank()).find(|&axis| twin.size(axis) == *size)?;
            Some((self.name(twin), axis)).filter(|(name, _)| !name.is_empty())
        });
        let known = || {
            let known = self.known.iter().find(|known| known.size == *size)?;
            Some((known.value.clone(), known.axis))
        };
        let name = match beside.or_else(known) {
            Some((value, axis)) => self.axis(&value, axis),
            None => self.computed(size)?,
        };
        self.sizes.insert(size.clone(), name.clone());
        Ok(name)
    }

    /// The size of a value's axis, as a vector of one i64.
    fn axis(&mut self, value: &str, axis: usize) -> String {
        let axis = axis as i64;
        self.builder.node("Shape", &[value], [int("start", axis), int("end", axis + 1)])
    }

    /// A shape, as a vector of i64.
    pub(super) fn shape(&mut self, shape: &[Size], near: &[&Twin]) -> Emitted {
        if let Some(sizes) = shape.iter().map(|size| fixed(size)).collect::<Option<Vec<usize>>>() {
            return Ok(self.builder.ints(&sizes.iter().map(|&size| size as i64).collect::<Vec<_>>()));
        }
        let parts = shape.iter().map(|size| self.size(size, near)).collect::<Result<Vec<String>, _>>()?;
        Ok(self.joined(&parts))
    }

    /// Vectors of i64 one after the other.
    pub(super) fn joined(&mut self, parts: &[String]) -> String {
        match parts {
            [only] => only.clone(),
            _ => {
                let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                self.builder.node("Concat", &parts, [int("axis", 0)])
            }
        }
    }

    /// A size by arithmetic on known ones.
    fn computed(&mut self, size: &Size) -> Emitted {
        let mut sources: Vec<Size> = Vec::new();
        for known in &self.known {
            if sources.len() < SOURCES && !sources.contains(&known.size) {
                sources.push(known.size.clone());
            }
        }
        let Some(rule) = find(size, &sources) else {
            return Err(Failure::NotDynamic(format!(
                "the size {} is no simple function of the dynamic sizes (it is {size:?} where the inputs have {:?})",
                size[0],
                sources.first().cloned().unwrap_or_default()
            )));
        };
        let source = |exporter: &mut Exporter, at: usize| exporter.size(&sources[at], &[]);
        match rule {
            Rule::Line { a, scale, shift, divisor } => {
                let mut value = source(self, a)?;
                for (op, number, neutral) in [("Mul", scale, 1), ("Add", shift, 0), ("Div", divisor, 1)] {
                    value = self.apply(op, &value, number, neutral);
                }
                Ok(value)
            }
            Rule::Product { a, b, scale, divisor } => {
                let (a, b) = (source(self, a)?, source(self, b)?);
                let product = self.builder.node("Mul", &[&a, &b], []);
                let product = self.apply("Mul", &product, scale, 1);
                Ok(self.apply("Div", &product, divisor, 1))
            }
            Rule::Sum { a, b, sign, shift } => {
                let (a, b) = (source(self, a)?, source(self, b)?);
                let sum = self.builder.node(if sign > 0 { "Add" } else { "Sub" }, &[&a, &b], []);
                Ok(self.apply("Add", &sum, shift, 0))
            }
        }
    }

    fn apply(&mut self, op: &str, value: &str, number: i64, neutral: i64) -> String {
        if number == neutral {
            return value.into();
        }
        let number = self.builder.ints(&[number]);
        self.builder.node(op, &[value, &number], [])
    }
}

/// The first rule that gives the size in every sample.
fn find(size: &[usize], sources: &[Size]) -> Option<Rule> {
    let wanted: Vec<i64> = size.iter().map(|&n| n as i64).collect();
    let numbers: Vec<Vec<i64>> =
        sources.iter().map(|source| source.iter().map(|&n| n as i64).collect()).collect();
    let lines = numbers.iter().enumerate().find_map(|(a, x)| line(a, x, &wanted));
    let pairs = || (0..numbers.len()).flat_map(|a| (a..numbers.len()).map(move |b| (a, b)));
    lines
        .or_else(|| pairs().find_map(|(a, b)| product(a, b, &numbers, &wanted)))
        .or_else(|| pairs().find_map(|(a, b)| sum(a, b, &numbers, &wanted)))
        .or_else(|| numbers.iter().enumerate().find_map(|(a, x)| quotient(a, x, &wanted)))
}

/// scale · a + shift.
fn line(a: usize, x: &[i64], wanted: &[i64]) -> Option<Rule> {
    let other = (1..x.len()).find(|&k| x[k] != x[0])?;
    let (rise, run) = (wanted[other] - wanted[0], x[other] - x[0]);
    if rise == 0 || rise % run != 0 {
        return None;
    }
    let scale = rise / run;
    let shift = wanted[0] - scale * x[0];
    x.iter().zip(wanted).all(|(x, w)| scale * x + shift == *w).then_some(Rule::Line {
        a,
        scale,
        shift,
        divisor: 1,
    })
}

/// (a + shift) / divisor, rounded down.
fn quotient(a: usize, x: &[i64], wanted: &[i64]) -> Option<Rule> {
    let all = |shift: i64, divisor: i64| {
        x.iter().zip(wanted).all(|(x, w)| x + shift >= 0 && (x + shift) / divisor == *w)
    };
    (2..=DIVISORS).find_map(|divisor| {
        // Small shifts first: 0, −1, 1, −2 …
        let shifts = (0..=2 * DIVISORS).map(|k| if k % 2 == 0 { k / 2 } else { -(k + 1) / 2 });
        shifts.into_iter().find(|&shift| all(shift, divisor)).map(|shift| Rule::Line {
            a,
            scale: 1,
            shift,
            divisor,
        })
    })
}

/// scale · a · b / divisor.
fn product(a: usize, b: usize, numbers: &[Vec<i64>], wanted: &[i64]) -> Option<Rule> {
    let products: Vec<i64> = numbers[a].iter().zip(&numbers[b]).map(|(x, y)| x * y).collect();
    let &first = products.first()?;
    if first == 0 || wanted[0] == 0 {
        return None;
    }
    let common = gcd(first, wanted[0]);
    let (scale, divisor) = (wanted[0] / common, first / common);
    let fits = products.iter().zip(wanted).all(|(p, w)| p * scale == w * divisor);
    fits.then_some(Rule::Product { a, b, scale, divisor })
}

/// a ± b + shift.
fn sum(a: usize, b: usize, numbers: &[Vec<i64>], wanted: &[i64]) -> Option<Rule> {
    let (x, y) = (&numbers[a], &numbers[b]);
    [(a, b, x, y, 1), (a, b, x, y, -1), (b, a, y, x, -1)].into_iter().find_map(|(a, b, x, y, sign)| {
        let shift = wanted[0] - x[0] - sign * y[0];
        let fits = (0..wanted.len()).all(|k| x[k] + sign * y[k] + shift == wanted[k]);
        fits.then_some(Rule::Sum { a, b, sign, shift })
    })
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_from_others() {
        let sources = [vec![4, 8, 12, 20], vec![7, 21, 14, 35]];
        let rule = |size: &[usize]| find(size, &sources);
        assert!(matches!(rule(&[9, 17, 25, 41]), Some(Rule::Line { a: 0, scale: 2, shift: 1, divisor: 1 })));
        assert!(matches!(rule(&[28, 168, 168, 700]), Some(Rule::Product { scale: 1, divisor: 1, .. })));
        assert!(matches!(rule(&[14, 84, 84, 350]), Some(Rule::Product { scale: 1, divisor: 2, .. })));
        assert!(matches!(rule(&[12, 30, 27, 56]), Some(Rule::Sum { sign: 1, shift: 1, .. })));
        assert!(matches!(rule(&[2, 7, 4, 11]), Some(Rule::Line { a: 1, divisor: 3, .. })));
        assert!(rule(&[5, 100, 2, 77]).is_none());
    }
}
