//! Launch attributes of kernel nodes. Drivers take these attributes when a node is made, and cannot change them in an
//! executable.

use gpustream_hal::{Error, ErrorKind, LaunchConfig, RawGraphNode, Result, Work};

/// The nodes whose kernels have launch attributes, each with its attributes.
#[derive(Default)]
pub struct Attributed(Vec<(RawGraphNode, Attributes)>);

/// The attributes of a launch: true if it is cooperative, and the size of its clusters. An early start has no effect in a
/// node.
pub(crate) type Attributes = (bool, [u32; 3]);

const NO_ATTRIBUTES: Attributes = (false, [1; 3]);

/// Returns the launch's attributes. Its node keeps them for life.
pub(crate) fn attributes(config: &LaunchConfig) -> Attributes {
    (config.cooperative, config.cluster)
}

impl Attributed {
    pub(crate) fn add(&mut self, node: RawGraphNode, work: &Work<'_>) {
        if let Work::Kernel { config, .. } = work
            && attributes(config) != NO_ATTRIBUTES
        {
            self.0.push((node, attributes(config)));
        }
    }

    /// Checks that a launch that you want to put into `node` has the node's attributes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the launch has other attributes.
    #[inline]
    pub(crate) fn check(&self, node: RawGraphNode, work: &Work<'_>) -> Result<()> {
        match work {
            Work::Kernel { config, .. } if !(config.is_plain() && self.0.is_empty()) => {
                self.check_attributes(node, config)
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn check_attributes(&self, node: RawGraphNode, config: &LaunchConfig) -> Result<()> {
        let of_node = self.0.iter().find(|(other, _)| *other == node).map_or(NO_ATTRIBUTES, |found| found.1);
        if of_node == attributes(config) {
            return Ok(());
        }
        let words = |(cooperative, [x, y, z]): Attributes| {
            let kind = if cooperative { "a cooperative launch" } else { "an ordinary launch" };
            format!("{kind} in clusters of {x} by {y} by {z}")
        };
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "the node was made for {}, but you set it to {}, and this cannot be changed; build the graph again",
                words(of_node),
                words(attributes(config))
            ),
        ))
    }
}
