//! The layout of a graph in a picture: Sugiyama's layered layout. Each node is in a row below its inputs. An
//! arrow over several rows has a bend in each of them. Nodes are ordered within rows to have few crossings,
//! by moving each to the mean position of its neighbours; then they are shifted until neighbours are above
//! each other.
//!
//! K. Sugiyama, S. Tagawa, M. Toda: Methods for Visual Understanding of Hierarchical System Structures, 1981.

/// The space between nodes of a row.
const GAP: f64 = 24.0;
/// The width of a bend.
const BEND: f64 = 8.0;
/// Arrows over more rows than this are drawn straight: there would be more bends than nodes.
const LONGEST: usize = 40;
/// The number of rounds of moving nodes to the mean of their neighbours, down and up.
const ROUNDS: usize = 12;

/// The positions of all nodes and bends.
pub(crate) struct Layout {
    /// For each node, its row and the horizontal position of its center.
    pub(crate) nodes: Vec<(usize, f64)>,
    /// For each edge, the rows and positions of its bends.
    pub(crate) bends: Vec<Vec<(usize, f64)>>,
    pub(crate) rows: usize,
    pub(crate) width: f64,
}

/// A node, or a bend of an arrow.
struct Cell {
    row: usize,
    width: f64,
    x: f64,
    above: Vec<usize>,
    below: Vec<usize>,
}

/// Lays out nodes of these widths. Edges go from earlier nodes to later ones.
pub(crate) fn lay_out(widths: &[f64], edges: &[(usize, usize)]) -> Layout {
    let rows = rows(widths.len(), edges);
    let cell = |row, width| Cell { row, width, x: 0.0, above: Vec::new(), below: Vec::new() };
    let mut cells: Vec<Cell> = widths.iter().zip(&rows).map(|(&width, &row)| cell(row, width)).collect();
    let mut bends: Vec<Vec<usize>> = Vec::with_capacity(edges.len());
    for &(from, to) in edges {
        let (first, last) = (rows[from] + 1, rows[to]);
        let mut own = Vec::new();
        let mut upper = from;
        if last - first <= LONGEST {
            for row in first..last {
                let bend = cells.len();
                cells.push(cell(row, BEND));
                join(&mut cells, upper, bend);
                own.push(bend);
                upper = bend;
            }
            join(&mut cells, upper, to);
        }
        bends.push(own);
    }
    let count = rows.iter().max().map_or(0, |most| most + 1);
    let mut order: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (k, cell) in cells.iter().enumerate() {
        order[cell.row].push(k);
    }
    uncross(&mut cells, &mut order);
    place(&mut cells, &order);
    let left = cells.iter().map(|cell| cell.x - cell.width / 2.0).fold(f64::INFINITY, f64::min);
    let left = if left.is_finite() { left } else { 0.0 };
    let right = cells.iter().map(|cell| cell.x + cell.width / 2.0).fold(left, f64::max);
    let at = |k: &usize| (cells[*k].row, cells[*k].x - left);
    Layout {
        nodes: (0..widths.len()).map(|k| at(&k)).collect(),
        bends: bends.iter().map(|own| own.iter().map(at).collect()).collect(),
        rows: count,
        width: right - left,
    }
}

fn join(cells: &mut [Cell], upper: usize, lower: usize) {
    cells[upper].below.push(lower);
    cells[lower].above.push(upper);
}

/// The row of each node: one below the lowest of its inputs; a node without inputs is directly above its
/// first reader.
fn rows(nodes: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut inputs: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for &(from, to) in edges {
        inputs[to].push(from);
        readers[from].push(to);
    }
    let mut rows = vec![0usize; nodes];
    for node in 0..nodes {
        rows[node] = inputs[node].iter().map(|&input| rows[input] + 1).max().unwrap_or(0);
    }
    for node in (0..nodes).filter(|&node| inputs[node].is_empty()) {
        if let Some(first) = readers[node].iter().map(|&reader| rows[reader]).min() {
            rows[node] = first.saturating_sub(1);
        }
    }
    rows
}

/// Orders the rows: each cell moves to the mean position of its neighbours, alternately in the row above and
/// in the row below.
fn uncross(cells: &mut [Cell], order: &mut [Vec<usize>]) {
    let mut position = vec![0.0; cells.len()];
    let number = |row: &[usize], position: &mut Vec<f64>| {
        row.iter().enumerate().for_each(|(k, &cell)| position[cell] = k as f64);
    };
    order.iter().for_each(|row| number(row, &mut position));
    for round in 0..ROUNDS {
        let down = round % 2 == 0;
        for k in 0..order.len() {
            let row = if down { k } else { order.len() - 1 - k };
            let middle = |cell: usize| {
                let neighbours = if down { &cells[cell].above } else { &cells[cell].below };
                match neighbours.len() {
                    0 => position[cell],
                    n => neighbours.iter().map(|&other| position[other]).sum::<f64>() / n as f64,
                }
            };
            let mut placed: Vec<(f64, usize)> = order[row].iter().map(|&cell| (middle(cell), cell)).collect();
            // A stable sort: cells with the same mean keep their order.
            placed.sort_by(|a, b| a.0.total_cmp(&b.0));
            order[row] = placed.into_iter().map(|(_, cell)| cell).collect();
            number(&order[row], &mut position);
        }
    }
}

/// Positions the cells of each row in their order, without overlap, as near to the mean of their neighbours
/// as possible.
fn place(cells: &mut [Cell], order: &[Vec<usize>]) {
    for row in order {
        let mut x = 0.0;
        for &cell in row {
            cells[cell].x = x + cells[cell].width / 2.0;
            x += cells[cell].width + GAP;
        }
    }
    for round in 0..ROUNDS {
        let down = round % 2 == 0;
        for k in 0..order.len() {
            let row = &order[if down { k } else { order.len() - 1 - k }];
            let wanted: Vec<f64> = row
                .iter()
                .map(|&cell| {
                    let neighbours = if down { &cells[cell].above } else { &cells[cell].below };
                    match neighbours.len() {
                        0 => cells[cell].x,
                        n => neighbours.iter().map(|&other| cells[other].x).sum::<f64>() / n as f64,
                    }
                })
                .collect();
            let widths: Vec<f64> = row.iter().map(|&cell| cells[cell].width).collect();
            for (&cell, x) in row.iter().zip(spread(&wanted, &widths)) {
                cells[cell].x = x;
            }
        }
    }
}

/// The positions nearest to the wanted ones (by least squares) at which neighbours keep their distance:
/// cells that would overlap are merged to blocks, and a block is at the mean of its cells' wanted positions
/// (the pool-adjacent-violators algorithm).
fn spread(wanted: &[f64], widths: &[f64]) -> Vec<f64> {
    // The offset of each cell from the first, if all are adjacent.
    let mut offsets = Vec::with_capacity(widths.len());
    let mut offset = 0.0;
    for (k, width) in widths.iter().enumerate() {
        if k > 0 {
            offset += (widths[k - 1] + width) / 2.0 + GAP;
        }
        offsets.push(offset);
    }
    // The sum of the wanted positions minus the offsets, and the number of cells.
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for (wish, offset) in wanted.iter().zip(&offsets) {
        let mut block = (wish - offset, 1);
        while let Some(&(sum, n)) = blocks.last()
            && sum / n as f64 > block.0 / block.1 as f64
        {
            blocks.pop();
            block = (block.0 + sum, block.1 + n);
        }
        blocks.push(block);
    }
    let starts = blocks.iter().flat_map(|&(sum, n)| std::iter::repeat_n(sum / n as f64, n));
    starts.zip(&offsets).map(|(start, offset)| start + offset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_down_and_nothing_overlaps() {
        // Two chains that meet, an arrow over several rows, and a constant that only the last node reads.
        let edges = [(0, 1), (1, 2), (2, 3), (0, 4), (4, 3), (3, 6), (5, 6), (0, 6)];
        let widths = [80.0, 60.0, 100.0, 90.0, 70.0, 50.0, 120.0];
        let layout = lay_out(&widths, &edges);
        assert_eq!(layout.rows, 5);
        for (&(from, to), bends) in edges.iter().zip(&layout.bends) {
            let way: Vec<usize> = std::iter::once(layout.nodes[from].0)
                .chain(bends.iter().map(|bend| bend.0))
                .chain([layout.nodes[to].0])
                .collect();
            assert!(way.windows(2).all(|pair| pair[1] == pair[0] + 1), "{way:?}");
        }
        assert_eq!(layout.nodes[5].0, layout.nodes[6].0 - 1);
        for a in 0..widths.len() {
            for b in 0..a {
                let ((row_a, x_a), (row_b, x_b)) = (layout.nodes[a], layout.nodes[b]);
                let apart = (x_a - x_b).abs() >= (widths[a] + widths[b]) / 2.0;
                assert!(row_a != row_b || apart, "{a} and {b} overlap");
            }
            let (_, x) = layout.nodes[a];
            assert!(x - widths[a] / 2.0 >= -1e-9 && x + widths[a] / 2.0 <= layout.width + 1e-9);
        }
    }

    #[test]
    fn crossings_are_undone() {
        // The edges cross: 0 → 3, 1 → 2.
        let layout = lay_out(&[10.0; 4], &[(0, 3), (1, 2)]);
        let side = |a: usize, b: usize| layout.nodes[a].1 < layout.nodes[b].1;
        assert_eq!(side(0, 1), side(3, 2));
        // Each node is below its input.
        assert!((layout.nodes[0].1 - layout.nodes[3].1).abs() < 1e-6);
        assert!((layout.nodes[1].1 - layout.nodes[2].1).abs() < 1e-6);
    }

    #[test]
    fn a_long_chain_and_nothing_at_all() {
        let edges: Vec<(usize, usize)> = (1..5000).map(|k| (k - 1, k)).chain([(0, 4999)]).collect();
        let layout = lay_out(&vec![50.0; 5000], &edges);
        assert_eq!((layout.rows, layout.nodes[4999].0), (5000, 4999));
        assert!(layout.bends[4999].is_empty());
        assert_eq!(lay_out(&[], &[]).rows, 0);
    }
}
