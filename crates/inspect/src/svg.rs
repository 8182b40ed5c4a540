//! A graph as a picture in SVG, laid out by `layers`.

use std::fmt::Write;

use crate::{Graph, GraphNode, NodeKind, layers::lay_out};

/// The height of a node, the height of a row, and the margin of the picture.
const NODE: f64 = 54.0;
const ROW: f64 = 92.0;
const EDGE: f64 = 12.0;
/// The width of a letter, and the additional width of a node.
const LETTER: f64 = 7.3;
const PADDING: f64 = 20.0;
/// The greatest number of letters in a line.
const LETTERS: usize = 40;

impl Graph {
    /// The graph as an SVG picture: arrows point downward from inputs to results. Leaves that require
    /// gradients are blue, other data grey, results green; a node shows its operation, shape, dtype, id and
    /// source line. Graphviz is not needed.
    #[must_use]
    pub fn svg(&self) -> String {
        self.svg_with_links(|_, _| None)
    }

    /// The same, with links on the nodes for whose file and line `link` returns one.
    pub(crate) fn svg_with_links(&self, link: impl Fn(&str, u32) -> Option<String>) -> String {
        let lines: Vec<[String; 3]> = self.nodes.iter().map(lines).collect();
        let longest = |lines: &[String; 3]| lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        let widths: Vec<f64> = lines.iter().map(|lines| longest(lines) as f64 * LETTER + PADDING).collect();
        let edges: Vec<(usize, usize)> = self.edges().collect();
        let layout = lay_out(&widths, &edges);
        let width = layout.width + 2.0 * EDGE;
        let height = (layout.rows.max(1) - 1) as f64 * ROW + NODE + 2.0 * EDGE;
        let top = |row: usize| EDGE + row as f64 * ROW;
        let mut svg = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             font-family=\"monospace\" font-size=\"12\">\n\
             <defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">\
             <path d=\"M0 0L8 4L0 8z\" fill=\"#555\"/></marker></defs>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
        );
        for ((from, to), bends) in edges.iter().zip(&layout.bends) {
            let (row, x) = layout.nodes[*from];
            let mut path = format!("M{:.1} {:.1}", x + EDGE, top(row) + NODE);
            let (mut before, mut under) = (x + EDGE, top(row) + NODE);
            let last = layout.nodes[*to];
            for (k, &(row, x)) in bends.iter().chain([&last]).enumerate() {
                let (x, y) = (x + EDGE, top(row));
                let middle = f64::midpoint(under, y);
                let _ = write!(path, "C{before:.1} {middle:.1} {x:.1} {middle:.1} {x:.1} {y:.1}");
                if k < bends.len() {
                    // Within the row of nodes the arrow goes straight down.
                    let _ = write!(path, "V{:.1}", y + NODE);
                }
                (before, under) = (x, y + NODE);
            }
            let _ = writeln!(
                svg,
                "<path d=\"{path}\" fill=\"none\" stroke=\"#555\" marker-end=\"url(#arrow)\"/>"
            );
        }
        for (((node, lines), &width), &(row, x)) in
            self.nodes.iter().zip(&lines).zip(&widths).zip(&layout.nodes)
        {
            let fill = match node.kind {
                _ if node.is_output => "#caff70",
                NodeKind::Leaf => "#add8e6",
                NodeKind::Data | NodeKind::Constant => "#e5e5e5",
                NodeKind::Operation => "#ffffff",
            };
            let (x, y) = (x + EDGE, top(row));
            let left = x - width / 2.0;
            let (open, close) = match link(node.location.0, node.location.1) {
                Some(link) => (format!("<a href=\"{}\">", escaped(&link)), "</a>"),
                None => ("<g>".to_string(), "</g>"),
            };
            let location = escaped(&format!("{}:{}", node.location.0, node.location.1));
            let _ = writeln!(
                svg,
                "{open}<title>{location}</title><rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{NODE}\" rx=\"4\" \
                 fill=\"{fill}\" stroke=\"#333\"/>"
            );
            for (k, line) in lines.iter().enumerate() {
                let (base, style) =
                    (y + 18.0 + 15.0 * k as f64, if k == 0 { " font-weight=\"bold\"" } else { "" });
                let text = escaped(line);
                let _ = writeln!(
                    svg,
                    "<text x=\"{x:.1}\" y=\"{base:.1}\" text-anchor=\"middle\"{style}>{text}</text>"
                );
            }
            let _ = writeln!(svg, "{close}");
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// The text of a node. A constant is part of an operation's line, and has no location of its own.
fn lines(node: &GraphNode) -> [String; 3] {
    let (file, line) = node.location;
    let file = file.rsplit(['/', '\\']).next().unwrap_or(file);
    let place = match node.kind {
        NodeKind::Constant => format!("#{}", node.id),
        NodeKind::Leaf | NodeKind::Data | NodeKind::Operation => format!("#{} {file}:{line}", node.id),
    };
    [node.title(), node.form(), place].map(|line| match line.char_indices().nth(LETTERS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    })
}

/// Escapes text for XML.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            // Not allowed in XML.
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
