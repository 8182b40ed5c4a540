//! The reports of traced kernels: see `codegen/trace.rs`.

use tensor_core::{Result, lock};

use crate::{
    codegen::trace::WORD,
    device::{gpu::Gpu, launch::read_back::Piece, shader_module::Checks},
};

impl Gpu {
    /// Fails if a traced kernel has reported an index out of range; the message has its text.
    pub(crate) fn check_trace(&self) -> Result<()> {
        if self.checks != Checks::Traced {
            return Ok(());
        }
        let mut stream = lock(&self.stream);
        let table = stream.faults.made.raw.clone();
        let reading = self.begin_read(&mut stream, Some(Piece::words(&table, WORD, 1)))?;
        drop(stream);
        self.wait_for(&reading)?;
        let mut reported = 0u32;
        self.end_read(reading, |bytes| reported = bytemuck::pod_read_unaligned(bytes))?;
        if reported == 0 {
            return Ok(());
        }
        let made = lock(&self.pipelines.made);
        let text = made.keys().find(|text| text.contains(&format!("], {reported}u);")));
        let text = text.map_or("a kernel that is not kept", String::as_str);
        Err(self.error(format!("a kernel's index was out of range:\n{text}")))
    }
}
