//! The header of NumPy's `.npy` arrays: reading and writing. For the crates of file formats.
//!
//! The format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.

use std::io::Read;

use crate::elements::dtype::DType;

/// The first six bytes of every `.npy` array.
pub const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// The longest header that is accepted, in bytes. NumPy itself accepts 10,000 characters unless it
/// trusts the file.
const HEADER_LIMIT: u32 = 1 << 20;

/// The contents of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type of the elements.
    pub dtype: DType,
    /// The sizes of the axes.
    pub shape: Vec<usize>,
    /// Whether the first axis is the fastest one in memory. Never set for fewer than two axes.
    pub fortran_order: bool,
    /// Whether the most significant byte of an element comes first.
    pub big_endian: bool,
    /// The type string as it is in the file, for errors.
    pub descr: String,
    /// The number of bytes before the first element.
    pub start: u64,
}

/// Reads a header of version 1 to 3, which begins with [`MAGIC`].
///
/// # Errors
/// A message to be appended to the name of the file: the header is truncated or unsupported.
pub fn read_header(file: &mut impl Read) -> Result<Header, String> {
    let cut = |_| "is cut off in its header".to_string();
    let mut start = [0; 8];
    file.read_exact(&mut start).map_err(cut)?;
    let [.., version @ 1..=3, _] = start else {
        return Err("is no .npy file of version 1 to 3".into());
    };
    if !start.starts_with(MAGIC) {
        return Err("is no .npy file of version 1 to 3".into());
    }
    let mut length = [0; 4];
    let wide = if version == 1 { 2 } else { 4 };
    file.read_exact(&mut length[..wide]).map_err(cut)?;
    let length = u32::from_le_bytes(length);
    if length > HEADER_LIMIT {
        return Err(format!("gives its header a length of {length}"));
    }
    let mut text = vec![0; length as usize];
    file.read_exact(&mut text).map_err(cut)?;
    let text = String::from_utf8(text).map_err(|_| "has a header that is no text")?;
    let value = |key: &str| {
        let after = text.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
        after.ok_or_else(|| format!("has no '{key}' in its header {:?}", text.trim_end()))
    };
    let descr = value("descr")?.split(',').next().unwrap_or_default().trim().to_string();
    let bare = descr.trim_matches('\'');
    let named = |name: &str| DType::ALL.into_iter().find(|dtype| dtype.info().numpy == Some(name));
    let big_endian = bare.starts_with('>');
    let Some(dtype) = named(bare).or_else(|| named(&bare.replacen('>', "<", 1))) else {
        return Err(unknown(&descr));
    };
    let inside =
        value("shape")?.strip_prefix('(').and_then(|rest| rest.split_once(')')).map(|(inside, _)| inside);
    let sizes = inside.unwrap_or_default().split(',').map(str::trim).filter(|size| !size.is_empty());
    let shape: Option<Vec<usize>> = sizes.map(|size| size.parse().ok()).collect();
    let (Some(_), Some(shape)) = (inside, shape) else {
        return Err(format!("has no shape in its header {:?}", text.trim_end()));
    };
    // An array of one axis is in both orders.
    let fortran_order = !value("fortran_order")?.starts_with("False") && shape.len() > 1;
    Ok(Header { dtype, shape, fortran_order, big_endian, descr, start: 8 + wide as u64 + u64::from(length) })
}

/// The message for a type string without a dtype.
pub fn unknown(descr: &str) -> String {
    let known: Vec<&str> = DType::ALL.into_iter().filter_map(|dtype| dtype.info().numpy).collect();
    format!("holds {descr}, expected one of {}, little-endian", known.join(", "))
}

/// The header of a row-major array, padded such that the elements begin at a multiple of 64 bytes;
/// `None` for a dtype that NumPy lacks.
pub fn write_header(dtype: DType, shape: &[usize]) -> Option<Vec<u8>> {
    let descr = dtype.info().numpy?;
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    let mut text =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}{comma}), }}", sizes.join(", "));
    // Version 1 stores the length in 16 bits, later versions in 32. A line break ends the header.
    let fixed = if text.len() + 64 < usize::from(u16::MAX) { 10 } else { 12 };
    let total = (fixed + text.len() + 1).next_multiple_of(64);
    text.push_str(&" ".repeat(total - fixed - text.len() - 1));
    text.push('\n');
    let mut header = MAGIC.to_vec();
    match u16::try_from(text.len()) {
        Ok(length) if fixed == 10 => {
            header.extend([1, 0]);
            header.extend(length.to_le_bytes());
        }
        _ => {
            header.extend([2, 0]);
            header.extend((text.len() as u32).to_le_bytes());
        }
    }
    header.extend(text.as_bytes());
    Some(header)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_are_written() {
        for shape in [&[][..], &[3], &[2, 0, 5], &[1; 40_000]] {
            for dtype in DType::ALL {
                let Some(bytes) = write_header(dtype, shape) else {
                    assert!(dtype.info().numpy.is_none());
                    continue;
                };
                assert_eq!(bytes.len() % 64, 0);
                let read = read_header(&mut &bytes[..]).unwrap();
                assert_eq!((read.dtype, &read.shape[..], read.start), (dtype, shape, bytes.len() as u64));
                assert!(!read.fortran_order && !read.big_endian);
            }
        }
    }

    #[test]
    fn big_endian_and_fortran_order_are_told() {
        let text = "{'descr': '>f4', 'fortran_order': True, 'shape': (2, 3), }";
        let mut bytes = b"\x93NUMPY\x01\0".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        let read = read_header(&mut &bytes[..]).unwrap();
        assert!(read.fortran_order && read.big_endian && read.dtype == DType::F32);
        assert!(read_header(&mut &bytes[..20]).unwrap_err().contains("cut off"));
    }
}
