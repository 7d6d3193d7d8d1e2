//! The server and clients of any kind.

mod client;
mod server;
