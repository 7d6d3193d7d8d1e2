//! Bytes of a client, as they come over a socket: the server answers or leaves, and serves the next client.

#![no_main]

use brindle_device::{DeviceClass, SparseDevice};
use brindle_export::{Export, Listener, Server};
use libfuzzer_sys::fuzz_target;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Longest time of a client; the server's own limits are longer.
const LIMIT: Duration = Duration::from_secs(10);

struct Serving {
    socket: PathBuf,
    _server: Server,
}

/// One server for all inputs.
fn serving() -> &'static Serving {
    static SERVING: OnceLock<Serving> = OnceLock::new();
    SERVING.get_or_init(|| {
        let socket = std::env::temp_dir().join(format!("brindle-fuzz-{}.sock", std::process::id()));
        let device = SparseDevice::new("disk", 1 << 20, DeviceClass::Unknown);
        let export = Export::writable("disk", Arc::new(device)).expect("a name");
        let server = Server::start(Listener::unix(&socket).expect("a socket"), export).expect("threads");
        Serving { socket, _server: server }
    })
}

fuzz_target!(|data: &[u8]| {
    let mut client = UnixStream::connect(&serving().socket).expect("it serves");
    client.set_read_timeout(Some(LIMIT)).expect("a socket");
    client.set_write_timeout(Some(LIMIT)).expect("a socket");
    // The server may leave at any byte.
    let _ = client.write_all(data).and_then(|()| client.shutdown(Shutdown::Write));
    let mut answers = Vec::new();
    match Read::by_ref(&mut client).take(64 << 20).read_to_end(&mut answers) {
        Ok(_) => {}
        Err(error) => {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "the server neither answers nor leaves")
        }
    }
});
