//! [`Editor`]: a graph while it is rewritten, and the search for a pattern in it.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::OnceLock,
};

use tensor_core::Result;

use super::pattern::Pattern;
use crate::{
    compile::Draft,
    context::{Context, Operator},
    graph::{Action, Attribute, Constant, Constants, Input, Node, static_slots},
    value::{HostTensor, Value},
    weights::Weights,
};

/// The domain of the operators that rewrites make.
const DOMAIN: &str = "taper";
/// How far a constant may be from a pattern's number, as a part of it: files have rounded numbers.
const NUMBER_TOLERANCE: f64 = 1e-4;
/// Operators that give the same result in either order of their inputs.
const COMMUTATIVE: &[&str] = &["Add", "Mul"];

/// A graph that is being rewritten.
pub(crate) struct Editor<'e, 'a> {
    /// A removed step is `None`.
    pub(super) steps: Vec<Option<Node>>,
    pub(super) weights: &'e mut Weights<'a>,
    /// By slot: the step that makes the value.
    makers: Vec<Option<usize>>,
    /// By slot: how many times it is read, graph outputs and inner graphs included.
    uses: Vec<usize>,
    /// By slot: whether the value depends on the file alone.
    statics: Vec<bool>,
    constants: HashMap<usize, Constant>,
    /// Values of inputs, which a run may replace.
    defaults: Constants,
}

/// A place where a pattern was found.
#[derive(Clone, Default)]
pub(super) struct Found {
    /// The slots that the pattern's names stand for.
    values: HashMap<&'static str, Option<usize>>,
    /// The steps, the last one first.
    steps: Vec<usize>,
    named: HashMap<&'static str, usize>,
    numbers: HashMap<&'static str, f64>,
    /// Slots of constants whose numbers are now part of the new step.
    absorbed: Vec<usize>,
    /// The greatest rank of these constants, to which a result is at least broadcast.
    pub(super) rank: usize,
}

impl Found {
    /// The slot of a name.
    pub(super) fn value(&self, name: &str) -> Option<usize> {
        self.values.get(name).copied().flatten()
    }

    /// The number of a name, if that part of the pattern is there.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.numbers.get(name).copied()
    }
}

/// A new step for the place of the found ones.
pub(super) struct Step {
    pub(super) op_type: &'static str,
    pub(super) inputs: Vec<Option<usize>>,
    pub(super) attributes: HashMap<String, Attribute>,
    pub(super) function: fn(&Context<'_>) -> Result<Vec<Value>>,
}

impl<'e, 'a> Editor<'e, 'a> {
    pub(super) fn new(
        Draft { inputs, outputs, steps, constants, slots }: Draft<'_>,
        weights: &'e mut Weights<'a>,
    ) -> Editor<'e, 'a> {
        let (mut makers, mut uses) = (vec![None; slots], vec![0; slots]);
        for (index, step) in steps.iter().enumerate() {
            step.outputs.iter().flatten().for_each(|&slot| makers[slot] = Some(index));
            step.reads().for_each(|slot| uses[slot] += 1);
        }
        outputs.iter().for_each(|output| uses[output.slot] += 1);
        let replaceable: HashSet<usize> = inputs.iter().map(|input: &Input| input.slot).collect();
        let statics = static_slots(inputs, &steps, &constants, slots);
        let (defaults, constants): (Constants, HashMap<usize, Constant>) = {
            let (defaults, fixed): (Constants, Constants) =
                constants.into_iter().partition(|(slot, _)| replaceable.contains(slot));
            (defaults, fixed.into_iter().collect())
        };
        let steps = steps.into_iter().map(Some).collect();
        Editor { steps, weights, makers, uses, statics, constants, defaults }
    }

    /// The steps, the constants that they read, and the number of slots.
    pub(super) fn finish(self) -> (Vec<Node>, Constants, usize) {
        let mut constants = self.defaults;
        constants.extend(self.constants.into_iter().filter(|(slot, _)| self.uses[*slot] > 0));
        constants.sort_by_key(|(slot, _)| *slot);
        (self.steps.into_iter().flatten().collect(), constants, self.uses.len())
    }

    /// The steps' places whose operator is ONNX's own and in a list.
    pub(super) fn steps_of(&self, op_types: &[&str]) -> Vec<usize> {
        let fits = |step: &Option<Node>| step.as_ref().is_some_and(|step| own(step, op_types));
        (0..self.steps.len()).filter(|&at| fits(&self.steps[at])).collect()
    }

    /// A node that the pattern names.
    pub(super) fn node(&self, found: &Found, name: &str) -> Option<&Node> {
        self.steps[*found.named.get(name)?].as_ref()
    }

    /// The constant in a slot.
    pub(super) fn constant(&self, slot: usize) -> Option<&Constant> {
        self.constants.get(&slot)
    }

    /// The shape of a constant.
    pub(super) fn shape(&self, slot: usize) -> Option<&[usize]> {
        match self.constants.get(&slot)? {
            Constant::Host(host) => Some(host.dims()),
            Constant::Weight(index) => Some(self.weights.shape(*index)),
        }
    }

    /// The elements of a constant.
    pub(super) fn host(&self, slot: usize) -> Option<HostTensor> {
        match self.constants.get(&slot)? {
            Constant::Host(host) => Some((**host).clone()),
            Constant::Weight(index) => self.weights.to_host(*index).ok(),
        }
    }

    /// Whether a value depends on the file alone.
    pub(super) fn is_static(&self, slot: usize) -> bool {
        self.statics[slot]
    }

    /// The slot of a found pattern's result.
    pub(super) fn result(&self, found: &Found) -> Option<usize> {
        let root = self.steps[*found.steps.first()?].as_ref()?;
        root.outputs.first().copied().flatten()
    }

    /// A slot for a new value.
    pub(super) fn new_slot(&mut self) -> usize {
        self.makers.push(None);
        self.uses.push(0);
        self.statics.push(false);
        self.uses.len() - 1
    }

    /// The operators and input positions that read a value; `None` if an output or an inner graph does.
    pub(super) fn readers(&self, slot: usize) -> Option<Vec<(&Node, usize)>> {
        let mut readers = Vec::new();
        for step in self.steps.iter().flatten() {
            let at = step.inputs.iter().enumerate().filter(|(_, input)| **input == Some(slot));
            readers.extend(at.map(|(at, _)| (step, at)));
        }
        (readers.len() == self.uses[slot]).then_some(readers)
    }

    /// Puts new steps in the place of found ones: the last one gives the results that the found root gave,
    /// the ones before it give new values.
    pub(super) fn replace(&mut self, found: &Found, steps: Vec<(Step, Vec<usize>)>) {
        let root = self.remove(found);
        let Some(root) = root else { return };
        let last = steps.len().saturating_sub(1);
        for (at, (step, outputs)) in steps.into_iter().enumerate() {
            let made_last = at == last;
            let mut attributes = step.attributes;
            if made_last && found.rank > 0 {
                attributes.insert(super::RANK.into(), Attribute::Int(found.rank as i64));
            }
            let node = Node {
                name: root.name.clone(),
                op_type: step.op_type.into(),
                domain: DOMAIN.into(),
                version: 1,
                input_names: vec![String::new(); step.inputs.len()],
                inputs: step.inputs,
                outputs: if made_last {
                    root.outputs.clone()
                } else {
                    outputs.into_iter().map(Some).collect()
                },
                output_names: root.output_names.clone(),
                attributes,
                action: Action::Operator(Operator::new(step.function), None),
                parsed: OnceLock::new(),
                frees: Vec::new(),
            };
            node.reads().for_each(|slot| self.uses[slot] += 1);
            let is_static = node.inputs.iter().flatten().all(|&slot| self.statics[slot]);
            // The last one keeps its place in the order.
            let place = if made_last { found.steps[0] } else { self.steps.len() };
            for &slot in node.outputs.iter().flatten() {
                (self.makers[slot], self.statics[slot]) = (Some(place), is_static);
            }
            match made_last {
                true => self.steps[place] = Some(node),
                false => self.steps.push(Some(node)),
            }
        }
    }

    /// Puts a constant in the place of a found value.
    pub(super) fn replace_by_weight(&mut self, found: &Found, weight: usize) -> Option<usize> {
        let slot = self.remove(found)?.outputs.first().copied().flatten()?;
        (self.makers[slot], self.statics[slot]) = (None, true);
        self.constants.insert(slot, Constant::Weight(weight));
        Some(slot)
    }

    /// Removes the found steps, and weights that only they read; gives the root.
    fn remove(&mut self, found: &Found) -> Option<Node> {
        let mut root = None;
        for (at, &index) in found.steps.iter().enumerate() {
            let Some(step) = self.steps[index].take() else { continue };
            step.reads().for_each(|slot| self.uses[slot] -= 1);
            if at == 0 {
                root = Some(step);
            }
        }
        for &slot in &found.absorbed {
            self.drop_if_unused(slot);
        }
        root
    }

    /// Drops the weight in a slot that no step reads.
    pub(super) fn drop_if_unused(&mut self, slot: usize) {
        if let (0, Some(&Constant::Weight(index))) = (self.uses[slot], self.constants.get(&slot)) {
            self.weights.drop_unused(index);
        }
    }

    /// The pattern with the step at `root` as its last one. No value between the steps may be read from
    /// anywhere else, or be an output.
    pub(super) fn find(&self, pattern: &Pattern, root: usize) -> Option<Found> {
        let slot = self.steps[root].as_ref()?.outputs.first().copied().flatten()?;
        let found = self.solve(vec![(pattern, Some(slot))], Found::default())?;
        self.is_closed(&found).then_some(found)
    }

    fn is_closed(&self, found: &Found) -> bool {
        let steps: BTreeSet<usize> = found.steps.iter().copied().collect();
        let all = |index: &usize| self.steps[*index].as_ref();
        let mut within: HashMap<usize, usize> = HashMap::new();
        steps
            .iter()
            .filter_map(all)
            .flat_map(Node::reads)
            .for_each(|slot| *within.entry(slot).or_default() += 1);
        let inner = steps.iter().filter(|index| Some(*index) != found.steps.first()).filter_map(all);
        inner
            .flat_map(|step| step.outputs.iter().flatten())
            .all(|slot| within.get(slot).copied().unwrap_or(0) == self.uses[*slot])
    }

    /// Matches all goals: patterns, each with the slot where it must be found.
    fn solve(&self, mut goals: Vec<(&Pattern, Option<usize>)>, mut found: Found) -> Option<Found> {
        let Some((pattern, slot)) = goals.pop() else { return Some(found) };
        match pattern {
            Pattern::Either(list) => list.iter().find_map(|pattern| {
                let mut goals = goals.clone();
                goals.push((pattern, slot));
                self.solve(goals, found.clone())
            }),
            Pattern::Value(name) => {
                let slot = slot?;
                let same = *found.values.entry(name).or_insert(Some(slot)) == Some(slot);
                if same { self.solve(goals, found) } else { None }
            }
            Pattern::Optional(name) => {
                found.values.insert(name, slot);
                self.solve(goals, found)
            }
            Pattern::Number(wanted) => {
                let (number, rank) = self.number(slot?)?;
                if (number - wanted).abs() > NUMBER_TOLERANCE * wanted.abs() {
                    return None;
                }
                found.absorb(slot?, rank);
                self.solve(goals, found)
            }
            Pattern::AnyNumber(name) => {
                let (number, rank) = self.number(slot?)?;
                found.numbers.insert(name, number);
                found.absorb(slot?, rank);
                self.solve(goals, found)
            }
            Pattern::Node { name, op_type, inputs } => {
                let index = self.makers[slot?]?;
                let step = self.steps[index].as_ref()?;
                // A later result of a node is a different value.
                if !own(step, &[op_type]) || step.outputs.first() != Some(&slot) || !fits(step, inputs) {
                    return None;
                }
                if let Some(name) = name {
                    found.named.insert(name, index);
                    if *found.values.entry(name).or_insert(slot) != slot {
                        return None;
                    }
                }
                if !found.steps.contains(&index) {
                    found.steps.push(index);
                }
                let orders: &[[usize; 2]] =
                    if COMMUTATIVE.contains(op_type) { &[[0, 1], [1, 0]] } else { &[[0, 1]] };
                orders.iter().find_map(|order| {
                    let mut goals = goals.clone();
                    // The first input is matched first.
                    for (at, input) in inputs.iter().enumerate().rev() {
                        let from = order.get(at).copied().unwrap_or(at);
                        goals.push((input, step.inputs.get(from).copied().flatten()));
                    }
                    self.solve(goals, found.clone())
                })
            }
        }
    }

    /// The number and the rank of a constant of one element.
    fn number(&self, slot: usize) -> Option<(f64, usize)> {
        let count: usize = self.shape(slot)?.iter().product();
        let host = if count == 1 { self.host(slot)? } else { return None };
        Some((host.to_f64s().ok()?.first().copied()?, host.dims().len()))
    }
}

impl Found {
    fn absorb(&mut self, slot: usize, rank: usize) {
        self.absorbed.push(slot);
        self.rank = self.rank.max(rank);
    }
}

/// The attributes of a step.
pub(super) fn attributes<const N: usize>(list: [(&str, Attribute); N]) -> HashMap<String, Attribute> {
    list.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}

/// Whether a step is one of these operators of ONNX's own, in the implementation of this crate.
fn own(step: &Node, op_types: &[&str]) -> bool {
    step.domain.is_empty() && op_types.contains(&step.op_type.as_str()) && step.is_builtin()
}

/// Whether a step has as many inputs as a pattern.
fn fits(step: &Node, inputs: &[Pattern]) -> bool {
    let optional = inputs.iter().filter(|input| matches!(input, Pattern::Optional(_))).count();
    let given = step.inputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    (inputs.len() - optional..=inputs.len()).contains(&given)
}
