//! The cell behind a Python tensor. Taper's values never change, so a tensor that a program changes is a
//! cell whose value is replaced. A view shares the cell of its base: it keeps the recipe by which it is
//! taken, takes itself anew when the base has changed, and a write to it rebuilds the base.

use std::sync::{Arc, Mutex, MutexGuard};

use taper::{Result, Tensor, autograd::TensorGrad, tensor_core::lock};

use crate::view::{self, Recipe, Strided};

/// A function that sees a gradient, and may give another one in its place.
pub(crate) type Hook = Arc<dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync>;

/// The value that all views of one memory share.
pub(crate) struct Base(Mutex<Content>);

struct Content {
    /// The value; for a leaf that needs a gradient, a parameter of Taper.
    value: Tensor,
    /// How often the value was replaced.
    version: u64,
    /// The name of the gradient function, as PyTorch prints it.
    name: &'static str,
    /// The hooks of a leaf, and what computations use in its place: a result that calls them, for a version
    /// of the value.
    hooks: Vec<Hook>,
    hooked: Option<(Tensor, u64)>,
    /// The cell of this leaf's gradient, once a program has asked for it.
    grad: Option<Arc<Base>>,
    /// Where the gradient of a result goes, after `retain_grad`.
    retained: Option<Arc<Mutex<Option<Tensor>>>>,
    /// The leaf whose gradient this is. `backward` replaces it without asking this cell.
    leaf: Option<Tensor>,
}

impl Content {
    /// Takes over a gradient that `backward` or an optimizer has changed.
    fn follow(&mut self) {
        let Some(leaf) = &self.leaf else { return };
        match leaf.grad() {
            Some(grad) if grad.id() != self.value.id() => {
                self.value = grad;
                self.version += 1;
            }
            Some(_) => {}
            None => self.leaf = None,
        }
    }
}

impl Base {
    pub(crate) fn new(value: Tensor, name: &'static str) -> Arc<Base> {
        let content = Content {
            value,
            version: 0,
            name,
            hooks: Vec::new(),
            hooked: None,
            grad: None,
            retained: None,
            leaf: None,
        };
        Arc::new(Base(Mutex::new(content)))
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        let mut content = lock(&self.0);
        content.follow();
        content
    }

    /// The value with its version. While gradients are recorded, a leaf with hooks is read through them.
    pub(crate) fn read(&self, recorded: bool) -> (Tensor, u64) {
        let mut content = self.content();
        let version = content.version;
        if content.hooks.is_empty() || !recorded || !content.value.is_tracked() {
            return (content.value.clone(), version);
        }
        match &content.hooked {
            Some((hooked, at)) if *at == version => (hooked.clone(), version),
            _ => {
                let hooked = hooked(&content.value, &content.hooks);
                content.hooked = Some((hooked.clone(), version));
                (hooked, version)
            }
        }
    }

    /// The value itself, also of a leaf with hooks.
    pub(crate) fn own(&self) -> Tensor {
        self.content().value.clone()
    }

    pub(crate) fn version(&self) -> u64 {
        self.content().version
    }

    /// Says that the value was replaced by others, such as an optimizer.
    pub(crate) fn touch(&self) {
        self.content().version += 1;
    }

    pub(crate) fn name(&self) -> &'static str {
        self.content().name
    }

    /// Replaces the value. A parameter stays one, and gets the new value.
    pub(crate) fn replace(&self, value: &Tensor, name: &'static str) -> Result<()> {
        self.rebuild(|_| Ok(value.clone()), name)
    }

    /// Replaces the value by one that is built from it. No other write comes in between.
    fn rebuild(&self, build: impl FnOnce(&Tensor) -> Result<Tensor>, name: &'static str) -> Result<()> {
        let mut content = self.content();
        let value = &build(&content.value)?;
        let own = &content.value;
        let keeps = own.is_cell() && own.dtype() == value.dtype() && own.shape() == value.shape();
        if keeps {
            own.assign(value)?;
        } else if own.is_cell() {
            content.value = value.detach().into_cell(own.is_tracked())?;
        } else {
            content.value = value.clone();
            content.name = name;
        }
        if let Some(leaf) = &content.leaf {
            leaf.set_grad(Some(content.value.clone()));
        }
        content.version += 1;
        Ok(())
    }

    /// Makes the value a leaf that needs a gradient, or no longer one.
    pub(crate) fn require_grad(&self, required: bool) -> Result<()> {
        let mut content = self.content();
        if content.value.is_cell() {
            content.value.set_requires_grad(required)?;
        } else if required {
            content.value = content.value.clone().into_cell(true)?;
        }
        content.version += 1;
        Ok(())
    }

    /// The value as a cell of Taper, for an optimizer or a layer that replaces it.
    pub(crate) fn as_cell(&self) -> Result<Tensor> {
        let mut content = self.content();
        if !content.value.is_cell() {
            content.value = content.value.clone().into_cell(false)?;
        }
        Ok(content.value.clone())
    }

    /// Adds a hook, which is called with the gradient of this value.
    pub(crate) fn hook(&self, hook: Hook) {
        let mut content = self.content();
        if content.value.is_cell() {
            content.hooks.push(hook);
            content.hooked = None;
        } else {
            content.value = hooked(&content.value, &[hook]);
        }
        content.version += 1;
    }

    /// The cell of the gradient, if there is a gradient.
    pub(crate) fn grad(&self) -> Option<Arc<Base>> {
        let mut content = self.content();
        if let Some(retained) = &content.retained {
            return lock(retained).clone().map(|grad| Base::new(grad, ""));
        }
        let Some(value) = content.value.grad() else {
            content.grad = None;
            return None;
        };
        if let Some(grad) = &content.grad
            && lock(&grad.0).leaf.is_some()
        {
            return Some(grad.clone());
        }
        let grad = Base::new(value, "");
        lock(&grad.0).leaf = Some(content.value.clone());
        content.grad = Some(grad.clone());
        Some(grad)
    }

    /// The slot for the gradient of a result, which a hook fills.
    pub(crate) fn retain(&self) -> Arc<Mutex<Option<Tensor>>> {
        self.content().retained.get_or_insert_default().clone()
    }

    /// Replaces the gradient by the value of a cell, which is the gradient from then on.
    pub(crate) fn set_grad(&self, grad: Option<Arc<Base>>) {
        let mut content = self.content();
        if let Some(old) = content.grad.take() {
            let mut old = lock(&old.0);
            old.follow();
            old.leaf = None;
        }
        match &grad {
            Some(grad) => {
                let mut new = lock(&grad.0);
                content.value.set_grad(Some(new.value.clone()));
                new.leaf = Some(content.value.clone());
            }
            None => content.value.set_grad(None),
        }
        content.grad = grad;
    }
}

/// A result with the same values, which calls hooks with its gradient.
fn hooked(value: &Tensor, hooks: &[Hook]) -> Tensor {
    taper::enable_grad(|| {
        hooks.iter().fold(value.clone(), |value, hook| {
            let hook = hook.clone();
            // Only a value that is not recorded refuses a hook, and it gets no gradient.
            value.register_hook(move |gradient| hook(gradient)).unwrap_or(value)
        })
    })
}

/// A view of a base.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) recipes: Vec<Recipe>,
    pub(crate) strided: Strided,
    /// The name of the gradient function.
    pub(crate) name: &'static str,
    /// Whether gradients were recorded when the view was taken.
    recorded: bool,
    /// The value as it was last taken, and the version of the base then.
    taken: Option<(Tensor, u64)>,
}

/// A base, or a view of one.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) base: Arc<Base>,
    pub(crate) view: Option<Box<View>>,
}

impl Place {
    pub(crate) fn new(value: Tensor, name: &'static str) -> Place {
        Place { base: Base::new(value, name), view: None }
    }

    /// The present value.
    pub(crate) fn read(&mut self, recorded: bool) -> Result<Tensor> {
        let (value, version) = self.base.read(recorded || self.view.is_some());
        let Some(view) = &mut self.view else { return Ok(value) };
        if let Some((taken, at)) = &view.taken
            && *at == version
        {
            return Ok(taken.clone());
        }
        let recorded = view.recorded;
        let taken = taper::autograd::set_grad_enabled(recorded, || view::take(&view.recipes, &value))?;
        view.taken = Some((taken.clone(), version));
        Ok(taken)
    }

    /// Whether a write would change a leaf that needs a gradient without a record of it.
    pub(crate) fn is_of_leaf(&self) -> bool {
        let own = self.base.own();
        own.is_cell() && own.is_tracked() && !self.is_detached()
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.recipes.iter().any(Recipe::is_detach))
    }

    /// Replaces the value, and that of the base with it.
    pub(crate) fn write(&self, value: &Tensor, name: &'static str) -> Result<()> {
        let Some(view) = &self.view else { return self.base.replace(value, name) };
        let without_history = |own: &Tensor| own.is_cell() || self.is_detached();
        let build = |own: &Tensor| {
            let own = if without_history(own) { own.detach() } else { own.clone() };
            view::put(&view.recipes, &own, value)
        };
        self.base.rebuild(build, name)
    }

    /// A view of this one by one more recipe.
    pub(crate) fn viewed(&mut self, recipe: Recipe, name: &'static str, recorded: bool) -> Result<Place> {
        let value = self.read(recorded)?;
        let version = self.base.version();
        let taken = taper::autograd::set_grad_enabled(recorded, || recipe.take(&value))?;
        let strided = self.strided(value.dims()).after(&recipe, value.dims(), taken.dims());
        let mut recipes = self.view.as_ref().map_or(Vec::new(), |view| view.recipes.clone());
        recipes.push(recipe);
        let recorded = recorded && self.view.as_ref().is_none_or(|view| view.recorded);
        let view = View { recipes, strided, name, recorded, taken: Some((taken, version)) };
        Ok(Place { base: self.base.clone(), view: Some(Box::new(view)) })
    }

    /// Adds a hook, which is called with the gradient of this value.
    pub(crate) fn hook(&mut self, hook: Hook) -> Result<()> {
        let value = self.read(true)?;
        let version = self.base.version();
        match &mut self.view {
            Some(view) => view.taken = Some((hooked(&value, &[hook]), version)),
            None => self.base.hook(hook),
        }
        Ok(())
    }

    pub(crate) fn strided(&self, dims: &[usize]) -> Strided {
        self.view.as_ref().map_or_else(|| Strided::contiguous(dims), |view| view.strided.clone())
    }

    pub(crate) fn name(&self) -> &'static str {
        self.view.as_ref().map_or_else(|| self.base.name(), |view| view.name)
    }
}
