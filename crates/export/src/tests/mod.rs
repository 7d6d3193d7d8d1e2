//! The server and clients of any kind.

mod client;
mod guarded;
mod server;
mod tls;
