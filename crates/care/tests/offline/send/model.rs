//! Random operations on a model filesystem, with snapshots between: each is sent and received, in all forms.

use super::{Pool, difference, dump};
use crate::support::operations::{apply, assert_same};
use brindle_care::send::SendOptions;
use brindle_fs::RootId;
use brindle_testing::model::Model;
use brindle_testing::operations::{Generator, Mix};

const SNAPSHOTS: usize = 4;
const OPERATIONS: usize = 100;

/// Form of the stream, by the seed.
fn form(seed: u64, options: SendOptions) -> SendOptions {
    let (version, compressed) =
        [(1, false), (2, false), (2, true)][usize::try_from(seed % 3).expect("small")];
    SendOptions { version, compressed, ..options }
}

/// Makes snapshots of a tree that changes at random, and sends each: the first whole, later ones against the one before, and whole.
fn trial(seed: u64, mix: Mix) {
    let (mut sender, mut receiver) = (Pool::with_source(), Pool::new());
    let (mut generator, mut model) = (Generator::new(seed, mix), Model::new());
    let mut snapshots: Vec<RootId> = Vec::new();
    for number in 0..SNAPSHOTS {
        for _ in 0..OPERATIONS {
            let operation = generator.next(&model);
            if model.apply(&operation).is_ok() {
                let done = apply(&sender.filesystem, sender.find("source"), &operation);
                done.unwrap_or_else(|error| panic!("seed {seed}: {operation:?}: {error}"));
            }
        }
        let name = format!("s{number}");
        let id = sender.snapshot(&name);
        let options = match snapshots.last() {
            Some(parent) => difference(id, *parent),
            None => SendOptions::whole(id),
        };
        let (stream, _) = sender.send_whole(&form(seed, options));
        receiver.receive(&stream);
        let sides = [(&sender.filesystem, sender.find(&name)), (&receiver.filesystem, receiver.find(&name))];
        assert_same(&format!("seed {seed}, {name}"), sides, seed % 3 != 0);
        snapshots.push(id);
        // The highest numbers of inodes are used again.
        sender.reopen();
    }
    // Back to the first, from the last; and the last, whole. What is kept has the time of creation that it had.
    let (first, last) = (snapshots[0], snapshots[SNAPSHOTS - 1]);
    let again = [(first, "s0", difference(first, last), false), (last, "s3", SendOptions::whole(last), true)];
    for (id, name, options, is_whole) in again {
        let (stream, _) = sender.send_whole(&form(seed + 1, options));
        receiver.rename(&format!("/{name}"), &format!("/{name}.first"));
        receiver.receive(&stream);
        let sides = [(&sender.filesystem, sender.find(name)), (&receiver.filesystem, receiver.find(name))];
        let what = format!("seed {seed}, {name} ({id}) once more\n{}", dump(&stream));
        assert_same(&what, sides, is_whole && (seed + 1) % 3 != 0);
    }
    receiver.reopen();
}

#[test]
fn received_subvolumes_equal_those_sent() {
    for seed in 0..6 {
        trial(seed, Mix { remount: 0, sync: 0, sync_file: 0, ..Mix::default().without_subvolumes() });
    }
}

#[test]
fn names_that_move_into_each_other_arrive() {
    for seed in 100..106 {
        let mix = Mix { names_max: 25, attributes: 2, remount: 0, sync: 0, sync_file: 0, ..Mix::names() };
        trial(seed, mix.without_subvolumes());
    }
}

#[test]
fn contents_that_are_shared_and_cut_arrive() {
    for seed in 200..204 {
        let mix = Mix { remount: 0, sync: 0, sync_file: 0, ..Mix::contents().without_subvolumes() };
        trial(seed, mix);
    }
}
