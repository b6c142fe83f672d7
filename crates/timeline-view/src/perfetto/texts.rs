//! The strings that packets refer to by number, on the reader's side.

use gpustream_timeline::perfetto::format::Kind;

use super::schema::{Interned, InternedData};

/// The strings by number. Each string may be used many times, but is written only once.
#[derive(Default)]
pub(super) struct Texts([Vec<String>; 4]);

impl Texts {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Adds strings. They get the next numbers.
    pub(super) fn add(&mut self, mut new: InternedData) -> Result<(), &'static str> {
        for kind in Kind::ALL {
            let texts = &mut self.0[kind as usize];
            for string in list(&mut new, kind).drain(..) {
                texts.push(string.text);
                if string.iid != texts.len() as u64 {
                    return Err("a string whose number is not the next one");
                }
            }
        }
        Ok(())
    }

    pub(super) fn get(&self, kind: Kind, number: u64) -> Option<&str> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.0[kind as usize].get(index).map(String::as_str)
    }
}

fn list(data: &mut InternedData, kind: Kind) -> &mut Vec<Interned> {
    match kind {
        Kind::Category => &mut data.event_categories,
        Kind::Event => &mut data.event_names,
        Kind::Annotation => &mut data.debug_annotation_names,
        Kind::Value => &mut data.debug_annotation_string_values,
    }
}
