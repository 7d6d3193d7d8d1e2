//! Options of TLS.

use crate::commands::usage::wrong_usage;
use anyhow::Result;
use brindle_export::{Encryption, ServerCredentials};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Options of a server about TLS.
#[derive(Args, Debug)]
pub(super) struct TlsOptions {
    /// Serve with TLS, by the certificates of this directory
    #[arg(long, value_name = "DIR")]
    tls_certificates: Option<PathBuf>,
    /// Clients that do not turn to TLS: serve all so (off), serve them as well (on), refuse them (require)
    ///
    /// Without this, require if there are certificates, else off.
    #[arg(long, value_name = "MODE")]
    tls: Option<TlsMode>,
    /// Refuse clients without a certificate of the authority in ca-cert.pem
    #[arg(long, requires = "tls_certificates")]
    tls_verify_peer: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TlsMode {
    Off,
    On,
    Require,
}

impl TlsOptions {
    /// Reads the certificates that are asked for.
    pub(super) fn encryption(&self) -> Result<Encryption> {
        let mode = match (self.tls, &self.tls_certificates) {
            (Some(mode), _) => mode,
            (None, Some(_)) => TlsMode::Require,
            (None, None) => TlsMode::Off,
        };
        let credentials = || match &self.tls_certificates {
            Some(directory) => Ok(ServerCredentials::load(directory, self.tls_verify_peer)?),
            None => wrong_usage("TLS needs --tls-certificates DIR".to_owned()),
        };
        match mode {
            TlsMode::Off if self.tls_verify_peer => {
                wrong_usage("--tls-verify-peer is of no use with --tls=off".to_owned())
            }
            // Clients in the clear show no certificate: all would be served.
            TlsMode::On if self.tls_verify_peer => {
                wrong_usage("--tls-verify-peer needs --tls=require: with --tls=on a client in the clear shows no certificate".to_owned())
            }
            TlsMode::Off => Ok(Encryption::Off),
            TlsMode::On => Ok(Encryption::Offered(credentials()?)),
            TlsMode::Require => Ok(Encryption::Required(credentials()?)),
        }
    }
}
