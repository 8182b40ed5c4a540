//! [`CallFormat`]: how a family of models writes calls, as a table; and how it marks its reasoning.

use taper::models::text::Tokenizer;

/// How a family of models writes calls. A call is `open`, the name, `after_name`, the arguments and `close`;
/// white space around and inside these marks makes no difference to a reader.
#[derive(Debug)]
pub(super) struct CallFormat {
    /// The families.
    pub(super) name: &'static str,
    /// A chat template with all of these texts has this format.
    template: &'static [&'static str],
    /// The text before the first of these marks is the answer's text, and the rest may be calls.
    pub(super) begin: &'static [&'static str],
    /// Further marks that are special tokens of some tokenizers.
    marks: &'static [&'static str],
    /// Whether the whole text may be a call without a mark: then it begins with a brace or a bracket.
    pub(super) is_bare: bool,
    /// The marks before and behind all calls.
    pub(super) around: (&'static str, &'static str),
    pub(super) open: &'static str,
    pub(super) after_name: &'static str,
    pub(super) close: &'static str,
    pub(super) body: Body,
    /// The form of earlier calls that chat templates expect.
    pub(super) earlier: Earlier,
}

/// How the name and the arguments stand between the marks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body {
    /// JSON with the `name`, and the arguments in the field of this name. `after_name` does not apply.
    Object(&'static str),
    /// A list of the same.
    Objects(&'static str),
    /// The name, and JSON.
    Json,
    /// The name, and each argument between marks.
    Marked(ArgumentMarks),
    /// The name, and arguments as Python writes them.
    Python,
    /// The name, and a JSON object with keys and strings in the notation of Gemma.
    Gemma,
    /// Messages in channels, as gpt-oss writes them: a header with the name, and JSON.
    Channels,
}

/// The marks of an argument. Its value is a bare text if the parameter is a text, and else JSON.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArgumentMarks {
    pub(super) key_open: &'static str,
    pub(super) key_close: &'static str,
    pub(super) value_open: &'static str,
    pub(super) value_close: &'static str,
    /// Whether the value has lines of its own.
    pub(super) own_lines: bool,
}

/// The form of the calls in messages that chat templates expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Earlier {
    /// The arguments are an object.
    Object,
    /// The arguments are JSON as a text.
    Text,
    /// The arguments are an object, and the number of a call has nine letters or digits.
    ShortIds,
}

const PLAIN: CallFormat = CallFormat {
    name: "",
    template: &[],
    begin: &[],
    marks: &[],
    is_bare: false,
    around: ("", ""),
    open: "",
    after_name: "",
    close: "",
    body: Body::Json,
    earlier: Earlier::Object,
};

const DEEPSEEK: CallFormat = CallFormat {
    template: &["<｜tool▁calls▁begin｜>"],
    begin: &["<｜tool▁calls▁begin｜>"],
    marks: &["<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"],
    around: ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    body: Body::Json,
    earlier: Earlier::Text,
    ..PLAIN
};

/// The formats. The first one whose texts a template has is the one of a model; the last is that of the
/// others.
pub(super) const CALL_FORMATS: [CallFormat; 12] = [
    CallFormat {
        name: "gpt-oss",
        template: &["<|channel|>", "<|message|>"],
        marks: &[
            "<|start|>",
            "<|channel|>",
            "<|constrain|>",
            "<|message|>",
            "<|end|>",
            "<|call|>",
            "<|return|>",
        ],
        open: "<|channel|>commentary to=functions.",
        after_name: " <|constrain|>json<|message|>",
        body: Body::Channels,
        ..PLAIN
    },
    CallFormat {
        name: "Gemma 4",
        template: &["<|tool_call>", "<tool_call|>"],
        begin: &["<|tool_call>"],
        marks: &["<tool_call|>", "<|\"|>"],
        open: "<|tool_call>call:",
        close: "<tool_call|>",
        body: Body::Gemma,
        ..PLAIN
    },
    CallFormat {
        name: "DeepSeek V3, R1",
        template: &["<｜tool▁calls▁begin｜>", "```json"],
        open: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        after_name: "\n```json\n",
        close: "\n```<｜tool▁call▁end｜>",
        ..DEEPSEEK
    },
    CallFormat {
        name: "DeepSeek V3.1",
        open: "<｜tool▁call▁begin｜>",
        after_name: "<｜tool▁sep｜>",
        close: "<｜tool▁call▁end｜>",
        ..DEEPSEEK
    },
    CallFormat {
        name: "LFM 2",
        template: &["<|tool_call_start|>"],
        begin: &["<|tool_call_start|>"],
        marks: &["<|tool_call_end|>"],
        around: ("<|tool_call_start|>[", "]<|tool_call_end|>"),
        after_name: "(",
        close: ")",
        body: Body::Python,
        ..PLAIN
    },
    CallFormat {
        name: "Mistral, from 2025 on",
        template: &["[TOOL_CALLS]", "[ARGS]"],
        begin: &["[TOOL_CALLS]"],
        marks: &["[CALL_ID]", "[ARGS]"],
        open: "[TOOL_CALLS]",
        after_name: "[ARGS]",
        body: Body::Json,
        earlier: Earlier::ShortIds,
        ..PLAIN
    },
    CallFormat {
        name: "Mistral",
        template: &["[TOOL_CALLS]"],
        begin: &["[TOOL_CALLS]"],
        open: "[TOOL_CALLS]",
        body: Body::Objects("arguments"),
        earlier: Earlier::ShortIds,
        ..PLAIN
    },
    CallFormat {
        name: "GLM 4.5",
        template: &["<arg_key>", "<arg_value>"],
        begin: &["<tool_call>"],
        marks: &["</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"],
        open: "<tool_call>",
        after_name: "\n",
        close: "</tool_call>",
        body: Body::Marked(ArgumentMarks {
            key_open: "<arg_key>",
            key_close: "</arg_key>\n",
            value_open: "<arg_value>",
            value_close: "</arg_value>\n",
            own_lines: false,
        }),
        ..PLAIN
    },
    CallFormat {
        name: "Qwen 3.5, Qwen 3 Coder, Nemotron 3",
        template: &["<function=", "<parameter="],
        begin: &["<tool_call>"],
        marks: &["</tool_call>"],
        open: "<tool_call>\n<function=",
        after_name: ">\n",
        close: "</function>\n</tool_call>",
        body: Body::Marked(ArgumentMarks {
            key_open: "<parameter=",
            key_close: ">\n",
            value_open: "",
            value_close: "</parameter>\n",
            own_lines: true,
        }),
        ..PLAIN
    },
    CallFormat {
        name: "Granite 3",
        template: &["<|tool_call|>"],
        begin: &["<|tool_call|>", "<tool_call>"],
        is_bare: true,
        open: "<|tool_call|>",
        body: Body::Objects("arguments"),
        ..PLAIN
    },
    CallFormat {
        name: "Llama 3",
        template: &["\"parameters\"", "<|start_header_id|>"],
        begin: &["<|python_tag|>"],
        is_bare: true,
        body: Body::Object("parameters"),
        ..PLAIN
    },
    CallFormat {
        name: "Hermes, Qwen 2.5 and 3, SmolLM 3, Granite 4",
        begin: &["<tool_call>"],
        marks: &["</tool_call>"],
        is_bare: true,
        open: "<tool_call>\n",
        close: "\n</tool_call>",
        body: Body::Object("arguments"),
        ..PLAIN
    },
];

/// The marks around the reasoning at the start of an answer.
#[derive(Debug)]
pub(super) struct ReasoningFormat {
    /// A chat template with this text has these marks.
    template: &'static str,
    pub(super) open: &'static str,
    pub(super) close: &'static str,
}

const REASONING_FORMATS: [ReasoningFormat; 3] = [
    ReasoningFormat { template: "</think>", open: "<think>", close: "</think>" },
    ReasoningFormat { template: "<|channel>", open: "<|channel>thought\n", close: "<channel|>" },
    ReasoningFormat { template: "[/THINK]", open: "[THINK]", close: "[/THINK]" },
];

/// Special tokens that marks of reasoning consist of.
const REASONING_TOKENS: [&str; 6] =
    ["<think>", "</think>", "<|channel>", "<channel|>", "[THINK]", "[/THINK]"];

/// How the answers of a model are written, by its chat templates.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve) struct AnswerFormat {
    pub(super) calls: &'static CallFormat,
    pub(super) reasoning: Option<&'static ReasoningFormat>,
}

impl AnswerFormat {
    /// The format of a model with this tokenizer, in conversations with functions or without.
    pub(in crate::serve) fn of(tokenizer: &Tokenizer, has_tools: bool) -> AnswerFormat {
        let for_tools = tokenizer.template_named("tool_use").filter(|_| has_tools);
        AnswerFormat::of_template(for_tools.or(tokenizer.template()).map_or("", |template| template.source()))
    }

    pub(super) fn of_template(source: &str) -> AnswerFormat {
        let [formats @ .., other] = &CALL_FORMATS;
        let has_marks = |format: &&CallFormat| format.template.iter().all(|mark| source.contains(mark));
        let reasoning = REASONING_FORMATS.iter().find(|format| source.contains(format.template));
        AnswerFormat { calls: formats.iter().find(has_marks).unwrap_or(other), reasoning }
    }

    /// The families of models that write calls so.
    pub(in crate::serve) fn name(&self) -> &'static str {
        self.calls.name
    }

    /// Whether an answer goes on with the reasoning that this prompt has begun.
    pub(in crate::serve) fn is_reasoning_open(&self, prompt: &str) -> bool {
        self.reasoning.is_some_and(|marks| prompt.trim_end().ends_with(marks.open.trim_end()))
    }

    /// The special tokens that belong to the text, since parts are recognized by them.
    pub(in crate::serve) fn shown_tokens(&self, has_tools: bool) -> Vec<String> {
        let calls =
            self.calls.begin.iter().chain(self.calls.marks).filter(|_| has_tools || self.is_channels());
        let reasoning = REASONING_TOKENS.iter().filter(|_| self.reasoning.is_some());
        calls.chain(reasoning).map(|token| token.to_string()).collect()
    }

    /// The marks of which a tokenizer may have special tokens.
    pub(super) fn marks(&self) -> impl Iterator<Item = &'static str> {
        self.calls.begin.iter().chain(self.calls.marks).chain(&REASONING_TOKENS).copied()
    }

    pub(super) fn is_channels(&self) -> bool {
        matches!(self.calls.body, Body::Channels)
    }
}
