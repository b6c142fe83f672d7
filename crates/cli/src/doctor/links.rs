//! Links between the devices of a backend.

use std::fmt::Write as _;

use gpustream::Device;
use gpustream_timeline_view::text::Table;
use serde_json::{Value, json};

/// How data gets from one device to another on the same backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// The device can read and write the memory of the other (`cuDeviceCanAccessPeer`).
    Direct,
    /// Copies must go through the host's memory.
    ThroughHost,
    /// The driver did not say.
    Unknown,
}

/// The links between a backend's devices: for each device those to all of them, in order, and `None` to itself.
#[derive(Default)]
pub(super) struct Links {
    pub(super) devices: Vec<(String, Vec<Option<Link>>)>,
}

impl Links {
    pub(super) fn of(devices: &[Device]) -> Self {
        let link = |from: &Device, to: &Device| {
            let (from_ordinal, to) = (from.info().ordinal, to.info().ordinal);
            (from_ordinal != to).then(|| match from.raw().can_access_peer(to) {
                Ok(true) => Link::Direct,
                Ok(false) => Link::ThroughHost,
                Err(_) => Link::Unknown,
            })
        };
        let links = |from| devices.iter().map(|to| link(from, to)).collect();
        let name = |device: &Device| format!("{}:{}", device.info().backend, device.info().ordinal);
        Self { devices: devices.iter().map(|device| (name(device), links(device))).collect() }
    }

    /// Writes a table, if there is more than one device.
    pub(super) fn write(&self, text: &mut String) {
        if self.devices.len() < 2 {
            return;
        }
        let names = self.devices.iter().map(|(name, _)| name.as_str());
        let mut table = Table::new(["from"].into_iter().chain(names));
        for (name, links) in &self.devices {
            let words = links.iter().map(|link| match link {
                None => "-",
                Some(Link::Direct) => "direct",
                Some(Link::ThroughHost) => "through the host",
                Some(Link::Unknown) => "unknown",
            });
            table.row([name.as_str()].into_iter().chain(words).map(str::to_owned));
        }
        for line in table.to_string().lines() {
            let _ = writeln!(text, "  {line}");
        }
    }

    pub(super) fn json(&self) -> Value {
        let pairs = self.devices.iter().flat_map(|(from, links)| {
            let others = self.devices.iter().zip(links).filter_map(|((to, _), link)| Some((to, (*link)?)));
            others.map(move |(to, link)| {
                let direct = match link {
                    Link::Direct => Some(true),
                    Link::ThroughHost => Some(false),
                    Link::Unknown => None,
                };
                json!({ "from": from, "to": to, "direct": direct })
            })
        });
        pairs.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_a_table_of_all_pairs_and_one_device_has_none() {
        let (direct, host) = (Some(Link::Direct), Some(Link::ThroughHost));
        let links =
            Links { devices: vec![("x:0".into(), vec![None, direct]), ("x:1".into(), vec![host, None])] };
        let mut text = String::new();
        links.write(&mut text);
        let lines: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(lines.contains(&vec!["x:0", "-", "direct"]), "{text}");
        assert!(lines.contains(&vec!["x:1", "through", "the", "host", "-"]), "{text}");
        assert_eq!(
            links.json(),
            json!([
                { "from": "x:0", "to": "x:1", "direct": true },
                { "from": "x:1", "to": "x:0", "direct": false },
            ])
        );
        let (mut text, cpu) = (String::new(), Device::open("cpu:0").unwrap());
        Links::of(&[cpu]).write(&mut text);
        assert_eq!(text, "");
    }
}
