//! Elementwise programs as text, one line per instruction, for inspection.

use std::fmt;

use crate::{
    elements::scalar::Scalar,
    kernels::kernel::{Instr, Program},
};

/// `r2: f32 = add r0 r1`, one line per register, and `output r2` for each result.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &[])
    }
}

impl Program {
    /// The program's text, with the values of the scalars if they are known.
    pub fn text(&self, scalars: &[Scalar]) -> String {
        struct Text<'a>(&'a Program, &'a [Scalar]);
        impl fmt::Display for Text<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.write(f, self.1)
            }
        }
        Text(self, scalars).to_string()
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, scalars: &[Scalar]) -> fmt::Result {
        let scalar = |n: u16| match scalars.get(usize::from(n)) {
            Some(value) => value.to_string(),
            None => format!("scalar {n}"),
        };
        for (r, (instr, dtype)) in self.instrs.iter().zip(&self.dtypes).enumerate() {
            write!(f, "r{r}: {dtype} = ")?;
            match *instr {
                Instr::Load(n) => write!(f, "input {n}")?,
                Instr::LoadAt { input, index } => write!(f, "input {input} at r{index}")?,
                Instr::Scalar(n) => f.write_str(&scalar(n))?,
                Instr::Arange { start, step } => {
                    write!(f, "{} + {} · position", scalar(start), scalar(step))?
                }
                Instr::Random { kind, seed, offset } => {
                    write!(f, "{} of seed {} from {}", kind.name(), scalar(seed), scalar(offset))?;
                }
                Instr::Unary(op, a) => write!(f, "{} r{a}", op.name())?,
                Instr::Powi(n, a) => write!(f, "pow r{a} {n}")?,
                Instr::Binary(op, a, b) => write!(f, "{} r{a} r{b}", op.name())?,
                Instr::Compare(op, a, b) => write!(f, "{} r{a} r{b}", op.name())?,
                Instr::Select(c, a, b) => write!(f, "where r{c} r{a} r{b}")?,
                Instr::Cast(a) => write!(f, "cast r{a}")?,
                Instr::Fold(op, a) => write!(f, "{} of r{a} over the row", op.name())?,
            }
            writeln!(f)?;
        }
        for (o, r) in self.outputs.iter().enumerate() {
            let last = o + 1 == self.outputs.len();
            write!(f, "output r{r}{}", if last { "" } else { "\n" })?;
        }
        Ok(())
    }
}
