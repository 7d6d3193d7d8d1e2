//! A mail server with one directory for each job: mails come, are read, marked and deleted.
//!
//! A mail is written in `tmp`, synced, renamed into `new`, and the directory synced, before it is acknowledged. After it, of
//! the mails that came before: one is read and marked, which renames it into `cur`, and a line is added to the index, with
//! fdatasync; every other time one is deleted.

use super::RunOptions;
use super::phase::{Done, Phase, measure};
use super::work::{directory_of, make_directories};
use brindle_sim::Random;
use rustix::fs::syncfs;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

/// Lengths of mails: from 2^10 to 2^16 bytes, any power as likely as another.
const LENGTH_BITS: [u64; 2] = [10, 16];
/// Bytes of a line of the index.
const INDEX_BYTES: usize = 120;

pub(super) fn mail(place: &Path, options: &RunOptions) -> io::Result<Vec<Phase>> {
    make_directories(place, options)?;
    let handle = File::open(place)?;
    let serve = |job: u64| serve(&directory_of(place, job), options, job);
    Ok(vec![measure("mail", options, serve, || Ok(syncfs(&handle)?))?])
}

fn serve(home: &Path, options: &RunOptions, job: u64) -> io::Result<Done> {
    let mut random = Random::new(options.seed).fork(job);
    let mut contents = vec![0; 1 << LENGTH_BITS[1]];
    random.fill(&mut contents);
    let [tmp, new, cur] = ["tmp", "new", "cur"].map(|name| home.join(name));
    [&tmp, &new, &cur].into_iter().try_for_each(fs::create_dir)?;
    let (directory, mut index) = (File::open(&new)?, File::create(home.join("index"))?);
    let (mut done, mut unread, mut seen) = (Done::default(), Vec::new(), Vec::new());
    for number in 0..options.count {
        let low = 1usize << (LENGTH_BITS[0] + random.below(LENGTH_BITS[1] - LENGTH_BITS[0]));
        let (length, name) = (low + random.index(low), number.to_string());
        let begin = Instant::now();
        let mut file = File::create(tmp.join(&name))?;
        file.write_all(&contents[..length])?;
        file.sync_all()?;
        fs::rename(tmp.join(&name), new.join(&name))?;
        directory.sync_all()?;
        done.add(length as u64, begin);
        unread.push(name);
        if random.chance(2, 3) {
            let name = unread.swap_remove(random.index(unread.len()));
            fs::read(new.join(&name))?;
            let marked = cur.join(format!("{name}:2,S"));
            fs::rename(new.join(&name), &marked)?;
            index.write_all(&contents[..INDEX_BYTES])?;
            index.sync_data()?;
            seen.push(marked);
        }
        if !seen.is_empty() && random.chance(1, 2) {
            fs::remove_file(seen.swap_remove(random.index(seen.len())))?;
        }
    }
    Ok(done)
}
