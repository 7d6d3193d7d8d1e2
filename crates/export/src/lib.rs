//! Devices shown to other programs: a server of the network block device protocol (NBD).
//!
//! The walk of a request: a client connects to the [`Listener`], the [`Server`] gives the connection a thread, and `handshake` agrees
//! with the client on the [`Export`] and the form of answers. The thread leads then: it takes requests from the socket
//! (`input`), performs them on the device (`perform`), and puts the answers into a list that is sent before it waits for the
//! client. Before it waits for the device it sends that list and gives the lead to another thread (`connection`), so a slow
//! request keeps no other one waiting, and quick ones cost no change of threads.
//!
//! A client may send anything and may stop at any byte. A handshake has a time limit, and so has the rest of a request that has begun, and an
//! answer that the client does not take; requests have a longest payload; connections, their threads and the memory of all requests
//! (`budget`) are limited. A peer that is out of step is disconnected.
//!
//! A client turns to TLS by its first options, where the server has credentials ([`Encryption`]); the rest of the connection passes by a
//! session, and a server that requires TLS tells nothing before.
//!
//! A write that was answered is as durable as the device makes it: by a flush on any connection, which is one of the whole
//! device, or by FUA.
//! Must not know: btrfs, the command line, the meaning of what lies on a device.

mod budget;
mod connection;
mod encryption;
mod error;
mod export;
mod handshake;
mod input;
mod perform;
mod server;
mod stream;

pub use brindle_tls::{ServerCredentials, TlsError};
pub use encryption::Encryption;
pub use error::ExportError;
pub use export::Export;
pub use server::{CONNECTIONS_MAX, Server};
pub use stream::Listener;

#[cfg(test)]
mod tests;
