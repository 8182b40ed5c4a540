//! Messages of Protocol Buffers, written field by field: the few kinds that TensorBoard's graph needs.
//! <https://protobuf.dev/programming-guides/encoding/>

/// A message under way.
#[derive(Default)]
pub(crate) struct Message {
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

    /// An int32, int64, bool or enum. Negative numbers are those of int64.
    pub(crate) fn int(mut self, field: u32, value: i64) -> Message {
        self.tag(field, 0);
        self.varint(value as u64);
        self
    }

    pub(crate) fn double(mut self, field: u32, value: f64) -> Message {
        self.tag(field, 1);
        self.bytes.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn bytes(mut self, field: u32, value: &[u8]) -> Message {
        self.tag(field, 2);
        self.varint(value.len() as u64);
        self.bytes.extend(value);
        self
    }

    pub(crate) fn string(self, field: u32, value: &str) -> Message {
        self.bytes(field, value.as_bytes())
    }

    pub(crate) fn message(self, field: u32, value: Message) -> Message {
        self.bytes(field, &value.bytes)
    }

    pub(crate) fn finish(self) -> Vec<u8> {
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
    }
}
