//! Files that are cut off, damaged or made to harm: each is an error or a file, never a panic, in memory that
//! its size bounds.

use std::time::{Duration, Instant};

use taper_testing::{
    damage,
    rng::Rng,
    settings::{number, setting},
};
use tensor_core::{ErrorKind, Tensor};
use weights::ReadBudget;

use crate::{
    common::{bytes, cpu, refusal},
    torch::{zipped, zipped_with},
};

/// Opens bytes and reads all that is in them. An error must be that of a file, or say what is invalid.
fn survive(content: &[u8], what: &str) -> bool {
    let check = |error: tensor_core::Error| {
        let expected = matches!(error.kind(), ErrorKind::File { .. });
        assert!(expected, "{what}: {error}");
    };
    match weights::from_bytes(content.to_vec()) {
        Ok(file) => {
            assert!(file.value().to_string().len() < 10_000_000);
            match file.state_dict(&cpu()) {
                Ok(dict) => drop(dict),
                Err(error) => check(error),
            }
            true
        }
        Err(error) => {
            check(error);
            false
        }
    }
}

fn small_safetensors() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let of = |value: f32| Tensor::full([2, 3], value, &cpu()).unwrap();
    let dict = nn::StateDict::from([("a".to_string(), of(1.0)), ("b".to_string(), of(2.0))]);
    nn::save_safetensors(&path, &dict).unwrap();
    std::fs::read(path).unwrap()
}

/// The files of the tests that are small enough to be cut anywhere.
fn small_files() -> Vec<(&'static str, Vec<u8>)> {
    let names = [
        "alone.pt",
        "checkpoint.pt",
        "checkpoint_legacy.pt",
        "dtypes_legacy.pt",
        "arrays.npz",
        "arrays_compressed.npz",
        "array.npy",
        "small.gguf",
    ];
    let mut files: Vec<_> = names.map(|name| (name, bytes(name))).into();
    files.push(("a.safetensors", small_safetensors()));
    files
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_refused() {
    for (name, whole) in small_files() {
        assert!(survive(&whole, name));
        for length in 0..whole.len() {
            let opened = survive(&whole[..length], name);
            // GGUF ends in padding, which no tensor needs.
            let padding = name.ends_with(".gguf") && whole[length..].iter().all(|&byte| byte == 0);
            assert!(!opened || padding, "{name} cut to {length} of {}", whole.len());
        }
    }
}

/// A fuzzer over bytes, of bounded time: `TAPER_TEST=seconds=60,seed=2` makes it another run.
#[test]
fn damaged_files_are_errors() {
    let limit = Duration::from_secs(number("seconds", 20));
    let rounds = if setting("seconds").is_some() { u64::MAX } else { 400 };
    let mut rng = Rng::new(number("seed", 1), 0);
    let files = small_files();
    let pickles: Vec<Vec<u8>> = ["checkpoint.pt", "dtypes.pt", "dtypes_protocol4.pt"].map(pickle_of).into();
    let begin = Instant::now();
    let (mut tried, mut opened) = (0u64, 0u64);
    for _ in 0..rounds {
        for (name, whole) in &files {
            let other = rng.below(files.len());
            opened += u64::from(survive(&damage(&mut rng, whole, &files[other].1), name));
            tried += 1;
        }
        // The checksum of an archive would keep all damage from the pickle.
        for pickle in &pickles {
            let content = damage(&mut rng, pickle, &pickles[0]);
            opened += u64::from(survive(&zipped(&content, "little"), "a pickle"));
            tried += 1;
        }
        if begin.elapsed() > limit {
            break;
        }
    }
    println!("{tried} damaged files, {opened} of them opened, in {:?}", begin.elapsed());
    // Most damage is found, and elements may be anything.
    assert!(opened > 0 && opened < tried, "{opened} of {tried}");
}

fn pickle_of(name: &str) -> Vec<u8> {
    use std::io::Read;
    let mut zip = zip::ZipArchive::new(std::io::Cursor::new(bytes(name))).unwrap();
    let index =
        (0..zip.len()).find(|&k| zip.by_index(k).unwrap().name().unwrap().ends_with("data.pkl")).unwrap();
    let mut pickle = Vec::new();
    zip.by_index(index).unwrap().read_to_end(&mut pickle).unwrap();
    pickle
}

/// The most memory that this process had so far, in bytes, where the system tells.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[test]
fn pickles_made_to_harm_take_little_memory() {
    if taper_testing::run_alone(pickles_made_to_harm_take_little_memory) {
        return;
    }
    let text = |length: usize| [&b"X"[..], &(length as u32).to_le_bytes(), &vec![b'a'; length]].concat();
    // Lists that hold the one before twice: 2 to the 60 places.
    let doubling: Vec<u8> =
        (0..60u8).flat_map(|k| [b']', b'q', k + 1, b'(', b'h', k, b'h', k, b'e']).collect();
    let doubling = [b"]q\x00".as_slice(), &doubling, b"."].concat();
    // The same with a tensor at the bottom of dicts with long keys.
    let tensor = {
        let pickle = pickle_of("alone.pt");
        pickle[2..pickle.len() - 1].to_vec()
    };
    let mut keys =
        [b"\x80\x02".as_slice(), &text(100_000), b"r\x00\x01\x00\x000", &tensor, b"r\x01\x01\x00\x000"]
            .concat();
    keys.extend(b"j\x01\x01\x00\x00r\xff\xff\x00\x000");
    let mut inner = 0x101u32;
    for level in 0..30u32 {
        let id = 0x200 + level;
        keys.extend(
            [
                b"}r".as_slice(),
                &id.to_le_bytes(),
                b"(j\x00\x01\x00\x00j",
                &inner.to_le_bytes(),
                b"K\x01j",
                &inner.to_le_bytes(),
                b"u0",
            ]
            .concat(),
        );
        inner = id;
    }
    keys.extend([b"j".as_slice(), &inner.to_le_bytes(), b"."].concat());
    // One text in two million places.
    let recalled = [b"(".as_slice(), &text(1_000_000), b"q\x00", &b"h\x00".repeat(2_000_000), b"l."].concat();
    let deep = [b"]".repeat(1_000_000), b"a".repeat(999_999), b".".to_vec()].concat();
    let tuples = [b")".to_vec(), b"\x85".repeat(1_000_000), b".".to_vec()].concat();
    // Lists of 150 levels, each of which ends in the one before: deeper than each alone.
    let mut chained = b"(]q\x00".to_vec();
    for k in 0..200u8 {
        chained.extend([b"]".repeat(150), vec![b'h', k], b"a".repeat(150), vec![b'q', k + 1]].concat());
    }
    chained.extend(b"l.");
    for (pickle, part) in [
        (doubling, "in too many places"),
        (keys, "in too many places"),
        (deep, "more than 200 deep"),
        (tuples, "more than 200 deep"),
        (chained, "more than 200 deep"),
        (b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffa.".to_vec(), "cut off within a pickle"),
        (b"\x96\x00\x00\x00\x00\x00\x01\x00\x00a.".to_vec(), "cut off within a pickle"),
        (b"\x8b\xff\xff\xff\x7fa.".to_vec(), "cut off within a pickle"),
        ([b"\x8a\xff".as_slice(), &[1; 255], b"."].concat(), "an integer of 255 bytes"),
        ([b"c".as_slice(), &[b'a'; 100_000]].concat(), "has no end"),
    ] {
        let message = refusal(&zipped_with(&pickle, "little", &[0; 40]));
        assert!(message.contains(part), "{message}");
    }
    assert!(survive(&zipped(&recalled, "little"), "one text in many places"));
    // A million keys are a dict of a million keys.
    let mut million = b"}(".to_vec();
    for k in 0..1_000_000u32 {
        million.extend([b"J".as_slice(), &k.to_le_bytes(), b"K\x01"].concat());
    }
    million.extend(b"u.");
    let file = weights::from_bytes(zipped(&million, "little")).unwrap();
    assert_eq!(file.value().entries().unwrap().len(), 1_000_000);
    if let Some(peak) = peak_memory() {
        assert!(peak < 600 << 20, "{} MB", peak >> 20);
    }
}

/// A zip archive by hand: each entry with what the directory says of it, and the offset of its local header.
fn archive(entries: &[(&str, u16, u32, u32, u32)], content: &[u8]) -> Vec<u8> {
    let mut file = content.to_vec();
    let directory = file.len() as u32;
    for &(name, method, compressed, size, offset) in entries {
        file.extend(b"PK\x01\x02\x14\0\x14\0\0\0");
        file.extend(method.to_le_bytes());
        file.extend([0; 8]);
        file.extend([compressed, size].map(u32::to_le_bytes).concat());
        file.extend((name.len() as u16).to_le_bytes());
        file.extend([0; 12]);
        file.extend(offset.to_le_bytes());
        file.extend(name.bytes());
    }
    let length = file.len() as u32 - directory;
    file.extend(b"PK\x05\x06\0\0\0\0");
    file.extend([(entries.len() as u16).to_le_bytes(), (entries.len() as u16).to_le_bytes()].concat());
    file.extend([length, directory].map(u32::to_le_bytes).concat());
    file.extend([0; 2]);
    file
}

/// A local header, and what follows it.
fn local(name: &str, method: u16, compressed: u32, size: u32, content: &[u8]) -> Vec<u8> {
    let mut header = b"PK\x03\x04\x14\0\0\0".to_vec();
    header.extend(method.to_le_bytes());
    header.extend([0; 8]);
    header.extend([compressed, size].map(u32::to_le_bytes).concat());
    header.extend((name.len() as u16).to_le_bytes());
    header.extend([0; 2]);
    header.extend(name.bytes());
    header.extend(content);
    header
}

#[test]
fn archives_made_to_harm_are_refused() {
    if taper_testing::run_alone(archives_made_to_harm_are_refused) {
        return;
    }
    let stored = local("a.npy", 0, 10, 10, &[7; 10]);
    let good = [("a.npy", 0, 10, 10, 0)];
    assert!(refusal(&archive(&good, &stored)).contains("is no .npy file"));
    for (entries, content, part) in [
        // Entries that share their bytes, as a bomb's do.
        (&[("a.npy", 0, 10, 10, 0), ("b.npy", 0, 10, 10, 0)][..], &stored[..], "overlap"),
        (&[("a.npy", 0, 1000, 1000, 0)], &stored, "beyond the end"),
        (&[("a.npy", 0, 10, 20, 0)], &stored, "in 10 bytes instead of 20"),
        (
            &[("a.npy", 8, 10, u32::MAX - 1, 0)],
            &local("a.npy", 8, 10, u32::MAX - 1, &[7; 10]),
            "which none unpack to",
        ),
        (&[("a.npy", 0, 10, 10, 5000)], &stored, "cannot be read"),
        (&[("a.npy", 12, 10, 10, 0)], &local("a.npy", 12, 10, 10, &[7; 10]), "is compressed by"),
        (&[("../a.txt", 0, 10, 10, 0)], &stored, "neither one of PyTorch's"),
    ] {
        let message = refusal(&archive(entries, content));
        assert!(message.contains(part), "{message}");
    }
    // 400 MB of zeros in 400 KB, of an array that promises them: opened without unpacking them, and damage is
    // found when it is read.
    let header = tensor_core::npy::write_header(tensor_core::DType::U8, &[400_000_000]).unwrap();
    let packed = {
        use std::io::Write;
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        let deflate = zip::CompressionMethod::Deflated;
        zip.start_file("a.npy", zip::write::SimpleFileOptions::default().compression_method(deflate))
            .unwrap();
        zip.write_all(&header).unwrap();
        for _ in 0..400 {
            zip.write_all(&[0; 1_000_000]).unwrap();
        }
        zip.finish().unwrap().into_inner()
    };
    assert!(packed.len() < 1_000_000);
    let file = weights::from_bytes(packed).unwrap();
    assert_eq!(file.info("a").unwrap().numel(), 400_000_000);
    let message = file.tensor("a", &cpu()).unwrap_err().to_string();
    assert!(
        message.contains("\"a.npy\" that unpacks to 400000128 bytes; 268435456 are allowed"),
        "{message}"
    );
    let mut broken = bytes("arrays_compressed.npz");
    // The elements of the first array, behind its local header.
    let at = broken.windows(6).position(|window| window == b"f4.npy").unwrap() + 60;
    broken[at] ^= 0x10;
    let file = weights::from_bytes(broken);
    let read = file.and_then(|file| file.tensor("f4", &cpu()));
    assert!(read.is_err());
    if let Some(peak) = peak_memory() {
        assert!(peak < 200 << 20, "{} MB", peak >> 20);
    }
}

/// A tensor alone in a pickle, whose sizes and strides are given as instructions.
#[test]
fn tensors_that_overlap_do_not_multiply_memory() {
    if taper_testing::run_alone(tensors_that_overlap_do_not_multiply_memory) {
        return;
    }
    // Twenty thousand tensors, each all but one of the storage's elements: 20,000 times the file when all are
    // read.
    let count = 100_000u32;
    let mut pickle = b"\x80\x02}(".to_vec();
    for k in 0..20_000u32 {
        pickle.extend([b"J".as_slice(), &k.to_le_bytes()].concat());
        pickle.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuJ");
        pickle.extend(
            [
                &count.to_le_bytes()[..],
                b"tQJ",
                &k.to_le_bytes(),
                b"J",
                &(count - k).to_le_bytes(),
                b"\x85K\x01\x85\x89NtR",
            ]
            .concat(),
        );
    }
    pickle.extend(b"u.");
    let file = weights::from_bytes(zipped_with(&pickle, "little", &vec![0; 400_000])).unwrap();
    assert_eq!(file.len(), 20_000);
    let message = file.state_dict(&cpu()).unwrap_err().to_string();
    assert!(message.contains("overlapping tensors would make"), "{message}");
    assert_eq!(file.tensor("19999", &cpu()).unwrap().numel(), 80_001);
    if let Some(peak) = peak_memory() {
        assert!(peak < 200 << 20, "{} MB", peak >> 20);
    }
}

#[test]
fn a_million_of_everything_is_read_in_memory_of_the_files_size() {
    if taper_testing::run_alone(a_million_of_everything_is_read_in_memory_of_the_files_size) {
        return;
    }
    let mut gguf = b"GGUF\x03\0\0\0".to_vec();
    gguf.extend([0u64, 1_000_000].map(u64::to_le_bytes).concat());
    for k in 0..1_000_000u32 {
        gguf.extend([&6u64.to_le_bytes()[..], format!("{k:06}").as_bytes(), &[7, 0, 0, 0, 1]].concat());
    }
    let file = weights::from_bytes(gguf).unwrap();
    assert_eq!(file.gguf_metadata().len(), 1_000_000);
    drop(file);
    // An index of which no shard is there, and a header of a million empty tensors.
    let names: Vec<String> = (0..1_000_000)
        .map(|k| format!("\"{k}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}"))
        .collect();
    let header = format!("{{{}}}", names.join(","));
    let safetensors = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    assert!(survive(&safetensors, "a million tensors"));
    if let Some(peak) = peak_memory() {
        assert!(peak < 3000 << 20, "{} MB", peak >> 20);
    }
}

/// A zip with one deflated entry, of a byte that is repeated.
fn deflated(name: &str, byte: u8, count: usize) -> Vec<u8> {
    use std::io::Write;
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    zip.start_file(name, options).unwrap();
    let piece = vec![byte; 1 << 20];
    for _ in 0..count >> 20 {
        zip.write_all(&piece).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// A file of 65 KB that unpacks to 64 MB of instructions, each of which made a value of some tens of bytes.
#[test]
fn a_small_file_takes_no_more_than_its_budget() {
    if taper_testing::run_alone(a_small_file_takes_no_more_than_its_budget) {
        return;
    }
    let bomb = deflated("archive/data.pkl", b']', 64 << 20);
    assert!(bomb.len() < 80_000, "{} bytes", bomb.len());
    let message = refusal(&bomb);
    assert!(message.contains("describes values of more than 268435456 bytes"), "{message}");
    assert!(message.contains("open_within and a greater ReadBudget"), "{message}");
    if let Some(peak) = peak_memory() {
        assert!(peak < 800 << 20, "{} MB", peak >> 20);
    }
    // The bound is settable, both ways.
    let small = ReadBudget { least: 1000, per_byte: 1 };
    let content = bytes("arrays_compressed.npz");
    let message = weights::from_bytes_within(bytes("checkpoint.pt"), small).unwrap_err().to_string();
    assert!(message.contains("a greater ReadBudget"), "{message}");
    let read = |budget| weights::from_bytes_within(content.clone(), budget)?.tensor("f4", &cpu());
    assert!(read(ReadBudget { least: 10, per_byte: 0 }).unwrap_err().to_string().contains("ReadBudget"));
    assert!(read(ReadBudget::UNLIMITED).is_ok());
}

/// Pipes and devices were read until they ended, which some never do.
#[cfg(unix)]
#[test]
fn pipes_and_devices_are_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let config = folder.path().join("adapter_config.json");
    assert!(std::process::Command::new("mkfifo").arg(&config).status().unwrap().success());
    let rng = tensor_core::Generator::seed(0, &cpu());
    let net = nn::Linear::new(2, 2, &rng).unwrap();
    for error in [
        weights::open(&pipe).map(drop).unwrap_err(),
        weights::open("/dev/zero").map(drop).unwrap_err(),
        nn::load_safetensors(&pipe, &cpu()).map(drop).unwrap_err(),
        nn::load_safetensors("/dev/zero", &cpu()).map(drop).unwrap_err(),
        weights::load_peft(&net, folder.path(), None, &rng).map(drop).unwrap_err(),
    ] {
        assert!(error.to_string().contains("a pipe, a socket or a device; expected a file"), "{error}");
    }
}
