//! The 1,797 handwritten digits that are included in the crate: a first dataset that needs no download.
//!
//! "Optical Recognition of Handwritten Digits", E. Alpaydin and C. Kaynak, UCI Machine Learning Repository,
//! 1998, CC BY 4.0; see `assets/README.md`.

use tensor_core::{Result, caller_line};

/// The number of digits.
pub const DIGITS_COUNT: usize = 1797;
/// The height and the width of an image.
pub const DIGITS_SIZE: usize = 8;
/// The greatest value of a pixel; the least is 0.
pub const DIGITS_MAX_PIXEL: u8 = 16;

/// The digits, [`RECORD`] bytes each.
const FILE: &[u8] = include_bytes!("../../assets/digits.bin");
/// Bytes of a row of pixels in [`FILE`]: a big-endian number with five bits for each, the first on top.
const ROW: usize = 5;
/// Bytes of a digit in [`FILE`]: its rows, and the label.
const RECORD: usize = DIGITS_SIZE * ROW + 1;

/// The pixels `[1797, 8, 8]`, each 0 to 16, in row-major order, and the labels `[1797]`, each 0 to 9.
///
/// # Errors
///
/// None today.
#[track_caller]
pub fn digits_bytes() -> Result<(Vec<u8>, Vec<u8>)> {
    let _line = caller_line();
    const { assert!(FILE.len() == DIGITS_COUNT * RECORD) };
    let (records, _) = FILE.as_chunks::<RECORD>();
    let rows = records.iter().flat_map(|record| record.as_chunks::<ROW>().0);
    let pixels = rows.flat_map(|row| {
        let bits = row.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
        (0..DIGITS_SIZE).rev().map(move |x| (bits >> (5 * x) & 31) as u8)
    });
    Ok((pixels.collect(), records.iter().map(|record| record[RECORD - 1]).collect()))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write as _},
        path::Path,
    };

    use flate2::{Compression, bufread::MultiGzDecoder, write::GzEncoder};

    use super::*;
    use crate::files::csv_table::{CsvOptions, LabelColumn, parse_csv};

    /// The digits as they were published.
    const PUBLISHED: &[u8] = include_bytes!("../../assets/digits.csv.gz");

    /// Reads digits from the bytes of a CSV file, plain or gzipped: no headers, 64 pixels of 0 to 16, then
    /// the label.
    fn parse_digits(file: &[u8], name: &Path) -> Result<(Vec<u8>, Vec<u8>)> {
        let options = CsvOptions {
            label: LabelColumn::Last,
            has_headers: false,
            features_in: Some(0..=DIGITS_MAX_PIXEL),
            labels_in: Some(0..=9),
            ..Default::default()
        };
        let gzipped = file.starts_with(&[0x1f, 0x8b]);
        let reader: Box<dyn Read> =
            if gzipped { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
        let table = parse_csv::<u8>(reader, name, &options)?;
        Ok((table.features, table.labels.into_iter().map(|label| label as u8).collect()))
    }

    #[test]
    fn the_embedded_digits_are_those_that_were_published() {
        assert_eq!(digits_bytes().unwrap(), parse_digits(PUBLISHED, Path::new("digits.csv.gz")).unwrap());
    }

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
        fails_with(&PUBLISHED[..PUBLISHED.len() / 2], "cannot be read to its end");
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
