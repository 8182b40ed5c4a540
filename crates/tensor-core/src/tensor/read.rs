//! Looking at values: what makes a lazy tensor be computed.

use super::Tensor;
use crate::{DType, Element, Error, ErrorKind, Result, Scalar, node::Value};

impl Tensor {
    /// The elements in row-major order.
    ///
    /// # Errors
    /// A `T` other than this tensor's dtype (cast first), or whatever the device reports.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.expect_dtype::<T>("to_vec")?;
        Ok(T::from_bytes(&self.read_bytes()?))
    }

    /// The only element.
    ///
    /// # Errors
    /// More or fewer elements than one, or a `T` other than this tensor's dtype.
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T> {
        self.expect_item::<T>("item")?;
        let mut bytes = [0u8; 8];
        let out = &mut bytes[..self.dtype().size()];
        self.download(&self.value()?, out)?;
        only(out, "item")
    }

    #[track_caller]
    fn expect_item<T: Element>(&self, op: &'static str) -> Result<()> {
        if self.numel() != 1 {
            return Err(Error::invalid(
                op,
                format!(
                    "shape {} has {} elements, not one; use to_vec, or select one",
                    self.shape(),
                    self.numel()
                ),
            ));
        }
        self.expect_dtype::<T>(op)
    }

    #[track_caller]
    fn expect_dtype<T: Element>(&self, op: &'static str) -> Result<()> {
        if T::DTYPE == self.dtype() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::DTypeMismatch {
            op,
            lhs: self.dtype(),
            rhs: T::DTYPE,
            hint: format!(
                "read it as {}, or cast first with .to_dtype(DType::{:?})?",
                self.dtype(),
                T::DTYPE
            ),
        }))
    }

    /// The elements' bytes in row-major order, host byte order.
    #[track_caller]
    pub fn read_bytes(&self) -> Result<Vec<u8>> {
        let value = self.contiguous_value()?;
        let mut out = vec![0; self.numel() * self.dtype().size()];
        self.download(&value, &mut out)?;
        Ok(out)
    }

    /// The elements in row-major order, as [`Tensor::to_vec`] gives them, without blocking the thread while the device works.
    ///
    /// The first poll hands all work to the device, and later ones only look whether it is done. A device that computes on
    /// the calling thread, as the CPU does, is done at the first poll; a GPU wakes the task when the elements are there.
    /// Any executor will do.
    ///
    /// # Errors
    /// A `T` other than this tensor's dtype (cast first), or whatever the device reports.
    pub async fn to_vec_async<T: Element>(&self) -> Result<Vec<T>> {
        self.expect_dtype::<T>("to_vec_async")?;
        Ok(T::from_bytes(&self.download_async(self.contiguous_value()?).await?))
    }

    /// The only element, as [`Tensor::item`] gives it, without blocking the thread while the device works: see
    /// [`Tensor::to_vec_async`].
    ///
    /// # Errors
    /// More or fewer elements than one, or a `T` other than this tensor's dtype.
    pub async fn item_async<T: Element>(&self) -> Result<T> {
        self.expect_item::<T>("item_async")?;
        only(&self.download_async(self.value()?).await?, "item_async")
    }

    /// Elements from where the value begins on, once it is certain that they are right.
    fn download(&self, value: &Value, out: &mut [u8]) -> Result<()> {
        value.facts.check()?;
        let device = self.device();
        if !out.is_empty() {
            device.backend().download(&value.storage, value.offset(), out)?;
        }
        // The download decided what was open: nothing is waited for here.
        value.facts.settle(device.backend().as_ref())
    }

    async fn download_async(&self, value: Value) -> Result<Vec<u8>> {
        value.facts.check()?;
        let device = self.device();
        let bytes = device.backend().download_async(&value.storage, value.offset(), self.numel()).await?;
        value.facts.settle(device.backend().as_ref())?;
        Ok(bytes)
    }

    #[track_caller]
    fn contiguous_value(&self) -> Result<Value> {
        let value = self.value()?;
        if value.is_contiguous() { Ok(value) } else { self.detach().contiguous_copy().value() }
    }

    /// A fresh row-major copy of the elements.
    #[track_caller]
    fn contiguous_copy(&self) -> Tensor {
        // Padding by nothing is the plainest copy there is.
        let none: smallvec::SmallVec<[usize; 5]> = smallvec::SmallVec::from_elem(0, self.rank());
        self.pad_unchecked(none.clone(), none, self.shape().clone(), Scalar::Int(0))
    }

    /// This tensor's value in row-major order in memory: a copy where it is a strided view, else itself. Computes it.
    #[track_caller]
    pub fn contiguous(&self) -> Result<Tensor> {
        let row_major = self.value()?.view.is_none();
        Ok(if row_major { self.clone() } else { self.contiguous_copy() })
    }

    /// The elements as f64, whatever the dtype: for printing and comparing.
    ///
    /// # Errors
    /// Whatever the device reports.
    #[track_caller]
    pub fn to_f64_vec(&self) -> Result<Vec<f64>> {
        let bytes = self.read_bytes()?;
        fn wide<T: Element>(bytes: &[u8]) -> Vec<f64> {
            T::from_bytes(bytes).into_iter().map(|v| v.to_scalar().as_f64()).collect()
        }
        Ok(match self.dtype() {
            DType::Bool => wide::<bool>(&bytes),
            DType::U8 => wide::<u8>(&bytes),
            DType::U32 => wide::<u32>(&bytes),
            DType::I32 => wide::<i32>(&bytes),
            DType::I64 => wide::<i64>(&bytes),
            DType::F16 => wide::<half::f16>(&bytes),
            DType::BF16 => wide::<half::bf16>(&bytes),
            DType::F32 => wide::<f32>(&bytes),
            DType::F64 => wide::<f64>(&bytes),
        })
    }
}

/// The element that `bytes` hold.
#[track_caller]
fn only<T: Element>(bytes: &[u8], op: &'static str) -> Result<T> {
    T::from_bytes(bytes).first().copied().ok_or_else(|| Error::invalid(op, "nothing was read"))
}
