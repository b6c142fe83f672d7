//! AMD's names for devices and code targets: `gfx90a:sramecc+:xnack-`, `gfx11-generic`.

/// A device's name, as the driver gives it: a processor and its feature settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arch {
    full: String,
}

impl Arch {
    /// Accepts the driver's string if it looks like one: `gfx` and a name, then features after colons, each with a sign.
    pub(crate) fn parse(full: &str) -> Option<Self> {
        let mut parts = full.split(':');
        let name = parts.next()?.strip_prefix("gfx")?;
        let word = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        let feature = |part: &str| {
            part.strip_suffix(['+', '-']).is_some_and(|name| word(name) && !name.ends_with(['+', '-']))
        };
        (full.len() < 256 && word(name) && parts.all(feature)).then(|| Self { full: full.to_owned() })
    }

    /// Returns only the processor, because we build code for that.
    pub(crate) fn processor(&self) -> &str {
        self.full.split(':').next().unwrap_or(&self.full)
    }

    /// Returns how well code built for `target` suits. The exact processor is best, and better with each feature that
    /// the code was built for. Then comes the family's generic processor. Code built for the other setting of a feature
    /// cannot run.
    pub(crate) fn rank(&self, target: &str) -> Option<u32> {
        const EXACT: u32 = 100;
        const GENERIC: u32 = 10;
        let mut parts = target.split(':');
        let processor = parts.next()?;
        let base = if processor == self.processor() {
            EXACT
        } else if generic(self.processor()) == Some(processor) {
            GENERIC
        } else {
            return None;
        };
        let mut rank = base;
        for feature in parts {
            if !self.full.split(':').skip(1).any(|own| own == feature) {
                return None;
            }
            rank += 1;
        }
        Some(rank)
    }
}

/// Returns the generic processor whose code can run on `processor`.
fn generic(processor: &str) -> Option<&'static str> {
    Some(match processor {
        "gfx900" | "gfx902" | "gfx904" | "gfx906" | "gfx909" | "gfx90c" => "gfx9-generic",
        "gfx940" | "gfx941" | "gfx942" | "gfx950" => "gfx9-4-generic",
        "gfx1010" | "gfx1011" | "gfx1012" | "gfx1013" => "gfx10-1-generic",
        "gfx1030" | "gfx1031" | "gfx1032" | "gfx1033" | "gfx1034" | "gfx1035" | "gfx1036" => {
            "gfx10-3-generic"
        }
        "gfx1100" | "gfx1101" | "gfx1102" | "gfx1103" | "gfx1150" | "gfx1151" | "gfx1152" | "gfx1153" => {
            "gfx11-generic"
        }
        "gfx1200" | "gfx1201" => "gfx12-generic",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_kept_for_matching_and_stripped_for_the_processor() {
        let arch = Arch::parse("gfx90a:sramecc+:xnack-").unwrap();
        assert_eq!((arch.processor(), arch.full.as_str()), ("gfx90a", "gfx90a:sramecc+:xnack-"));
        assert_eq!(arch.rank("gfx90a"), Some(100));
        assert_eq!(arch.rank("gfx90a:xnack-"), Some(101));
        assert_eq!(arch.rank("gfx90a:sramecc+:xnack-"), Some(102));
        assert_eq!(arch.rank("gfx90a:xnack+"), None);
        assert_eq!(arch.rank("gfx908"), None);
        assert_eq!(arch.rank("gfx90"), None);
        assert_eq!(arch.rank("sm_90"), None);
    }

    #[test]
    fn generic_code_comes_after_exact() {
        let arch = Arch::parse("gfx1201").unwrap();
        assert_eq!(arch.rank("gfx12-generic"), Some(10));
        assert_eq!(arch.rank("gfx11-generic"), None);
        assert!(arch.rank("gfx1201") > arch.rank("gfx12-generic"));
    }

    #[test]
    fn nonsense_from_a_wrong_layout_is_refused() {
        for text in
            ["", "gfx", "gfx ", "90a", "gfx90a:", "gfx90a:xnack", "gfx\u{1}", "AMD Instinct", "gfx90a:++"]
        {
            assert_eq!(Arch::parse(text), None, "{text:?}");
        }
    }
}
