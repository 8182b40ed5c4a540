use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};

use super::*;

const FLOWERS: &str = "length, width, kind\n5.1, 3.5, 0\n6.2,-2.9,1\n1e-3,nan,2\n";

fn last() -> CsvOptions<f32> {
    CsvOptions { label: LabelColumn::Last, ..Default::default() }
}

#[track_caller]
fn fails_with<T: CsvNumber>(text: &str, options: &CsvOptions<T>, expected: &str) {
    let message = parse_csv(text.as_bytes(), "a.csv", options).unwrap_err().to_string();
    assert!(message.starts_with("a.csv: "), "{message}");
    assert!(message.contains(expected), "{message:?} does not say {expected:?}");
}

#[test]
fn features_and_labels_are_told_apart() {
    let table = parse_csv(FLOWERS.as_bytes(), "a.csv", &last()).unwrap();
    assert_eq!(table.names.unwrap(), ["length", "width"]);
    assert_eq!((table.rows, table.columns), (3, 2));
    assert_eq!(table.features[..5], [5.1, 3.5, 6.2, -2.9, 1e-3]);
    assert!(table.features[5].is_nan());
    assert_eq!(table.labels, [0, 1, 2]);

    for (label, labels, features) in [
        (LabelColumn::None, vec![], vec![1u8, 2, 3, 4, 5, 6]),
        (LabelColumn::First, vec![1, 4], vec![2, 3, 5, 6]),
        (LabelColumn::At(1), vec![2, 5], vec![1, 3, 4, 6]),
    ] {
        let options = CsvOptions { label, has_headers: false, delimiter: b';', ..Default::default() };
        let table = parse_csv("1;2;3\n4;5;6".as_bytes(), "a.csv", &options).unwrap();
        assert_eq!((table.rows, table.names), (2, None));
        assert_eq!((table.labels, table.features), (labels, features));
    }
}

#[test]
fn files_are_read_plain_and_gzipped() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain.csv");
    std::fs::write(&plain, FLOWERS).unwrap();
    let zipped = dir.path().join("zipped.csv");
    let mut encoder = GzEncoder::new(std::fs::File::create(&zipped).unwrap(), Compression::default());
    encoder.write_all(FLOWERS.as_bytes()).unwrap();
    encoder.finish().unwrap();
    for path in [plain, zipped] {
        assert_eq!(read_csv(&path, &last()).unwrap().labels, [0, 1, 2]);
    }
    let message = read_csv(dir.path().join("none.csv"), &last()).unwrap_err().to_string();
    assert!(message.contains("none.csv: cannot be read"), "{message}");
    let message = read_csv(dir.path(), &last()).unwrap_err().to_string();
    assert!(message.contains("is a directory"), "{message}");
}

#[test]
fn an_empty_table_has_no_rows() {
    let options = CsvOptions::<f32> { has_headers: false, ..last() };
    let table = parse_csv("".as_bytes(), "a.csv", &options).unwrap();
    assert_eq!((table.rows, table.columns, table.features.len()), (0, 0, 0));
    let table = parse_csv("a,b,c\n".as_bytes(), "a.csv", &last()).unwrap();
    assert_eq!((table.rows, table.columns), (0, 2));
    fails_with("", &last(), "is empty; expected a row of headers");
}

#[test]
fn errors_name_the_line_and_the_column() {
    fails_with("a,b,y\n1,2,0\n1,x,0\n", &last(), "line 3, column 2: \"x\" is not a number of type f32");
    fails_with("a,b,y\n1,2,0\n1,,0\n", &last(), "line 3, column 2: \"\" is not a number");
    fails_with("a,b,y\n1,2,1.5\n", &last(), "line 2, column 3: \"1.5\" is not a label of type i64");
    fails_with("a,b,y\n1,2,0\n1,2\n", &last(), "line 3: 2 fields, expected 3");
    let ranged = CsvOptions { features_in: Some(0.0..=1.0), labels_in: Some(0..=2), ..last() };
    fails_with("a,b,y\n1,2,0\n", &ranged, "line 2, column 2: number 2 is outside 0 to 1");
    fails_with("a,b,y\n1,nan,0\n", &ranged, "line 2, column 2: number NaN is outside 0 to 1");
    fails_with("a,b,y\n1,0,3\n", &ranged, "line 2, column 3: label 3 is outside 0 to 2");
    fails_with("a,b\n1,2\n", &CsvOptions { label: LabelColumn::At(2), ..last() }, "has 2 columns");
    let bytes = b"a,b,y\n1,\xff\xfe,0\n";
    let message = parse_csv(&bytes[..], "a.csv", &last()).unwrap_err().to_string();
    assert!(message.contains("line 2, column 2: not UTF-8"), "{message}");
}

#[test]
fn a_long_field_is_cut_in_the_message() {
    // As `taper` does, so that the message does not end with a line of this crate.
    tensor_core::hide_lines_of(crate::ROOT);
    let message =
        parse_csv(format!("a\n{}\n", "z".repeat(5000)).as_bytes(), "a.csv", &CsvOptions::<u8>::default());
    assert!(message.unwrap_err().to_string().len() < 120);
}

/// A megabyte of zeros compresses to a kilobyte: the decompressed size is limited.
#[test]
fn a_gzipped_file_that_grows_past_its_bound_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bomb.csv");
    for text in ["0".repeat(1 << 20), "0\n".repeat(1 << 19)] {
        let mut encoder = GzEncoder::new(std::fs::File::create(&path).unwrap(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap();
        let options = |max_decompressed| CsvOptions::<f32> {
            has_headers: false,
            max_decompressed,
            ..Default::default()
        };
        assert_eq!(read_csv(&path, &options(1 << 20)).unwrap().columns, 1);
        let message = read_csv(&path, &options((1 << 20) - 1)).unwrap_err().to_string();
        assert!(
            message.contains("more than 1048575 bytes") && message.contains("max_decompressed"),
            "{message}"
        );
    }
}
