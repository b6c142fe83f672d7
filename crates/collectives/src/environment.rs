//! The variables that launchers set to tell a process its rank. We read them through a function, so that
//! tests need not change the environment of the process.

use std::time::Duration;

use gpustream::Result;

use crate::failure::invalid;

/// A program that starts the processes of a world. We recognise it by the variables that it sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Launcher {
    /// `PyTorch`'s `torchrun`: `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR`, `MASTER_PORT`.
    Torchrun,
    /// Open MPI's `mpirun`: `OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE`, `OMPI_COMM_WORLD_LOCAL_RANK`.
    OpenMpi,
    /// `mpirun` of MPICH, Intel MPI and others with the Hydra process manager, or anything else that speaks
    /// PMI: `PMI_RANK`, `PMI_SIZE`, and the local rank from `MPI_LOCALRANKID` if it is set.
    Pmi,
    /// SLURM's `srun`: `SLURM_PROCID`, `SLURM_NTASKS`, `SLURM_LOCALID`.
    Slurm,
}

/// What the launcher told this process about its place in the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaunchedProcess {
    pub(crate) launcher: Launcher,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) local_rank: Option<usize>,
    /// Rank 0's address and port.
    pub(crate) master: Option<(String, u16)>,
}

/// The variables that a launcher sets.
struct Set {
    launcher: Launcher,
    name: &'static str,
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
    /// The variables that the launcher always sets. If any of them is missing, the set is incomplete.
    needed: &'static [&'static str],
}

const ADDRESS: &str = "MASTER_ADDR";
const PORT: &str = "MASTER_PORT";

/// The sets, in the order that we look for them.
const SETS: [Set; 4] = [
    Set {
        launcher: Launcher::Torchrun,
        name: "torchrun",
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        needed: &["RANK", "WORLD_SIZE", "LOCAL_RANK", ADDRESS, PORT],
    },
    Set {
        launcher: Launcher::OpenMpi,
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        needed: &["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
    },
    Set {
        launcher: Launcher::Pmi,
        name: "PMI (MPICH, Hydra)",
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        needed: &["PMI_RANK", "PMI_SIZE"],
    },
    Set {
        launcher: Launcher::Slurm,
        name: "SLURM",
        rank: "SLURM_PROCID",
        size: "SLURM_NTASKS",
        local_rank: "SLURM_LOCALID",
        needed: &["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
    },
];

impl Set {
    fn read(&self, lookup: &dyn Fn(&str) -> Option<String>) -> Result<LaunchedProcess> {
        let size = number(lookup, self.size)?.unwrap_or(0);
        if size == 0 {
            return invalid(format!(
                "{}=0, but a world must have at least one rank; start the program with {}",
                self.size, self.name
            ));
        }
        let below_size = |name: &str| match number(lookup, name)? {
            Some(rank) if rank >= size => invalid(format!(
                "{name}={rank} is not a rank of a world of {size} ranks ({}); ranks are 0 to {}",
                self.size,
                size - 1
            )),
            rank => Ok(rank),
        };
        Ok(LaunchedProcess {
            launcher: self.launcher,
            rank: below_size(self.rank)?.unwrap_or(0),
            size,
            local_rank: below_size(self.local_rank)?,
            master: master(lookup)?,
        })
    }
}

/// Reads the first complete set of variables.
pub(crate) fn read(lookup: &dyn Fn(&str) -> Option<String>) -> Result<LaunchedProcess> {
    let lookup = &|name: &str| lookup(name).filter(|value| !value.trim().is_empty());
    let mut incomplete = Vec::new();
    for set in &SETS {
        let (present, missing): (Vec<&str>, Vec<&str>) =
            set.needed.iter().copied().partition(|name| lookup(name).is_some());
        if missing.is_empty() {
            return set.read(lookup);
        }
        if !present.is_empty() {
            incomplete.push(format!(
                "{} sets {}, but of these {} {} missing",
                set.name,
                set.needed.join(", "),
                missing.join(", "),
                if missing.len() == 1 { "is" } else { "are" },
            ));
        }
    }
    if incomplete.is_empty() {
        return invalid(
            "no launcher has told this process its rank; start the program with torchrun, mpirun or srun, or make the world \
             with `World::alone` or `World::local`",
        );
    }
    invalid(format!(
        "the launcher's variables do not fully describe this process's rank: {}; set what is missing",
        incomplete.join("; ")
    ))
}

/// Reads rank 0's address. Some launchers set it, and you can set it for the others.
pub(crate) fn master(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Option<(String, u16)>> {
    match (lookup(ADDRESS), lookup(PORT)) {
        (None, None) => Ok(None),
        (Some(address), Some(port)) => match port.trim().parse::<u16>() {
            Ok(number) if number > 0 => Ok(Some((address.trim().to_owned(), number))),
            _ => invalid(format!("{PORT}={port} is not a port; give a number from 1 to 65535")),
        },
        (Some(_), None) => invalid(format!("{ADDRESS} is set, but {PORT} is missing; set both or neither")),
        (None, Some(_)) => invalid(format!("{PORT} is set, but {ADDRESS} is missing; set both or neither")),
    }
}

fn number(lookup: &dyn Fn(&str) -> Option<String>, name: &str) -> Result<Option<usize>> {
    let Some(text) = lookup(name) else { return Ok(None) };
    match text.trim().parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => invalid(format!("{name}={text} is not a number; give a whole number, 0 or more")),
    }
}

/// The variable for the communicators' time limit.
const TIMEOUT: &str = "GPUSTREAM_COLLECTIVES_TIMEOUT";
/// The default time limit. It is the same as for `PyTorch`'s process groups.
const LIMIT: Duration = Duration::from_secs(600);

/// Returns the time limit from the environment, or the default.
pub(crate) fn time_limit(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Duration> {
    match lookup(TIMEOUT).filter(|value| !value.trim().is_empty()) {
        None => Ok(LIMIT),
        Some(text) => match text.trim().parse::<u64>() {
            Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
            _ => invalid(format!(
                "{TIMEOUT}={text} is not a time limit; give a whole number of seconds, 1 or more"
            )),
        },
    }
}

/// The variable that makes the ranks compare their calls.
const CHECKED: &str = "GPUSTREAM_COLLECTIVES_CHECKED";

/// Returns true if the environment asks for calls to be compared.
pub(crate) fn checked(lookup: &dyn Fn(&str) -> Option<String>) -> Result<bool> {
    match lookup(CHECKED).as_deref().map(str::trim) {
        None | Some("" | "0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => invalid(format!(
            "{CHECKED}={other} is neither 0 nor 1; give 1 if the ranks should compare their calls"
        )),
    }
}

/// Reads a variable of this process.
pub(crate) fn of_process(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod tests {
    use super::*;

    #[test]
    fn calls_are_compared_if_the_variable_is_1() {
        let checked = |value: Option<&str>| {
            let value = value.map(str::to_owned);
            checked(&move |name| value.clone().filter(|_| name == "GPUSTREAM_COLLECTIVES_CHECKED"))
        };
        for (value, compared) in [(None, false), (Some(""), false), (Some("0"), false), (Some(" 1 "), true)] {
            assert_eq!(checked(value).unwrap(), compared, "{value:?}");
        }
        let error = checked(Some("yes")).unwrap_err();
        assert!(
            error.message().contains("GPUSTREAM_COLLECTIVES_CHECKED=yes is neither 0 nor 1; give 1"),
            "{error}"
        );
    }

    #[test]
    fn time_limit_is_the_variables_or_the_default() {
        let limit = |value: Option<&str>| {
            let value = value.map(str::to_owned);
            time_limit(&move |name| value.clone().filter(|_| name == "GPUSTREAM_COLLECTIVES_TIMEOUT"))
        };
        assert_eq!(limit(None).unwrap(), Duration::from_secs(600));
        assert_eq!(limit(Some("")).unwrap(), Duration::from_secs(600));
        assert_eq!(limit(Some(" 5 ")).unwrap(), Duration::from_secs(5));
        for bad in ["0", "-1", "1.5", "soon"] {
            let error = limit(Some(bad)).unwrap_err();
            assert!(error.message().contains(&format!("GPUSTREAM_COLLECTIVES_TIMEOUT={bad}")), "{error}");
        }
    }
}
