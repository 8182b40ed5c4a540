//! [`Sizes`] and [`Budget`]: the memory of a program before it is compiled.

use std::fmt;

use tensor_core::{Error, Result, backend::readable_bytes};

use crate::{description::Description, description::Role, pack::Arena};

/// The bytes of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// An estimate of its machine code; for a page, the bytes of its text.
    pub code: usize,
    /// The static data, before base64 for a page.
    pub weights: usize,
    /// The working memory.
    pub arena: usize,
    /// The greatest number of bytes of the working memory that are in use at once.
    pub peak: usize,
    /// The largest constants and the largest tensors of the arena: a description, and bytes.
    pub(crate) largest: [Vec<(String, usize)>; 2],
}

/// The tensors that an error names.
const NAMED: usize = 3;

impl Sizes {
    pub(crate) fn of(plan: &Description, arena: &Arena, code: usize) -> Sizes {
        let mut largest = [Vec::new(), Vec::new()];
        let mut weights = 0;
        for (id, buffer) in plan.buffers.iter().enumerate() {
            let is_constant = matches!(buffer.role, Role::Constant(_));
            if is_constant {
                weights += buffer.bytes();
            }
            let step = plan.steps.iter().find(|step| {
                let windows = if is_constant { &step.inputs } else { &step.outputs };
                windows.iter().any(|window| window.buffer == id)
            });
            if let Some(step) = step
                && (is_constant || buffer.role == Role::Arena)
            {
                let verb = if is_constant { "read by" } else { "made by" };
                let file = step.location.file();
                let file = file.rsplit_once('/').map_or(file, |(_, name)| name);
                let dtype = buffer.dtype.to_string();
                let dtype = buffer.blocks.as_ref().map_or(dtype, |blocks| blocks.format.name().into());
                let text = format!(
                    "{} elements of {dtype} {verb} {} at {file}:{}",
                    buffer.numel,
                    step.op,
                    step.location.line()
                );
                largest[usize::from(!is_constant)].push((text, buffer.bytes()));
            }
        }
        for list in &mut largest {
            list.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
            list.truncate(NAMED);
        }
        Sizes { code, weights, arena: arena.bytes, peak: arena.peak, largest }
    }

    /// The bytes of flash: code and weights.
    #[must_use]
    pub fn flash(&self) -> usize {
        self.code + self.weights
    }
}

/// `code about 2.11 KiB, weights 408 KiB, arena 1.00 KiB`.
impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [code, weights, arena] = [self.code, self.weights, self.arena].map(|n| readable_bytes(n as u64));
        write!(f, "code about {code}, weights {weights}, arena {arena}")
    }
}

/// The memory that a program may take, in bytes; `None` for any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Code and weights together.
    pub flash: Option<usize>,
    /// The working memory.
    pub ram: Option<usize>,
}

impl Budget {
    /// Checks a program.
    ///
    /// # Errors
    /// It takes more; the message names its largest tensors.
    #[track_caller]
    pub fn check(&self, sizes: &Sizes) -> Result<()> {
        let limits = [("flash", sizes.flash(), self.flash), ("RAM", sizes.arena, self.ram)];
        for ((name, bytes, limit), largest) in limits.into_iter().zip(&sizes.largest) {
            let Some(limit) = limit.filter(|&limit| bytes > limit) else { continue };
            let largest: Vec<String> = largest
                .iter()
                .map(|(text, bytes)| format!("{} in {text}", readable_bytes(*bytes as u64)))
                .collect();
            return Err(Error::invalid(
                "ship",
                format!(
                    "the program takes {} of {name}, and the budget is {}; the largest tensors: {}",
                    readable_bytes(bytes as u64),
                    readable_bytes(limit as u64),
                    largest.join("; ")
                ),
            ));
        }
        Ok(())
    }
}
