//! The place of this process in a world, as the launcher's variables say, and the meeting place of its ranks.

use gpustream::Result;
use gpustream_collectives::{Launcher, Rendezvous, World};
use serde_json::{Value, json};

pub(super) struct Told {
    world: Result<World>,
    place: Result<Rendezvous>,
}

/// One entry of the report.
pub(super) struct Words {
    pub(super) name: &'static str,
    pub(super) state: String,
    pub(super) details: Vec<(&'static str, String)>,
}

impl Told {
    /// Reads the variables of this process.
    pub(super) fn collect() -> Self {
        Self { world: World::from_env(), place: Rendezvous::from_env() }
    }

    pub(super) fn words(&self) -> [Words; 2] {
        let not_told = |name, error: &gpustream::Error| Words {
            name,
            state: "not told".to_owned(),
            details: vec![("why", error.message().to_owned())],
        };
        let world = match &self.world {
            Ok(world) => {
                let local = world.local_rank().map(|rank| format!(", {rank} on its host"));
                let state = format!("rank {} of {}{}", world.rank(), world.size(), local.unwrap_or_default());
                let details = world.launcher().map(|by| ("told by", launcher(by))).into_iter().collect();
                Words { name: "world", state, details }
            }
            Err(error) => not_told("world", error),
        };
        let place = match &self.place {
            Ok(place) => {
                let details = vec![("for", "ranks in several processes meet there".to_owned())];
                Words { name: "place", state: words_for(place), details }
            }
            Err(error) => not_told("place", error),
        };
        [world, place]
    }

    pub(super) fn json(&self) -> Value {
        let (world, place) = (self.world.as_ref(), self.place.as_ref());
        json!({
            "launcher": world.ok().and_then(World::launcher).map(launcher),
            "rank": world.ok().map(World::rank),
            "size": world.ok().map(World::size),
            "local_rank": world.ok().and_then(World::local_rank),
            "world_problem": world.err().map(gpustream::Error::message),
            "place": place.ok().map(words_for),
            "place_problem": place.err().map(gpustream::Error::message),
        })
    }
}

fn launcher(launcher: Launcher) -> String {
    match launcher {
        Launcher::Torchrun => "torchrun".to_owned(),
        Launcher::OpenMpi => "Open MPI".to_owned(),
        Launcher::Pmi => "PMI".to_owned(),
        Launcher::Slurm => "SLURM".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Returns the words for a place, without the secret.
fn words_for(place: &Rendezvous) -> String {
    match place {
        Rendezvous::Tcp { address, .. } => format!("tcp://{address}"),
        Rendezvous::Folder(folder) => format!("file:{}", folder.display()),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(variables: &[(&str, &str)]) -> Told {
        let lookup = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Told { world: World::from_variables(lookup), place: Rendezvous::from_variables(lookup) }
    }

    #[test]
    fn complete_variables_are_told_without_the_secret() {
        let told = told(&[
            ("SLURM_PROCID", "1"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_LOCALID", "0"),
            ("GPUSTREAM_EXCHANGE", "tcp://node0:29600"),
            ("GPUSTREAM_EXCHANGE_SECRET", "a secret of the tests"),
        ]);
        let [world, place] = told.words();
        assert_eq!(
            (world.state.as_str(), world.details[0].1.as_str()),
            ("rank 1 of 4, 0 on its host", "SLURM")
        );
        assert_eq!(place.state, "tcp://node0:29600");
        assert_eq!(told.json()["size"], json!(4));
        assert!(!told.json().to_string().contains("a secret"), "{}", told.json());
    }

    #[test]
    fn incomplete_variables_are_told_with_what_is_missing() {
        let told = told(&[("SLURM_PROCID", "1"), ("SLURM_NTASKS", "4"), ("MASTER_ADDR", "node0")]);
        let [world, place] = told.words();
        assert!(world.details[0].1.contains("SLURM_LOCALID is missing"), "{:?}", world.details);
        assert!(place.details[0].1.contains("MASTER_PORT is missing"), "{:?}", place.details);
        assert_eq!(told.json()["rank"], Value::Null);
    }
}
