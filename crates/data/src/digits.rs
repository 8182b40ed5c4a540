//! The 1,797 handwritten digits that are included in the crate: a first dataset that needs no download.
//!
//! "Optical Recognition of Handwritten Digits", E. Alpaydin and C. Kaynak, UCI Machine Learning Repository,
//! 1998, CC BY 4.0; see `assets/README.md`.

use std::path::Path;

use tensor_core::Result;

use crate::{
    csv_table::{CsvOptions, LabelColumn, parse_csv},
    gzip::{file_error, reader_of},
};

/// The number of digits.
pub const DIGITS_COUNT: usize = 1797;
/// The height and the width of an image.
pub const DIGITS_SIZE: usize = 8;
/// The greatest value of a pixel; the least is 0.
pub const DIGITS_MAX_PIXEL: u8 = 16;

const FILE: &[u8] = include_bytes!("../assets/digits.csv.gz");

/// The pixels `[1797, 8, 8]`, each 0 to 16, in row-major order, and the labels `[1797]`, each 0 to 9.
///
/// # Errors
///
/// `ErrorKind::File` if the embedded file is corrupt, which a test rules out.
#[track_caller]
pub fn digits_bytes() -> Result<(Vec<u8>, Vec<u8>)> {
    let (pixels, labels) = parse_digits(FILE, Path::new("assets/digits.csv.gz"))?;
    if labels.len() != DIGITS_COUNT {
        let message = format!("truncated: {} rows, expected {DIGITS_COUNT}", labels.len());
        return Err(file_error(Path::new("assets/digits.csv.gz"), message));
    }
    Ok((pixels, labels))
}

/// Parses digits from the bytes of a CSV file, plain or gzipped: no headers, 64 pixels from 0 to 16, then
/// the label.
#[track_caller]
fn parse_digits(file: &[u8], name: &Path) -> Result<(Vec<u8>, Vec<u8>)> {
    let options = CsvOptions {
        label: LabelColumn::Last,
        has_headers: false,
        features_in: Some(0..=DIGITS_MAX_PIXEL),
        labels_in: Some(0..=9),
        ..Default::default()
    };
    let table = parse_csv::<u8>(reader_of(file), name, &options)?;
    let pixels = DIGITS_SIZE * DIGITS_SIZE;
    if table.columns != pixels {
        let message = format!("line 1: {} fields, expected {pixels} pixels and a label", table.columns + 1);
        return Err(file_error(name, message));
    }
    Ok((table.features, table.labels.into_iter().map(|label| label as u8).collect()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    #[test]
    fn the_embedded_digits_are_whole() {
        let (pixels, labels) = digits_bytes().unwrap();
        assert_eq!((pixels.len(), labels.len()), (1797 * 64, 1797));
        assert_eq!(pixels[..8], [0, 0, 5, 13, 9, 1, 0, 0]);
        assert_eq!(labels[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(pixels.iter().max(), Some(&16));
        assert_eq!(pixels.iter().map(|p| u64::from(*p)).sum::<u64>(), PIXEL_SUM);
        let counts = labels.iter().fold([0; 10], |mut counts, label| {
            counts[usize::from(*label)] += 1;
            counts
        });
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    }

    /// The sum of pixels, as scikit-learn's `load_digits().data.sum()`.
    const PIXEL_SUM: u64 = 561718;

    fn row(pixel: &str, label: &str) -> String {
        format!("{}{pixel},{label}\n", "0,".repeat(63))
    }

    #[track_caller]
    fn fails_with(file: &[u8], expected: &str) {
        let message = parse_digits(file, Path::new("some.csv")).unwrap_err().to_string();
        assert!(message.starts_with("some.csv: "), "{message}");
        assert!(message.contains(expected), "{message:?} does not say {expected:?}");
    }

    #[test]
    fn corrupt_digits_are_refused_with_their_place() {
        let good = row("16", "9");
        assert_eq!(parse_digits(good.as_bytes(), Path::new("x")).unwrap().1, [9]);
        fails_with(
            format!("{good}{}", row("17", "9")).as_bytes(),
            "line 2, column 64: number 17 is outside 0 to 16",
        );
        fails_with(row("-1", "9").as_bytes(), "line 1, column 64: \"-1\" is not a number of type u8");
        fails_with(row("1", "10").as_bytes(), "line 1, column 65: label 10 is outside 0 to 9");
        fails_with(row("1", "x").as_bytes(), "line 1, column 65: \"x\" is not a label");
        fails_with(format!("{good}{good}0,0,1").as_bytes(), "line 3: 3 fields, expected 65");
        fails_with(b"0,1,2\n", "line 1: 3 fields, expected 64 pixels and a label");
        fails_with(&FILE[..FILE.len() / 2], "cannot be read to its end");
    }

    #[test]
    fn a_gzip_checksum_that_does_not_match_is_an_error() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(row("16", "9").repeat(3).as_bytes()).unwrap();
        let mut file = encoder.finish().unwrap();
        let crc = file.len() - 8;
        file[crc] ^= 1;
        fails_with(&file, "cannot be read to its end");
    }
}
