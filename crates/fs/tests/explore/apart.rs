//! Explorations on several threads of the operating system, as a test binary runs them.

use brindle_sync::{Mutex, Rank, explore, process_wide};
use std::sync::mpsc::channel;

process_wide! {
    /// A lock of the whole process.
    static SHARED: Mutex<u32> = Mutex::new(Rank::DeviceBuffers, 0);
}

#[test]
fn a_lock_of_the_process_that_one_exploration_holds_stops_no_other() {
    let (is_held, told) = channel();
    let (other_is_over, over) = channel();
    let over = std::sync::Mutex::new(over);
    let other = std::thread::spawn(move || {
        told.recv().expect("it is held");
        explore(1, || *SHARED.lock() += 1);
        other_is_over.send(()).expect("waited for");
    });
    brindle_sync::once(move || {
        let _held = SHARED.lock();
        is_held.send(()).expect("waited for");
        // An exploration that can't go on panics, and hangs up.
        over.lock().expect("one thread").recv().expect("the other was not stopped");
    });
    other.join().expect("it was not stopped");
}
