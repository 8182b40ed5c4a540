//! Reading values on the host, which evaluates lazy tensors.

use crate::tensor::{Tensor, dtype_misfit};
use crate::{
    base::{
        error::{Error, Result},
        origin::here,
        sync::lock,
    },
    elements::{dtype::DType, element::Element, scalar::Scalar},
    graph::{node::Value, op::Op},
    schedule::{self, capture::refuse_in_capture},
};

impl Tensor {
    /// The elements in row-major order. `tensor.tolist()`.
    ///
    /// `T` is the Rust type of this tensor's dtype, or one of the same category that can hold the
    /// values: a wider float (f32 read as f64), or any integer (i64 read as i32), so that indices can be
    /// read in the same way on a device without i64.
    ///
    /// # Errors
    /// A `T` of another category, or a narrower float (cast first); an integer outside the range of `T`;
    /// or whatever the device reports.
    #[track_caller]
    #[doc(alias("tolist", "numpy", "data"))]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        Ok(T::from_bytes(&self.read_as("to_vec", T::DTYPE)?))
    }

    /// The rows of a matrix: [`Tensor::to_vec`] for two axes. `tensor.tolist()`.
    ///
    /// # Errors
    /// A number of axes other than two, or an error of [`Tensor::to_vec`].
    ///
    /// ```
    /// # use tensor_core::{Device, Tensor, Result};
    /// # fn f(device: &Device) -> Result<()> {
    /// let x = Tensor::new([[1.0, 2.0], [3.0, 4.0]], device)?;
    /// assert_eq!(x.to_vec2::<f32>()?, [[1.0, 2.0], [3.0, 4.0]]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "tolist")]
    pub fn to_vec2<T: Element>(&self) -> Result<Vec<Vec<T>>> {
        const OP: &str = "to_vec2";
        let [rows, columns] = self.sizes_to_read(OP)?;
        let elements = T::from_bytes(&self.read_as(OP, T::DTYPE)?);
        Ok(nested(elements, rows, columns))
    }

    /// The matrices of a tensor with three axes: [`Tensor::to_vec`], nested. `tensor.tolist()`.
    ///
    /// # Errors
    /// A number of axes other than three, or an error of [`Tensor::to_vec`].
    ///
    /// ```
    /// # use tensor_core::{Device, Tensor, Result};
    /// # fn f(device: &Device) -> Result<()> {
    /// let x = Tensor::arange(0, 4, 1, device)?.reshape((2, 1, 2))?;
    /// assert_eq!(x.to_vec3::<i64>()?, [[[0, 1]], [[2, 3]]]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "tolist")]
    pub fn to_vec3<T: Element>(&self) -> Result<Vec<Vec<Vec<T>>>> {
        const OP: &str = "to_vec3";
        let [matrices, rows, columns] = self.sizes_to_read(OP)?;
        let elements = T::from_bytes(&self.read_as(OP, T::DTYPE)?);
        Ok(nested(nested(elements, matrices * rows, columns), matrices, rows))
    }

    /// The sizes of the axes, of which there must be `RANK`.
    #[track_caller]
    fn sizes_to_read<const RANK: usize>(&self, op: &'static str) -> Result<[usize; RANK]> {
        <[usize; RANK]>::try_from(self.dims()).map_err(|_| {
            let instead = match self.rank() {
                0 => "read it with item",
                1 => "read it with to_vec",
                2 => "read it with to_vec2",
                3 => "read it with to_vec3",
                _ => "reshape it first, or read all elements with to_vec",
            };
            let message =
                format!("shape {} has {} axes, and this reads {RANK}; {instead}", self.shape(), self.rank());
            Error::invalid(op, message)
        })
    }

    /// The only element, as a type that [`Tensor::to_vec`] allows: `loss.item::<f32>()?`, or `let loss:
    /// f64 = loss.item()?`. [`Tensor::item_f64`] needs no type, and accepts every dtype.
    ///
    /// # Errors
    /// A number of elements other than one, or an error of [`Tensor::to_vec`].
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T> {
        only(&self.item_as("item", T::DTYPE)?, "item")
    }

    /// The only element as f64, for any dtype (an i64 beyond 2^53 is rounded; true is 1).
    ///
    /// # Errors
    /// A number of elements other than one, or whatever the device reports.
    ///
    /// ```
    /// # use tensor_core::{Device, Tensor, Result};
    /// # fn f(device: &Device) -> Result<()> {
    /// println!("loss {:.4}", Tensor::ones((2, 3), device)?.mean().item_f64()?);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "item")]
    pub fn item_f64(&self) -> Result<f64> {
        let bytes = self.item_as("item_f64", self.dtype())?;
        Scalar::from_bytes(self.dtype(), &bytes)
            .first()
            .map(|v| v.as_f64())
            .ok_or_else(|| Error::invalid("item_f64", "nothing was read"))
    }

    /// The elements' bytes, converted to the Rust type of dtype `wanted`.
    #[track_caller]
    pub(in crate::tensor) fn read_as(&self, op: &'static str, wanted: DType) -> Result<Vec<u8>> {
        self.readable(op, wanted)?;
        self.in_dtype(op, self.read_bytes()?, wanted)
    }

    #[track_caller]
    fn item_as(&self, op: &'static str, wanted: DType) -> Result<Vec<u8>> {
        self.one_element(op)?;
        self.readable(op, wanted)?;
        let mut bytes = [0u8; 8];
        let out = &mut bytes[..self.dtype().size()];
        self.download(&self.contiguous_value()?, out)?;
        self.in_dtype(op, out.to_vec(), wanted)
    }

    /// Converts elements of this tensor's dtype to `wanted`, which [`Tensor::readable`] has allowed.
    #[track_caller]
    fn in_dtype(&self, op: &'static str, bytes: Vec<u8>, wanted: DType) -> Result<Vec<u8>> {
        if self.dtype() == wanted {
            return Ok(bytes);
        }
        let numbers = Scalar::from_bytes(self.dtype(), &bytes);
        if wanted.is_int()
            && let Some(wrong) = numbers.iter().find(|n| n.cast(wanted) != **n)
        {
            return Err(Error::invalid(
                op,
                format!("{wrong} does not fit {wanted}; read it as {}", self.dtype()),
            ));
        }
        Ok(Scalar::to_bytes(wanted, &numbers))
    }

    #[track_caller]
    fn one_element(&self, op: &'static str) -> Result<()> {
        if self.numel() == 1 {
            return Ok(());
        }
        Err(Error::invalid(
            op,
            format!(
                "shape {} has {} elements, not one; use to_vec, or select one",
                self.shape(),
                self.numel()
            ),
        ))
    }

    /// Fails unless elements of this tensor can be read as those of dtype `wanted`.
    #[track_caller]
    fn readable(&self, op: &'static str, wanted: DType) -> Result<()> {
        let own = self.dtype();
        let wider = own.is_float() && wanted.is_float() && own.promote(wanted) == wanted;
        if own == wanted || wider || own.is_int() && wanted.is_int() {
            return Ok(());
        }
        Err(dtype_misfit(
            op,
            own,
            wanted,
            format!("read it as {own}, or cast first with .to_dtype(DType::{wanted:?})?"),
        ))
    }

    /// The elements' bytes in row-major order, host byte order.
    ///
    /// # Errors
    /// Whatever the device reports.
    #[track_caller]
    #[doc(alias = "numpy")]
    pub fn read_bytes(&self) -> Result<Vec<u8>> {
        // The value first: a device without enough memory gives an error, and the host would abort.
        let value = self.contiguous_value()?;
        let mut out = vec![0; self.numel() * self.dtype().size()];
        self.download(&value, &mut out)?;
        Ok(out)
    }

    /// [`Tensor::read_bytes`] into the caller's memory, which can be reused.
    ///
    /// # Errors
    /// A length that differs from the elements', or whatever the device reports.
    #[track_caller]
    pub fn read_bytes_into(&self, out: &mut [u8]) -> Result<()> {
        let bytes = self.numel() * self.dtype().size();
        if out.len() != bytes {
            let message = format!(
                "the elements of {} {} are {bytes} bytes, and there is room for {}",
                self.dtype(),
                self.shape(),
                out.len()
            );
            return Err(Error::invalid("read_bytes_into", message));
        }
        self.download(&self.contiguous_value()?, out)
    }

    /// Passes the elements' bytes, as in [`Tensor::read_bytes`], to `take` in consecutive pieces. Memory
    /// that the host can see is not copied; other threads' work on the device then waits for `take`,
    /// which must not use any device.
    ///
    /// # Errors
    /// The first error of `take`, or whatever the device reports.
    #[doc(hidden)] // for writers of file formats
    #[track_caller]
    pub fn read_bytes_with(&self, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let value = self.contiguous_value()?;
        let device = self.device();
        let backend = device.backend().as_ref();
        // `take` must only get values whose index checks have passed.
        value.facts.settle(backend)?;
        let read = backend.download_with(&value.storage, value.offset(), self.numel(), take);
        Error::here_in(read)
    }

    /// The elements in row-major order, as [`Tensor::to_vec`] gives them, without blocking the thread while
    /// the device works.
    ///
    /// The first poll gives all work to the device, and later ones only check whether it is done. A
    /// device that computes on the calling thread, such as the CPU, is done at the first poll; a GPU
    /// wakes the task once the elements have arrived. Any executor works.
    ///
    /// # Errors
    /// As [`Tensor::to_vec`].
    #[track_caller]
    pub fn to_vec_async<T: Element>(&self) -> impl Future<Output = Result<Vec<T>>> {
        let caller = here();
        let read = async {
            self.readable("to_vec_async", T::DTYPE)?;
            self.compute_async().await?;
            let bytes = self.download_async(self.contiguous_value()?).await?;
            Ok(T::from_bytes(&self.in_dtype("to_vec_async", bytes, T::DTYPE)?))
        };
        async move { read.await.map_err(|error: Error| error.met_at(caller)) }
    }

    /// The only element, as [`Tensor::item`] gives it, without blocking the thread while the device works:
    /// see [`Tensor::to_vec_async`].
    ///
    /// # Errors
    /// As [`Tensor::item`].
    #[track_caller]
    pub fn item_async<T: Element>(&self) -> impl Future<Output = Result<T>> {
        let caller = here();
        let read = async {
            self.one_element("item_async")?;
            self.readable("item_async", T::DTYPE)?;
            self.compute_async().await?;
            let bytes = self.download_async(self.contiguous_value()?).await?;
            only(&self.in_dtype("item_async", bytes, T::DTYPE)?, "item_async")
        };
        async move { read.await.map_err(|error: Error| error.met_at(caller)) }
    }

    /// Reads elements from the value's first one on, and waits until their index checks have passed.
    #[track_caller]
    fn download(&self, value: &Value, out: &mut [u8]) -> Result<()> {
        Error::here_in(value.facts.check())?;
        let device = self.device();
        if !out.is_empty() {
            device.backend().download(&value.storage, value.offset(), out)?;
        }
        // The download decided all open tickets, so this does not wait.
        Error::here_in(value.facts.settle(device.backend().as_ref()))
    }

    /// Computes the value, and awaits copies from other devices.
    async fn compute_async(&self) -> Result<()> {
        refuse_in_capture("compile", "read a value")?;
        let node = self.node();
        if node.has_value() { Ok(()) } else { schedule::evaluate_async(vec![node]).await }
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
        let value = Error::here_in(self.value())?;
        if value.is_contiguous() {
            return Ok(value);
        }
        Error::here_in(self.detach().contiguous_copy().value())
    }

    /// The same elements as a row-major buffer from its first element on; copied on evaluation if they
    /// are not one already.
    #[doc(hidden)]
    #[track_caller]
    pub fn contiguous_copy(&self) -> Tensor {
        Tensor::build(Op::Contiguous, self.shape().clone(), self.dtype(), &[self])
    }

    /// This tensor stored in row-major order: a copy if it is a strided view or in blocks, else itself. The
    /// copy is made when it is read. `Tensor.contiguous`.
    ///
    /// # Errors
    /// None today: what the device reports is met by the reader.
    #[track_caller]
    pub fn contiguous(&self) -> Result<Tensor> {
        let node = self.node();
        let is_stored = lock(&node.state)
            .value
            .as_ref()
            .is_some_and(|value| value.view.is_none() && value.format.is_none());
        Ok(if is_stored { self.clone() } else { self.contiguous_copy() })
    }

    /// The elements as f64, for any dtype: for printing and comparing.
    ///
    /// # Errors
    /// Whatever the device reports.
    #[doc(alias("tolist", "numpy"))]
    #[track_caller]
    pub fn to_f64_vec(&self) -> Result<Vec<f64>> {
        let bytes = self.read_bytes()?;
        Ok(Scalar::from_bytes(self.dtype(), &bytes).into_iter().map(Scalar::as_f64).collect())
    }

    /// Whether `other` has the same shape and equal elements (NaN equals nothing). Both are evaluated
    /// and read. `torch.equal`.
    ///
    /// # Errors
    /// Two devices, or whatever the device reports.
    #[track_caller]
    #[doc(alias = "==")]
    pub fn equal(&self, other: &Tensor) -> Result<bool> {
        Tensor::same_device("equal", &[self, other])?;
        if self.shape() != other.shape() {
            return Ok(false);
        }
        self.detach().eq(&other.detach())?.all().item()
    }

    /// Whether all elements are close to those of `other`, broadcast: |a − b| ≤ `atol` + `rtol` · |b|;
    /// equal infinities are close, and NaN is close to nothing. PyTorch's tolerances are `rtol` 1e-5 and
    /// `atol` 1e-8. `torch.allclose`.
    ///
    /// # Errors
    /// Shapes that do not broadcast, two devices, or whatever the device reports.
    #[track_caller]
    #[doc(alias = "==")]
    pub fn allclose(&self, other: &Tensor, rtol: f64, atol: f64) -> Result<bool> {
        self.detach().isclose(&other.detach(), rtol, atol, false)?.all().item()
    }
}

/// `count` lists of `length` items each, which are all of `items` in order.
fn nested<T>(items: Vec<T>, count: usize, length: usize) -> Vec<Vec<T>> {
    let mut items = items.into_iter();
    (0..count).map(|_| items.by_ref().take(length).collect()).collect()
}

/// The element in `bytes`.
#[track_caller]
fn only<T: Element>(bytes: &[u8], op: &'static str) -> Result<T> {
    T::from_bytes(bytes).first().copied().ok_or_else(|| Error::invalid(op, "nothing was read"))
}
