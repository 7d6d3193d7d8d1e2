//! Choice of the thread that waits for the next request.
//!
//! To wake a thread costs more than most requests do, all the more where a processor without work is given back to a
//! hypervisor. So there is one thread that waits, as long as requests are done quickly: it takes a request,
//! does it, and looks out for the next one for a moment before it goes to sleep in the kernel. The others are
//! *parked*, for any thread asleep in the kernel would be woken by the next request.
//!
//! The thread that works must not keep requests waiting. Another one is called at once where a request is known to take
//! long, or where others have kept requests waiting lately; before a device is waited for that is read; where a request
//! may take long and the next one is there already; and else by a watcher, which sees that a request has not ended within
//! [`PATIENCE`]. (If its thread could go on and only had to give its processor to others, that says nothing of the
//! requests to come.) A thread that ends a request and finds that another one waits is parked in turn.
//!
//! Where devices are waited for again and again, all that would be in vain: no thread is parked or polls then, all
//! threads sleep in the kernel, and each request wakes one.
//!
//! A mount ends when the waiting thread is told so by the kernel. When it goes it calls all the others, so that they
//! are told, too; a thread that panics does so as well.

use crate::channel::Channel;
use rustix::thread::{Pid, gettid};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time of polling for the next request.
const LOOKOUT: Duration = Duration::from_micros(100);
/// Longest wait of a yield. The poller yields; if a yield takes longer than this, it sleeps.
const GIVEN_AWAY: Duration = Duration::from_micros(20);
/// Time after which a request has another thread called.
const PATIENCE: Duration = Duration::from_micros(500);
/// Number of requests that begin with another thread called at once, after one that took long while the next was
/// there.
const CAUTION: u32 = 256;
/// Number of requests after a wait for a device in which no thread is parked.
const EASE: u32 = 64;
/// Time for which all threads hang before all callers are looked at, in units of the watcher's patience.
const STUCK_TICKS: u32 = 200;
/// Idle time after which the watcher sleeps, in units of its patience.
const IDLE_TICKS: u32 = 64;

/// Expected duration of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Data likely to be in memory.
    Quick,
    /// Data in memory, or else on a device.
    Unknown,
    /// Data on devices.
    Slow,
}

/// The threads of a mount. Dropped, all are called, and none is parked any more.
#[derive(Debug)]
pub(crate) struct Turns(Arc<Shared>);

/// A thread of a mount. Dropped, all the others are called.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    thread: Pid,
    /// True if it has polled in vain since its last request.
    is_tired: bool,
}

/// A request that is being done; ends when it is dropped, after the answer.
#[must_use = "a request lasts as long as this"]
pub(crate) struct Turn<'w>(&'w Shared);

/// Told by a thread of a mount that it is about to wait for a device.
#[derive(Clone, Debug)]
pub struct DeviceWaits(Option<Arc<Shared>>);

impl DeviceWaits {
    /// The calling thread, which does a request, is about to wait for a device.
    pub fn begin(&self) {
        if let Some(shared) = &self.0 {
            shared.device_is_waited_for();
        }
    }

    /// For a thread that keeps no requests waiting.
    pub(crate) fn without_turns() -> Self {
        Self(None)
    }
}

#[derive(Debug)]
struct Shared {
    channel: Arc<Channel>,
    lookout: Duration,
    /// Number of requests that may be done at a time before it takes a slow one to call a thread.
    crew: usize,
    state: Mutex<State>,
    called: Condvar,
    watched: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Threads that there are.
    threads: usize,
    /// Those that wait for a request, or are about to.
    waiting: usize,
    parked: usize,
    /// Number of them that are called; they count as waiting already.
    calls: usize,
    /// Number of requests begun.
    begun: u64,
    /// The thread of the last of them.
    worker: Option<Pid>,
    /// Number of further requests that have a thread called at once.
    caution: u32,
    /// Number of further requests in which no thread is parked.
    ease: u32,
    is_watched: bool,
    is_over: bool,
}

impl Turns {
    /// Turns of threads that read requests from a channel.
    pub(crate) fn new(channel: Arc<Channel>, looks_out: bool) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::new(channel, looks_out));
        let watcher = Arc::clone(&shared);
        std::thread::Builder::new().name("watcher".to_owned()).spawn(move || watcher.watch())?;
        Ok(Self(shared))
    }

    /// Makes the calling thread one of them, and returns when it is to wait for a request.
    pub(crate) fn enter(&self) -> Worker {
        let worker = Worker { shared: Arc::clone(&self.0), thread: gettid(), is_tired: false };
        self.0.enter();
        worker
    }
}

impl Worker {
    /// A request begins.
    pub(crate) fn begin(&mut self, pace: Pace) -> Turn<'_> {
        self.is_tired = false;
        self.shared.begin(pace, self.thread);
        Turn(&self.shared)
    }

    /// One of those requests is done that are nothing much, have no answer, and come many at a time: the thread waits
    /// as before, and looks out for the next request once.
    pub(crate) fn pass(&mut self) {
        if !self.is_tired {
            self.is_tired = !self.shared.look_out();
        }
    }

    /// For the server, to tell of waits for devices.
    pub(crate) fn device_waits(&self) -> DeviceWaits {
        DeviceWaits(Some(Arc::clone(&self.shared)))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // A thread that panics goes, and calls the others.
        if !std::thread::panicking() {
            self.0.finish();
        }
    }
}

impl Shared {
    fn new(channel: Arc<Channel>, looks_out: bool) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            channel,
            // With one processor no request can come meanwhile.
            lookout: if looks_out && processors > 1 { LOOKOUT } else { Duration::ZERO },
            crew: (processors / 2).max(1),
            state: Mutex::default(),
            called: Condvar::new(),
            watched: Condvar::new(),
        }
    }

    fn enter(&self) {
        let mut state = self.state();
        state.threads += 1;
        if state.waiting == 0 || state.is_over {
            state.waiting += 1;
        } else {
            self.park(state);
        }
    }

    fn begin(&self, pace: Pace, thread: Pid) {
        let mut state = self.state();
        state.waiting -= 1;
        state.begun += 1;
        state.worker = Some(thread);
        if !state.is_watched {
            state.is_watched = true;
            self.watched.notify_one();
        }
        let is_slow = pace == Pace::Slow || state.caution > 0;
        let may_be_slow = pace == Pace::Unknown || state.busy() < self.crew;
        state.caution = state.caution.saturating_sub(1);
        state.ease = state.ease.saturating_sub(1);
        if state.waiting == 0 && (is_slow || may_be_slow && self.channel.descriptor.has_message()) {
            self.call(&mut state);
        }
    }

    /// A request has ended: its thread waits for the next one, unless another one does.
    fn finish(&self) {
        let mut state = self.state();
        if state.ease > 0 {
            state.waiting += 1;
            return;
        }
        if state.waiting == 0 || state.is_over {
            state.waiting += 1;
            drop(state);
            self.look_out();
        } else {
            self.park(state);
        }
    }

    /// Sleeps until called.
    fn park(&self, mut state: MutexGuard<'_, State>) {
        state.parked += 1;
        let wait = self.called.wait_while(state, |state| state.calls == 0 && !state.is_over);
        let mut state = wait.unwrap_or_else(PoisonError::into_inner);
        state.parked -= 1;
        match state.calls.checked_sub(1) {
            Some(calls) => state.calls = calls,
            None => state.waiting += 1,
        }
    }

    /// Makes another thread wait for requests, as a device is about to be waited for.
    fn device_is_waited_for(&self) {
        let mut state = self.state();
        state.ease = EASE;
        if state.waiting == 0 {
            self.call(&mut state);
        }
    }

    /// Makes one of the parked threads wait for requests.
    fn call(&self, state: &mut State) {
        if state.parked > state.calls {
            state.calls += 1;
            state.waiting += 1;
            self.called.notify_one();
        }
    }

    fn end(&self) {
        self.channel.interrupts.end();
        self.state().is_over = true;
        self.called.notify_all();
        self.watched.notify_all();
    }

    /// Waits for the next request without going to sleep; whether there is one.
    fn look_out(&self) -> bool {
        // Under load a request is there already, and no time is lost.
        if self.channel.descriptor.has_message() {
            return true;
        }
        let begin = Instant::now();
        loop {
            let before = Instant::now();
            if before.duration_since(begin) >= self.lookout {
                return false;
            }
            std::thread::yield_now();
            let is_there = self.channel.descriptor.has_message();
            if is_there || before.elapsed() >= GIVEN_AWAY {
                return is_there;
            }
        }
    }

    fn watch(&self) {
        let (mut idle, mut stuck) = (0, 0);
        let mut state = self.state();
        while !state.is_over {
            let asleep = self.watched.wait_while(state, |state| !state.is_watched && !state.is_over);
            state = asleep.unwrap_or_else(PoisonError::into_inner);
            let begun = state.begun;
            let patient = self.watched.wait_timeout_while(state, PATIENCE, |state| !state.is_over);
            state = patient.unwrap_or_else(PoisonError::into_inner).0;
            if state.begun != begun {
                (idle, stuck) = (0, 0);
            } else if state.waiting == 0 {
                let worker = state.worker;
                drop(state);
                let is_kept_waiting =
                    self.channel.descriptor.has_message() && !worker.is_some_and(could_go_on);
                state = self.state();
                if state.begun == begun && state.waiting == 0 {
                    state.caution = if is_kept_waiting { CAUTION } else { state.caution };
                    stuck = if state.parked > state.calls { 0 } else { stuck + 1 };
                    self.call(&mut state);
                    if stuck == STUCK_TICKS {
                        self.channel.interrupts.suspect_all();
                    }
                }
            } else {
                idle += 1;
                state.is_watched = idle < IDLE_TICKS;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Number of requests being done.
    fn busy(&self) -> usize {
        // Those that are called are parked still, and count as waiting.
        self.threads - self.waiting - (self.parked - self.calls)
    }
}

/// Returns true if a thread has something to do and waits for nothing but a processor.
fn could_go_on(thread: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero()));
    // The name stands in brackets, and may have some in it.
    let state = stat.ok().and_then(|stat| Some(stat.rsplit_once(") ")?.1.starts_with('R')));
    state == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{self, Sender};
    use std::thread::JoinHandle;

    fn channel(stream: &UnixStream) -> Arc<Channel> {
        Arc::new(Channel::new(stream.try_clone().expect("a copy").into(), 0))
    }

    /// Threads that take a byte each from a stream, as those of a mount take requests.
    fn threads(stream: &UnixStream, act: impl Fn(u8) + Send + Sync + 'static) -> Vec<JoinHandle<()>> {
        const THREADS: usize = 8;
        let (channel, act) = (channel(stream), Arc::new(act));
        let turns = Arc::new(Turns::new(Arc::clone(&channel), true).expect("a watcher"));
        let one = || {
            let (turns, act, channel) = (Arc::clone(&turns), Arc::clone(&act), Arc::clone(&channel));
            std::thread::spawn(move || {
                let mut worker = turns.enter();
                let mut byte = [0];
                while let Some([byte]) = channel.descriptor.receive(&mut byte).expect("a stream") {
                    let pace = match byte % 7 {
                        0 => Pace::Slow,
                        1 => Pace::Unknown,
                        _ => Pace::Quick,
                    };
                    let _turn = worker.begin(pace);
                    act(*byte);
                }
            })
        };
        (0..THREADS).map(|_| one()).collect()
    }

    #[test]
    fn every_request_is_done_and_all_threads_hear_of_the_end() {
        for count in [0, 1, 7, 8, 9, 100, 5000] {
            let (mut kernel, ours) = UnixStream::pair().expect("a pair");
            let done = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&done);
            let threads = threads(&ours, move |_| {
                counter.fetch_add(1, Ordering::SeqCst);
            });
            for number in 0..count {
                let byte = u8::try_from(number % 251).expect("less than 256");
                kernel.write_all(&[byte]).expect("a thread reads");
            }
            drop(kernel);
            for thread in threads {
                thread.join().expect("no thread panics");
            }
            assert_eq!(done.load(Ordering::SeqCst), count);
        }
    }

    #[test]
    fn requests_that_wait_for_later_ones_block_no_others() {
        const WAITS: u8 = 1;
        const IS_WAITED_FOR: u8 = 2;
        let (mut kernel, ours) = UnixStream::pair().expect("a pair");
        let (sender, receiver) = mpsc::channel::<()>();
        let (sender, receiver): (Mutex<Sender<()>>, _) = (Mutex::new(sender), Mutex::new(receiver));
        let threads = threads(&ours, move |byte| match byte {
            WAITS => receiver.lock().expect("no thread panics").recv().expect("the other one comes"),
            IS_WAITED_FOR => sender.lock().expect("no thread panics").send(()).expect("a thread waits"),
            _ => {}
        });
        for byte in [WAITS, 3, WAITS, IS_WAITED_FOR, 3, IS_WAITED_FOR].repeat(20) {
            kernel.write_all(&[byte]).expect("a thread reads");
        }
        drop(kernel);
        for thread in threads {
            thread.join().expect("no thread panics");
        }
    }

    #[test]
    fn working_threads_are_told_from_waiting_ones() {
        let (is_over, thread) = (Arc::new(AtomicUsize::new(0)), mpsc::channel::<Pid>());
        let (watched, teller) = (Arc::clone(&is_over), thread.0.clone());
        let works = std::thread::spawn(move || {
            teller.send(gettid()).expect("the test asks");
            while watched.load(Ordering::SeqCst) == 0 {
                std::hint::spin_loop();
            }
        });
        let worker = thread.1.recv().expect("it runs");
        while !could_go_on(worker) {
            std::thread::yield_now();
        }
        is_over.store(1, Ordering::SeqCst);
        works.join().expect("no thread panics");
        let (end, ended) = mpsc::channel::<()>();
        let waits = std::thread::spawn(move || {
            thread.0.send(gettid()).expect("the test asks");
            ended.recv().expect_err("nothing is said");
        });
        let waiter = thread.1.recv().expect("it runs");
        while could_go_on(waiter) {
            std::thread::yield_now();
        }
        drop(end);
        waits.join().expect("no thread panics");
    }

    #[test]
    fn another_one_waits_for_requests_while_a_device_is_waited_for() {
        let (kernel, ours) = UnixStream::pair().expect("a pair");
        let shared = Shared::new(channel(&ours), true);
        {
            let mut state = shared.state();
            (state.threads, state.waiting, state.parked) = (3, 1, 2);
        }
        let counts = || {
            let state = shared.state();
            (state.waiting, state.calls, state.ease)
        };
        shared.begin(Pace::Quick, gettid());
        assert_eq!(counts(), (0, 0, 0));
        shared.device_is_waited_for();
        shared.device_is_waited_for();
        assert_eq!(counts(), (1, 1, EASE), "one is called, and only one");
        // No thread is parked or polls while that goes on.
        shared.finish();
        assert_eq!(counts(), (2, 1, EASE));
        for left in (0..EASE).rev() {
            shared.begin(Pace::Quick, gettid());
            assert_eq!(counts(), (1, 1, left));
            if left > 0 {
                shared.finish();
            }
        }
        drop(kernel);
    }
}
