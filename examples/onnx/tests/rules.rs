//! The rules by which the examples read outputs of networks: stretches of speech, notes, boxes.
#![allow(clippy::unwrap_used)]

#[path = "../ocr/boxes.rs"]
mod boxes;
#[path = "../notes.rs"]
mod notes;
#[allow(dead_code)] // the network is tested in examples/browser
#[path = "../silero.rs"]
mod silero;

use notes::{Activity, LOWEST, Note, PITCHES, hertz, matches, name, pitch};
use silero::{Segment, segments};

/// Runs of equal probabilities.
fn probabilities(runs: &[(f32, usize)]) -> Vec<f32> {
    runs.iter().flat_map(|&(p, count)| vec![p; count]).collect()
}

#[test]
fn short_pauses_do_not_end_speech_and_short_sounds_are_none() {
    let found = |runs: &[(f32, usize)]| {
        let segments = segments(&probabilities(runs));
        segments.into_iter().map(|Segment { start, end }| (start, end)).collect::<Vec<_>>()
    };
    assert_eq!(found(&[(0.1, 5), (0.9, 10), (0.1, 5)]), [(5, 15)]);
    assert_eq!(found(&[(0.9, 10), (0.1, 3), (0.9, 10), (0.1, 4), (0.9, 10)]), [(0, 23), (27, 37)]);
    // Between the two thresholds speech does not begin, and does not end.
    assert_eq!(found(&[(0.45, 10), (0.6, 1), (0.45, 10), (0.1, 9)]), [(10, 21)]);
    assert_eq!(found(&[(0.1, 5), (0.9, 7), (0.1, 5)]), []);
    assert_eq!(found(&[]), []);
}

#[test]
fn notes_have_names_and_frequencies() {
    assert_eq!((name(69), name(60), name(LOWEST)), ("A4".into(), "C4".into(), "A0".into()));
    assert!((LOWEST..LOWEST + PITCHES).all(|key| pitch(&name(key)) == Some(key)));
    for bad in ["", "C", "4", "H4", "C99", "C9", "G#0", "C4x", "C99999999999999999999"] {
        assert_eq!(pitch(bad), None, "{bad}");
    }
    assert!((hertz(69) - 440.0).abs() < 1e-9 && (hertz(57) - 220.0).abs() < 1e-9);
}

/// Activity of notes given as key, first frame, end, with an onset at the first frame.
fn activity(played: &[(usize, usize, usize)], frames: usize) -> Activity {
    let mut found = Activity { frames: vec![[0.0; PITCHES]; frames], onsets: vec![[0.0; PITCHES]; frames] };
    for &(key, start, end) in played {
        found.onsets[start][key] = 0.9;
        found.frames[start..end].iter_mut().for_each(|frame| frame[key] = 0.8);
    }
    found
}

#[test]
fn onsets_begin_notes_and_silence_ends_them() {
    let played = [(39, 10, 40), (39, 40, 70), (43, 40, 90), (87, 5, 30), (0, 5, 10)];
    let heard = activity(&played, 120).notes(1.0);
    let note = |(key, start, end): (usize, usize, usize)| Note {
        start: start as f64,
        end: end as f64,
        pitch: key + LOWEST,
    };
    // The last one is too short.
    let mut wanted: Vec<Note> = played[..4].iter().map(|&played| note(played)).collect();
    wanted.sort_by(|a, b| a.start.total_cmp(&b.start).then(a.pitch.cmp(&b.pitch)));
    assert_eq!(heard, wanted);
    // An onset that the network misses is seen by the growth of the pitch.
    let mut missed = activity(&played, 120);
    missed.onsets[10][39] = 0.0;
    assert_eq!(missed.notes(1.0), wanted);
    assert_eq!(activity(&[], 0).notes(1.0), []);
}

#[test]
fn each_note_is_matched_once() {
    let note = |start: f64, pitch: usize| Note { start, end: start + 1.0, pitch };
    let played = [note(0.0, 60), note(1.0, 60), note(2.0, 64)];
    let heard = [note(0.04, 60), note(0.02, 60), note(1.06, 60), note(2.0, 65), note(2.05, 64)];
    assert_eq!(matches(&played, &heard), [(0, 1), (2, 4)]);
}

#[test]
fn boxes_are_around_connected_regions_in_reading_order() {
    let (height, width) = (40, 100);
    let mut map = vec![0.0f32; height * width];
    let mut fill = |left: usize, top: usize, right: usize, bottom: usize, p: f32| {
        (top..bottom).for_each(|y| map[y * width + left..y * width + right].fill(p));
    };
    fill(60, 11, 80, 15, 0.9); // on the line of the next one, to its right
    fill(20, 10, 40, 14, 0.9);
    fill(20, 30, 60, 34, 0.8); // the second line
    fill(90, 30, 92, 32, 0.9); // too small
    fill(70, 30, 80, 36, 0.4); // too faint
    let found = boxes::boxes(&map, (height, width));
    let corners: Vec<_> = found.iter().map(|b| (b.left, b.top, b.right, b.bottom)).collect();
    // They grow by 20·4·1.6 / 48 and 40·4·1.6 / 88.
    assert_eq!(corners, [(17, 7, 43, 17), (57, 8, 83, 18), (17, 27, 63, 37)]);
    let scaled = found[0].scaled((2.0, 0.5), (80, 50));
    assert_eq!((scaled.left, scaled.top, scaled.right, scaled.bottom), (34, 4, 80, 9));
    assert_eq!((scaled.width(), scaled.height()), (46, 5));
}
