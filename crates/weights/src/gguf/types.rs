//! The types of GGUF's tensors: dtypes, and blocks of quantized numbers.

use tensor_core::DType;

use crate::Encoding;

macro_rules! block_types {
    ($($(#[$doc:meta])* $variant:ident { name: $name:literal, number: $number:literal, elements: $elements:literal, bytes: $bytes:literal })*) => {
        /// A GGUF type with elements in blocks: a fixed number of elements in a fixed number of bytes, with
        /// their scales.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, non_camel_case_types)] // They are ggml's names.
        #[non_exhaustive]
        pub enum BlockType { $($variant,)* }

        impl BlockType {
            /// All types.
            pub const ALL: &[BlockType] = &[$(BlockType::$variant),*];

            /// The name in ggml.
            pub const fn name(self) -> &'static str {
                match self { $(BlockType::$variant => $name,)* }
            }

            /// The number in ggml's `ggml_type`.
            pub const fn number(self) -> u32 {
                match self { $(BlockType::$variant => $number,)* }
            }

            /// The number of elements in a block.
            pub const fn block_elements(self) -> usize {
                match self { $(BlockType::$variant => $elements,)* }
            }

            /// The number of bytes in a block.
            pub const fn block_bytes(self) -> usize {
                match self { $(BlockType::$variant => $bytes,)* }
            }
        }
    };
}

// `ggml_type` and the blocks of ggml-common.h.
block_types! {
    Q4_0 { name: "Q4_0", number: 2, elements: 32, bytes: 18 }
    Q4_1 { name: "Q4_1", number: 3, elements: 32, bytes: 20 }
    Q5_0 { name: "Q5_0", number: 6, elements: 32, bytes: 22 }
    Q5_1 { name: "Q5_1", number: 7, elements: 32, bytes: 24 }
    Q8_0 { name: "Q8_0", number: 8, elements: 32, bytes: 34 }
    Q8_1 { name: "Q8_1", number: 9, elements: 32, bytes: 36 }
    Q2_K { name: "Q2_K", number: 10, elements: 256, bytes: 84 }
    Q3_K { name: "Q3_K", number: 11, elements: 256, bytes: 110 }
    Q4_K { name: "Q4_K", number: 12, elements: 256, bytes: 144 }
    Q5_K { name: "Q5_K", number: 13, elements: 256, bytes: 176 }
    Q6_K { name: "Q6_K", number: 14, elements: 256, bytes: 210 }
    Q8_K { name: "Q8_K", number: 15, elements: 256, bytes: 292 }
    Iq2Xxs { name: "IQ2_XXS", number: 16, elements: 256, bytes: 66 }
    Iq2Xs { name: "IQ2_XS", number: 17, elements: 256, bytes: 74 }
    Iq3Xxs { name: "IQ3_XXS", number: 18, elements: 256, bytes: 98 }
    Iq1S { name: "IQ1_S", number: 19, elements: 256, bytes: 50 }
    Iq4Nl { name: "IQ4_NL", number: 20, elements: 32, bytes: 18 }
    Iq3S { name: "IQ3_S", number: 21, elements: 256, bytes: 110 }
    Iq2S { name: "IQ2_S", number: 22, elements: 256, bytes: 82 }
    Iq4Xs { name: "IQ4_XS", number: 23, elements: 256, bytes: 136 }
    Iq1M { name: "IQ1_M", number: 29, elements: 256, bytes: 56 }
    Tq1_0 { name: "TQ1_0", number: 34, elements: 256, bytes: 54 }
    Tq2_0 { name: "TQ2_0", number: 35, elements: 256, bytes: 66 }
    Mxfp4 { name: "MXFP4", number: 39, elements: 32, bytes: 17 }
}

/// The encoding for a number of `ggml_type`.
pub(super) fn encoding(number: u32) -> Option<Encoding> {
    let dtype = DType::ALL.into_iter().find(|dtype| dtype.info().gguf == Some(number));
    let blocks = || BlockType::ALL.iter().find(|blocks| blocks.number() == number);
    dtype.map(Encoding::Plain).or_else(|| blocks().copied().map(Encoding::Blocks))
}
