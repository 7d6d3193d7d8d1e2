//! `brindle export` with TLS, as programs of others see it, and pools on devices that are served so.

use super::mount::{can_mount, unmount};
use super::nbd::{Exported, image, tool};
use super::support::{brindle_fails, brindle_succeeds, text};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// A directory of certificates of the tests.
fn pki(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/pki").join(name);
    text(&path.canonicalize().expect("it is there")).to_owned()
}

/// The URI of a client, with the certificates of a directory.
fn with_certificates(uri: &str, directory: &str) -> String {
    format!("{uri}&tls-certificates={}", pki(directory))
}

/// Checks that a tool fails; `None`, with a message, if it is not installed.
fn tool_fails(words: &[&str]) -> Option<()> {
    let output = match Command::new(words[0]).args(&words[1..]).output() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: {}: {error}", words[0]);
            return None;
        }
    };
    assert!(!output.status.success(), "{words:?}");
    Some(())
}

#[test]
fn tools_of_libnbd_copy_by_tls() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (disk, socket) = (image(directory.path(), "disk", 8 << 20), directory.path().join("socket"));
    let file = std::fs::File::options().write(true).open(&disk).expect("it is there");
    file.write_all_at(&[5; 300_000], 2 << 20).expect("room");
    drop(file);
    let certificates = pki("server");
    let words = ["--tls-certificates", &certificates, "--tls-verify-peer", text(&disk)];
    let server = Exported::at(&socket, &words);
    assert!(server.uri.starts_with("nbds+unix:///?socket="), "{}", server.uri);
    let uri = with_certificates(&server.uri, "client");
    let Some(told) = tool(&["nbdinfo", &uri]) else { return };
    assert!(told.contains("with TLS"), "{told}");
    let map = tool(&["nbdinfo", "--map", &uri]).expect("installed");
    assert!(map.contains("hole,zero") && map.contains("data"), "{map}");
    let copy = directory.path().join("copy");
    tool(&["nbdcopy", &uri, text(&copy)]).expect("installed");
    assert!(std::fs::read(&copy).expect("made") == std::fs::read(&disk).expect("there"));
    let other = image(directory.path(), "other", 8 << 20);
    let file = std::fs::File::options().write(true).open(&other).expect("it is there");
    file.write_all_at(&[9; 3_000_000], 4 << 20).expect("room");
    tool(&["nbdcopy", "--flush", text(&other), &uri]).expect("installed");
    // In the clear, without a certificate, and with one of another authority.
    let plain = server.uri.replace("nbds+unix", "nbd+unix");
    tool_fails(&["nbdinfo", &plain]).expect("installed");
    for stranger in ["bare", "stranger"] {
        tool_fails(&["nbdinfo", &with_certificates(&server.uri, stranger)]).expect("installed");
    }
    server.end();
    assert!(std::fs::read(&other).expect("there") == std::fs::read(&disk).expect("there"));
    // A client that wants TLS, and a server without.
    let server = Exported::at(&socket, &["--tls=off", "--tls-certificates", &certificates, text(&disk)]);
    let wants = server.uri.replace("nbd+unix", "nbds+unix");
    tool_fails(&["nbdinfo", &with_certificates(&wants, "client")]).expect("installed");
    tool(&["nbdinfo", &server.uri]).expect("installed");
    server.end();
    // Either way.
    let server = Exported::at(&socket, &["--tls=on", "--tls-certificates", &certificates, text(&disk)]);
    tool(&["nbdinfo", &server.uri.replace("nbds+unix", "nbd+unix")]).expect("installed");
    tool(&["nbdinfo", &with_certificates(&server.uri, "bare")]).expect("installed");
}

#[test]
fn wrong_words_of_tls_are_refused_with_the_reason() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (disk, socket) = (image(directory.path(), "disk", 512 << 20), directory.path().join("socket"));
    let (disk, server, client) = (text(&disk), pki("server"), pki("client"));
    let usage = |words: &[&str]| {
        let all = ["export", "--socket", text(&socket)].into_iter().chain(words.iter().copied());
        brindle_fails(2, all.chain([disk]))
    };
    assert!(usage(&["--tls=require"]).contains("--tls-certificates DIR"));
    usage(&["--tls-verify-peer"]);
    usage(&["--tls=maybe", "--tls-certificates", &server]);
    let said = usage(&["--tls=on", "--tls-verify-peer", "--tls-certificates", &server]);
    assert!(said.contains("--tls-verify-peer needs --tls=require"), "{said}");
    usage(&["--tls=off", "--tls-verify-peer", "--tls-certificates", &server]);
    let said = brindle_fails(1, ["export", "--socket", text(&socket), "--tls-certificates", &client, disk]);
    assert!(said.contains("client/server-cert.pem"), "{said}");
    assert!(!socket.exists());
    let served = Exported::at(&socket, &["--tls-certificates", &server, "--tls-verify-peer", disk]);
    for (uri, why) in [
        (served.uri.replace("nbds", "nbd"), "the server wants TLS"),
        (with_certificates(&served.uri, "stranger"), "UnknownIssuer"),
        (with_certificates(&served.uri, "bare"), "CertificateRequired"),
        (format!("{}&tls-hostname=disks.example", with_certificates(&served.uri, "client")), "disks.example"),
    ] {
        let said = brindle_fails(1, ["check", &uri]);
        assert!(said.contains(why), "{said}");
    }
}

/// A pool on an image and two exports, one by TLS, whose servers are killed while files are written and fsynced.
#[test]
fn pool_on_exports_by_tls_survives_servers_that_are_killed() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("temporary directory");
    let images = ["fast", "bulk1", "bulk2"].map(|name| image(directory.path(), name, 512 << 20));
    let certificates = pki("server");
    let serve = |index: usize| {
        let socket = directory.path().join(format!("socket{index}"));
        let words = ["--tls-certificates", &certificates, "--tls-verify-peer", text(&images[index])];
        Some(Exported::at(&socket, &words))
    };
    let mut servers = [None, serve(1), serve(2)];
    let word = |server: &Option<Exported>| {
        let uri = &server.as_ref().expect("it serves").uri;
        format!("{}&x-timeout=300", with_certificates(uri, "client"))
    };
    let words = [text(&images[0]).to_owned(), word(&servers[1]), word(&servers[2])];
    let (fast, bulk) = (format!("{}:fast", words[0]), [1, 2].map(|index| format!("{}:bulk", words[index])));
    brindle_succeeds(["mkfs", "-q", "-d", "raid1", "-m", "raid1", &fast, &bulk[0], &bulk[1]]);
    let place = directory.path().join("place");
    std::fs::create_dir(&place).expect("room");
    brindle_succeeds(["-q", "mount", &words[0], &words[1], &words[2], text(&place)]);
    const ROUNDS: u8 = 4;
    let path = |round: u8, number: u8| place.join(format!("{round}-{number}"));
    for round in 0..ROUNDS {
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                for number in 0..10 {
                    let file = std::fs::File::create_new(path(round, number)).expect("a new file");
                    file.write_all_at(&[round ^ number; 200_000], 0)
                        .and_then(|()| file.sync_all())
                        .expect("durable");
                }
            });
            let index = 1 + usize::from(round) % 2;
            servers[index] = None;
            servers[index] = serve(index);
            writer.join().expect("no panic");
        });
    }
    unmount(&place);
    brindle_succeeds(["-q", "mount", &words[0], &words[1], &words[2], text(&place)]);
    for (round, number) in (0..ROUNDS).flat_map(|round| (0..10).map(move |number| (round, number))) {
        let found = std::fs::read(path(round, number)).expect("it was fsynced");
        assert!(found == [round ^ number; 200_000], "{round}-{number}");
    }
    unmount(&place);
    brindle_succeeds(["check", "--check-data-csum", &words[0], &words[1], &words[2]]);
}

/// A server of nbdkit; killed when it is dropped.
struct Kit(std::process::Child);

impl Drop for Kit {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Contents are those of a server of others, where there is one.
#[test]
fn servers_of_nbdkit_and_qemu_are_used_by_tls() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (disk, socket) = (image(directory.path(), "disk", 512 << 20), directory.path().join("socket"));
    let (disk, place, certificates) = (text(&disk), text(&socket), pki("server"));
    let uri = with_certificates(&format!("nbds+unix:///?socket={place}"), "client");
    let credentials = format!("tls-creds-x509,id=tls,endpoint=server,verify-peer=on,dir={certificates}");
    let servers: [Vec<&str>; 2] = [
        vec![
            "nbdkit",
            "--foreground",
            "--exit-with-parent",
            "--unix",
            place,
            "--tls=require",
            "--tls-certificates",
            &certificates,
            "--tls-verify-peer",
            "file",
            disk,
        ],
        vec![
            "qemu-nbd",
            "--persistent",
            "-f",
            "raw",
            "-k",
            place,
            "--object",
            &credentials,
            "--tls-creds",
            "tls",
            disk,
        ],
    ];
    for words in servers {
        let child = match Command::new(words[0]).args(&words[1..]).spawn() {
            Ok(child) => child,
            Err(error) => {
                println!("skipped: {}: {error}", words[0]);
                continue;
            }
        };
        let server = Kit(child);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(300);
        while !socket.exists() {
            assert!(std::time::Instant::now() < deadline, "{} does not listen", words[0]);
            std::thread::yield_now();
        }
        brindle_succeeds(["mkfs", "-q", "-f", &uri]);
        brindle_succeeds(["check", "--check-data-csum", &uri]);
        let said = brindle_fails(1, ["check", &format!("nbd+unix:///?socket={place}")]);
        assert!(said.contains("the server wants TLS"), "{said}");
        drop(server);
        let _ = std::fs::remove_file(&socket);
    }
}
