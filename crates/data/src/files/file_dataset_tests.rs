use std::fs;

use tensor_core::f16;

use super::*;
use crate::DataLoader;

/// A file as `numpy.save` writes it: version 1, with the header padded to a multiple of 64 bytes.
fn npy(description: &str, data: &[u8]) -> Vec<u8> {
    let length = (10 + description.len() + 1).next_multiple_of(64) - 10;
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((length as u16).to_le_bytes());
    file.extend(format!("{description:<width$}\n", width = length - 1).bytes());
    file.extend(data);
    file
}

fn described(dtype: &str, shape: &str) -> String {
    format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}")
}

#[test]
fn rows_of_every_dtype_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let device = backend_cpu::cpu();
    let path = folder.path().join("a.npy");
    let floats: Vec<u8> = (0..6).flat_map(|i| (i as f32 / 2.0).to_le_bytes()).collect();
    let doubles: Vec<u8> = (0..6).flat_map(|i| (f64::from(i) / 2.0).to_le_bytes()).collect();
    let halves: Vec<u8> = (0..6).flat_map(|i| f16::from_f64(f64::from(i) / 2.0).to_le_bytes()).collect();
    let longs: Vec<u8> = (0..6i64).flat_map(i64::to_le_bytes).collect();
    let ints: Vec<u8> = (0..6i32).flat_map(i32::to_le_bytes).collect();
    let idx = [&[0, 0, 8, 2, 0, 0, 0, 3, 0, 0, 0, 2][..], &[0, 1, 2, 3, 4, 5]].concat();
    let scaled = |factor: f64| move |i: usize| i as f64 * factor;
    for (file, dtype, factor) in [
        (npy(&described("<f4", "(3, 2)"), &floats), DType::F32, 0.5),
        (npy(&described("<f8", "(3, 2)"), &doubles), DType::F64, 0.5),
        (npy(&described("<f2", "(3, 2)"), &halves), DType::F16, 0.5),
        (npy(&described("<i8", "(3, 2)"), &longs), DType::I64, 1.0),
        (npy(&described("<i4", "(3, 2)"), &ints), DType::I32, 1.0),
        (npy(&described("<u4", "(3, 2)"), &ints), DType::U32, 1.0),
        (npy(&described("|u1", "(3, 2)"), &[0, 1, 2, 3, 4, 5]), DType::U8, 1.0),
        (idx, DType::U8, 1.0),
    ] {
        fs::write(&path, file).unwrap();
        let dataset: FileDataset<Tensor> = FileDataset::open([&path], &device).unwrap();
        assert_eq!((dataset.len(), dataset.files()[0].dtype()), (3, dtype));
        let row = dataset.get(1).unwrap();
        assert_eq!((row.dims(), row.dtype()), (&[2][..], dtype));
        assert_eq!(row.to_f64_vec().unwrap(), [2, 3].map(scaled(factor)));
        let batch = dataset.batch(&[2, 0], None).unwrap();
        assert_eq!(
            (batch.dims(), batch.to_f64_vec().unwrap()),
            (&[2, 2][..], [4, 5, 0, 1].map(scaled(factor)).to_vec())
        );
        assert!(dataset.get(3).unwrap_err().to_string().contains("index 3"));
        assert!(dataset.batch(&[0, 3], None).is_err());
    }
    fs::write(&path, npy(&described("|b1", "(3,)"), &[1, 0, 1])).unwrap();
    let bools: FileDataset<Tensor> = FileDataset::open([&path], &device).unwrap();
    assert_eq!(bools.batch(&[0, 1, 2], None).unwrap().to_vec::<bool>().unwrap(), [true, false, true]);
    fs::write(&path, npy(&described("|b1", "(3,)"), &[1, 0, 7])).unwrap();
    let bools: FileDataset<Tensor> = FileDataset::open([&path], &device).unwrap();
    assert!(bools.get(2).unwrap_err().to_string().contains("bool of 7"));
}

#[test]
fn batches_of_several_files_come_in_order_from_any_number_of_workers() {
    let folder = tempfile::tempdir().unwrap();
    let device = backend_cpu::cpu();
    let (images, labels) = (folder.path().join("x.npy"), folder.path().join("y.npy"));
    let data: Vec<u8> = (0..200).collect();
    fs::write(&images, npy(&described("|u1", "(50, 2, 2)"), &data)).unwrap();
    fs::write(&labels, npy(&described("|u1", "(50,)"), &data[..50])).unwrap();
    let epoch = |workers: usize| {
        let files: FileDataset = FileDataset::open([&images, &labels], &device).unwrap();
        let loader = DataLoader::new(files, 8).unwrap().shuffle(3).workers(workers);
        let read = |batch: Result<(Tensor, Tensor)>| {
            let (images, labels) = batch.unwrap();
            let (images, labels) = (images.to_vec::<u8>().unwrap(), labels.to_vec::<u8>().unwrap());
            images.chunks(4).zip(&labels).for_each(|(image, label)| assert_eq!(image[0], label * 4));
            labels
        };
        loader.iter().map(read).collect::<Vec<_>>()
    };
    let expected = epoch(0);
    assert_eq!(expected.concat().len(), 50);
    assert!([1, 3, 9].into_iter().all(|workers| epoch(workers) == expected));
    // Another number of files than an item has tensors.
    let one: Result<FileDataset> = FileDataset::open([&images], &device);
    assert!(one.unwrap_err().to_string().contains("more tensors than the 1"));
    let three: Result<FileDataset> = FileDataset::open([&images, &labels, &labels], &device);
    assert!(three.unwrap_err().to_string().contains("have 2 tensors, and 3"));
    fs::write(&labels, npy(&described("|u1", "(49,)"), &data[..49])).unwrap();
    let other: Result<FileDataset> = FileDataset::open([&images, &labels], &device);
    assert!(other.unwrap_err().to_string().contains("has 49 rows"));
}

/// A file that is truncated, overwritten or removed while it is open.
#[test]
fn a_file_that_changes_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let device = backend_cpu::cpu();
    let path = folder.path().join("a.npy");
    let whole = npy(&described("|u1", "(300, 100)"), &[7; 30_000]);
    let open = || -> FileDataset<Tensor> {
        fs::write(&path, &whole).unwrap();
        FileDataset::open([&path], &device).unwrap()
    };
    let dataset = open();
    assert!(dataset.get(299).is_ok());
    File::options().write(true).open(&path).unwrap().set_len(20_000).unwrap();
    let message = dataset.get(299).unwrap_err().to_string();
    assert!(message.contains("a.npy") && message.contains("cannot be read"), "{message}");
    assert!(dataset.get(0).unwrap_err().to_string().contains("has changed"));
    let dataset = open();
    fs::write(&path, [&whole[..], &[1]].concat()).unwrap();
    let loader = DataLoader::new(dataset, 100).unwrap().workers(2);
    assert!(loader.iter().all(|batch| batch.unwrap_err().to_string().contains("has changed")));
    // A file that is removed, or replaced under its name, can still be read, as the system keeps it.
    #[cfg(unix)]
    {
        let dataset = open();
        fs::remove_file(&path).unwrap();
        assert_eq!(dataset.get(299).unwrap().to_vec::<u8>().unwrap(), [7; 100]);
    }
}

#[test]
fn what_cannot_be_read_is_told_when_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npy");
    let good = npy(&described("<f4", "(3, 2)"), &[0; 24]);
    let mut version = good.clone();
    version[6] = 9;
    let mut long = good.clone();
    (long[6], long[8], long[9]) = (2, 255, 255);
    for (file, part) in [
        (good[..good.len() - 1].to_vec(), "is cut off or damaged"),
        ([&good[..], &[0]].concat(), "is cut off or damaged"),
        (good[..3].to_vec(), "cannot be read"),
        (good[..50].to_vec(), "cut off in its header"),
        (version, "version 1 to 3"),
        (long, "header"),
        (b"PK\x03\x04 and more".to_vec(), "neither .npy nor IDX"),
        (vec![0x1f, 0x8b, 8, 0], "gzipped"),
        (npy(&described(">f4", "(3, 2)"), &[0; 24]), "little-endian"),
        (npy(&described("<c8", "(3,)"), &[0; 24]), "'<c8'"),
        (npy("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }", &[0; 24]), "Fortran"),
        (npy("{'descr': '<f4', 'fortran_order': False, }", &[0; 24]), "no 'shape'"),
        (npy(&described("<f4", "(3, x)"), &[0; 24]), "no shape"),
        (npy(&described("<f4", "()"), &[0; 4]), "single number"),
        (npy(&described("<f8", "(4294967296, 4294967296)"), &[0; 4]), "more than can be counted"),
        (vec![0, 0, 8, 2, 0, 0, 0, 3, 0, 0], "cut off in its header"),
        (vec![0, 0, 0x0d, 1, 0, 0, 0, 0], "element type 0x0d"),
    ] {
        fs::write(&path, file).unwrap();
        let message = RowFile::open(&path).unwrap_err().to_string();
        assert!(message.contains(part) && message.contains("a.npy"), "{message}");
    }
    assert!(RowFile::open(folder.path()).unwrap_err().to_string().contains("directory"));
    assert!(RowFile::open(folder.path().join("none")).unwrap_err().to_string().contains("cannot be read"));
    // Empty arrays: without rows, and with empty rows.
    fs::write(&path, npy(&described("<f4", "(0, 28, 28)"), &[])).unwrap();
    let empty: FileDataset<Tensor> = FileDataset::open([&path], &backend_cpu::cpu()).unwrap();
    assert!(empty.is_empty() && DataLoader::new(empty, 2).unwrap_err().to_string().contains("empty"));
    fs::write(&path, npy(&described("<f4", "(5, 0)"), &[])).unwrap();
    let thin: FileDataset<Tensor> = FileDataset::open([&path], &backend_cpu::cpu()).unwrap();
    assert_eq!(thin.batch(&[4, 0], None).unwrap().dims(), [2, 0]);
}
