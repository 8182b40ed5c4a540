//! Combines single items into a batch: tensors are stacked, numbers become a 1-D tensor, lists of these one
//! with an axis more, and tuples are combined part by part.

use std::collections::BTreeMap;

use tensor_core::{Device, Element, Error, Result, Tensor, set_grad_enabled};

/// Items that can be combined into a batch. `torch.utils.data.default_collate`.
pub trait Collate: Send + Sized {
    /// The type of a batch of items.
    type Batch: Send;

    /// The device of an item's tensors, if it has any.
    fn device(&self) -> Option<Device> {
        None
    }

    /// One batch of the items, on `device`, or else on the device of the items.
    ///
    /// # Errors
    /// No items, tensors of several shapes, or numbers without a device.
    #[track_caller]
    fn collate(items: Vec<Self>, device: Option<&Device>) -> Result<Self::Batch>;
}

fn nothing() -> Error {
    Error::invalid("collate", "no items are given; a batch has at least one")
}

impl Collate for Tensor {
    type Batch = Tensor;

    fn device(&self) -> Option<Device> {
        Some(Tensor::device(self))
    }

    /// Stacks `[…]` of each item to `[N, …]`, computed immediately, on the thread that prepares the batch.
    #[track_caller]
    fn collate(items: Vec<Tensor>, device: Option<&Device>) -> Result<Tensor> {
        set_grad_enabled(false, || {
            let stacked = Tensor::stack(&items.iter().collect::<Vec<_>>(), 0)?;
            stacked.eval()?;
            device.map_or(Ok(stacked.clone()), |device| stacked.to(device))
        })
    }
}

/// The given device, or else that of the first item.
fn device_of<T: Collate>(items: &[T], device: Option<&Device>) -> Option<Device> {
    device.cloned().or_else(|| items.first().and_then(T::device))
}

#[track_caller]
fn numbers<T: Element>(items: &[T], device: Option<&Device>) -> Result<Tensor> {
    let Some(device) = device else {
        return Err(Error::invalid(
            "collate",
            "a batch of numbers has no device to go to; name one with DataLoader::device",
        ));
    };
    Tensor::from_slice(items, [items.len()], device)
}

macro_rules! number {
    ($($t:ty),*) => {$(
        impl Collate for $t {
            type Batch = Tensor;
            #[track_caller]
            fn collate(items: Vec<$t>, device: Option<&Device>) -> Result<Tensor> { numbers(&items, device) }
        }
    )*};
}
number!(f32, f64, i32, i64, u32, u8, bool);

/// Class indices become i32, as all labels.
impl Collate for usize {
    type Batch = Tensor;
    #[track_caller]
    fn collate(items: Vec<usize>, device: Option<&Device>) -> Result<Tensor> {
        let narrow = |item: usize| {
            i32::try_from(item).map_err(|_| Error::invalid("collate", format!("{item} does not fit an i32")))
        };
        numbers(&items.into_iter().map(narrow).collect::<Result<Vec<_>>>()?, device)
    }
}

/// Lists of one length, each a row of the batch: `[N]` numbers each become `[items, N]`.
///
/// ```
/// use data::{DataLoader, ItemDataset};
/// # fn main() -> tensor_core::Result<()> {
/// let rows = ItemDataset(vec![(vec![1.0f32, 2.0], [3i64, 4, 5]), (vec![6.0, 7.0], [8, 9, 10])]);
/// let loader = DataLoader::new(rows, 2)?.device(&backend_cpu::cpu());
/// let (x, y) = loader.iter().next().unwrap()?;
/// assert_eq!((x.dims(), y.dims()), ([2, 2].as_slice(), [2, 3].as_slice()));
/// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0, 6.0, 7.0]);
/// # Ok(()) }
/// ```
impl<T: Collate<Batch = Tensor>> Collate for Vec<T> {
    type Batch = Tensor;

    fn device(&self) -> Option<Device> {
        self.iter().find_map(T::device)
    }

    #[track_caller]
    fn collate(items: Vec<Vec<T>>, device: Option<&Device>) -> Result<Tensor> {
        let device = device_of(&items, device);
        let (count, length) = (items.len(), items.first().ok_or_else(nothing)?.len());
        if let Some(other) = items.iter().find(|item| item.len() != length) {
            let message = format!(
                "lists of {length} and of {} in one batch: make them equally long, or pad them in Dataset::map",
                other.len()
            );
            return Err(Error::invalid("collate", message));
        }
        let flat = T::collate(items.into_iter().flatten().collect(), device.as_ref())?;
        let shape: Vec<usize> = [count, length].into_iter().chain(flat.dims()[1..].iter().copied()).collect();
        set_grad_enabled(false, || {
            let batch = flat.reshape(shape)?;
            batch.eval()?;
            Ok(batch)
        })
    }
}

/// As for `Vec`s, which are of one length here.
impl<T: Collate<Batch = Tensor>, const LENGTH: usize> Collate for [T; LENGTH] {
    type Batch = Tensor;

    fn device(&self) -> Option<Device> {
        self.iter().find_map(T::device)
    }

    #[track_caller]
    fn collate(items: Vec<[T; LENGTH]>, device: Option<&Device>) -> Result<Tensor> {
        Vec::collate(items.into_iter().map(Vec::from).collect(), device)
    }
}

/// Strings are collected, not converted.
impl Collate for String {
    type Batch = Vec<String>;
    #[track_caller]
    fn collate(items: Vec<String>, _: Option<&Device>) -> Result<Vec<String>> {
        Ok(items)
    }
}

/// Maps with the same keys are combined into one map.
impl<K: Clone + Ord + Send, V: Collate> Collate for BTreeMap<K, V> {
    type Batch = BTreeMap<K, V::Batch>;

    fn device(&self) -> Option<Device> {
        self.values().find_map(V::device)
    }

    #[track_caller]
    fn collate(items: Vec<Self>, device: Option<&Device>) -> Result<Self::Batch> {
        let device = device_of(&items, device);
        let keys: Vec<K> = items.first().ok_or_else(nothing)?.keys().cloned().collect();
        let mut columns: Vec<Vec<V>> = keys.iter().map(|_| Vec::with_capacity(items.len())).collect();
        for item in items {
            if !item.keys().eq(&keys) {
                return Err(Error::invalid("collate", "maps in one batch differ in their keys"));
            }
            columns.iter_mut().zip(item.into_values()).for_each(|(column, value)| column.push(value));
        }
        let batches = columns.into_iter().map(|column| V::collate(column, device.as_ref()));
        keys.into_iter().zip(batches).map(|(key, batch)| Ok((key, batch?))).collect()
    }
}

macro_rules! tuple {
    ($($T:ident $i:tt $column:ident),*) => {
        impl<$($T: Collate),*> Collate for ($($T,)*) {
            type Batch = ($($T::Batch,)*);

            fn device(&self) -> Option<Device> {
                None$(.or_else(|| self.$i.device()))*
            }

            #[track_caller]
            fn collate(items: Vec<Self>, device: Option<&Device>) -> Result<Self::Batch> {
                let device = device_of(&items, device);
                $(let mut $column = Vec::with_capacity(items.len());)*
                for item in items {
                    $($column.push(item.$i);)*
                }
                Ok(($($T::collate($column, device.as_ref())?,)*))
            }
        }
    };
}
tuple!(A 0 a);
tuple!(A 0 a, B 1 b);
tuple!(A 0 a, B 1 b, C 2 c);
tuple!(A 0 a, B 1 b, C 2 c, D 3 d);
tuple!(A 0 a, B 1 b, C 2 c, D 3 d, E 4 e);
tuple!(A 0 a, B 1 b, C 2 c, D 3 d, E 4 e, F 5 f);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_want_a_device() {
        let message = i32::collate(vec![1, 2], None).unwrap_err().to_string();
        assert!(message.contains("DataLoader::device"), "{message}");
        assert_eq!(String::collate(vec!["a".into()], None).unwrap(), ["a"]);
        let maps = vec![BTreeMap::from([(1, "a".to_string())]), BTreeMap::from([(2, "b".to_string())])];
        assert!(BTreeMap::collate(maps, None).is_err());
        let device = backend_cpu::cpu();
        let ragged = Vec::collate(vec![vec![1.0f32], vec![2.0, 3.0]], Some(&device)).unwrap_err().to_string();
        assert!(ragged.contains("lists of 1 and of 2"), "{ragged}");
        let tensor = Tensor::ones([3], &device).unwrap();
        let nested = vec![[[tensor.clone(), tensor.clone()]], [[tensor.clone(), tensor]]];
        assert_eq!(<[[Tensor; 2]; 1]>::collate(nested, None).unwrap().dims(), [2, 1, 2, 3]);
        assert_eq!(<[f32; 0]>::collate(vec![[], []], Some(&device)).unwrap().dims(), [2, 0]);
    }
}
