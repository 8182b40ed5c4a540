//! Rows of an embedding, read and added to by index: 8192 of 50,000, 256 wide.

use taper::prelude::TensorGrad;

use super::{one, pair, rows::evaluated};
use crate::{
    case::Case,
    check::{all, elements, host, lines, part},
};

const ROWS: usize = 50_000;
const WIDTH: usize = 256;
const PICKED: usize = 8192;

pub(super) fn more() -> Vec<Case> {
    vec![select(), backward()]
}

fn select() -> Case {
    Case::new("more_index_select_50000x256", |inputs| {
        let table = inputs.rand([ROWS, WIDTH])?;
        let index = inputs.indices(ROWS, PICKED)?;
        let (rows, at) = (table.clone(), index.clone());
        one(
            move || rows.index_select(0, &at),
            move |result| {
                let (table, index) = (host(&table)?, index.to_vec::<i32>()?);
                elements(result, &[PICKED, WIDTH], 0.0, |i| {
                    f64::from(table[index[i / WIDTH] as usize * WIDTH + i % WIDTH])
                })
            },
        )
    })
    .elements(2 * PICKED * WIDTH)
}

/// `(table[index] * w).sum()` and the gradient of the whole table.
fn backward() -> Case {
    Case::new("more_embedding_fwd_bwd_50000x256", |inputs| {
        let table = inputs.rand([ROWS, WIDTH])?.requires_grad();
        let index = inputs.indices(ROWS, PICKED)?;
        let weight = inputs.rand([PICKED, WIDTH])?;
        let (rows, at, factor) = (table.clone(), index.clone(), weight.clone());
        let call = move || {
            rows.zero_grad();
            let loss = rows.index_select(0, &at)?.mul(&factor)?.sum();
            loss.backward()?;
            evaluated(&loss, &rows)
        };
        pair(call, move |results, _| {
            let (table, index, weight) = (host(&table)?, index.to_vec::<i32>()?, host(&weight)?);
            let (mut loss, mut gradient) = (0.0, vec![0.0; ROWS * WIDTH]);
            for (i, w) in weight.iter().enumerate() {
                let at = index[i / WIDTH] as usize * WIDTH + i % WIDTH;
                loss += f64::from(table[at]) * f64::from(*w);
                gradient[at] += f64::from(*w);
            }
            all("loss", &host(&results[0])?, &[loss], part(&results[0].device(), 1e-5))?;
            lines(&results[1], [1, ROWS * WIDTH, 1], 1e-6, |_, _| gradient.clone())
        })
    })
    // The gradient of the table is written; what is picked is read, as are the weights, twice.
    .elements(ROWS * WIDTH + 4 * PICKED * WIDTH)
}
