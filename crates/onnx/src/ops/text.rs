//! Text operators, which run on the host.

use std::collections::HashSet;

use tensor_core::{DType, Result, Tensor};

use super::{Row, one};
use crate::{
    context::Context,
    value::{DataType, HostData, HostTensor, Value, broadcast, within},
};

pub(crate) const TABLE: &[Row] = &[
    ("", "StringConcat", 20, concat),
    ("", "StringNormalizer", 10, normalize),
    ("", "StringSplit", 20, split),
    ("", "TfIdfVectorizer", 9, tf_idf),
];

/// The texts of an input.
fn texts(c: &Context<'_>, input: usize) -> Result<(Vec<usize>, Vec<String>)> {
    let host = c.host(input)?;
    match host.data() {
        HostData::Text(list) => Ok((host.dims().to_vec(), list.clone())),
        HostData::Int(_) | HostData::Float(_) | HostData::Bool(_) => {
            Err(c.error(format!("input {input} holds numbers, no texts")))
        }
    }
}

/// One text after the other; the inputs broadcast.
fn concat(c: &Context<'_>) -> Result<Vec<Value>> {
    let ((left_dims, left), (right_dims, right)) = (texts(c, 0)?, texts(c, 1)?);
    let shape = tensor_core::Shape::from(&left_dims).broadcast(&(&right_dims).into(), "StringConcat")?;
    let (i, j) = (broadcast(&left_dims, shape.dims()), broadcast(&right_dims, shape.dims()));
    let pairs = i.into_iter().zip(j).map(|(i, j)| (&left[i], &right[j]));
    let joined = within(c.meter(), pairs.map(|(a, b)| (a.len() + b.len(), move || format!("{a}{b}"))))?;
    Ok(vec![HostTensor::new(DataType::Text, shape.dims(), HostData::Text(joined))?.into()])
}

/// Without stop words, in lower or upper case.
fn normalize(c: &Context<'_>) -> Result<Vec<Value>> {
    let (dims, list) = texts(c, 0)?;
    let change = match c.text_or("case_change_action", "NONE")? {
        "NONE" => |text: &str| text.to_string(),
        "LOWER" => |text: &str| text.to_lowercase(),
        "UPPER" => |text: &str| text.to_uppercase(),
        other => return Err(c.error(format!("case_change_action \"{other}\" is not known"))),
    };
    let sensitive = c.flag("is_case_sensitive", false)?;
    let key = |text: &str| if sensitive { text.to_string() } else { text.to_lowercase() };
    let stop: HashSet<String> =
        c.texts("stopwords")?.unwrap_or_default().iter().map(|text| key(text)).collect();
    let mut kept: Vec<String> =
        list.iter().filter(|text| !stop.contains(&key(text))).map(|text| change(text)).collect();
    if kept.is_empty() {
        kept.push(String::new());
    }
    let mut shape = dims;
    if let Some(last) = shape.last_mut() {
        *last = kept.len();
    }
    Ok(vec![HostTensor::new(DataType::Text, shape, HostData::Text(kept))?.into()])
}

/// The parts of each text between delimiters, filled up with empty ones; and how many each has.
fn split(c: &Context<'_>) -> Result<Vec<Value>> {
    let (mut shape, list) = texts(c, 0)?;
    let delimiter = c.text_or("delimiter", "")?;
    let limit = c.int("maxsplit")?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX - 1);
    let parts = |text: &String| -> Vec<String> {
        if !delimiter.is_empty() {
            return if text.is_empty() {
                Vec::new()
            } else {
                text.splitn(limit + 1, delimiter).map(str::to_string).collect()
            };
        }
        // By runs of white space, as Python's `split` does.
        let mut parts = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            match rest.find(char::is_whitespace).filter(|_| parts.len() < limit) {
                Some(end) => {
                    parts.push(rest[..end].to_string());
                    rest = rest[end..].trim_start();
                }
                None => {
                    parts.push(rest.to_string());
                    break;
                }
            }
        }
        parts
    };
    let all: Vec<Vec<String>> = list.iter().map(parts).collect();
    let counts = all.iter().map(|parts| parts.len() as i64).collect();
    let counts = HostTensor::new(DataType::Tensor(DType::I64), shape.clone(), HostData::Int(counts))?;
    let most = all.iter().map(Vec::len).max().unwrap_or(0);
    let filled_bytes = all.len().saturating_mul(most).saturating_mul(size_of::<String>());
    let _held = c.meter().hold(filled_bytes as u64, "the parts of texts")?;
    let filled = all.into_iter().flat_map(|mut parts| {
        parts.resize(most, String::new());
        parts
    });
    shape.push(most);
    let filled = HostData::Text(filled.collect());
    Ok(vec![HostTensor::new(DataType::Text, shape, filled)?.into(), counts.into()])
}

/// How often the n-grams of a pool occur in each row, also with elements left out in between, perhaps
/// weighed.
fn tf_idf(c: &Context<'_>) -> Result<Vec<Value>> {
    let host = c.host_data(0)?;
    let need = |name: &str| c.ints(name)?.ok_or_else(|| c.error(format!("{name} is missing")));
    let (starts, indexes) = (need("ngram_counts")?, need("ngram_indexes")?);
    let least = usize::try_from(c.int_or("min_gram_length", 1)?).unwrap_or(1).max(1);
    // Longer n-grams are not in the pool, and elements further apart not in a row.
    let most = usize::try_from(c.int_or("max_gram_length", 1)?).unwrap_or(0).min(starts.len());
    let columns = host.dims().last().copied().unwrap_or(1);
    let skips = usize::try_from(c.int_or("max_skip_count", 0)?).unwrap_or(0).min(columns);
    let weights = c.numbers("weights")?;
    // Words by their texts, whatever they are.
    let word = |n: &i64| n.to_string();
    let pool: Vec<String> = match c.texts("pool_strings")? {
        Some(texts) => texts,
        None => need("pool_int64s")?.iter().map(word).collect(),
    };
    let words: Vec<String> = match host.data() {
        HostData::Text(texts) => texts.clone(),
        HostData::Int(_) | HostData::Float(_) | HostData::Bool(_) => {
            host.to_i64s()?.iter().map(word).collect()
        }
    };
    let mut grams = std::collections::HashMap::new();
    let mut number = 0;
    for (at, &start) in starts.iter().enumerate() {
        let length = at + 1;
        let start = usize::try_from(start).unwrap_or(usize::MAX).min(pool.len());
        let end = starts.get(at + 1).map_or(pool.len(), |&end| (end.max(0) as usize).min(pool.len()));
        for gram in pool.get(start..end).unwrap_or(&[]).chunks_exact(length) {
            grams.insert(gram.to_vec(), number);
            number += 1;
        }
    }
    let width = indexes.iter().max().map_or(0, |&greatest| greatest.max(-1).saturating_add(1) as usize);
    let rows = if host.dims().len() < 2 { 1 } else { words.len().checked_div(columns).unwrap_or(0) };
    if indexes.len() < number {
        return Err(c.error("ngram_indexes do not fit the pool"));
    }
    let mut counts = vec![0f32; c.table_len(&[rows, width])?];
    for row in 0..rows {
        let own = &words[row * columns..][..columns];
        for length in least..=most {
            // Single words have nothing in between.
            for skip in 1..=(if length == 1 { 1 } else { skips + 1 }) {
                for first in 0..own.len() {
                    if first + (length - 1) * skip >= own.len() {
                        break;
                    }
                    let gram: Vec<String> = (0..length).map(|k| own[first + k * skip].clone()).collect();
                    if let Some(&number) = grams.get(&gram)
                        && let Ok(column) = usize::try_from(indexes[number])
                    {
                        counts[row * width + column] += 1.0;
                    }
                }
            }
        }
    }
    let mode = c.text_or("mode", "TF")?;
    let mut by_column = vec![1f32; width];
    for (number, &column) in indexes.iter().enumerate() {
        if let (Some(weights), Ok(column)) = (&weights, usize::try_from(column)) {
            by_column[column] = weights.get(number).map_or(1.0, |&weight| weight as f32);
        }
    }
    for (at, count) in counts.iter_mut().enumerate() {
        let weight = by_column[at % width.max(1)];
        *count = match mode {
            "TF" => *count,
            "IDF" => {
                if *count > 0.0 {
                    weight
                } else {
                    0.0
                }
            }
            "TFIDF" => *count * weight,
            other => return Err(c.error(format!("mode \"{other}\"; TF, IDF and TFIDF are known"))),
        };
    }
    let shape = if host.dims().len() < 2 { vec![width] } else { vec![rows, width] };
    one(Tensor::from_vec(counts, shape, c.device())?)
}
