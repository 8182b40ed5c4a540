//! [`LoraConfig`]: which layers get an adapter, and of which kind.

use std::collections::BTreeMap;

use regex_lite::Regex;
use tensor_core::{Error, Result, caller_line};

use super::{OP, kind::LayerKind, patterns::Patterns};

/// The layers that get an adapter, by their paths in the model (`model.layers.0.self_attn.q_proj`), or
/// parameters by their names ([`crate::Module::parameters_matching`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// The layers whose path is one of these names or ends with a dot and one of them: `q_proj`,
    /// `self_attn.q_proj`. PEFT's list of `target_modules`.
    Names(Vec<String>),
    /// The layers whose whole path fits a pattern, in which `*` stands for any characters and `?` for one:
    /// `model.layers.*.mlp.*_proj`.
    Glob(String),
    /// The layers whose whole path fits a regular expression, without look-around and back-references:
    /// `model\.layers\.\d+\.(self_attn\.[qv]_proj|mlp\.up_proj)`. PEFT's `target_modules` of one text.
    Regex(String),
    /// Every linear layer, except an output layer named `lm_head`, `embed_out` or `score`. PEFT's
    /// `"all-linear"`.
    AllLinear,
}

impl<S: AsRef<str>, const N: usize> From<[S; N]> for Targets {
    fn from(names: [S; N]) -> Targets {
        Targets::Names(names.iter().map(|name| name.as_ref().to_string()).collect())
    }
}

impl From<Vec<String>> for Targets {
    fn from(names: Vec<String>) -> Targets {
        Targets::Names(names)
    }
}

/// Whether a name is selected.
pub(crate) type Selector<'a> = Box<dyn Fn(&str) -> bool + 'a>;

impl Targets {
    /// The names that are selected, as a function.
    #[track_caller]
    pub(crate) fn selector(&self, op: &'static str) -> Result<Selector<'_>> {
        match self {
            Targets::Names(names) => Ok(Box::new(|path| names.iter().any(|name| is_named(path, name)))),
            Targets::Glob(pattern) => Ok(Box::new(|path| fits(pattern.as_bytes(), path.as_bytes()))),
            Targets::Regex(pattern) => match whole(pattern) {
                Ok(regex) => Ok(Box::new(move |path| regex.is_match(path))),
                Err(e) => Err(Error::invalid(op, format!("{pattern:?} is no regular expression: {e}"))),
            },
            Targets::AllLinear => {
                Err(Error::invalid(op, "AllLinear selects layers; give names or a pattern of parameters"))
            }
        }
    }
}

/// The initial values of an adapter. With each of them the model's outputs are at first those without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LoraInit {
    /// A as the weight of a linear layer (`init::kaiming_uniform` with a = √5), B zeros; in an embedding A
    /// zeros, B standard normal. PEFT's `init_lora_weights=True`.
    #[default]
    Kaiming,
    /// A normal with deviation 1/r, B zeros; in an embedding as [`LoraInit::Kaiming`]. PEFT's `"gaussian"`.
    Gaussian,
}

/// The settings of an adapter, with PEFT's names and defaults. See [`attach`](crate::lora::attach).
#[derive(Clone, Debug, PartialEq)]
pub struct LoraConfig {
    /// The adapter's name in the model: "default" by default.
    pub name: String,
    /// The rank: the number of rows of A and columns of B.
    pub r: usize,
    /// α: the adapter's product is multiplied by α/r. 8 by default.
    pub lora_alpha: f64,
    /// The probability of dropping an element of the adapter's input in training. 0 by default.
    pub lora_dropout: f64,
    /// The layers that get an adapter. None by default: give some.
    pub target_modules: Targets,
    /// Layers that get none although they are targets: names as in [`Targets::Names`]. None by default.
    pub exclude_modules: Vec<String>,
    /// The numbers of the model's blocks whose layers get an adapter: in `model.layers.3.mlp.up_proj` the
    /// number is the first one, 3. All by default.
    pub layers_to_transform: Option<Vec<usize>>,
    /// Other ranks of some layers. None by default.
    pub rank_pattern: Patterns<usize>,
    /// Other values of α for some layers. None by default.
    pub alpha_pattern: Patterns<f64>,
    /// Multiplies by α/√r instead of α/r (Kalajdzievski: A rank stabilization scaling factor for fine-tuning
    /// with LoRA, 2023). Off by default.
    pub use_rslora: bool,
    /// Weight-decomposed adapters, with a trained magnitude for each output (Liu et al.: DoRA,
    /// weight-decomposed low-rank adaptation, 2024). Off by default.
    pub use_dora: bool,
    /// Gives B a trained bias in linear and convolution layers, of zeros at first: it is added to the
    /// layer's output, times s. Off by default.
    pub lora_bias: bool,
    /// The initial values.
    pub init_lora_weights: LoraInit,
    /// The biases of the model that are trained with the adapter. None by default.
    pub bias: LoraBias,
    /// Modules whose own parameters are trained with the adapter, such as a new output layer: names as in
    /// [`Targets::Names`]. None by default.
    pub modules_to_save: Vec<String>,
}

/// The biases of a model that are trained with an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LoraBias {
    /// None of them. PEFT's `bias="none"`.
    #[default]
    None,
    /// Every parameter whose name ends with `bias`. PEFT's `bias="all"`.
    All,
    /// The biases of the layers that have the adapter. PEFT's `bias="lora_only"`.
    LoraOnly,
}

impl LoraConfig {
    /// Adapters of rank `r` with PEFT's defaults, and no targets yet.
    #[must_use]
    pub fn new(r: usize) -> LoraConfig {
        LoraConfig {
            name: "default".into(),
            r,
            lora_alpha: 8.0,
            lora_dropout: 0.0,
            target_modules: Targets::Names(Vec::new()),
            exclude_modules: Vec::new(),
            layers_to_transform: None,
            rank_pattern: Patterns::default(),
            alpha_pattern: Patterns::default(),
            use_rslora: false,
            use_dora: false,
            lora_bias: false,
            init_lora_weights: LoraInit::Kaiming,
            bias: LoraBias::None,
            modules_to_save: Vec::new(),
        }
    }

    /// With these targets: `["q_proj", "v_proj"]`, or any [`Targets`].
    #[must_use]
    pub fn targets(self, targets: impl Into<Targets>) -> LoraConfig {
        LoraConfig { target_modules: targets.into(), ..self }
    }

    /// With this α.
    #[must_use]
    pub fn alpha(self, lora_alpha: f64) -> LoraConfig {
        LoraConfig { lora_alpha, ..self }
    }

    /// With this probability of dropout.
    #[must_use]
    pub fn dropout(self, lora_dropout: f64) -> LoraConfig {
        LoraConfig { lora_dropout, ..self }
    }

    /// With another name, for a model with several adapters.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> LoraConfig {
        LoraConfig { name: name.into(), ..self }
    }

    /// The rank of the layer at a path.
    pub fn rank_of(&self, path: &str) -> usize {
        self.rank_pattern.get(path).copied().unwrap_or(self.r)
    }

    /// The factor of the product of the layer at a path: α/r or, with `use_rslora`, α/√r.
    pub fn scaling_of(&self, path: &str) -> f64 {
        let alpha = self.alpha_pattern.get(path).copied().unwrap_or(self.lora_alpha);
        let rank = self.rank_of(path) as f64;
        alpha / if self.use_rslora { rank.sqrt() } else { rank }
    }

    /// Whether the layer at a path gets an adapter.
    pub(super) fn selects(&self, path: &str, kind: LayerKind) -> bool {
        let chosen = match &self.target_modules {
            targets @ (Targets::Names(_) | Targets::Glob(_) | Targets::Regex(_)) => {
                targets.selector(OP).is_ok_and(|selects| selects(path))
            }
            Targets::AllLinear => {
                let head = ["lm_head", "embed_out", "score"].iter().any(|head| is_named(path, head));
                matches!(kind, LayerKind::Linear { .. }) && !head
            }
        };
        let excluded = self.exclude_modules.iter().any(|name| is_named(path, name));
        let within = self.layers_to_transform.as_ref().is_none_or(|layers| {
            let number = path.split('.').skip(1).find_map(|part| part.parse::<usize>().ok());
            number.is_some_and(|number| layers.contains(&number))
        });
        chosen && !excluded && within
    }

    #[track_caller]
    pub(super) fn check(&self) -> Result<()> {
        let _line = caller_line();
        let wrong = |message: String| Err(Error::invalid(OP, message));
        if self.name.is_empty() || self.name.contains('.') {
            return wrong(format!("the adapter's name {:?}: give one without dots", self.name));
        }
        if self.r == 0 || self.rank_pattern.iter().any(|(_, &rank)| rank == 0) {
            return wrong("a rank of 0: give one of 1 or more".into());
        }
        self.rank_pattern.check("rank_pattern")?;
        self.alpha_pattern.check("alpha_pattern")?;
        let alphas = self.alpha_pattern.iter().map(|(_, alpha)| alpha).chain([&self.lora_alpha]);
        if let Some(alpha) = alphas.into_iter().find(|alpha| !alpha.is_finite()) {
            return wrong(format!("lora_alpha {alpha}: give a finite number"));
        }
        if self.lora_bias && self.use_dora {
            return wrong("lora_bias with use_dora: DoRA has no bias of B; use one of them".into());
        }
        if let Targets::Regex(pattern) = &self.target_modules
            && let Err(e) = whole(pattern)
        {
            return wrong(format!("target_modules: {pattern:?} is no regular expression: {e}"));
        }
        if self.target_modules == Targets::Names(Vec::new()) {
            return wrong(
                "no target_modules: give names of layers, .targets([\"q_proj\", \"v_proj\"])".into(),
            );
        }
        Ok(())
    }
}

/// Whether a path is a name, or ends with a dot and the name.
pub(crate) fn is_named(path: &str, name: &str) -> bool {
    path.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The value of the longest name that fits a path.
pub(crate) fn by_pattern<'a, V>(patterns: &'a BTreeMap<String, V>, path: &str) -> Option<&'a V> {
    let fitting = patterns.iter().filter(|(name, _)| is_named(path, name));
    fitting.max_by_key(|(name, _)| name.len()).map(|(_, value)| value)
}

/// The regular expression that must fit a whole text.
fn whole(pattern: &str) -> std::result::Result<Regex, regex_lite::Error> {
    Regex::new(pattern)?; // so that an error is about the pattern itself
    Regex::new(&format!("^(?:{pattern})$"))
}

/// Whether a text fits a pattern with `*` and `?`. After a mismatch the last `*` takes one more character.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => (p, t) = (p + 1, t + 1),
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                (p, t) = (at + 1, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_at_dots_and_globs_cover_the_path() {
        assert!(is_named("a.q_proj", "q_proj") && is_named("q_proj", "q_proj"));
        assert!(!is_named("a.eq_proj", "q_proj") && !is_named("a.q_proj.b", "q_proj"));
        assert!(fits(b"layers.*.mlp.?p", b"layers.10.mlp.up") && fits(b"*", b"a.b"));
        assert!(!fits(b"layers.*.mlp", b"layers.1.mlp.up") && !fits(b"?", b""));
    }

    #[test]
    fn regular_expressions_fit_the_whole_path() {
        let linear = LayerKind::Linear { transposed: false };
        let of = |pattern: &str| LoraConfig::new(2).targets(Targets::Regex(pattern.into()));
        let some = of(r"layers\.\d+\.(attn\.[qv]_proj|mlp)");
        assert!(some.selects("layers.12.attn.q_proj", linear) && some.selects("layers.3.mlp", linear));
        assert!(!some.selects("layers.3.mlp.up", linear) && !some.selects("m.layers.3.mlp", linear));
        assert!(of("a|b").selects("b", linear) && !of("a|b").selects("ab", linear));
        assert!(some.check().is_ok());
        let error = of("layers.(").check().unwrap_err().to_string();
        assert!(error.contains("layers.(") && error.contains("no regular expression"), "{error}");
    }

    #[test]
    fn layers_patterns_and_scales_are_those_of_peft() {
        let mut config = LoraConfig::new(4).targets(["up", "q"]).alpha(16.0);
        config.layers_to_transform = Some(vec![1]);
        config.rank_pattern.insert("up", 16);
        config.alpha_pattern.insert("layers.1.up", 8.0);
        let linear = LayerKind::Linear { transposed: false };
        assert!(config.selects("m.layers.1.up", linear) && !config.selects("m.layers.0.up", linear));
        assert_eq!((config.rank_of("m.layers.1.up"), config.scaling_of("m.layers.1.up")), (16, 0.5));
        config.use_rslora = true;
        assert_eq!(config.scaling_of("m.layers.1.q"), 8.0);
    }
}
