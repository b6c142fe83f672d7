//! Writes protocol buffer messages, as far as we need them.

/// Appends a message's fields to some bytes. We write every field, even if it has its default value.
pub(super) struct Message<'a>(&'a mut Vec<u8>);

/// How a field's value is represented in bytes.
#[derive(Clone, Copy)]
enum Form {
    Varint = 0,
    Fixed64 = 1,
    Length = 2,
}

impl<'a> Message<'a> {
    pub(super) fn behind(bytes: &'a mut Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(super) fn uint(&mut self, field: u32, value: u64) {
        self.key(field, Form::Varint);
        varint(self.0, value);
    }

    /// Writes an `int32` or `int64`. Negative values of either type take ten bytes.
    pub(super) fn int(&mut self, field: u32, value: impl Into<i64>) {
        self.uint(field, value.into() as u64);
    }

    pub(super) fn fixed(&mut self, field: u32, value: u64) {
        self.key(field, Form::Fixed64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn fixed_if_any(&mut self, field: u32, value: Option<u64>) {
        if let Some(value) = value {
            self.fixed(field, value);
        }
    }

    pub(super) fn text(&mut self, field: u32, text: &str) {
        self.key(field, Form::Length);
        varint(self.0, text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(super) fn text_if_any(&mut self, field: u32, text: Option<&str>) {
        if let Some(text) = text {
            self.text(field, text);
        }
    }

    /// Writes a text unless it is empty. Readers treat a missing text as empty.
    pub(super) fn text_unless_empty(&mut self, field: u32, text: &str) {
        self.text_if_any(field, Some(text).filter(|text| !text.is_empty()));
    }

    /// Writes a nested message.
    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Message<'_>)) {
        self.key(field, Form::Length);
        let start = self.0.len();
        write(&mut Message(self.0));
        // The length must come before the message, but we only know it afterwards.
        let length = self.0.len() - start;
        varint(self.0, length as u64);
        self.0[start..].rotate_left(length);
    }

    /// Writes fields that were encoded elsewhere.
    pub(super) fn fields(&mut self, encoded: &[u8]) {
        self.0.extend_from_slice(encoded);
    }

    fn key(&mut self, field: u32, form: Form) {
        varint(self.0, u64::from(field << 3 | form as u32));
    }
}

/// Writes a number with seven bits per byte, lowest first. All bytes except the last have the eighth bit set.
fn varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}
