//! A graph folded by layers: one node for each call of a layer.

use std::collections::HashMap;

use crate::{Graph, NodeKind};

impl Graph {
    /// The graph with one node for each call of a layer: its operations, parameters and constants become one
    /// node that has the layer's path and type, and the form of its result. Operations outside of layers
    /// stay, with the constants that they read in their titles. A layer that calls others, such as a
    /// `Sequential`, is shown by those.
    ///
    /// Switch [`record_layer_calls`] on before the model runs, and give [`Graph::of`] the names of the
    /// model's parameters; otherwise no calls are known, and the graph stays as it is.
    ///
    /// [`record_layer_calls`]: tensor_core::record_layer_calls
    ///
    /// ```
    /// use inspect::{Graph, record_layer_calls};
    /// use nn::{Conv2d, Flatten, Linear, MaxPool2d, Module, Relu, Sequential};
    /// use tensor_core::{Generator, Tensor};
    /// # fn main() -> tensor_core::Result<()> {
    /// let rng = Generator::seed(0, &backend_cpu::cpu());
    /// let net = Sequential::new()
    ///     .add(Conv2d::new(1, 4, 3, &rng)?)
    ///     .add(Relu)
    ///     .add(MaxPool2d::new(2))
    ///     .add(Flatten::default())
    ///     .add(Linear::new(36, 10, &rng)?);
    /// record_layer_calls(true);
    /// let y = net.forward(&Tensor::randn([2, 1, 8, 8], &rng)?)?;
    /// let graph = Graph::of(&[&y], &net.named_parameters());
    /// record_layer_calls(false);
    /// let titles: Vec<String> = graph.folded().nodes.iter().map(|node| node.title()).collect();
    /// assert_eq!(titles[1..], ["0 = Conv2d", "Relu", "MaxPool2d", "Flatten", "4 = Linear"]);
    /// assert!(graph.nodes.len() > 10);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn folded(&self) -> Graph {
        let (groups, members) = self.groups();
        // The groups that each group reads, and the constants in its line.
        let mut inputs: Vec<Vec<usize>> = vec![Vec::new(); members.len()];
        let mut constants: Vec<Vec<&str>> = vec![Vec::new(); members.len()];
        // The member of each group that another group reads last: its result.
        let mut results: Vec<usize> = members.iter().map(|inside| inside[inside.len() - 1]).collect();
        let mut is_read = vec![false; members.len()];
        for (k, group) in groups.iter().enumerate() {
            let Some(group) = *group else { continue };
            for &input in &self.nodes[k].inputs {
                match groups[input] {
                    None => constants[group].push(&self.nodes[input].op),
                    Some(other) if other == group => {}
                    Some(other) => {
                        if !inputs[group].contains(&other) {
                            inputs[group].push(other);
                        }
                        if !std::mem::replace(&mut is_read[other], true) || results[other] < input {
                            results[other] = input;
                        }
                    }
                }
            }
        }
        let order = after_inputs(&inputs);
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, &group)| places[group] = place);
        let nodes = order.iter().map(|&group| {
            let inside = &members[group];
            let mut node = self.nodes[results[group]].clone();
            node.inputs = inputs[group].iter().map(|&input| places[input]).collect();
            node.is_output = inside.iter().any(|&member| self.nodes[member].is_output);
            match node.call.take().filter(|&call| !self.calls[call].is_outer) {
                Some(call) => {
                    let call = &self.calls[call];
                    node.kind = NodeKind::Operation;
                    node.op.clone_from(&call.kind);
                    // A layer without parameters has no path of its own.
                    let has_parameters = inside.iter().any(|&member| self.nodes[member].name.is_some());
                    node.name = Some(call.layer.clone()).filter(|path| has_parameters && !path.is_empty());
                }
                None if !constants[group].is_empty() => {
                    node.op = format!("{}({})", node.op, constants[group].join(", "));
                }
                None => {}
            }
            node
        });
        Graph { nodes: nodes.collect(), calls: Vec::new() }
    }

    /// The group of each node, none for a constant that is shown with its reader, and the members of each
    /// group: the nodes of one call, or one node.
    fn groups(&self) -> (Vec<Option<usize>>, Vec<Vec<usize>>) {
        let mut of_calls: HashMap<usize, usize> = HashMap::new();
        let mut members: Vec<Vec<usize>> = Vec::new();
        let mut groups = Vec::with_capacity(self.nodes.len());
        for (k, node) in self.nodes.iter().enumerate() {
            let call = node.call.filter(|&call| !self.calls[call].is_outer);
            if call.is_none() && node.kind == NodeKind::Constant && !node.is_output {
                groups.push(None);
                continue;
            }
            let next = members.len();
            let group = call.map_or(next, |call| *of_calls.entry(call).or_insert(next));
            if group == next {
                members.push(Vec::new());
            }
            members[group].push(k);
            groups.push(Some(group));
        }
        (groups, members)
    }
}

/// An order of groups in which each comes after those that it reads: depth first, in a loop.
fn after_inputs(inputs: &[Vec<usize>]) -> Vec<usize> {
    let mut order = Vec::with_capacity(inputs.len());
    let mut is_opened = vec![false; inputs.len()];
    let mut open: Vec<(usize, usize)> = Vec::new();
    for group in 0..inputs.len() {
        if !std::mem::replace(&mut is_opened[group], true) {
            open.push((group, 0));
        }
        while let Some((group, next)) = open.last_mut() {
            let Some(&input) = inputs[*group].get(*next) else {
                order.push(*group);
                open.pop();
                continue;
            };
            *next += 1;
            if !std::mem::replace(&mut is_opened[input], true) {
                open.push((input, 0));
            }
        }
    }
    order
}
