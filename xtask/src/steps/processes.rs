//! Processes of a step, and what their threads wait for. The kernel reads some files of `/proc` under locks that a process
//! which is stuck may hold, so each is read by a thread of its own, which is left alone when it doesn't return.

use super::child::{Ended, wait};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Time to read what `/proc` says of a process.
const READ: Duration = Duration::from_secs(2);
/// Time for a debugger to list the stacks of a process.
const DEBUG: Duration = Duration::from_secs(20);
/// Processes that a debugger looks into.
const DEBUGGED: usize = 8;
/// Processes that are listed.
const LISTED: usize = 64;

/// A process of a step.
pub(super) struct Process {
    pid: Pid,
}

impl Process {
    /// Kills it; one that has ended in the meantime is what is wanted.
    pub(super) fn kill(&self) {
        let _ = kill_process(self.pid, Signal::KILL);
    }

    fn folder(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.pid))
    }

    /// The command line, or the name where that can't be read.
    pub(super) fn command_line(&self) -> String {
        let folder = self.folder();
        let name = read(&folder.join("comm")).trim().to_owned();
        let words = within(READ, move || read(&folder.join("cmdline"))).unwrap_or_default();
        let words = words.trim_end_matches('\0').replace('\0', " ");
        format!("{} {}", self.pid, if words.is_empty() { format!("[{name}]") } else { words })
    }

    /// The threads, each with its name, state, system call, the function in which it waits, and the stack in the kernel.
    fn threads(&self) -> String {
        let folder = self.folder().join("task");
        let list = move || {
            let mut tasks: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().collect();
            tasks.sort_by_key(|task| task.file_name().to_string_lossy().parse::<u32>().unwrap_or_default());
            tasks.iter().map(|task| thread_lines(&task.path())).collect::<String>()
        };
        within(READ, list).unwrap_or_else(|| "  its threads cannot be read\n".to_owned())
    }

    /// Stacks of its threads by gdb, none if there is no gdb.
    fn backtraces(&self) -> Option<String> {
        let mut file = tempfile::tempfile().ok()?;
        let mut child = Command::new("gdb")
            .args(["-p", &self.pid.to_string(), "-batch", "-nx", "-ex", "thread apply all bt 30"])
            .stdin(Stdio::null())
            .stdout(file.try_clone().ok()?)
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        if !matches!(wait(&mut child, DEBUG, &[]), Ok(Ended::Exited(_))) {
            let _ = child.kill();
            let _ = wait(&mut child, READ, &[]);
        }
        let mut bytes = Vec::new();
        io::Seek::rewind(&mut file).ok()?;
        io::Read::read_to_end(&mut file, &mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        // What stands before the first thread is about shared objects and sources.
        text.find("\nThread ").map(|at| text[at..].trim().to_owned())
    }
}

/// Processes of a group and those with `TMPDIR` in a folder, but this one.
pub(super) fn members(group: Option<Pid>, folder: &Path) -> Vec<Process> {
    let folder = format!("TMPDIR={}", folder.display());
    let mut found: Vec<_> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .map(|pid| Process { pid })
        .filter(|process| process.pid != rustix::process::getpid())
        .filter(|process| {
            let environment = process.folder().join("environ");
            let is_ours =
                || within(READ, move || read(&environment)).is_some_and(|all| is_set(&all, &folder));
            group.is_some_and(|group| is_in_group(process, group)) || is_ours()
        })
        .collect();
    found.sort_by_key(|process| process.pid.as_raw_nonzero());
    found
}

/// Returns true if a variable of an environment begins with the text.
fn is_set(environment: &str, variable: &str) -> bool {
    environment.split('\0').any(|other| other.starts_with(variable))
}

/// Fields of `stat` from the state on: the name before them may hold anything.
fn stat(folder: &Path) -> Vec<String> {
    let text = read(&folder.join("stat"));
    text.rsplit(") ").next().unwrap_or_default().split(' ').map(str::to_owned).collect()
}

fn is_in_group(process: &Process, group: Pid) -> bool {
    // rustix takes the group of threads of the kernel, 0, for an error of its own.
    stat(&process.folder()).get(2).is_some_and(|found| *found == group.to_string())
}

/// Writes the processes with their threads and stacks.
pub(super) fn report(processes: &[Process], out: &mut dyn Write) -> io::Result<()> {
    for process in processes.iter().take(LISTED) {
        writeln!(out, "process {}", process.command_line())?;
        write!(out, "{}", process.threads())?;
    }
    if let Some(unlisted) = processes.len().checked_sub(LISTED).filter(|count| *count > 0) {
        writeln!(out, "and {unlisted} processes more")?;
    }
    for process in processes.iter().take(DEBUGGED) {
        if let Some(stacks) = process.backtraces() {
            writeln!(out, "stacks of process {}\n{stacks}", process.command_line())?;
        }
    }
    out.flush()
}

fn thread_lines(task: &Path) -> String {
    let file = |name: &str| read(&task.join(name)).trim().to_owned();
    let state = stat(task).first().cloned().unwrap_or_default();
    let id = task.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let waits = file("wchan");
    let call = file("syscall");
    let mut lines = format!("  thread {id} {} state {state} wchan {waits} syscall {call}\n", file("comm"));
    for line in file("stack").lines() {
        lines.push_str(&format!("    {line}\n"));
    }
    lines
}

/// The text of a file of `/proc`, empty if the process has ended or is another user's.
fn read(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// The result of a function that may not return.
pub(super) fn within<T: Send + 'static>(
    limit: Duration,
    function: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(function()));
    receiver.recv_timeout(limit).ok()
}
