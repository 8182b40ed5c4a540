//! The page in Chromium without a window: `cargo test --workspace --test page -- --ignored`.
#![allow(clippy::unwrap_used, clippy::panic)]

mod chromium;

use std::fs;

use chromium::{DESKTOP, PHONE, probed};
use inspect::profile;
use tensor_core::Tensor;

/// Sends what the page has become to the frame around it: its width, whether its content is no wider,
/// whether it is dark, the numbers of curves, histograms and troubles, those of programs and shares of a
/// kernel that is chosen in the timeline, and the text color.
const PROBE: &str = "<script>const chosen = () => { \
    [...document.querySelectorAll('#profile .timeline rect')].at(-1).dispatchEvent(new MouseEvent('click')); \
    return ['#kernel pre', '#kernel .share'].map(parts => document.querySelectorAll(parts).length); }; \
    addEventListener('load', () => parent.postMessage([innerWidth, \
    document.documentElement.scrollWidth <= innerWidth, matchMedia('(prefers-color-scheme: dark)').matches, \
    document.querySelectorAll('#charts path').length, document.querySelectorAll('#histograms svg').length, \
    document.querySelectorAll('.trouble').length, chosen(), getComputedStyle(document.body).color].join('; '), '*'))</script></body>";

#[test]
#[ignore = "needs Chromium"]
fn it_is_drawn_in_both_color_schemes_and_on_a_phone() {
    studio::record();
    for step in 0..50 {
        studio::scalar("first", "loss/train", 1.0 / (step + 1) as f64, step);
        studio::scalar("second", "loss/train", 2.0 / (step + 1) as f64, step);
    }
    studio::histogram(
        "first",
        "a weight with a long name/of.a.layer.in.a.layer",
        &[0.0, 1.0],
        &[0.0, 5.0],
        3,
    );
    studio::scalar("first", "loss/train", f64::NAN, 50);
    // The last kernel has a program, and reads memory and computes.
    let device = backend_cpu::cpu();
    let x = Tensor::ones([256, 256], &device).unwrap();
    studio::show_profile(&profile(|| (x.exp() * 2.0).sum().eval()).unwrap(), 3);
    studio::show_limits(&device).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("saved.html");
    studio::save(&path).unwrap();
    let page = fs::read_to_string(path).unwrap();
    for (dark, ink) in [(false, "rgb(28, 31, 35)"), (true, "rgb(228, 230, 232)")] {
        for width in [PHONE, DESKTOP] {
            // Two curves, a histogram, a trouble, a program, shares of memory and arithmetic, and nothing
            // wider than the page.
            let expected = format!("{width}; true; {dark}; 2; 1; 1; 1,2; {ink}");
            assert_eq!(probed(folder.path(), &page, PROBE, width, dark), expected);
        }
    }
}
