//! Sound against torchaudio's numbers and those of Whisper's feature extractor (`scripts/audio_fixtures.py`),
//! on the CPU and on a GPU; WAV files, whole and damaged.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;

use data::audio::{
    MelNorm, MelOptions, MelScale, Resample, ResampleWindow, WavFormat, log_mel_spectrogram, mel_filterbank,
    mel_spectrogram, read_wav, read_wav_bytes, resample, write_wav,
};
use serde_json::Value;
use taper_testing::assert_close;
use tensor_core::{DType, Device, ErrorKind, Tensor};

/// The CPU, and a GPU if there is one; `TAPER_TEST=require=wgpu` makes its absence a failure.
fn devices() -> Vec<Device> {
    let mut devices = vec![backend_cpu::cpu()];
    devices.extend(taper_testing::settings::opened_beside(backend_wgpu::wgpu(0)));
    devices
}

fn cases(name: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("../fixtures/audio.json")).unwrap();
    all[name].as_array().unwrap().clone()
}

/// The signal of the script.
fn signal(case: &Value, device: &Device) -> Tensor {
    let sample = |k: u32| {
        let k = f64::from(k);
        (0.5 * (0.05 * k + 0.0001 * k * k).sin() + 0.25 * (0.9 * k).cos()) as f32
    };
    let samples: Vec<f32> = (0..case["count"].as_u64().unwrap() as u32).map(sample).collect();
    Tensor::from_slice(&samples, samples.len(), device).unwrap()
}

/// Compares a tensor with the shape of a case, and with its elements at some positions.
fn check(found: &Tensor, case: &Value, tolerance: (f64, f64)) {
    let what = format!("{} on {}", case, found.device());
    let integers = |name: &str| -> Vec<usize> {
        case[name].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect()
    };
    assert_eq!(found.dims(), integers("shape"), "{what}");
    let found = found.to_f64_vec().unwrap();
    let found: Vec<f64> = integers("at").into_iter().map(|at| found[at]).collect();
    let wanted: Vec<f64> = case["data"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    assert_close(&found, &wanted, tolerance, &what);
}

fn rate(case: &Value, name: &str) -> u32 {
    case[name].as_u64().unwrap() as u32
}

#[test]
fn resampling_equals_torchaudios() {
    for device in devices() {
        for case in cases("resample") {
            let mut options = Resample::default();
            if let Some(width) = case["lowpass_filter_width"].as_u64() {
                options.lowpass_filter_width = width as usize;
                options.rolloff = case["rolloff"].as_f64().unwrap();
            }
            if let Some(beta) = case["beta"].as_f64() {
                options.window = ResampleWindow::Kaiser { beta };
            }
            let x = signal(&case, &device);
            let found = resample(&x, rate(&case, "from"), rate(&case, "to"), &options).unwrap();
            check(&found, &case, (1e-5, 2e-6));
            // Channels are independent.
            let both = Tensor::stack(&[&x.mul_scalar(0.0), &x], 0).unwrap();
            let both = resample(&both, rate(&case, "from"), rate(&case, "to"), &options).unwrap();
            check(&both.select(0, 1).unwrap(), &case, (1e-5, 2e-6));
        }
    }
}

/// The options of a case for mel filters.
fn mel_options(case: &Value) -> MelOptions {
    let default = MelOptions::default();
    let size = |name: &str| case[name].as_u64().map(|n| n as usize);
    let slaney = |value: &Value| value.as_str() == Some("slaney");
    MelOptions {
        n_fft: size("n_fft").unwrap_or(default.n_fft),
        win_length: size("win_length"),
        hop_length: size("hop_length"),
        f_min: case["f_min"].as_f64().unwrap_or(0.0),
        f_max: case["f_max"].as_f64(),
        n_mels: size("n_mels").unwrap(),
        power: case["power"].as_f64().unwrap_or(2.0),
        scale: if slaney(&case["scale"]) || slaney(&case["mel_scale"]) {
            MelScale::Slaney
        } else {
            MelScale::Htk
        },
        norm: if slaney(&case["norm"]) { MelNorm::Slaney } else { MelNorm::Height },
    }
}

#[test]
fn mel_filters_equal_torchaudios() {
    for device in devices() {
        for case in cases("mel_filterbank") {
            let found = mel_filterbank(rate(&case, "rate"), &mel_options(&case), &device).unwrap();
            // torchaudio computes them in f32, and edges of triangles are differences of near frequencies.
            check(&found, &case, (2e-4, 1e-5));
        }
    }
}

#[test]
fn mel_spectrograms_equal_torchaudios() {
    for device in devices() {
        for case in cases("mel_spectrogram") {
            let found = mel_spectrogram(&signal(&case, &device), rate(&case, "rate"), &mel_options(&case));
            check(&found.unwrap(), &case, (1e-3, 1e-4));
        }
    }
}

#[test]
fn whispers_spectrograms_equal_its_own() {
    for device in devices() {
        for case in cases("whisper") {
            let n_mels = case["n_mels"].as_u64().unwrap() as usize;
            check(&log_mel_spectrogram(&signal(&case, &device), n_mels).unwrap(), &case, (0.0, 2e-3));
        }
    }
}

#[test]
fn gradients_reach_the_samples() {
    let device = backend_cpu::cpu();
    let x = signal(&cases("resample")[2], &device).to_dtype(DType::F64).unwrap();
    let options = MelOptions { n_fft: 16, n_mels: 3, ..Default::default() };
    let loss = |x: &[Tensor]| {
        let slower = resample(&x[0], 16_000, 8_000, &Resample::default())?;
        Ok(mel_spectrogram(&slower, 8_000, &options)?.sum())
    };
    autograd::gradcheck(loss, &[x]).unwrap();
}

#[test]
fn wav_files_keep_their_samples() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sound.wav");
    for device in devices() {
        let samples =
            Tensor::new([[0.0f32, 0.5, -1.0, 1.5], [0.25, -0.125, 1.0 / 3.0, 2.0]], &device).unwrap();
        write_wav(&path, &samples, 22_050, WavFormat::Float32).unwrap();
        let (found, rate) = read_wav(&path, &device).unwrap();
        assert_eq!((found.dims(), rate), (&[2, 4][..], 22_050));
        assert_eq!(found.to_vec::<f32>().unwrap(), samples.to_vec::<f32>().unwrap());
        write_wav(&path, &samples, 8_000, WavFormat::Pcm16).unwrap();
        let (found, rate) = read_wav(&path, &device).unwrap();
        let most = 32_767.0 / 32_768.0;
        let third = 10_923.0 / 32_768.0;
        assert_eq!(rate, 8_000);
        assert_eq!(found.to_vec::<f32>().unwrap(), [0.0, 0.5, -1.0, most, 0.25, -0.125, third, most]);
        let (from_bytes, rate) = read_wav_bytes(fs::read(&path).unwrap(), &device).unwrap();
        assert_eq!((from_bytes.dims(), rate), (found.dims(), 8_000));
        assert_eq!(from_bytes.to_vec::<f32>().unwrap(), found.to_vec::<f32>().unwrap());
    }
}

#[test]
fn bytes_and_long_integers_are_scaled() {
    let folder = tempfile::tempdir().unwrap();
    let device = backend_cpu::cpu();
    for (bits, least) in [(8u16, -128i32), (24, -(1 << 23)), (32, i32::MIN)] {
        let path = folder.path().join(format!("{bits}.wav"));
        let spec = hound::WavSpec {
            channels: 1,
            sample_rate: 16_000,
            bits_per_sample: bits,
            sample_format: hound::SampleFormat::Int,
        };
        let mut writer = hound::WavWriter::create(&path, spec).unwrap();
        for sample in [0, least, least / 2, -(least / 4)] {
            writer.write_sample(sample).unwrap();
        }
        writer.finalize().unwrap();
        let (found, _) = read_wav(&path, &device).unwrap();
        assert_eq!(found.to_vec::<f32>().unwrap(), [0.0, -1.0, -0.5, 0.25], "{bits} bits");
    }
}

/// A chunk, with a pad byte after an odd size.
fn chunk(name: &str, content: &[u8]) -> Vec<u8> {
    let pad = &[0][..content.len() % 2];
    [name.as_bytes(), &(content.len() as u32).to_le_bytes(), content, pad].concat()
}

/// A format chunk: an encoding, channels, bytes and bits of a sample; extensible with the valid bits.
fn wav_format(tag: u16, channels: u16, bytes: u16, bits: u16, valid: Option<u16>) -> Vec<u8> {
    let block = channels * bytes;
    let outer = if valid.is_some() { 0xfffe } else { tag };
    let mut format = [outer, channels].map(u16::to_le_bytes).concat();
    format.extend([8000u32, 8000 * u32::from(block)].map(u32::to_le_bytes).concat());
    format.extend([block, bits].map(u16::to_le_bytes).concat());
    if let Some(valid) = valid {
        format.extend([22, valid, 0, 0, tag].map(u16::to_le_bytes).concat());
        format.extend([0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71]);
    }
    chunk("fmt ", &format)
}

fn riff(chunks: &[Vec<u8>]) -> Vec<u8> {
    let body = [b"WAVE".to_vec(), chunks.concat()].concat();
    [b"RIFF", &(body.len() as u32).to_le_bytes()[..], &body].concat()
}

/// The encodings and chunks that other programs write, beyond those of `hound`.
#[test]
fn sound_of_other_programs_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.wav");
    let device = backend_cpu::cpu();
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let (found, rate) = read_wav(&path, &device).unwrap();
        assert_eq!(rate, 8000);
        found
    };
    let expected = [0.0, 0.5, -0.25, -1.0];
    // Fewer valid bits than the container has are its upper ones.
    let wide: Vec<u8> = expected.iter().flat_map(|x| ((x * 2f64.powi(31)) as i32).to_le_bytes()).collect();
    let three: Vec<u8> = wide.chunks(4).flat_map(|sample| sample[1..].to_vec()).collect();
    let two: Vec<u8> = wide.chunks(4).flat_map(|sample| sample[2..].to_vec()).collect();
    let doubles: Vec<u8> = expected.iter().flat_map(|x| x.to_le_bytes()).collect();
    let floats: Vec<u8> = expected.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect();
    let format = |tag, bytes, bits, valid| wav_format(tag, 1, bytes, bits, valid);
    for (format, samples, what) in [
        (format(1, 4, 32, Some(24)), &wide, "24 valid bits in 32"),
        (format(1, 4, 24, None), &wide, "24 bits in 32"),
        (format(1, 2, 16, Some(12)), &two, "12 valid bits in 16"),
        (format(1, 2, 12, None), &two, "12 bits in 16"),
        (format(1, 3, 24, Some(20)), &three, "20 valid bits in 24"),
        (format(3, 8, 64, None), &doubles, "64-bit floats"),
        (format(3, 8, 64, Some(64)), &doubles, "extensible 64-bit floats"),
        (format(3, 4, 32, Some(32)), &floats, "extensible 32-bit floats"),
    ] {
        let found = read(&riff(&[format.clone(), chunk("data", samples)]));
        assert_eq!(found.to_vec::<f32>().unwrap(), expected.map(|x| x as f32), "{what}");
        // Chunks of other programs, of odd and even sizes, around the samples.
        let chunks = [
            chunk("LIST", b"odd"),
            format,
            chunk("cue ", b"even"),
            chunk("id3 ", b"1"),
            chunk("data", samples),
        ];
        let whole = [riff(&chunks), chunk("LIST", b"after")].concat();
        assert_eq!(read(&whole).to_vec::<f32>().unwrap(), expected.map(|x| x as f32), "{what}");
    }
    // A program that writes to a pipe does not know the sizes.
    let mut stream = riff(&[wav_format(1, 2, 2, 16, None), chunk("data", &two)]);
    for at in [4, 40] {
        stream[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    }
    let found = read(&stream);
    assert_eq!((found.dims(), found.to_vec::<f32>().unwrap()), (&[2, 2][..], vec![0.0, -0.25, 0.5, -1.0]));
    // RF64 has the sizes in 64 bits in a chunk of its own.
    let ds64 = [0u64, two.len() as u64, 4].map(u64::to_le_bytes).concat();
    let mut rf64 = riff(&[chunk("ds64", &ds64), wav_format(1, 1, 2, 16, None), chunk("data", &two)]);
    rf64[..4].copy_from_slice(b"RF64");
    let at = rf64.len() - two.len() - 4;
    rf64[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    rf64.extend(chunk("LIST", b"after"));
    assert_eq!(read(&rf64).to_vec::<f32>().unwrap(), expected.map(|x| x as f32));
}

/// Every file that is cut off is an error, and none that is damaged panics or takes much memory.
#[test]
fn a_cut_sound_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.wav");
    let device = backend_cpu::cpu();
    let samples = Tensor::zeros((2, 20), &device).unwrap();
    for format in [WavFormat::Pcm16, WavFormat::Float32] {
        write_wav(&path, &samples, 8_000, format).unwrap();
        let whole = fs::read(&path).unwrap();
        // Another reader takes it too.
        assert_eq!(hound::WavReader::open(&path).unwrap().duration(), 20);
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(read_wav(&path, &device).is_err(), "{format:?} cut to {length} of {}", whole.len());
        }
        let mut rng = taper_testing::rng::Rng::new(1, 0);
        for _ in 0..2000 {
            fs::write(&path, taper_testing::damage(&mut rng, &whole, &[0xff; 64])).unwrap();
            if let Err(error) = read_wav(&path, &device) {
                assert!(matches!(error.kind(), ErrorKind::File { .. }), "{error}");
            }
        }
    }
    // A part of a frame at the end, and an announced size of more than there is.
    let odd = riff(&[wav_format(1, 2, 2, 16, None), chunk("data", &[0; 6])]);
    fs::write(&path, odd).unwrap();
    assert!(read_wav(&path, &device).unwrap_err().to_string().contains("no whole frames of 4"));
}

/// A file that could not be written whole was left behind in part.
#[test]
fn sound_is_written_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let device = backend_cpu::cpu();
    let path = folder.path().join("sound.wav");
    write_wav(&path, &Tensor::zeros((1, 4), &device).unwrap(), 8_000, WavFormat::Pcm16).unwrap();
    let before = fs::read(&path).unwrap();
    // More channels than the header counts bytes of a frame for.
    let wide = Tensor::zeros((40_000, 1), &device).unwrap();
    assert!(write_wav(&path, &wide, 8_000, WavFormat::Float32).unwrap_err().to_string().contains("40000"));
    assert_eq!(fs::read(&path).unwrap(), before);
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let inode = || fs::metadata(&path).unwrap().ino();
        let first = inode();
        write_wav(&path, &Tensor::zeros((1, 8), &device).unwrap(), 8_000, WavFormat::Pcm16).unwrap();
        assert_ne!(inode(), first, "it is written beside and renamed");
    }
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(names, ["sound.wav"]);
}

#[test]
fn bad_sound_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.wav");
    let device = backend_cpu::cpu();
    let samples = Tensor::zeros((1, 100), &device).unwrap();
    write_wav(&path, &samples, 8_000, WavFormat::Pcm16).unwrap();
    let whole = fs::read(&path).unwrap();
    let mut huge = whole.clone();
    huge[40..44].copy_from_slice(&(u32::MAX - 1).to_le_bytes());
    for (bytes, what) in
        [(&whole[..150], "cut off"), (&huge, "a header of too many"), (b"no sound", "a text")]
    {
        fs::write(&path, bytes).unwrap();
        let error = read_wav(&path, &device).unwrap_err();
        let is_file = matches!(error.kind(), ErrorKind::File { .. });
        assert!(is_file && error.to_string().contains("is no WAV file that can be read"), "{what}: {error}");
    }
    let error = read_wav_bytes(whole[..150].to_vec(), &device).unwrap_err().to_string();
    assert!(error.contains("<bytes>: is no WAV file that can be read: it is cut off"), "{error}");
    assert!(read_wav(folder.path().join("none.wav"), &device).is_err());
    let unwritable = write_wav(folder.path().join("no/folder.wav"), &samples, 8_000, WavFormat::Pcm16);
    assert!(unwritable.unwrap_err().to_string().contains("cannot be written"));
    let error = write_wav(&path, &Tensor::zeros(5, &device).unwrap(), 8_000, WavFormat::Pcm16).unwrap_err();
    assert!(error.to_string().contains("give [channels, samples]"), "{error}");

    let refused = |result: tensor_core::Result<Tensor>, words: &str| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    let default = Resample::default();
    refused(resample(&samples, 0, 8_000, &default), "rates above 0");
    refused(resample(&samples, 1_000_003, 999_983, &default), "greater common divisor");
    refused(resample(&samples, 8_000, 4_000, &Resample { rolloff: 1.5, ..default }), "rolloff");
    let integers = Tensor::zeros((1, 8), (DType::I32, &device)).unwrap();
    refused(resample(&integers, 8_000, 4_000, &default), "floats");
    let options = MelOptions { f_min: 5_000.0, ..Default::default() };
    refused(mel_filterbank(8_000, &options, &device), "frequencies that ascend");
    refused(mel_spectrogram(&samples, 8_000, &MelOptions::default()), "mirror");
}
