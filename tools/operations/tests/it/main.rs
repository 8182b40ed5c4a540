//! That the table is whole, and the page of it current.
#![allow(clippy::unwrap_used, clippy::panic)]

mod dealt;

use std::{collections::BTreeSet, path::Path};

use taper::{Result, Tensor};
use taper_operations::{
    Bench,
    fixtures::{Answers, key},
    page, public,
    row::one,
    rows,
};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn every_public_function_has_a_row() {
    let functions = public::functions(root());
    let rows: BTreeSet<String> = rows().iter().map(|row| row.name.to_string()).collect();
    let no_operations: BTreeSet<&str> =
        public::NO_OPERATIONS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    let has_place = |name: &&String| rows.contains(*name) || no_operations.contains(name.as_str());
    let missing: Vec<&String> = functions.iter().filter(|name| !has_place(name)).collect();
    assert!(
        missing.is_empty(),
        "without a row in tools/operations/src/table, or a reason in its public.rs: {missing:?}"
    );
    // Names that a renamed function leaves behind.
    let named = rows.iter().map(String::as_str).chain(no_operations.iter().copied());
    let stale: Vec<&str> = named.filter(|name| !functions.contains(*name)).collect();
    assert!(stale.is_empty(), "no public function is called so: {stale:?}");
}

/// The lines themselves are held by `lines.rs` of taper's tests.
#[test]
fn every_public_function_that_may_fail_tracks_its_caller() {
    let untracked = public::untracked(root());
    assert!(untracked.is_empty(), "without #[track_caller]:\n{}", untracked.join("\n"));
}

#[test]
fn the_page_is_current() {
    let written = std::fs::read_to_string(root().join("docs/operations.md")).unwrap();
    assert!(written == page(), "docs/operations.md is not what the table says: run `cargo xtask operations`");
}

/// Whatever PyTorch's own suite tests has a row, or the page says how else it is written or why it is absent.
#[test]
fn the_page_names_all_that_pytorch_tests() {
    let page = page();
    let absent = page::untested();
    assert!(absent.len() > 20, "{absent:?}");
    let silent: Vec<&str> = absent
        .iter()
        .filter(|(name, reason)| {
            let word = name.rsplit('.').next().unwrap_or_default();
            reason.is_empty() || !(page.contains(&format!("{word}`")))
        })
        .map(|(name, _)| *name)
        .collect();
    assert!(silent.is_empty(), "no row and no reason in tools/operations/tested.tsv: {silent:?}");
}

/// Each check finds a row that is wrong in the checked property.
#[test]
fn wrong_rows_are_found() {
    fn on_cpu(x: &Tensor) -> bool {
        x.device().name() == "cpu"
    }
    fn off_by(x: &Tensor, wrong: bool) -> Result<Tensor> {
        x.add(&x.full_like(if wrong { 0.01 } else { 0.0 }))
    }
    let bench = Bench::new(taper::cpu());
    let forward = one("exp", "torch.exp(x)", |x| off_by(x, on_cpu(x)));
    assert!(bench.forward(&forward).unwrap_err().contains("element 0"));
    let scalars = one("exp", "torch.exp(x)", |x| off_by(x, on_cpu(x) && x.rank() == 0)).pointwise();
    bench.forward(&scalars).unwrap();
    assert!(bench.layouts(&scalars).unwrap_err().contains("shapes [[]]"));
    let gradient = one("exp", "torch.exp(x)", |x| if on_cpu(x) { x.mul(&x.detach()) } else { Ok(x.powi(2)) });
    bench.forward(&gradient).unwrap();
    assert!(bench.gradients(&gradient).unwrap_err().contains("gradient in input 0"));
    assert!(bench.derivatives(&gradient).unwrap_err().contains("d output[0]"));
    // The value is x², the first derivative 2·x, and the second that of a constant.
    let second = one("exp", "torch.exp(x)", |x| x.mul(&x.detach())?.mul_scalar(2).sub(&x.detach().powi(2)));
    assert!(bench.derivatives(&second).unwrap_err().contains("second derivative"));
    let bad = one("exp", "torch.exp(x)", Tensor::exp).bad(|x| x[0].exp());
    assert!(bench.bad_input(&bad).unwrap_err().contains("bad input gave"));
    let text = std::fs::read_to_string(root().join("crates/taper/tests/fixtures/operations.json")).unwrap();
    let answers = Answers::of(serde_json::from_str(&text).unwrap());
    let other = one("exp", "torch.exp(x)", Tensor::expm1).of(taper_operations::row::DTypes::Numbers);
    let answer = answers.get(&key(&other));
    assert!(bench.torch(&other, answer).unwrap_err().contains("PyTorch's result 0"));
    assert!(bench.torch(&other, None).unwrap_err().contains("no answer"));
}
