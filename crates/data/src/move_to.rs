//! Moves values that contain tensors to a device: `let (images, labels) = batch?.to(&device)?`.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, Hash},
};

use tensor_core::{Device, Error, Result, Tensor};

/// Values made of tensors that can move to a device: tuples, arrays, `Vec`, `Option` and maps of them, and
/// your own types by `#[derive(ToDevice)]`. Numbers and strings among them are copied.
///
/// The result is a copy, and the original stays on its device, whatever fails. (A model moves in place, by
/// `nn::Module::to`.)
///
/// ```
/// use data::ToDevice;
/// use tensor_core::Tensor;
///
/// #[derive(ToDevice)]
/// struct Batch {
///     images: Tensor,
///     boxes: Vec<(Tensor, f64)>,
///     #[to_device(skip)]
///     origin: std::path::PathBuf,
/// }
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let images = Tensor::ones([2, 3], &device)?;
/// let batch = Batch { boxes: vec![(images.clone(), 0.5)], images, origin: "a/b".into() };
/// let moved = batch.to(&device)?;
/// assert_eq!((moved.boxes[0].1, moved.origin), (0.5, batch.origin));
/// # Ok(()) }
/// ```
pub trait ToDevice: Sized {
    /// A copy on `device`. A tensor that is there already is not copied.
    ///
    /// # Errors
    /// The first failure to compute, copy or allocate a tensor.
    #[track_caller]
    fn to(&self, device: &Device) -> Result<Self>;
}

impl ToDevice for Tensor {
    #[track_caller]
    fn to(&self, device: &Device) -> Result<Tensor> {
        Tensor::to(self, device)
    }
}

impl<T: ToDevice> ToDevice for Option<T> {
    #[track_caller]
    fn to(&self, device: &Device) -> Result<Option<T>> {
        self.as_ref().map(|inner| inner.to(device)).transpose()
    }
}

impl<T: ToDevice> ToDevice for Box<T> {
    #[track_caller]
    fn to(&self, device: &Device) -> Result<Box<T>> {
        (**self).to(device).map(Box::new)
    }
}

impl<T: ToDevice> ToDevice for Vec<T> {
    #[track_caller]
    fn to(&self, device: &Device) -> Result<Vec<T>> {
        self.iter().map(|inner| inner.to(device)).collect()
    }
}

impl<T: ToDevice, const N: usize> ToDevice for [T; N] {
    #[track_caller]
    fn to(&self, device: &Device) -> Result<[T; N]> {
        let moved = self.iter().map(|inner| inner.to(device)).collect::<Result<Vec<T>>>()?;
        moved.try_into().map_err(|_| Error::invalid("to", "an array lost an element on its way"))
    }
}

impl<K: Clone + Eq + Hash, V: ToDevice, S: BuildHasher + Default> ToDevice for HashMap<K, V, S> {
    #[track_caller]
    fn to(&self, device: &Device) -> Result<HashMap<K, V, S>> {
        self.iter().map(|(key, inner)| Ok((key.clone(), inner.to(device)?))).collect()
    }
}

impl<K: Clone + Ord, V: ToDevice> ToDevice for BTreeMap<K, V> {
    #[track_caller]
    fn to(&self, device: &Device) -> Result<BTreeMap<K, V>> {
        self.iter().map(|(key, inner)| Ok((key.clone(), inner.to(device)?))).collect()
    }
}

macro_rules! stays {
    ($($t:ty),*) => {$(
        impl ToDevice for $t {
            #[track_caller]
            fn to(&self, _: &Device) -> Result<$t> { Ok(self.clone()) }
        }
    )*};
}
stays!(bool, u8, u32, u64, usize, i32, i64, f32, f64, String, ());

macro_rules! tuple {
    ($($T:ident $i:tt),*) => {
        impl<$($T: ToDevice),*> ToDevice for ($($T,)*) {
            #[track_caller]
            fn to(&self, device: &Device) -> Result<($($T,)*)> { Ok(($(self.$i.to(device)?,)*)) }
        }
    };
}
tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
