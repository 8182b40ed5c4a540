//! A step length that meets the strong Wolfe conditions, found as PyTorch (and minFunc) finds it.

use tensor_core::{Result, Tensor};

/// The constant of sufficient decrease: f(t) ≤ f(0) + c₁·t·f′(0).
const C1: f64 = 1e-4;
/// The constant of the curvature condition: |f′(t)| ≤ −c₂·f′(0).
const C2: f64 = 0.9;
/// The search ends when the bracket changes no element by more than this.
const TOLERANCE_CHANGE: f64 = 1e-9;

/// The function evaluated at a step length.
#[derive(Clone)]
pub(crate) struct Point {
    /// The step length.
    pub(crate) t: f64,
    pub(crate) loss: f64,
    pub(crate) grad: Tensor,
    /// The derivative along the direction.
    pub(crate) slope: f64,
}

/// A step length along the direction from `start` (t = 0), with the first guess `t` and at most `max_steps`
/// further steps. Returns the point and the number of evaluations.
///
/// Nocedal, Wright: Numerical optimization (2006), algorithms 3.5 and 3.6.
pub(crate) fn strong_wolfe(
    start: Point,
    t: f64,
    greatest: f64,
    max_steps: u64,
    mut at: impl FnMut(f64) -> Result<Point>,
) -> Result<(Point, u64)> {
    let armijo_fails = |p: &Point| p.loss > start.loss + C1 * p.t * start.slope;
    let is_flat = |p: &Point| p.slope.abs() <= -C2 * start.slope;
    let mut new = at(t)?;
    let mut steps = 0;
    let mut last = start.clone();
    // Bracketing: extend the step until a bracket contains an acceptable point.
    let (mut a, mut b) = loop {
        if steps == max_steps {
            break (start.clone(), new);
        }
        if armijo_fails(&new) || (steps > 1 && new.loss >= last.loss) {
            break (last, new);
        }
        if is_flat(&new) {
            return Ok((new, steps + 1));
        }
        if new.slope >= 0.0 {
            break (last, new);
        }
        let bounds = (new.t + 0.01 * (new.t - last.t), new.t * 10.0);
        let t = cubic_minimum(&last, &new, bounds);
        last = std::mem::replace(&mut new, at(t)?);
        steps += 1;
    };
    // Zoom: shrink the bracket until it is small; `low_is_a` names the lower end.
    let mut low_is_a = a.loss <= b.loss;
    let mut stuck = false;
    while steps < max_steps && (b.t - a.t).abs() * greatest >= TOLERANCE_CHANGE {
        let (least, most) = (a.t.min(b.t), a.t.max(b.t));
        let mut t = cubic_minimum(&a, &b, (least, most));
        // A guess close to an end, twice in a row or at the end itself, moves a tenth of the bracket away
        // from it.
        let margin = 0.1 * (most - least);
        if (most - t).min(t - least) < margin {
            if stuck || t >= most || t <= least {
                t = if (t - most).abs() < (t - least).abs() { most - margin } else { least + margin };
                stuck = false;
            } else {
                stuck = true;
            }
        } else {
            stuck = false;
        }
        let new = at(t)?;
        steps += 1;
        let (low, high) = if low_is_a { (&mut a, &mut b) } else { (&mut b, &mut a) };
        if armijo_fails(&new) || new.loss >= low.loss {
            *high = new;
            low_is_a = a.loss <= b.loss;
        } else {
            let done = is_flat(&new);
            if !done && new.slope * (high.t - low.t) >= 0.0 {
                *high = low.clone();
            }
            *low = new;
            if done {
                break;
            }
        }
    }
    Ok((if low_is_a { a } else { b }, steps + 1))
}

/// The minimum of the cubic through two points with their slopes, clamped to the bounds; their midpoint if
/// there is none.
fn cubic_minimum(x: &Point, y: &Point, (least, most): (f64, f64)) -> f64 {
    let (x, y) = if x.t <= y.t { (x, y) } else { (y, x) };
    let d1 = x.slope + y.slope - 3.0 * (x.loss - y.loss) / (x.t - y.t);
    let square = d1 * d1 - x.slope * y.slope;
    if square >= 0.0 {
        let d2 = square.sqrt();
        let minimum = y.t - (y.t - x.t) * ((y.slope + d2 - d1) / (y.slope - x.slope + 2.0 * d2));
        // NaN gives the bound, as Python's min and max do.
        least.max(minimum).min(most)
    } else {
        (least + most) / 2.0
    }
}
