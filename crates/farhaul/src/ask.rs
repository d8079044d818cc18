//! Asking a running gateway: where its admin socket is, and one thread to wait on.

use std::future::Future;
use std::path::PathBuf;

use clap::Args;
use farhaul_gateway::admin::DEFAULT_SOCKET;
use farhaul_gateway::admin::client::{Client, ClientError};
use farhaul_gateway::config::load::load_without_key;

use crate::failure::Failure;

/// Which gateway is asked.
#[derive(Debug, Args)]
pub(crate) struct Where {
    /// The gateway's admin socket (default: /run/farhaul/gateway.sock).
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// The gateway's configuration file, which names its admin socket.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

impl Where {
    /// The gateway's client; does not connect yet.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let path = match (&self.socket, &self.config) {
            (Some(socket), _) => socket.clone(),
            (None, Some(file)) => {
                load_without_key(file)
                    .map_err(Failure::failed)?
                    .config
                    .admin
                    .socket
            }
            (None, None) => PathBuf::from(DEFAULT_SOCKET),
        };
        Ok(Client::new(path))
    }

    /// Runs one question to its end.
    pub(crate) fn ask<T, A>(&self, question: impl FnOnce(Client) -> A) -> Result<T, Failure>
    where
        A: Future<Output = Result<T, ClientError>>,
    {
        block_on(question(self.client()?))?.map_err(|error| match error {
            ClientError::NotUtf8(_) => Failure::usage(error),
            _ => Failure::failed(error),
        })
    }
}

/// Waits for a future on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> Result<F::Output, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start the runtime: {error}")))?;
    Ok(runtime.block_on(future))
}
