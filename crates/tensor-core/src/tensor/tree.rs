//! [`TensorTree`]: values that are made of tensors, such as the batches of a loader, and the arguments and
//! results of compiled functions.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, Hash},
};

use crate::{
    base::error::{Error, Result},
    tensor::Tensor,
};

/// Values made of tensors: tuples, arrays, `Vec`, `Option` and maps of them, and your own types by
/// `#[derive(ToDevice)]`. Numbers and strings among them are cloned.
///
/// ```
/// use tensor_core::{Tensor, TensorTree};
/// # fn f(x: Tensor, y: Tensor) -> tensor_core::Result<()> {
/// let batch = (x, vec![y], 0.5);
/// let halves = batch.map_tensors(&mut |tensor| tensor.to_dtype(tensor_core::DType::F16))?;
/// assert_eq!((halves.1[0].dtype(), halves.2), (tensor_core::DType::F16, 0.5));
/// # Ok(()) }
/// ```
pub trait TensorTree: Sized {
    /// A value of the same form, with the results of `f` in place of its tensors, which are visited in an
    /// order that depends on the form alone.
    ///
    /// # Errors
    /// The first error of `f`.
    fn map_tensors(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Self>;

    /// The tensors, in the order in which they are visited.
    ///
    /// # Errors
    /// None of the trees here has any; one of your own may.
    fn tensors(&self) -> Result<Vec<Tensor>> {
        let mut tensors = Vec::new();
        self.map_tensors(&mut |tensor| {
            tensors.push(tensor.clone());
            Ok(tensor.clone())
        })?;
        Ok(tensors)
    }
}

impl TensorTree for Tensor {
    fn map_tensors(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        f(self)
    }
}

impl<T: TensorTree> TensorTree for Option<T> {
    fn map_tensors(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Option<T>> {
        self.as_ref().map(|inner| inner.map_tensors(f)).transpose()
    }
}

impl<T: TensorTree> TensorTree for Box<T> {
    fn map_tensors(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Box<T>> {
        (**self).map_tensors(f).map(Box::new)
    }
}

impl<T: TensorTree> TensorTree for Vec<T> {
    fn map_tensors(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Vec<T>> {
        self.iter().map(|inner| inner.map_tensors(f)).collect()
    }
}

impl<T: TensorTree, const N: usize> TensorTree for [T; N] {
    fn map_tensors(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<[T; N]> {
        let mapped = self.iter().map(|inner| inner.map_tensors(f)).collect::<Result<Vec<T>>>()?;
        mapped.try_into().map_err(|_| Error::invalid("map_tensors", "an array lost an element on its way"))
    }
}

impl<K: Clone + Eq + Hash, V: TensorTree, S: BuildHasher + Default> TensorTree for HashMap<K, V, S> {
    fn map_tensors(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<HashMap<K, V, S>> {
        self.iter().map(|(key, inner)| Ok((key.clone(), inner.map_tensors(f)?))).collect()
    }
}

impl<K: Clone + Ord, V: TensorTree> TensorTree for BTreeMap<K, V> {
    fn map_tensors(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<BTreeMap<K, V>> {
        self.iter().map(|(key, inner)| Ok((key.clone(), inner.map_tensors(f)?))).collect()
    }
}

macro_rules! cloned {
    ($($t:ty),*) => {$(
        impl TensorTree for $t {
                    fn map_tensors(&self, _: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<$t> { Ok(self.clone()) }
        }
    )*};
}
cloned!(bool, u8, u32, u64, usize, i32, i64, f32, f64, String, ());

macro_rules! tuple {
    ($($T:ident $i:tt),*) => {
        impl<$($T: TensorTree),*> TensorTree for ($($T,)*) {
                    fn map_tensors(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<($($T,)*)> { Ok(($(self.$i.map_tensors(f)?,)*)) }
        }
    };
}
tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
