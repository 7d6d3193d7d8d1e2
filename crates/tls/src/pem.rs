//! PEM files.

use crate::TlsError;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use std::io;
use std::path::Path;

/// The certificates of a file, one at least.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    all(path, "certificate")
}

/// The private key of a file.
pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    Ok(all(path, "private key without a password")?.remove(0))
}

/// The revocation lists of a file; none if it does not exist.
pub(crate) fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    match all(path, "revocation list") {
        Err(TlsError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        found => found,
    }
}

/// All items of a kind.
fn all<Item: PemObject>(path: &Path, kind: &str) -> Result<Vec<Item>, TlsError> {
    let bytes = std::fs::read(path).map_err(|source| TlsError::File { path: path.to_owned(), source })?;
    let wrong = |why| TlsError::Contents { path: path.to_owned(), why };
    let found = Item::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| wrong(format!("no PEM file: {error}")))?;
    if found.is_empty() { Err(wrong(format!("it has no {kind}"))) } else { Ok(found) }
}
