//! The start of the program, its messages and its end, for QEMU's Cortex-M4 and for its user mode on RISC-V.

use core::{arch::global_asm, fmt};

/// The messages.
pub struct Console;

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(put);
        Ok(())
    }
}

#[cfg(target_arch = "arm")]
mod arm {
    use core::arch::asm;

    // The stack begins at the end of the RAM. The floating-point unit is switched on first.
    super::global_asm!(
        ".section .vectors, \"a\"",
        ".word 0x20010000",
        ".word reset",
        ".text",
        ".global reset",
        ".type reset, %function",
        ".thumb_func",
        "reset:",
        "ldr r0, =0xE000ED88",
        "ldr r1, [r0]",
        "orr r1, r1, #0xF00000",
        "str r1, [r0]",
        "dsb",
        "isb",
        "bl main",
    );

    /// A call of the host by semihosting.
    fn host(operation: u32, argument: usize) {
        // SAFETY: QEMU reads the argument, and changes no memory of the program.
        unsafe { asm!("bkpt #0xab", inout("r0") operation => _, in("r1") argument) };
    }

    pub fn put(byte: u8) {
        const WRITE_CHARACTER: u32 = 3;
        host(WRITE_CHARACTER, &byte as *const u8 as usize);
    }

    pub fn exit(well: bool) -> ! {
        const EXIT: u32 = 0x18;
        host(EXIT, if well { 0x20026 } else { 0x20023 });
        loop {}
    }
}

#[cfg(target_arch = "riscv32")]
mod riscv {
    use core::arch::asm;

    super::global_asm!(".global _start", "_start:", "call main");

    /// A system call of Linux.
    fn call(number: usize, arguments: [usize; 3]) {
        let [a, b, c] = arguments;
        // SAFETY: `write` reads the byte, and `exit` does not return.
        unsafe { asm!("ecall", in("a7") number, inout("a0") a => _, in("a1") b, in("a2") c) };
    }

    pub fn put(byte: u8) {
        const WRITE: usize = 64;
        call(WRITE, [1, &byte as *const u8 as usize, 1]);
    }

    pub fn exit(well: bool) -> ! {
        const EXIT: usize = 93;
        call(EXIT, [usize::from(!well), 0, 0]);
        loop {}
    }
}

#[cfg(target_arch = "arm")]
pub use arm::{exit, put};
#[cfg(target_arch = "riscv32")]
pub use riscv::{exit, put};
