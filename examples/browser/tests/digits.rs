//! The page's training, and what it reads, outside a browser.
#![allow(clippy::unwrap_used)]

use browser::{Epoch, Learner, Network, drawn_image};
use pollster::block_on;

fn learned(network: Network, epochs: usize, device: &taper::Device) -> (Learner, Vec<Epoch>) {
    let mut learner = Learner::new(network, device).unwrap();
    let epochs = (0..epochs).map(|_| block_on(learner.epoch()).unwrap()).collect();
    (learner, epochs)
}

/// The points of the strokes of the digits 0 to 9.
const STROKES: [&str; 10] = [
    "5,0 2,1 0,5 0,9 2,13 5,14 8,13 10,9 10,5 8,1 5,0",
    "0,4 4,0 4,14",
    "0,3 2,0 6,0 8,3 7,6 3,10 0,14 9,14",
    "0,1 4,0 8,2 7,5 3,7 7,8 9,11 6,14 0,13",
    "5,0 0,9 9,9; 7,5 6,15",
    "9,0 1,0 0,6 5,5 9,8 8,12 5,14 0,13",
    "6,0 2,4 0,9 1,13 5,14 8,12 7,9 4,8 1,10",
    "0,0 9,0 6,6 3,14; 2,7 9,7",
    "5,7 1,4 2,1 5,0 8,1 8,4 5,7 1,10 2,13 5,14 8,13 8,10 5,7",
    "8,4 6,0 2,1 1,4 3,7 7,6 8,3 8,8 6,14 2,14",
];

/// The points of a digit's strokes as the page gives them, in another size and at other places each time.
fn points(digit: usize) -> Vec<f32> {
    let (size, left) = (10.0 + digit as f32, 40.0 * digit as f32);
    let point = |text: &str| {
        let (x, y) = text.split_once(',').unwrap();
        [left + size * x.parse::<f32>().unwrap(), 30.0 + size * y.parse::<f32>().unwrap()]
    };
    let strokes = STROKES[digit].split(';');
    strokes.flat_map(|stroke| stroke.split_whitespace().flat_map(point).chain([f32::NAN; 2])).collect()
}

#[test]
fn digits_are_learned_the_same_on_every_device() {
    let (_, on_cpu) = learned(Network::Mlp, 8, &taper::cpu());
    assert!(on_cpu[7].accuracy > 0.95 && on_cpu[7].loss < on_cpu[0].loss / 4.0, "{on_cpu:?}");
    let device = block_on(taper::device_async("wgpu"));
    let Ok(device) = device else {
        let required = std::env::var("TAPER_TEST").is_ok_and(|settings| settings.contains("require=wgpu"));
        assert!(!required, "TAPER_TEST has require=wgpu, but {device:?}");
        eprintln!("skipped: {device:?}");
        return;
    };
    assert_eq!(device, taper::device("wgpu:0").unwrap());
    let (_, on_gpu) = learned(Network::Mlp, 8, &device);
    assert!((on_gpu[0].loss - on_cpu[0].loss).abs() < 1e-4, "{on_gpu:?}, {on_cpu:?}");
    assert!(on_gpu[7].accuracy > 0.95, "{on_gpu:?}");
}

#[test]
fn every_network_reads_drawn_digits() {
    for network in Network::ALL {
        let (learner, epochs) = learned(network, 15, &taper::cpu());
        let last = epochs[14];
        let mut right = 0;
        for digit in 0..10 {
            let image = drawn_image(&points(digit)).unwrap();
            let found = block_on(learner.read(&image)).unwrap();
            assert!((found.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{found:?}");
            let best = (0..10).max_by(|&a, &b| found[a].total_cmp(&found[b])).unwrap();
            eprintln!("{network:?}: {digit} is read as {best}, {:.2}", found[best]);
            right += usize::from(best == digit);
        }
        assert!(last.accuracy > 0.9 && right >= 9, "{network:?}: {last:?}, {right} drawn digits are read");
        assert!(block_on(learner.read(&[0.0; 3])).is_err());
    }
    assert!("rnn".parse::<Network>().unwrap_err().to_string().contains("mlp, cnn and transformer"));
}

#[test]
fn an_epoch_in_parts_is_the_same() {
    let (_, whole) = learned(Network::Mlp, 1, &taper::cpu());
    let mut learner = Learner::new(Network::Mlp, &taper::cpu()).unwrap();
    let mut parts = 0;
    let epoch = loop {
        parts += 1;
        if let Some(epoch) = block_on(learner.advance(10)).unwrap() {
            break epoch;
        }
    };
    assert_eq!((parts, epoch), (5, whole[0]));
}
