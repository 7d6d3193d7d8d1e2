//! Bytes of a server, as they come over a socket: the device is refused or opened, and its requests are answered or fail in time. A
//! second connection shows a shorter export, which is its end.

#![no_main]

use brindle_device::{Device, NbdDevice, WritableDevice};
use brindle_nbd::{ExportFlags, HandshakeFlags, Information, NbdUri, greeting, information};
use libfuzzer_sys::fuzz_target;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

/// Bytes that the next connection gets; none: those of a short export.
static NEXT: Mutex<Option<Vec<u8>>> = Mutex::new(None);

fn socket() -> &'static PathBuf {
    static SOCKET: OnceLock<PathBuf> = OnceLock::new();
    SOCKET.get_or_init(|| {
        let socket = std::env::temp_dir().join(format!("brindle-fuzz-client-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).expect("a socket");
        std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
        socket
    })
}

fn serve(mut client: UnixStream) {
    let bytes = NEXT.lock().expect("no panic").take().unwrap_or_else(short_export);
    let _ = client.write_all(&bytes).and_then(|()| client.shutdown(Shutdown::Write));
    // Kept until the next one: a close with bytes that were not read may take away those that were sent.
    static LAST: Mutex<Option<UnixStream>> = Mutex::new(None);
    *LAST.lock().expect("no panic") = Some(client);
}

/// A handshake with an export of 512 bytes.
fn short_export() -> Vec<u8> {
    let flags = ExportFlags::HAS_FLAGS | ExportFlags::SEND_FLUSH;
    let fact = information(&Information::Export { size_bytes: 512, flags });
    let reply = |kind: u32, contents: &[u8]| {
        let length = u32::try_from(contents.len()).expect("short");
        let head = [&0x0003_e889_0455_65a9_u64.to_be_bytes()[..], &7_u32.to_be_bytes(), &kind.to_be_bytes()]
            .concat();
        [&head[..], &length.to_be_bytes(), contents].concat()
    };
    [greeting(HandshakeFlags::all()).to_vec(), reply(3, &fact), reply(1, b"")].concat()
}

fuzz_target!(|data: &[u8]| {
    let socket = socket();
    *NEXT.lock().expect("no panic") = Some(data.to_vec());
    let word = format!("nbd+unix:///disk?socket={}&x-timeout=2", socket.display());
    let uri = NbdUri::parse(&word).expect("one of ours").expect("right");
    let Ok(device) = NbdDevice::open_writable(&uri) else { return };
    let size = device.size_bytes();
    assert!(size >= 1 << 10 || device.read_at(size, &mut [0; 512]).is_err(), "beyond the end");
    let _ = device.read_at(0, &mut [0; 4096]);
    let _ = device.write_at(4096, &[1; 4096]);
    let _ = device.flush();
    let _ = device.discard(0, 4096);
});
