//! A connection after its handshake: the thread that leads, and those that follow.
//!
//! The lead is the [`Input`]: the thread that has it reads requests. It keeps the lead through requests that are a copy of
//! memory; before it waits for the device it sends the answers that it has, puts the input where another thread finds it, and
//! calls one. When its request is answered it waits for the lead like the others.

use crate::Export;
use crate::budget::Budget;
use crate::export::ToldFailures;
use crate::handshake::Mode;
use crate::input::Input;
use crate::perform::{Answer, Pace, pace, perform};
use crate::stream::Stream;
use brindle_device::before_wait;
use brindle_nbd::Command;
use std::cell::RefCell;
use std::io;
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Most threads of a connection: requests that wait for the device at once.
const THREADS_MAX: usize = 32;
/// Answers up to this length are sent together with others, in bytes.
const SHORT_ANSWER_BYTES: usize = 32 << 10;
/// Bytes of answers that wait at most.
const ANSWERS_BYTES_MAX: usize = 256 << 10;

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Arc<Stream>,
    export: Arc<Export>,
    budget: Arc<Budget>,
    mode: Mode,
    told: ToldFailures,
    state: Mutex<State>,
    called: Condvar,
    /// Held by the thread that sends.
    sending: Mutex<()>,
}

#[derive(Debug)]
struct State {
    /// The lead, while no thread has it.
    input: Option<Input>,
    threads: usize,
    idle: usize,
    is_over: bool,
}

/// The lead of a thread; `None` if it follows.
type Lead = Rc<RefCell<Option<Input>>>;

/// A thread of a connection. Dropped, it is counted no more; by a panic, the connection ends.
struct Member<'c>(&'c Connection);

impl Drop for Member<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end();
        }
        self.0.state().threads -= 1;
        self.0.called.notify_all();
    }
}

impl Connection {
    pub(crate) fn new(stream: Arc<Stream>, export: Arc<Export>, budget: Arc<Budget>, mode: Mode) -> Self {
        let state = State { input: Some(Input::default()), threads: 1, idle: 0, is_over: false };
        let state = Mutex::new(state);
        let told = export.told_failures();
        Self { stream, export, budget, mode, told, state, called: Condvar::new(), sending: Mutex::default() }
    }

    /// Serves until the client has gone and all its requests are answered; the calling thread is the first of the connection.
    pub(crate) fn serve(self: &Arc<Self>) {
        self.work();
        let state = self.state();
        drop(
            self.called.wait_while(state, |state| state.threads > 0).unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// Leads and follows until the connection is over.
    fn work(self: &Arc<Self>) {
        let _member = Member(self);
        let lead = Lead::default();
        let (connection, own) = (Arc::clone(self), Rc::clone(&lead));
        before_wait(move || connection.pass_on(own.borrow_mut().take()));
        while let Some(input) = self.follow() {
            *lead.borrow_mut() = Some(input);
            if let Err(error) = self.lead(&lead) {
                tracing::info!("{}: a client is disconnected: {error}", self.export.name());
                self.end();
            }
        }
        // The action holds the connection.
        before_wait(|| ());
    }

    /// Waits for the lead; `None` if the connection is over.
    fn follow(&self) -> Option<Input> {
        let mut state = self.state();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(input) = state.input.take() {
                return Some(input);
            }
            state.idle += 1;
            state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    /// Serves requests as long as the thread has the lead.
    fn lead(self: &Arc<Self>, lead: &Lead) -> io::Result<()> {
        loop {
            let Some(mut input) = lead.borrow_mut().take() else { return Ok(()) };
            if !input.has_request() {
                self.send_answers(&mut input)?;
            }
            let Some(request) =
                input.request(&self.stream)?.filter(|request| request.command != Command::Disconnect)
            else {
                self.send_answers(&mut input)?;
                self.end_input();
                return Ok(());
            };
            let length = usize::try_from(request.length).expect("32 bits fit memory");
            let needed = if matches!(request.command, Command::Read | Command::Write) { length } else { 0 };
            let needed = needed.min(brindle_nbd::PAYLOAD_BYTES_MAX as usize);
            let _share = self.budget.take(needed);
            let payload = match request.command {
                Command::Write => Some(input.payload(&self.stream, length)?),
                _ => None,
            };
            match pace(&self.export, &request) {
                Pace::Waits => self.pass_on(Some(input)),
                Pace::Long if input.has_more() => self.pass_on(Some(input)),
                Pace::Quick | Pace::Long => *lead.borrow_mut() = Some(input),
            }
            let payload = payload.as_deref().unwrap_or_default();
            let answer = perform(&self.export, &self.told, self.mode, &request, payload);
            self.answer(lead, &answer)?;
        }
    }

    /// Sends an answer; a short one waits for others if the thread has the lead.
    fn answer(&self, lead: &Lead, answer: &Answer) -> io::Result<()> {
        let bytes = answer.bytes();
        match lead.borrow_mut().as_mut() {
            Some(input) if bytes.len() <= SHORT_ANSWER_BYTES => {
                input.answers.extend_from_slice(bytes);
                if input.answers.len() > ANSWERS_BYTES_MAX { self.send_answers(input) } else { Ok(()) }
            }
            Some(input) => self.send_answers(input).and_then(|()| self.send(bytes)),
            None => self.send(bytes),
        }
    }

    fn send_answers(&self, input: &mut Input) -> io::Result<()> {
        if !input.answers.is_empty() {
            self.send(&input.answers)?;
            input.answers.clear();
        }
        Ok(())
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        self.stream.write_all(bytes)
    }

    /// Gives the lead to another thread, if the calling one has it.
    fn pass_on(self: &Arc<Self>, input: Option<Input>) {
        let Some(mut input) = input else { return };
        if self.send_answers(&mut input).is_err() {
            // An answer that was cut off leaves the client out of step.
            return self.end();
        }
        let mut state = self.state();
        state.input = Some(input);
        if state.idle > 0 || state.threads == THREADS_MAX {
            drop(state);
            self.called.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let connection = Arc::clone(self);
        let spawned = std::thread::Builder::new().name("nbd".to_owned()).spawn(move || connection.work());
        if spawned.is_err() {
            // The next thread that ends its request takes the lead.
            self.state().threads -= 1;
        }
    }

    /// Takes no more requests; those under way are answered.
    fn end_input(&self) {
        self.state().is_over = true;
        self.called.notify_all();
    }

    /// Ends the connection at once.
    fn end(&self) {
        self.stream.shutdown(Shutdown::Both);
        self.end_input();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
