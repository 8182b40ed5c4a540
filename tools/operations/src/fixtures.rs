//! The inputs for PyTorch and its results. `scripts/torch_fixtures.py operations` reads [`questions`] and
//! writes the answers.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Value, json};
use taper::DType;

use crate::row::Row;

/// A tensor of an answer.
#[derive(Clone, Debug, Deserialize)]
pub struct Array {
    /// Its sizes.
    pub shape: Vec<usize>,
    /// PyTorch's dtype, where the answer names it.
    #[serde(default)]
    pub dtype: String,
    data: Vec<Value>,
}

impl Array {
    /// Its elements. JSON has no NaN or infinity: they are words there.
    pub fn numbers(&self) -> Vec<f64> {
        let number = |value: &Value| match value {
            Value::String(word) => word.parse().unwrap_or(f64::NAN),
            Value::Bool(b) => f64::from(u8::from(*b)),
            other => other.as_f64().unwrap_or(f64::NAN),
        };
        self.data.iter().map(number).collect()
    }
}

/// The results that PyTorch computed for a row.
#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    name: String,
    torch: String,
    /// The [`digest`] of the inputs it was computed of.
    pub inputs: String,
    /// Results.
    pub outputs: Vec<Array>,
    /// Gradients of floating-point inputs; nothing where PyTorch has none.
    pub grads: Vec<Option<Array>>,
}

/// The file of answers.
#[derive(Debug, Deserialize)]
pub struct File {
    cases: Vec<Answer>,
}

/// The answers by [`key`].
#[derive(Debug)]
pub struct Answers(HashMap<String, Answer>);

impl Answers {
    /// The answers in a file.
    pub fn of(file: File) -> Answers {
        let key = |a: &Answer| format!("{} {} {}", a.name, a.torch, a.inputs);
        Answers(file.cases.into_iter().map(|answer| (key(&answer), answer)).collect())
    }

    /// The answer to the row with this [`key`].
    pub fn get(&self, key: &str) -> Option<&Answer> {
        self.0.get(key)
    }
}

/// The key of the answer to a row.
pub fn key(row: &Row) -> String {
    format!("{} {} {}", row.name, row.torch, digest(row))
}

/// The dtype that PyTorch is asked about.
fn asked(row: &Row) -> DType {
    match row.dtypes.list()[0] {
        dtype if dtype.is_float() => DType::F64,
        dtype => dtype,
    }
}

/// A number that changes with the inputs, their dtypes and their shapes (FNV-1a).
pub fn digest(row: &Row) -> String {
    digest_in(row, asked(row))
}

/// The [`digest`] of the row's inputs in `dtype`.
fn digest_in(row: &Row, dtype: DType) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut add = |n: u64| {
        for byte in n.to_le_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for (input, elements) in row.inputs.iter().zip(row.elements(dtype)) {
        input.dtype(dtype).name().bytes().for_each(|b| add(u64::from(b)));
        input.shape.iter().for_each(|n| add(*n as u64));
        elements.iter().for_each(|v| add(v.to_bits()));
    }
    add(u64::from(row.order));
    format!("{hash:016x}")
}

/// A number, or the word for what JSON has no number for.
fn word(number: f64) -> Value {
    if number.is_finite() { json!(number) } else { json!(number.to_string()) }
}

/// The rows as PyTorch is asked about them.
pub fn questions(rows: &[Row]) -> Value {
    let question = |row: &Row| {
        let dtype = asked(row);
        let inputs = inputs_in(row, dtype);
        json!({"name": row.name, "torch": row.torch, "inputs": inputs, "digest": digest(row), "order": row.order})
    };
    rows.iter().filter(|row| !row.torch.is_empty()).map(question).collect()
}

/// The row's inputs as PyTorch gets them. Indices are i64 there.
fn inputs_in(row: &Row, dtype: DType) -> Vec<Value> {
    let inputs = row.inputs.iter().zip(row.elements(dtype));
    let inputs = inputs.map(|(input, data)| {
        let kind = match input.dtype(dtype) {
            t if t.is_float() => "float64",
            t if t.is_int() && !input.is_number() => "int64",
            t => t.info().torch,
        };
        let data: Vec<Value> = data.into_iter().map(word).collect();
        json!({"shape": input.shape, "data": data, "dtype": kind})
    });
    inputs.collect()
}

/// The dtypes other than floats that PyTorch is asked about for every row with inputs.
pub const INTEGERS: [DType; 6] = [DType::I64, DType::I32, DType::I16, DType::I8, DType::U8, DType::Bool];

/// The name of the answer to a row in one of [`INTEGERS`]; nothing where the row has no inputs of numbers,
/// or one of them does not fit the dtype.
pub fn integer_key(row: &Row, dtype: DType) -> Option<String> {
    if row.torch.is_empty() || !row.inputs.iter().any(crate::row::Input::is_number) {
        return None;
    }
    let limit = dtype.greatest().as_f64().min(2f64.powi(31) - 1.0);
    let numbers = row.inputs.iter().zip(row.elements(dtype)).filter(|(input, _)| input.is_number());
    let fit = numbers.flat_map(|(_, elements)| elements).all(|v| v.abs() <= limit);
    fit.then(|| format!("{} {} {} {dtype}", row.name, row.torch, digest_in(row, dtype)))
}

/// The rows as PyTorch is asked about them in [`INTEGERS`].
pub fn integer_questions(rows: &[Row]) -> Value {
    let question = |row: &Row, dtype: DType| {
        let key = integer_key(row, dtype)?;
        Some(json!({"key": key, "torch": row.torch, "inputs": inputs_in(row, dtype)}))
    };
    rows.iter().flat_map(|row| INTEGERS.into_iter().filter_map(move |dtype| question(row, dtype))).collect()
}

/// PyTorch's results for rows with integers and bools by [`integer_key`]; a row that PyTorch refuses has
/// none.
#[derive(Debug, Deserialize)]
pub struct IntegerFile {
    cases: Vec<(String, Vec<Array>)>,
}

impl IntegerFile {
    /// The results by [`integer_key`].
    pub fn answers(self) -> HashMap<String, Vec<Array>> {
        self.cases.into_iter().collect()
    }
}
