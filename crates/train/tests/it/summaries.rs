//! Event files, checked by a separate reader of records and messages. `scripts/tensorboard_events.py` checks
//! them with TensorBoard's own reader.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{env, fs, path::Path};

use autograd::TensorGrad;
use inspect::Graph;
use tensor_core::{Result, Tensor};
use train::SummaryWriter;

/// CRC-32C bit by bit, with the mask that records have.
fn masked_crc(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    (!crc).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The records of a file.
fn records(path: &Path) -> Vec<Vec<u8>> {
    let file = fs::read(path).unwrap();
    let (mut records, mut rest) = (Vec::new(), file.as_slice());
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        assert_eq!(u32::from_le_bytes(rest[8..12].try_into().unwrap()), masked_crc(&rest[..8]));
        let data = &rest[12..12 + length];
        assert_eq!(u32::from_le_bytes(rest[12 + length..16 + length].try_into().unwrap()), masked_crc(data));
        records.push(data.to_vec());
        rest = &rest[16 + length..];
    }
    records
}

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Field<'a> {
    Int(u64),
    Float(f32),
    Double(f64),
    Bytes(&'a [u8]),
}

#[derive(Clone, Debug)]
struct Fields<'a>(Vec<(u64, Field<'a>)>);

impl<'a> Fields<'a> {
    fn of(mut bytes: &'a [u8]) -> Fields<'a> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let mut value = 0;
            for shift in (0..).step_by(7) {
                let byte = bytes[0];
                *bytes = &bytes[1..];
                value |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
            }
            value
        }
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let mut take = |n: usize| {
                let (taken, rest) = bytes.split_at(n);
                bytes = rest;
                taken
            };
            let field = match tag & 7 {
                0 => Field::Int(varint(&mut bytes)),
                1 => Field::Double(f64::from_le_bytes(take(8).try_into().unwrap())),
                5 => Field::Float(f32::from_le_bytes(take(4).try_into().unwrap())),
                2 => {
                    let length = varint(&mut bytes) as usize;
                    let (taken, rest) = bytes.split_at(length);
                    bytes = rest;
                    Field::Bytes(taken)
                }
                wire => panic!("wire type {wire}"),
            };
            fields.push((tag >> 3, field));
        }
        Fields(fields)
    }

    fn get(&self, number: u64) -> Option<Field<'a>> {
        self.0.iter().find(|(n, _)| *n == number).map(|(_, field)| *field)
    }

    fn bytes(&self, number: u64) -> &'a [u8] {
        match self.get(number) {
            Some(Field::Bytes(bytes)) => bytes,
            other => panic!("field {number}: {other:?}"),
        }
    }

    fn message(&self, number: u64) -> Fields<'a> {
        Fields::of(self.bytes(number))
    }

    fn text(&self, number: u64) -> &'a str {
        std::str::from_utf8(self.bytes(number)).unwrap()
    }

    fn double(&self, number: u64) -> f64 {
        match self.get(number) {
            Some(Field::Double(value)) => value,
            other => panic!("field {number}: {other:?}"),
        }
    }

    fn doubles(&self, number: u64) -> Vec<f64> {
        self.bytes(number).chunks(8).map(|word| f64::from_le_bytes(word.try_into().unwrap())).collect()
    }
}

/// Writes an entry of each kind. The script knows these values too.
fn write_all(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let device = backend_cpu::cpu();
    let mut first = SummaryWriter::new(folder)?;
    let settings = [
        ("lr", 0.1.into()),
        ("optimizer", "adam".into()),
        ("nesterov", true.into()),
        ("layers", 3usize.into()),
    ];
    first.hparams(&settings, &[("accuracy/last", 0.75)])?;
    for step in 0..6u64 {
        first.scalar("loss/train", 1.0 / (step + 1) as f64, step)?;
    }
    first.scalar("loss/nan", f64::NAN, 1 << 40)?;
    first.histogram("weights", &Tensor::new([-1.0f32, 0.0, 0.5, 0.5, 2.0], &device)?, 3)?;
    let red = Tensor::concat(&[Tensor::ones([1, 2, 3], &device)?, Tensor::zeros([2, 2, 3], &device)?], 0)?;
    first.image("red", &red, 3)?;
    first.text("notes", "a *first* try: ü", 3)?;
    let x = Tensor::new([1.0f32, 2.0], &device)?.requires_grad();
    let y = x.powi(2).sum();
    first.graph(&Graph::of(&[&y], &[("layer.x", x)]))?;
    let mut paths = vec![first.path().to_path_buf()];
    drop(first);
    // Resumes after step 3: steps 4 and 5 are repeated.
    let mut second = SummaryWriter::resume(folder, 3)?;
    for step in 4..6 {
        second.scalar("loss/train", 100.0, step)?;
    }
    second.flush()?;
    paths.push(second.path().to_path_buf());
    Ok(paths)
}

#[test]
fn event_files_hold_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let kept = env::var_os("EVENTS_FOLDER").map(std::path::PathBuf::from);
    let paths = write_all(kept.as_deref().unwrap_or(folder.path())).unwrap();
    assert!(paths[0] < paths[1], "TensorBoard reads files by their names");
    let all = records(&paths[0]);
    let events: Vec<Fields<'_>> = all.iter().map(|record| Fields::of(record)).collect();
    assert_eq!(events[0].text(3), "brain.Event:2");
    assert!(events.iter().all(|event| event.double(1) > 1.6e9));
    let values: Vec<(u64, Fields<'_>)> = events
        .iter()
        .filter_map(|event| {
            let Some(Field::Int(step)) = event.get(2) else { return None };
            Some((step, event.message(5).message(1)))
        })
        .collect();
    let with = |tag: &str| values.iter().filter(|(_, value)| value.text(1) == tag).collect::<Vec<_>>();
    let losses: Vec<(u64, Option<Field<'_>>)> =
        with("loss/train").iter().map(|(step, v)| (*step, v.get(2))).collect();
    let expected: Vec<_> =
        (0..6).map(|step| (step, Some(Field::Float((1.0 / (step + 1) as f64) as f32)))).collect();
    assert_eq!(losses, expected);
    assert_eq!(with("loss/nan")[0].0, 1 << 40);

    let histogram = with("weights")[0].1.message(5);
    let totals: Vec<f64> = (1..=5).map(|field| histogram.double(field)).collect();
    assert_eq!(totals, [-1.0, 2.0, 5.0, 2.0, 5.5]);
    let (limits, counts) = (histogram.doubles(6), histogram.doubles(7));
    assert!(limits.is_sorted() && limits.len() == counts.len());
    assert_eq!(counts.iter().sum::<f64>(), 5.0);
    for value in [-1.0, 0.0, 0.5, 2.0] {
        let bucket = limits.iter().position(|&limit| value < limit).unwrap();
        let many = if value == 0.5 { 2.0 } else { 1.0 };
        assert!(counts[bucket] == many && limits[bucket - 1] <= value, "{value}");
    }

    let image = with("red")[0].1.message(4);
    assert_eq!([1, 2, 3].map(|field| image.get(field)), [2, 3, 3].map(|n| Some(Field::Int(n))));
    let mut png = png::Decoder::new(std::io::Cursor::new(image.bytes(4))).read_info().unwrap();
    let mut pixels = vec![0; 18];
    png.next_frame(&mut pixels).unwrap();
    assert_eq!(pixels, [255, 0, 0].repeat(6));

    let text = &with("notes/text_summary")[0].1;
    assert_eq!(text.message(8).text(8), "a *first* try: ü");
    assert_eq!(text.message(9).message(1).text(1), "text");

    let start = with("_hparams_/session_start_info")[0].1.message(9).message(1).message(2).message(3);
    let settings: Vec<Fields<'_>> = start
        .0
        .iter()
        .filter(|(n, _)| *n == 1)
        .map(|(_, f)| match f {
            Field::Bytes(bytes) => Fields::of(bytes),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        settings.iter().map(|entry| entry.text(1)).collect::<Vec<_>>(),
        ["lr", "optimizer", "nesterov", "layers"]
    );
    assert_eq!(settings[0].message(2).double(2), 0.1);
    assert_eq!(settings[1].message(2).text(3), "adam");
    assert_eq!(with("accuracy/last")[0].1.get(2), Some(Field::Float(0.75)));
    assert_eq!(events.iter().filter(|event| event.get(4).is_some()).count(), 1);

    let second = records(&paths[1]);
    let started = Fields::of(&second[1]);
    assert_eq!((started.get(2), started.message(7).get(1)), (Some(Field::Int(4)), Some(Field::Int(1))));
    assert_eq!(second.len(), 4);
}

#[test]
fn what_cannot_be_shown_is_told() {
    let device = backend_cpu::cpu();
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SummaryWriter::new(folder.path()).unwrap();
    let before = fs::metadata(writer.path()).unwrap().len();
    let twice = [("lr", 0.1.into()), ("lr", 0.2.into())];
    for (error, part) in [
        (writer.histogram("h", &Tensor::new([1.0f32, f32::NAN], &device).unwrap(), 0), "1 of them NaN"),
        (writer.histogram("h", &Tensor::zeros([0], &device).unwrap(), 0), "0 elements"),
        (writer.image("i", &Tensor::ones([2, 4, 4], &device).unwrap(), 0), "give [H, W]"),
        (writer.image("i", &Tensor::ones([4], &device).unwrap(), 0), "give [H, W]"),
        (writer.image("i", &Tensor::ones([0, 4], &device).unwrap(), 0), "give [H, W]"),
        (writer.image("i", &Tensor::new([[1i32]], &device).unwrap(), 0), "floats from 0 to 1 or u8"),
        (writer.image("i", &Tensor::new([[f32::NAN]], &device).unwrap(), 0), "NaN"),
        (writer.hparams(&twice, &[]), "given twice"),
        (writer.scalar("s", 1.0, u64::MAX), "does not fit"),
    ] {
        let message = error.unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    writer.flush().unwrap();
    // The file has only the version.
    assert_eq!(records(writer.path()).len(), 1);
    assert!(before <= fs::metadata(writer.path()).unwrap().len());
    // Floats out of range are clamped, and u8 is written as it is.
    writer.image("i", &Tensor::new([[-1.0f32, 0.5, 7.0]], &device).unwrap(), 0).unwrap();
    writer.image("i", &Tensor::new([[[7u8]]], &device).unwrap(), 0).unwrap();
    assert!(SummaryWriter::new(writer.path()).unwrap_err().to_string().contains("cannot be written"));
}
