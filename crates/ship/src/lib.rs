//! Programs of compiled functions: train with Taper, and ship a network without it.
//!
//! [`ship`] reads the plan of a function that [`compile`](autograd::compile) made, and writes it as source: a
//! crate of Rust without `std`, dependencies and allocation, C99 with one header, or WGSL with a module of
//! JavaScript. Kernels are loops over arrays, weights are static data, and all intermediate tensors share one
//! arena whose size is a constant.
//!
//! | item | purpose |
//! |---|---|
//! | [`ship`], [`Shipment`] | a program: its files, its sizes, and an interpreter of it |
//! | [`Target`] | the language |
//! | [`Budget`], [`Sizes`] | the memory that it may take, and takes |
//!
//! `description` holds the plan as buffers and steps; `read` makes it by `lower`, `fold`, `integers` and
//! `relayout`, and `pack` places its buffers. `interpret` runs it on `number`s, and `write` prints it, with
//! decoders for `blocks`.

mod blocks;
mod description;
mod fold;
#[allow(clippy::eq_op, clippy::excessive_precision, clippy::needless_range_loop)] // the text of programs
mod functions;
mod integers;
mod interpret;
mod lower;
mod number;
mod operations;
mod pack;
mod page_limits;
mod read;
mod relayout;
mod sizes;
mod whole;
mod write;

use std::{fs, io, path::Path};

use autograd::Compiled;
use tensor_core::{DType, Error, PlanListing, Result, Shape, TensorTree, file::file_error};

pub use self::sizes::{Budget, Sizes};
use self::{
    description::{Description, Role},
    interpret::Memory,
    pack::Arena,
    write::{File, Language},
};

/// The root of these sources, for `taper`: error locations skip lines below it.
#[doc(hidden)]
pub const ROOT: &str = file!();

/// The language of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A crate without `std`, dependencies and allocation.
    Rust,
    /// C99: one header and one source file.
    C,
    /// A page with WebGPU: kernels in WGSL, and a module of JavaScript that runs them.
    Wgsl,
}

/// The program of a compiled function, for arguments of the form of its last call.
///
/// The function is called at least once before, within `no_grad` and after `.eval()` of its modules.
/// Everything that it reads beside its arguments becomes static data, with its present values.
///
/// ```
/// use autograd::{compile, no_grad};
/// use ship::{Target, ship};
/// use tensor_core::{Result, Tensor};
/// # fn main() -> Result<()> {
/// let cpu = backend_cpu::cpu();
/// let w = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], &cpu)?;
/// let layer = compile(|x: Tensor| Ok(x.matmul(&w)?.relu()));
/// no_grad(|| layer.call(Tensor::new([[1.0f32, -1.0]], &cpu)?))?;
/// let program = ship(&layer, Target::C)?;
/// assert_eq!((program.sizes().weights, program.sizes().arena), (16, 0));
/// let header = &program.files()[0].1;
/// assert!(header.contains("int program_run(program_arena *arena, const float x0[2], float y0[2]);"));
/// # Ok(()) }
/// ```
///
/// # Errors
/// The function was not called yet; it assigns cells, computes gradients or draws random numbers; it has an
/// operation that cannot be shipped. The message names the line.
#[track_caller]
pub fn ship<I: TensorTree, O: TensorTree, F: FnMut(I) -> Result<O>>(
    compiled: &Compiled<I, O, F>,
    target: Target,
) -> Result<Shipment> {
    let listing = Error::here_in(compiled.listing())?;
    Error::here_in(Shipment::of(listing, target, "program"))
}

/// A program.
#[derive(Clone, Debug)]
pub struct Shipment {
    target: Target,
    plan: Description,
    arena: Arena,
    files: Vec<File>,
    sizes: Sizes,
}

impl Shipment {
    fn of(listing: PlanListing, target: Target, name: &str) -> Result<Shipment> {
        let plan = read::read(listing)?;
        let arena = match target {
            Target::Rust | Target::C => pack::pack(&plan, DType::size),
            Target::Wgsl => {
                plan.steps.iter().try_for_each(|step| page_limits::check(step, &plan))?;
                pack::pack(&plan, |_| write::WORD)
            }
        };
        Ok(Shipment::written(plan, arena, target, name))
    }

    fn written(plan: Description, arena: Arena, target: Target, name: &str) -> Shipment {
        let language = match target {
            Target::Rust => Language::Rust,
            Target::C => Language::C,
            Target::Wgsl => Language::Wgsl,
        };
        let (files, code) = write::files(language, &plan, &arena, name);
        let sizes = Sizes::of(&plan, &arena, code);
        Shipment { target, plan, arena, files, sizes }
    }

    /// The same program under another name, of which its files and its function are called; `program` by
    /// default.
    ///
    /// # Errors
    /// A name that is no identifier of lower-case letters, digits and underscores.
    #[track_caller]
    pub fn named(self, name: &str) -> Result<Shipment> {
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(is_word) {
            let message =
                format!("`{name}` is no name of a program: lower-case letters, digits and underscores");
            return Err(Error::invalid("ship", message));
        }
        Ok(Shipment::written(self.plan, self.arena, self.target, name))
    }

    /// The files: paths and texts.
    #[must_use]
    pub fn files(&self) -> &[(String, String)] {
        &self.files
    }

    /// The memory that the program takes.
    #[must_use]
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// The shapes and dtypes of the arguments.
    pub fn arguments(&self) -> impl Iterator<Item = (&Shape, DType)> {
        self.plan.arguments.iter().map(|(shape, dtype, _)| (shape, *dtype))
    }

    /// The shapes and dtypes of the results.
    pub fn results(&self) -> impl Iterator<Item = (&Shape, DType)> {
        self.plan.results.iter().map(|(shape, buffer)| (shape, self.plan.buffers[*buffer].dtype))
    }

    /// Writes the files into a folder, which is made.
    ///
    /// # Errors
    /// `File` for a folder or a file that cannot be written.
    #[track_caller]
    pub fn write(&self, folder: &Path) -> Result<()> {
        for (path, text) in &self.files {
            let path = folder.join(path);
            let failed = |error: io::Error| file_error(&path, format!("cannot be written: {error}"));
            let made = path.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed);
            Error::here_in(made.and_then(|()| fs::write(&path, text).map_err(failed)))?;
        }
        Ok(())
    }

    /// The results of the program for arguments in the host's bytes, by the interpreter of its plan: one
    /// number after the other, and sums in the order of their terms. A program in Rust or C has the same
    /// bits, a page the same integers.
    ///
    /// # Errors
    /// Arguments of other sizes; an index out of range.
    #[track_caller]
    pub fn interpret(&self, arguments: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        let wanted: Vec<usize> =
            self.arguments().map(|(shape, dtype)| shape.numel() * dtype.size()).collect();
        let given: Vec<usize> = arguments.iter().map(Vec::len).collect();
        if wanted != given {
            return Err(Error::invalid("ship", format!("arguments of {given:?} bytes for {wanted:?}")));
        }
        let mut memory = Memory::of(&self.plan);
        for (id, buffer) in self.plan.buffers.iter().enumerate() {
            if let Role::Argument(k) = buffer.role {
                memory.set(id, &arguments[k]);
            }
        }
        for step in &self.plan.steps {
            Error::here_in(interpret::run(step, &mut memory))?;
        }
        Ok(self.plan.results.iter().map(|(_, buffer)| memory.take(*buffer)).collect())
    }
}
