//! Where ranks that torchrun started meet.
//!
//! torchrun's agent occupies the port in `MASTER_PORT`, so rank 0 listens at the first free port after it,
//! and the other ranks try these ports in turn. But any program may be listening there: another library that
//! looks for a free port, another run, another user. So a rank only accepts a program as rank 0 if it proves
//! that it knows this run's secret.
//!
//! The secret either comes from you, or, if all ranks are on one host, from a file that the user's processes
//! share. We mix it with what torchrun says about the run. That information alone would not be secret,
//! because the id of a run is often just `none`. If someone could predict the secret, they could join the run
//! as a rank or make it meet somewhere else.

use std::path::Path;
use std::time::Duration;

use gpustream::{Error, Result};

use super::{Exchange as _, ExchangeError, FileExchange, Secret, TcpExchange};
use crate::failure::invalid;

/// torchrun sets this to `True` if its agent listens at `MASTER_PORT`.
const AGENT_LISTENS: &str = "TORCHELASTIC_USE_AGENT_STORE";
/// The run, and how often this host's agent has restarted its processes.
const RUN: [&str; 2] = ["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"];
/// The number of ranks, and how many of them are on this host.
const SIZES: [&str; 2] = ["WORLD_SIZE", "LOCAL_WORLD_SIZE"];
/// How many ports after the agent's rank 0 may try.
const PORTS: u16 = 16;

/// Where the ranks of a torchrun run meet.
#[derive(Clone, Debug)]
pub struct TorchrunPlace {
    /// The addresses that rank 0 may listen at.
    addresses: Vec<String>,
    /// Text that identifies this run.
    run: String,
    /// `None` means the secret that the user's processes on this host share.
    secret: Option<Secret>,
}

impl TorchrunPlace {
    /// Returns the place after `host` and `port`, if torchrun's agent listens there. Returns `None` if rank 0
    /// can listen there itself.
    pub(super) fn read(
        lookup: &dyn Fn(&str) -> Option<String>,
        (host, port): (&str, u16),
        secret: Option<Secret>,
    ) -> Result<Option<Self>> {
        if lookup(AGENT_LISTENS).is_none_or(|listens| listens.trim() != "True") {
            return Ok(None);
        }
        let [all, here] = SIZES.map(|name| lookup(name).and_then(|size| size.trim().parse::<usize>().ok()));
        let is_one_host = all.is_some() && all == here;
        if secret.is_none() && !is_one_host {
            return invalid(format!(
                "the ranks of several hosts meet at the ports after {host}:{port}, where any program could connect, but no secret is set; make \
                 one with `openssl rand -hex 32` and give it to all ranks as GPUSTREAM_EXCHANGE_SECRET"
            ));
        }
        // If all ranks are on one host, other hosts need not reach them.
        let host = if is_one_host { "127.0.0.1" } else { host };
        let ports = port.saturating_add(1)..=port.saturating_add(PORTS);
        let addresses = ports.filter(|behind| *behind > port).map(|port| format!("{host}:{port}")).collect();
        let [id, restarts] = RUN.map(|name| lookup(name).unwrap_or_default());
        // Agents on several hosts count restarts independently, so they may differ. Two agents on one host
        // have different ports.
        let restarts = if is_one_host { restarts.trim() } else { "" };
        let run = [id.trim(), restarts, &format!("{host}:{port}")].join("\0");
        Ok(Some(Self { addresses, run, secret }))
    }

    pub(super) fn join(&self, rank: usize, limit: Duration) -> Result<TcpExchange> {
        let secret = self.secret.clone().map_or_else(|| of_user(&std::env::temp_dir()), Ok)?;
        let secret = secret.of_run(&self.run);
        match rank {
            0 => TcpExchange::listen_at_first(&self.addresses, &secret),
            _ => TcpExchange::find(&self.addresses, &secret, limit),
        }
    }
}

/// Returns the secret that this user's processes share through a file in a private folder. The first process
/// creates it.
fn of_user(temporary: &Path) -> Result<Secret> {
    let folder = temporary.join(format!("gpustream-exchange-{}", rustix::process::geteuid().as_raw()));
    read_or_make(&folder).map_err(|error| {
        error.with_context(
            "the ranks of this host cannot share a secret through a file; give all of them one as GPUSTREAM_EXCHANGE_SECRET (`openssl rand \
             -hex 32` makes one)",
        )
    })
}

fn read_or_make(folder: &Path) -> Result<Secret> {
    const KEY: &str = "secret";
    let there_before = |outcome: Result<()>| match outcome {
        Err(error) if ExchangeError::of(&error).is_some_and(ExchangeError::was_there) => Ok(()),
        outcome => outcome,
    };
    there_before(FileExchange::create(folder).map(drop))?;
    let folder = FileExchange::open_secret(folder)?;
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(Error::external)?;
    there_before(folder.put(KEY, Secret::of_bytes(random).text().as_bytes()))?;
    let text = folder.get(KEY, Duration::ZERO)?;
    Secret::new(std::str::from_utf8(&text).map_err(Error::external)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn secret_is_the_same_for_all_processes_of_a_user() {
        let temporary = tempfile::tempdir().unwrap();
        let show = |secret: &Secret| secret.of_run("").text().to_owned();
        let first = show(&of_user(temporary.path()).unwrap());
        assert_eq!(show(&of_user(temporary.path()).unwrap()), first);
        let elsewhere = tempfile::tempdir().unwrap();
        assert_ne!(show(&of_user(elsewhere.path()).unwrap()), first);
    }

    #[test]
    fn folder_that_others_can_read_keeps_no_secret() {
        let temporary = tempfile::tempdir().unwrap();
        of_user(temporary.path()).unwrap();
        let folder = fs::read_dir(temporary.path()).unwrap().next().unwrap().unwrap().path();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        for mode in [0o750, 0o701, 0o770] {
            fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
            let error = of_user(temporary.path()).unwrap_err();
            assert!(error.to_string().contains("GPUSTREAM_EXCHANGE_SECRET"), "{error}");
        }
    }
}
