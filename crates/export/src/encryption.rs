//! Use of TLS by a server.

use brindle_tls::ServerCredentials;

/// Use of TLS by a server.
#[derive(Clone, Debug, Default)]
pub enum Encryption {
    /// All connections are in the clear.
    #[default]
    Off,
    /// A client may turn to TLS, or stay in the clear.
    Offered(ServerCredentials),
    /// Nothing is told to a client that does not turn to TLS.
    Required(ServerCredentials),
}

impl Encryption {
    /// Credentials, if a client may turn to TLS.
    pub(crate) fn credentials(&self) -> Option<&ServerCredentials> {
        match self {
            Self::Off => None,
            Self::Offered(credentials) | Self::Required(credentials) => Some(credentials),
        }
    }

    pub(crate) fn is_required(&self) -> bool {
        matches!(self, Self::Required(_))
    }
}
