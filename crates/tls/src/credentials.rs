//! Certificates, keys and authorities, and the handshakes that are made with them.

use crate::{Session, TlsError, pem};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directories of certificates under the home directory of a user.
const OF_USERS: [&str; 2] = [".pki/libnbd", ".config/pki/libnbd"];
/// The directory of certificates of a host.
const OF_HOST: &str = "/etc/pki/libnbd";
const AUTHORITY: &str = "ca-cert.pem";
const REVOCATIONS: &str = "ca-crl.pem";

/// Certificate and key of a server, and the authority that clients are verified by.
#[derive(Clone, Debug)]
pub struct ServerCredentials(Arc<ServerConfig>);

/// The authority that servers are verified by, and the certificate and key of a client that has one.
#[derive(Clone, Debug)]
pub struct ClientCredentials(Arc<ClientConfig>);

impl ServerCredentials {
    /// Reads `server-cert.pem` and `server-key.pem`. If clients are verified, reads `ca-cert.pem` and `ca-crl.pem` as well: a client
    /// without a certificate of that authority is refused.
    ///
    /// # Errors
    /// Files that are missing, damaged or do not belong together.
    pub fn load(directory: &Path, verifies_clients: bool) -> Result<Self, TlsError> {
        let unusable = |why: &dyn Display| unusable(directory, why);
        let certificates = pem::certificates(&directory.join("server-cert.pem"))?;
        let key = pem::private_key(&directory.join("server-key.pem"))?;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?;
        let builder = if verifies_clients {
            let verifier = WebPkiClientVerifier::builder_with_provider(authority(directory)?, provider())
                .with_crls(pem::revocation_lists(&directory.join(REVOCATIONS))?)
                // An authority in between may have no list of its own.
                .allow_unknown_revocation_status()
                .build()
                .map_err(|error| unusable(&error))?;
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let mut config = builder.with_single_cert(certificates, key).map_err(|error| unusable(&error))?;
        // A connection that is made again shakes hands again.
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    /// Shakes hands with a client.
    ///
    /// # Errors
    /// Those of the socket, bytes that are not TLS, a client that is refused or refuses.
    pub fn accept(&self, socket: &mut (impl Read + Write)) -> io::Result<Session> {
        let connection = ServerConnection::new(Arc::clone(&self.0)).map_err(io::Error::other)?;
        Session::shake_hands(connection.into(), socket)
    }
}

impl ClientCredentials {
    /// Reads `ca-cert.pem` and `ca-crl.pem`, and `client-cert.pem` and `client-key.pem` if they are there. Without a directory, the
    /// first that exists is taken of `~/.pki/libnbd`, `~/.config/pki/libnbd` and `/etc/pki/libnbd`.
    ///
    /// # Errors
    /// No directory; files that are missing, damaged or do not belong together.
    pub fn load(directory: Option<&Path>) -> Result<Self, TlsError> {
        let directory = &match directory {
            Some(directory) => directory.to_owned(),
            None => usual_directory()?,
        };
        let unusable = |why: &dyn Display| unusable(directory, why);
        let verifier = WebPkiServerVerifier::builder_with_provider(authority(directory)?, provider())
            .with_crls(pem::revocation_lists(&directory.join(REVOCATIONS))?)
            .allow_unknown_revocation_status()
            .build()
            .map_err(|error| unusable(&error))?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?
            .with_webpki_verifier(verifier);
        let (certificate, key) = (directory.join("client-cert.pem"), directory.join("client-key.pem"));
        let mut config = if certificate.exists() || key.exists() {
            builder
                .with_client_auth_cert(pem::certificates(&certificate)?, pem::private_key(&key)?)
                .map_err(|error| unusable(&error))?
        } else {
            builder.with_no_client_auth()
        };
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }

    /// Shakes hands with a server, whose certificate must be for `host`, a name or an address.
    ///
    /// # Errors
    /// Those of the socket, a host that is no name, bytes that are not TLS, a server that is refused or refuses.
    pub fn connect(&self, host: &str, socket: &mut (impl Read + Write)) -> io::Result<Session> {
        let wrong = |error| io::Error::new(io::ErrorKind::InvalidInput, format!("{host}: {error}"));
        let name = ServerName::try_from(host.to_owned()).map_err(wrong)?;
        let connection = ClientConnection::new(Arc::clone(&self.0), name).map_err(io::Error::other)?;
        Session::shake_hands(connection.into(), socket)
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn unusable(directory: &Path, why: &dyn Display) -> TlsError {
    TlsError::Unusable { directory: directory.to_owned(), why: why.to_string() }
}

/// The authority of a directory.
fn authority(directory: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in pem::certificates(&directory.join(AUTHORITY))? {
        roots.add(certificate).map_err(|error| unusable(directory, &error))?;
    }
    Ok(Arc::new(roots))
}

fn usual_directory() -> Result<PathBuf, TlsError> {
    let home = std::env::home_dir();
    let of_user = OF_USERS.iter().filter_map(|place| Some(home.as_ref()?.join(place)));
    let places: Vec<PathBuf> = of_user.chain([OF_HOST.into()]).collect();
    let found = places.iter().find(|place| place.join(AUTHORITY).exists()).cloned();
    found.ok_or_else(|| {
        let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        TlsError::NoDirectory { places: places.join(", ") }
    })
}
