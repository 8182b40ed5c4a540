use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use tempfile::TempDir;

use super::*;

/// The bytes of an IDX file.
fn idx(element: u8, sizes: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, element, sizes.len() as u8];
    bytes.extend(sizes.iter().flat_map(|size| size.to_be_bytes()));
    bytes.extend(data);
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn read_bytes(bytes: &[u8]) -> Result<Idx> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("some-idx");
    std::fs::write(&path, bytes).unwrap();
    read_idx(&path)
}

#[track_caller]
fn fails_with(bytes: &[u8], expected: &str) {
    let message = read_bytes(bytes).unwrap_err().to_string();
    assert!(message.contains("some-idx: "), "{message:?} does not name the file");
    assert!(message.contains(expected), "{message:?} does not say {expected:?}");
}

#[test]
fn plain_and_gzipped_files_of_any_rank() {
    let data: Vec<u8> = (0..24).collect();
    for sizes in [&[24][..], &[4, 6], &[2, 3, 4], &[1, 2, 3, 1, 4]] {
        let shape: Vec<usize> = sizes.iter().map(|size| *size as usize).collect();
        let bytes = idx(8, sizes, &data);
        for file in [bytes.clone(), gzip(&bytes)] {
            assert_eq!(read_bytes(&file).unwrap(), Idx { shape: shape.clone(), data: data.clone() });
        }
    }
    assert_eq!(read_bytes(&idx(8, &[0, 28, 28], &[])).unwrap().shape, [0, 28, 28]);
}

#[test]
fn a_large_gzipped_file_is_read_whole() {
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let file = gzip(&idx(8, &[3000, 1000], &data));
    assert_eq!(read_bytes(&file).unwrap().data, data);
}

#[test]
fn what_is_not_idx_is_refused() {
    fails_with(b"", "truncated: ends at byte 0, expected a magic number of 4 bytes, from byte 0 on");
    fails_with(&[0, 0, 8], "truncated: ends at byte 3, expected a magic number");
    fails_with(b"PNG image", "not an IDX file: bytes 0 and 1 are 0x50 0x4e, expected 0x00 0x00");
    fails_with(&gzip(b"PNG image"), "bytes 0 and 1 of the decompressed content are 0x50 0x4e");
    fails_with(&idx(0x0d, &[1], &[0; 4]), "byte 2 gives the element type 0x0d (f32), expected 0x08 (u8)");
    fails_with(&idx(0x77, &[1], &[0; 4]), "byte 2 gives the element type 0x77 (no type that IDX knows)");
    fails_with(&idx(8, &[], &[1]), "byte 3 gives rank 0");
}

#[test]
fn cut_off_files_are_refused_at_the_byte() {
    let whole = idx(8, &[2, 3], &[7; 6]);
    fails_with(
        &whole[..6],
        "truncated: ends at byte 6, expected the size of axis 0 of 2, 4 bytes, from byte 4 on",
    );
    fails_with(
        &whole[..8],
        "truncated: ends at byte 8, expected the size of axis 1 of 2, 4 bytes, from byte 8 on",
    );
    fails_with(
        &whole[..17],
        "the sizes [2, 3] in bytes 4 to 11 promise 18 bytes in all, and the file has 17",
    );
    fails_with(
        &gzip(&whole[..17]),
        "the sizes [2, 3] promise 18 bytes in all, and the content ends at byte 17 of the decompressed content",
    );
    let noise: Vec<u8> = (0..10_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let zipped = gzip(&idx(8, &[10_000], &noise));
    fails_with(&zipped[..zipped.len() / 2], "broken off at byte ");
    // Only the checksum is cut off.
    fails_with(&zipped[..zipped.len() - 4], "corrupt at its end, byte 10008 of the decompressed content");
}

#[test]
fn a_wrong_checksum_is_noticed() {
    let mut zipped = gzip(&idx(8, &[6], &[7; 6]));
    let crc = zipped.len() - 8;
    zipped[crc] ^= 1;
    assert!(read_bytes(&zipped).is_err());
}

#[test]
fn bytes_left_over_are_refused() {
    let file = idx(8, &[2, 3], &[7; 8]);
    for file in [file.clone(), gzip(&file)] {
        fails_with(&file, "bytes left over: the sizes [2, 3] promise 18 bytes in all, and byte 18");
    }
}

#[test]
fn absurd_sizes_cost_no_memory() {
    let most = u32::MAX;
    // More than 2⁶⁴ elements, more than the file holds, and more than its gzip could hold.
    fails_with(&idx(8, &[most, most, most], &[0; 9]), "multiply to more than memory can hold");
    fails_with(
        &idx(8, &[most, most], &[0; 9]),
        "promise 18446744065119617037 bytes in all, and the file has 21",
    );
    fails_with(&idx(8, &[most], &[0; 9]), "promise 4294967303 bytes in all, and the file has 17");
    fails_with(
        &gzip(&idx(8, &[most], &[0; 9])),
        "promise 4294967303 bytes in all, and the file may decompress to at most",
    );
    assert_eq!(read_bytes(&idx(8, &[most, 0, most, most], &[])).unwrap().data.len(), 0);
}

#[test]
fn a_missing_file_and_a_directory_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let message = read_idx(dir.path().join("none")).unwrap_err().to_string();
    assert!(message.contains("none: cannot be read"), "{message}");
    let message = read_idx(dir.path()).unwrap_err().to_string();
    assert!(message.contains("is a directory"), "{message}");
}

/// A directory with small files of these names.
fn mnist(names: [&str; 4]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        let bytes =
            if name.contains("images") { idx(8, &[3, 2, 2], &[9; 12]) } else { idx(8, &[3], &[1, 2, 3]) };
        let bytes = if name.ends_with(".gz") { gzip(&bytes) } else { bytes };
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    dir
}

#[test]
fn mnist_is_found_by_any_of_its_usual_names() {
    for names in [
        [
            "train-images-idx3-ubyte",
            "train-labels-idx1-ubyte",
            "t10k-images-idx3-ubyte",
            "t10k-labels-idx1-ubyte",
        ],
        [
            "train-images.idx3-ubyte",
            "train-labels.idx1-ubyte",
            "t10k-images.idx3-ubyte",
            "t10k-labels.idx1-ubyte",
        ],
        [
            "train-images-idx3-ubyte.gz",
            "train-labels-idx1-ubyte.gz",
            "t10k-images.idx3-ubyte.gz",
            "t10k-labels-idx1-ubyte",
        ],
    ] {
        let dir = mnist(names);
        let files = find_mnist(dir.path()).unwrap();
        assert_eq!(files.train_images, dir.path().join(names[0]));
        assert_eq!(files.test_labels, dir.path().join(names[3]));
        assert_eq!(files.read_train().unwrap().0.shape, [3, 2, 2]);
        assert_eq!(files.read_test().unwrap().1.data, [1, 2, 3]);
    }
}

#[test]
fn missing_mnist_files_are_named_with_where_to_get_them() {
    let names = [
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    ];
    let dir = mnist(names);
    std::fs::remove_file(dir.path().join(names[1])).unwrap();
    let message = find_mnist(dir.path()).unwrap_err().to_string();
    assert!(message.contains("lacks train-labels-idx1-ubyte (each"), "{message}");
    assert!(message.contains("https://"), "{message}");
    let message = find_mnist(tempfile::tempdir().unwrap().path()).unwrap_err().to_string();
    assert!(message.contains(&names.join(", ")), "{message}");
    let message = find_mnist("/no/such/place").unwrap_err().to_string();
    assert!(message.contains("is not a directory"), "{message}");
}

#[test]
fn images_and_labels_that_do_not_go_together_are_refused() {
    let names = [
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    ];
    let dir = mnist(names);
    let files = find_mnist(dir.path()).unwrap();
    std::fs::write(&files.train_labels, idx(8, &[2], &[1, 2])).unwrap();
    let message = files.read_train().unwrap_err().to_string();
    assert!(message.contains("holds 2 labels, and "), "{message}");
    std::fs::write(&files.train_labels, idx(8, &[1, 3], &[1, 2, 3])).unwrap();
    let message = files.read_train().unwrap_err().to_string();
    assert!(message.contains("holds sizes [1, 3], expected labels: [count]"), "{message}");
    std::fs::write(&files.test_images, idx(8, &[3], &[1, 2, 3])).unwrap();
    let message = files.read_test().unwrap_err().to_string();
    assert!(message.contains("expected images: [count, height, width]"), "{message}");
}

/// The decompressed size of a small gzipped file is bounded, and the bound is settable.
#[test]
fn a_gzipped_file_has_a_budget() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("some-idx");
    std::fs::write(&path, gzip(&idx(8, &[4000], &[0; 4000]))).unwrap();
    let small = ReadBudget { least: 1000, per_byte: 0 };
    let message = read_idx_within(&path, small).unwrap_err().to_string();
    assert!(
        message.contains("may decompress to at most 1000; read_idx_within takes another bound"),
        "{message}"
    );
    assert_eq!(read_idx_within(&path, ReadBudget::UNLIMITED).unwrap().data.len(), 4000);
}
