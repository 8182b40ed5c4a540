//! Notes from Basic Pitch's probabilities: their names, times and pitches, and a comparison of two lists.
//!
//! Bittner et al.: A lightweight instrument-agnostic model for polyphonic note transcription and multipitch
//! estimation (2022). The rules and thresholds are those of the package `basic-pitch`.

/// The MIDI number of the network's lowest pitch, A0.
pub(crate) const LOWEST: usize = 21;
/// The pitches of the network, the keys of a piano.
pub(crate) const PITCHES: usize = 88;

/// The probability at which a note begins.
const ONSET_THRESHOLD: f32 = 0.5;
/// The probability below which a note is no longer heard.
const FRAME_THRESHOLD: f32 = 0.3;
/// A note ends when it has not been heard for this many frames.
const SILENCE_FRAMES: usize = 11;
/// Notes of at most this many frames (128 ms) are dropped.
const NOTE_MAX_DROPPED_FRAMES: usize = 11;

/// A note: seconds from `start` to `end`, and its MIDI number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Note {
    pub(crate) start: f64,
    pub(crate) end: f64,
    pub(crate) pitch: usize,
}

const NAMES: [&str; 12] = ["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"];

/// The name of a MIDI number: 69 is A4.
pub(crate) fn name(pitch: usize) -> String {
    format!("{}{}", NAMES[pitch % 12], pitch as i64 / 12 - 1)
}

/// The MIDI number of a name such as `C4` or `F#3`; `None` for other texts and notes that a piano lacks.
pub(crate) fn pitch(name: &str) -> Option<usize> {
    let split = name.find(|c: char| c.is_ascii_digit())?;
    let (letter, octave) = name.split_at(split);
    let step = NAMES.iter().position(|n| n.eq_ignore_ascii_case(letter))?;
    let pitch = step + 12 * (octave.parse::<usize>().ok()?.checked_add(1)?);
    (LOWEST..LOWEST + PITCHES).contains(&pitch).then_some(pitch)
}

/// The frequency of a MIDI number in equal temperament, with A4 at 440 Hz.
pub(crate) fn hertz(pitch: usize) -> f64 {
    440.0 * 2f64.powf((pitch as f64 - 69.0) / 12.0)
}

/// The probabilities of a sound, frame by frame, each with one for every pitch.
pub(crate) struct Activity {
    /// That a pitch is heard.
    pub(crate) frames: Vec<[f32; PITCHES]>,
    /// That it begins.
    pub(crate) onsets: Vec<[f32; PITCHES]>,
}

impl Activity {
    /// The notes, in order of time. `seconds` are between two frames.
    ///
    /// From the last onset to the first, a note reaches from a peak of the onsets to the frame after which
    /// it is not heard any more; what a note covers, and its neighbours a semitone away, is not heard again.
    pub(crate) fn notes(&self, seconds: f64) -> Vec<Note> {
        let onsets = self.inferred_onsets();
        let mut energy = self.frames.clone();
        let count = energy.len();
        let mut found = Vec::new();
        for start in (1..count.saturating_sub(1)).rev() {
            for key in (0..PITCHES).rev() {
                let here = onsets[start][key];
                let peak = here > onsets[start - 1][key] && here > onsets[start + 1][key];
                if !peak || here < ONSET_THRESHOLD {
                    continue;
                }
                let end = last_heard(&energy, start, key);
                if end - start <= NOTE_MAX_DROPPED_FRAMES {
                    continue;
                }
                for frame in &mut energy[start..end] {
                    frame[key.saturating_sub(1)..(key + 2).min(PITCHES)].fill(0.0);
                }
                let time = |frame: usize| frame as f64 * seconds;
                found.push(Note { start: time(start), end: time(end), pitch: key + LOWEST });
            }
        }
        found.sort_by(|a, b| a.start.total_cmp(&b.start).then(a.pitch.cmp(&b.pitch)));
        found
    }

    /// The onsets, and where the network hears none but a pitch grows suddenly, that growth, scaled to the
    /// greatest onset.
    fn inferred_onsets(&self) -> Vec<[f32; PITCHES]> {
        let before = |frame: usize, back: usize, key: usize| {
            frame.checked_sub(back).map_or(0.0, |frame| self.frames[frame][key])
        };
        let growth = |frame: usize, key: usize| {
            let now = self.frames[frame][key];
            let least = (now - before(frame, 1, key)).min(now - before(frame, 2, key));
            if frame < 2 { 0.0 } else { least.max(0.0) }
        };
        let greatest = |list: &mut dyn Iterator<Item = f32>| list.fold(f32::MIN_POSITIVE, f32::max);
        let places = || (0..self.frames.len()).flat_map(|frame| (0..PITCHES).map(move |key| (frame, key)));
        let scale = greatest(&mut self.onsets.iter().flatten().copied())
            / greatest(&mut places().map(|(frame, key)| growth(frame, key)));
        let mut onsets = self.onsets.clone();
        for (frame, key) in places() {
            onsets[frame][key] = onsets[frame][key].max(scale * growth(frame, key));
        }
        onsets
    }
}

/// One past the last frame in which a pitch that began at `start` is heard.
fn last_heard(energy: &[[f32; PITCHES]], start: usize, key: usize) -> usize {
    let (mut at, mut quiet) = (start + 1, 0);
    while at < energy.len() - 1 && quiet < SILENCE_FRAMES {
        quiet = if energy[at][key] < FRAME_THRESHOLD { quiet + 1 } else { 0 };
        at += 1;
    }
    at - quiet
}

/// The pairs of notes (one of each list) with the same pitch that begin within 50 ms of each other, which is
/// the usual rule of evaluations of transcriptions. Each note is in at most one pair.
pub(crate) fn matches(played: &[Note], heard: &[Note]) -> Vec<(usize, usize)> {
    const NEAR_SECONDS: f64 = 0.05;
    let mut free = vec![true; heard.len()];
    let mut pairs = Vec::new();
    for (p, note) in played.iter().enumerate() {
        let near = |h: &usize| {
            free[*h] && heard[*h].pitch == note.pitch && (heard[*h].start - note.start).abs() <= NEAR_SECONDS
        };
        let apart = |h: &usize| (heard[*h].start - note.start).abs();
        if let Some(h) = (0..heard.len()).filter(near).min_by(|a, b| apart(a).total_cmp(&apart(b))) {
            free[h] = false;
            pairs.push((p, h));
        }
    }
    pairs
}
