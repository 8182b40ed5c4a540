//! Reads handwritten digits with two networks on a processor without an operating system, and compares each
//! result with the bits that Taper's interpreter of the same plan gave.
#![no_std]
#![no_main]

mod board;
mod images;

use core::{fmt::Write, panic::PanicInfo};

use board::{exit, Console};

/// The place of the greatest number.
fn read(logits: &[f32; 10]) -> usize {
    (1..10).fold(0, |best, digit| if logits[digit] > logits[best] { digit } else { best })
}

/// Runs a network on all images; gives how many digits it reads, and how many results have the expected bits.
fn run_all(network: impl Fn(&[f32; 64], &mut [f32; 10]), bits: &[[u32; 10]]) -> (usize, usize) {
    let (mut right, mut same) = (0, 0);
    for ((image, &label), bits) in images::IMAGES.iter().zip(&images::LABELS).zip(bits) {
        let mut logits = [0.0; 10];
        network(image, &mut logits);
        right += usize::from(read(&logits) == label);
        same += usize::from(logits.iter().zip(bits).all(|(x, bits)| x.to_bits() == *bits));
    }
    (right, same)
}

#[no_mangle]
extern "C" fn main() -> ! {
    let mut out = Console;
    for row in images::IMAGES[0].chunks(8) {
        for &pixel in row {
            let _ = out.write_str(if pixel > 0.6 { "##" } else if pixel > 0.2 { "::" } else { "  " });
        }
        let _ = out.write_str("\n");
    }
    let cnn = |image: &[f32; 64], logits: &mut [f32; 10]| {
        let mut arena = cnn::Arena::new();
        assert!(cnn::run(&mut arena, image, logits).is_ok());
    };
    let mlp = |image: &[f32; 64], logits: &mut [f32; 10]| {
        let mut arena = mlp::Arena::new();
        assert!(mlp::run(&mut arena, image, logits).is_ok());
    };
    let mut logits = [0.0; 10];
    cnn(&images::IMAGES[0], &mut logits);
    let _ = writeln!(out, "the digit is {}", read(&logits));
    let mut holds = true;
    let all = [("mlp", run_all(mlp, &images::MLP_BITS)), ("cnn", run_all(cnn, &images::CNN_BITS))];
    for (name, (right, same)) in all {
        let count = images::IMAGES.len();
        let _ = writeln!(out, "{name}: {right} of {count} digits are read, {same} results have the expected bits");
        holds &= right * 10 >= count * 9 && same == count;
    }
    exit(holds)
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    let _ = writeln!(Console, "{info}");
    exit(false)
}
