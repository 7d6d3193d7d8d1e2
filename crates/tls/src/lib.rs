//! TLS 1.2 and 1.3 on a socket that several threads use: credentials of a server ([`ServerCredentials`]) and of a client
//! ([`ClientCredentials`]), read from a directory of PEM files, and the [`Session`] that a handshake leaves, by which one thread reads
//! while others write. The protocol is that of rustls, with the cryptography of ring.
//!
//! A directory has the names that the programs of libnbd, nbdkit and qemu look for: `ca-cert.pem`, `ca-crl.pem` if there is one,
//! `server-cert.pem` and `server-key.pem`, `client-cert.pem` and `client-key.pem`. A peer is verified by that authority alone: the
//! system's authorities have no say.
//!
//! Keys that both sides share (PSK) are not supported: rustls has none.
//! Must not know: NBD, the time that a peer may take, the moment at which a connection turns to TLS.

mod credentials;
mod error;
mod pem;
mod session;

pub use credentials::{ClientCredentials, ServerCredentials};
pub use error::TlsError;
pub use session::Session;

#[cfg(test)]
mod tests;
