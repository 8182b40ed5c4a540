//! Encodes messages of Protocol Buffers field by field: the few field types that TensorBoard's events need.
//! <https://protobuf.dev/programming-guides/encoding/>

/// A Protocol Buffers message under construction. Each method adds a field by its number.
///
/// ```
/// use inspect::Message;
/// assert_eq!(Message::default().string(2, "testing").finish(), *b"\x12\x07testing");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn tag(&mut self, field: u32, wire: u64) {
        self.varint(u64::from(field) << 3 | wire);
    }

    /// An int32, int64, bool or enum. Negative numbers are encoded as int64.
    #[must_use]
    pub fn int(mut self, field: u32, value: i64) -> Message {
        self.tag(field, 0);
        self.varint(value as u64);
        self
    }

    /// A float.
    #[must_use]
    pub fn float(mut self, field: u32, value: f32) -> Message {
        self.tag(field, 5);
        self.bytes.extend(value.to_le_bytes());
        self
    }

    /// A double.
    #[must_use]
    pub fn double(mut self, field: u32, value: f64) -> Message {
        self.tag(field, 1);
        self.bytes.extend(value.to_le_bytes());
        self
    }

    /// Repeated doubles, packed.
    #[must_use]
    pub fn doubles(self, field: u32, values: &[f64]) -> Message {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.bytes(field, &bytes)
    }

    /// Bytes.
    #[must_use]
    pub fn bytes(mut self, field: u32, value: &[u8]) -> Message {
        self.tag(field, 2);
        self.varint(value.len() as u64);
        self.bytes.extend(value);
        self
    }

    /// A string.
    #[must_use]
    pub fn string(self, field: u32, value: &str) -> Message {
        self.bytes(field, value.as_bytes())
    }

    /// A nested message.
    #[must_use]
    pub fn message(self, field: u32, value: Message) -> Message {
        self.bytes(field, &value.bytes)
    }

    /// Appends the fields of another message of the same type.
    #[must_use]
    pub fn then(mut self, fields: Message) -> Message {
        self.bytes.extend(fields.bytes);
        self
    }

    /// The encoded bytes.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the encoding's documentation.
    #[test]
    fn fields_are_encoded_as_documented() {
        assert_eq!(Message::default().int(1, 150).finish(), [0x08, 0x96, 0x01]);
        assert_eq!(Message::default().string(2, "testing").finish(), *b"\x12\x07testing");
        let inner = Message::default().int(1, 150);
        assert_eq!(Message::default().message(3, inner).finish(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let minus = Message::default().int(1, -2).finish();
        assert_eq!(minus, [0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        assert_eq!(Message::default().double(1, 1.0).finish(), [0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        assert_eq!(Message::default().float(2, 1.0).finish(), [0x15, 0, 0, 0x80, 0x3f]);
        assert_eq!(Message::default().doubles(1, &[1.0]).finish(), [0x0a, 8, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
    }
}
