//! The server and clients of any kind.

mod client;
mod guarded;
mod repeated;
mod server;
mod tls;
