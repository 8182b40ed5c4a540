//! Making tensors, moving their elements about, and reading by index.
// Ranges that end before they begin to the eye end in the tensor: -4..100.
#![allow(clippy::unwrap_used, clippy::panic, clippy::reversed_empty_ranges)]

use crate::common::{VIEWS, agree, agree_within, device, has, of, reference_device, tensor};
use proptest::{prelude::*, test_runner::RngSeed};
use taper::{DType, Device, Generator, Result, Tensor, bf16, f16};

#[test]
fn every_dtype_goes_there_and_back_bit_by_bit() -> Result<()> {
    let d = device();
    let f = [0.0f32, -0.0, 1.5, f32::MAX, f32::MIN_POSITIVE, f32::INFINITY, f32::NEG_INFINITY];
    let back = Tensor::from_slice(&f, [7], &d)?.to_vec::<f32>()?;
    assert_eq!(back.map_bits(), f.to_vec().map_bits());
    let h = [0.0f32, -0.0, 65504.0, 6e-8, f32::INFINITY].map(f16::from_f32);
    assert_eq!(Tensor::from_slice(&h, [5], &d)?.to_vec::<f16>()?, h);
    let b = [0.0f32, -0.0, 3e38, 1e-40, f32::INFINITY].map(bf16::from_f32);
    let back = Tensor::from_slice(&b, [5], &d)?.to_vec::<bf16>()?;
    assert_eq!(back.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), b.map(bf16::to_bits));
    let ints = [i32::MIN, -1, 0, i32::MAX];
    assert_eq!(Tensor::from_slice(&ints, [4], &d)?.to_vec::<i32>()?, ints);
    assert_eq!(Tensor::from_slice(&[0u32, u32::MAX], [2], &d)?.to_vec::<u32>()?, [0, u32::MAX]);
    assert_eq!(Tensor::from_slice(&[0u8, 255, 7], [3], &d)?.to_vec::<u8>()?, [0, 255, 7]);
    assert_eq!(Tensor::from_slice(&[true, false], [2], &d)?.to_vec::<bool>()?, [true, false]);
    if has(&d, DType::I64) {
        assert_eq!(
            Tensor::from_slice(&[i64::MIN, i64::MAX], [2], &d)?.to_vec::<i64>()?,
            [i64::MIN, i64::MAX]
        );
    }
    if has(&d, DType::F64) {
        assert_eq!(Tensor::from_slice(&[f64::MAX, 1e-310], [2], &d)?.to_vec::<f64>()?, [f64::MAX, 1e-310]);
    }
    Ok(())
}

trait Bits {
    fn map_bits(self) -> Vec<u32>;
}
impl Bits for Vec<f32> {
    fn map_bits(self) -> Vec<u32> {
        self.into_iter().map(f32::to_bits).collect()
    }
}

#[test]
fn creation_agrees() {
    agree("nested", |d| Tensor::new([[1f32, 2.0], [3.0, 4.0], [5.0, 6.0]], d));
    agree("nested vectors", |d| Tensor::new(vec![vec![1i32], vec![2]], d));
    agree("zeros", |d| Tensor::zeros([2, 0, 3], d));
    agree("ones", |d| Tensor::ones([2, 3], (DType::I32, d)));
    agree("full", |d| Tensor::full([3], true, d));
    agree("arange", |d| Tensor::arange(1.0, 2.05, 0.25, d));
    agree("arange down", |d| Tensor::arange(10, -3, -4, (DType::I32, d)));
    agree("arange of nothing", |d| Tensor::arange(3.0, 3.0, 1.0, d));
    agree("linspace", |d| Tensor::linspace(-1.0, 2.0, 7, d));
    agree("eye", |d| Tensor::eye(4, d));
    agree("like", |d| Tensor::ones([2], d)?.full_like(3).add(&Tensor::ones([2], d)?.zeros_like()));
}

#[test]
fn one_seed_gives_one_stream_on_every_device() -> Result<()> {
    agree_within("rand", Some((0.0, 0.0)), |d| Tensor::rand([999], &Generator::seed(7, d)));
    agree_within("randint", Some((0.0, 0.0)), |d| {
        Tensor::randint(-3, 90, [999], &Generator::seed(1 << 50, d))
    });
    agree_within("randn", Some((2e-5, 1e-5)), |d| Tensor::randn([999], &Generator::seed(7, d)));
    agree("randperm", |d| Tensor::randperm(50, &Generator::seed(7, d)));
    agree_within("far along", Some((0.0, 0.0)), |d| {
        let rng = Generator::seed(7, d);
        rng.set_offset(u64::from(u32::MAX) - 10);
        Tensor::rand([100], &rng)
    });
    let d = device();
    let rng = Generator::seed(1, &d);
    let (a, b) = (Tensor::randn([100_000], &rng)?, Tensor::randn([100_000], &rng)?);
    let (mean, var) = (a.mean().item::<f32>()?, a.var_axis(.., 1.0, false)?.item::<f32>()?);
    assert!(mean.abs() < 0.01 && (var - 1.0).abs() < 0.02, "{mean} {var}");
    let correlation = a.mul(&b)?.mean().item::<f32>()?;
    assert!(correlation.abs() < 0.015, "{correlation}");
    assert_ne!(a.narrow(0, 0, 5)?.to_vec::<f32>()?, b.narrow(0, 0, 5)?.to_vec::<f32>()?);
    let mut order = Tensor::randperm(100, &rng)?.to_vec::<i32>()?;
    order.sort_unstable();
    assert_eq!(order, (0..100).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn movement_agrees_on_every_layout() {
    for &(layout, make) in VIEWS {
        let what = |op: &str| format!("{op} of {layout}");
        agree(&what("flatten"), |d| Ok(make(d, DType::F32, 1)?.flatten_all()));
        agree(&what("reshape"), |d| {
            let x = make(d, DType::F32, 1)?;
            if x.numel() == 0 { Ok(x) } else { x.reshape([1, -1, 1]) }
        });
        agree(&what("flip"), |d| Ok(make(d, DType::F32, 1)?.flip(..)? + 1.0));
        agree(&what("concat"), |d| {
            let x = make(d, DType::F32, 1)?;
            if x.rank() == 0 { Ok(x) } else { Tensor::concat(&[&x, &x, &x], -1) }
        });
        agree(&what("stack"), |d| {
            let x = make(d, DType::I32, 1)?;
            Tensor::stack(&[&x, &x], 0)
        });
        agree(&what("pad"), |d| {
            let x = make(d, DType::F32, 1)?;
            let padding: Vec<(usize, usize)> = (0..x.rank()).map(|i| (i, 2)).collect();
            x.pad(&padding, -1.0)
        });
        agree(&what("contiguous"), |d| make(d, DType::F32, 1)?.contiguous());
    }
    agree("slices", |d| tensor(&[6, 7], 1, DType::F32, d)?.slice(0, -4..100)?.slice_step(1, 1..-1, 3));
    agree("select", |d| tensor(&[6, 7], 1, DType::F32, d)?.select(-1, -2));
    agree("squeeze", |d| tensor(&[1, 3, 1], 1, DType::F32, d)?.squeeze(..)?.unsqueeze(-1));
    agree("tril", |d| {
        tensor(&[4, 5], 1, DType::F32, d)?.tril(-1)?.add(&tensor(&[4, 5], 2, DType::F32, d)?.triu(1)?)
    });
    agree("split", |d| {
        let parts = tensor(&[7, 2], 1, DType::F32, d)?.split(3, 0)?;
        assert_eq!(parts.len(), 3);
        Tensor::concat(&parts.iter().rev().collect::<Vec<_>>(), 0)
    });
    agree("concat of odd parts", |d| {
        let (a, b) = (tensor(&[2, 3], 1, DType::F32, d)?, tensor(&[3, 4], 2, DType::F32, d)?);
        Tensor::concat(&[&a.t()?, &tensor(&[3, 0], 3, DType::F32, d)?, &b.flip(1)?], 1)
    });
}

#[test]
fn indexing_agrees_for_every_index_dtype() {
    for dtype in [DType::I32, DType::I64, DType::U32, DType::U8].into_iter().filter(|&t| has(&device(), t)) {
        let index = move |d: &Device| of(&[2.0, 0.0, 2.0, 1.0], &[4], dtype, d);
        agree("index_select", |d| {
            tensor(&[2, 3, 4], 1, DType::F32, d)?.permute([2, 1, 0])?.index_select(1, &index(d)?)
        });
        agree("index_add", |d| {
            tensor(&[3, 2], 1, DType::F32, d)?.index_add(0, &index(d)?, &tensor(&[4, 2], 2, DType::F32, d)?)
        });
        let square = move |d: &Device| of(&[2.0, 0.0, 1.0, 1.0, 0.0, 2.0], &[2, 3], dtype, d);
        agree("gather", |d| tensor(&[3, 4], 1, DType::F32, d)?.gather(0, &square(d)?));
        agree("scatter_add", |d| {
            tensor(&[3, 4], 1, DType::F32, d)?.scatter_add(
                0,
                &square(d)?,
                &tensor(&[2, 3], 2, DType::F32, d)?,
            )
        });
        agree("gather of integers", |d| tensor(&[3, 4], 1, DType::I32, d)?.gather(1, &square(d)?));
    }
    agree("gather of nothing", |d| {
        tensor(&[3, 4], 1, DType::F32, d)?.gather(0, &of(&[], &[0, 4], DType::I32, d)?)
    });
}

#[test]
fn scatters_repeat_bit_by_bit() -> Result<()> {
    let d = device();
    let index = Tensor::from_vec((0..5000).map(|i| i * 7 % 13).collect::<Vec<i32>>(), [5000], &d)?;
    let src = tensor(&[5000, 3], 1, DType::F32, &d)?;
    let once = || Tensor::zeros([13, 3], &d)?.index_add(0, &index, &src)?.to_vec::<f32>();
    let first = once()?;
    for _ in 0..3 {
        assert_eq!(once()?, first);
    }
    Ok(())
}

#[derive(Clone, Debug)]
enum Move {
    Permute(u64),
    Flip(usize),
    Slice(usize, usize, usize),
    Expand,
    Reshape(u64),
}

fn apply(mut x: Tensor, moves: &[Move]) -> Result<Tensor> {
    for step in moves {
        let rank = x.rank();
        x = match step {
            Move::Permute(seed) => {
                x.permute(Generator::seed(*seed, &reference_device()).permutation(rank))?
            }
            Move::Flip(axis) if rank > 0 => x.flip(axis % rank)?,
            Move::Slice(axis, start, step) if rank > 0 => {
                let axis = axis % rank;
                let size = x.dims()[axis];
                x.slice_step(axis, start % size.max(1)..size, 1 + step % 3)?
            }
            Move::Expand if x.numel() < 2000 => x
                .unsqueeze(0)?
                .expand([2].into_iter().chain(x.dims().iter().map(|&d| d as isize)).collect::<Vec<_>>())?,
            Move::Reshape(seed) if x.numel() > 0 => {
                let divisors: Vec<usize> = (1..=x.numel()).filter(|d| x.numel().is_multiple_of(*d)).collect();
                let d = divisors[*seed as usize % divisors.len()];
                x.reshape([d as isize, -1])?
            }
            _ => x,
        };
    }
    Ok(x)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, rng_seed: RngSeed::Fixed(2026), ..ProptestConfig::default() })]
    #[test]
    fn views_of_views_agree(
        moves in prop::collection::vec(
            prop_oneof![
                any::<u64>().prop_map(Move::Permute),
                (0usize..4).prop_map(Move::Flip),
                (0usize..4, 0usize..5, 0usize..3).prop_map(|(a, b, c)| Move::Slice(a, b, c)),
                Just(Move::Expand),
                any::<u64>().prop_map(Move::Reshape),
            ],
            1..7,
        )
    ) {
        agree(&format!("{moves:?}"), |d| apply(tensor(&[3, 4, 6], 1, DType::F32, d)?, &moves));
    }
}

/// Masks and images, small and large enough to be shared among threads.
#[test]
fn bytes_are_copied_from_any_layout_to_any() {
    for dtype in [DType::U8, DType::Bool] {
        for [rows, columns, channels] in [[3, 4, 2], [1, 1, 1], [64, 301, 3], [3, 2, 40_000]] {
            let image = |d: &Device| tensor(&[rows, columns, channels], 1, dtype, d);
            let what = |name: &str| format!("{name} of {dtype} [{rows}, {columns}, {channels}]");
            agree(&what("channels first"), |d| image(d)?.permute([2, 0, 1])?.contiguous());
            agree(&what("flipped"), |d| image(d)?.flip([0, 2])?.contiguous());
            agree(&what("every second"), |d| image(d)?.slice_step(1, .., 2)?.contiguous());
            agree(&what("spread"), |d| {
                image(d)?.select(2, 0)?.unsqueeze(2)?.expand((rows, columns, 3))?.contiguous()
            });
            agree(&what("turned round and beside itself"), |d| {
                Tensor::concat(&[image(d)?.transpose(0, 1)?, image(d)?.transpose(0, 1)?.flip(1)?], 2)
            });
        }
    }
}
