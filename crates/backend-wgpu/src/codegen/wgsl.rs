//! A writer of WGSL: statements in nested blocks, functions, entry points. The caller writes statements as
//! text; the writer handles indentation and closing braces.

use std::fmt::Display;

/// WGSL under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Code {
    text: String,
    depth: usize,
}

impl Code {
    /// One line: a statement with its semicolon, or a declaration.
    pub(crate) fn line(&mut self, line: impl Display) {
        for _ in 0..self.depth {
            self.text.push_str("    ");
        }
        self.text.push_str(&line.to_string());
        self.text.push('\n');
    }

    /// `let name = value;`
    pub(crate) fn bind(&mut self, name: impl Display, value: impl Display) {
        self.line(format_args!("let {name} = {value};"));
    }

    /// `var name = value;`
    pub(crate) fn var(&mut self, name: impl Display, value: impl Display) {
        self.line(format_args!("var {name} = {value};"));
    }

    /// `target = value;`
    pub(crate) fn set(&mut self, target: impl Display, value: impl Display) {
        self.line(format_args!("{target} = {value};"));
    }

    /// `head { body }`
    pub(crate) fn block(&mut self, head: impl Display, body: impl FnOnce(&mut Code)) {
        self.line(format_args!("{head} {{"));
        self.depth += 1;
        body(self);
        self.depth -= 1;
        self.line("}");
    }

    /// `if (condition) { body }`
    pub(crate) fn when(&mut self, condition: impl Display, body: impl FnOnce(&mut Code)) {
        self.block(format_args!("if ({condition})"), body);
    }

    /// Returns from the function if `condition` holds.
    pub(crate) fn return_if(&mut self, condition: impl Display) {
        self.when(condition, |c| c.line("return;"));
    }

    /// `for (var name = start; name < end; name += step) { body }`
    pub(crate) fn count(&mut self, name: &str, [start, end, step]: [&str; 3], body: impl FnOnce(&mut Code)) {
        self.block(format_args!("for (var {name} = {start}; {name} < {end}; {name} += {step})"), body);
    }

    /// `fn name(parameters) -> returns { body }`
    pub(crate) fn function(
        &mut self,
        name: &str,
        parameters: &[(&str, &str)],
        returns: &str,
        body: impl FnOnce(&mut Code),
    ) {
        let list: Vec<String> = parameters.iter().map(|(name, ty)| format!("{name}: {ty}")).collect();
        let arrow = if returns.is_empty() { String::new() } else { format!(" -> {returns}") };
        self.block(format_args!("fn {name}({}){arrow}", list.join(", ")), body);
    }

    /// A function whose body is one expression.
    pub(crate) fn expression(
        &mut self,
        name: &str,
        parameters: &[(&str, &str)],
        returns: &str,
        value: impl Display,
    ) {
        self.function(name, parameters, returns, |c| c.line(format_args!("return {value};")));
    }

    /// The entry point, with workgroups of `invocations` invocations. It defines `workgroup_index`, counted
    /// over all dispatches of the kernel, and `local_index`, the invocation's index in its workgroup.
    pub(crate) fn entry(&mut self, invocations: usize, body: impl FnOnce(&mut Code)) {
        self.entry_with(invocations, &[], body);
    }

    /// An entry point with more built-in values, by their names in WGSL.
    pub(crate) fn entry_with(&mut self, invocations: usize, more: &[&str], body: impl FnOnce(&mut Code)) {
        let more: String = more.iter().map(|name| format!(", @builtin({name}) {name}: u32")).collect();
        self.line(format_args!("\n@compute @workgroup_size({invocations})"));
        self.block(
            format_args!(
                "fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(num_workgroups) workgroup_count: vec3<u32>, \
                 @builtin(local_invocation_index) local_index: u32{more})"
            ),
            |c| {
                c.bind("workgroup_index", "params.first_workgroup + workgroup_id.y * workgroup_count.x + workgroup_id.x");
                body(c);
            },
        );
    }

    /// A kernel of `taper_shaders`, with its entry point.
    pub(crate) fn kernel(&mut self, invocations: usize, text: &str) {
        self.append(text);
        self.entry(invocations, |c| c.line("kernel(workgroup_index, local_index);"));
    }

    /// Appends existing text.
    pub(crate) fn append(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// The text so far.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}
