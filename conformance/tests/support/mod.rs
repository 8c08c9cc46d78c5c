//! The command `bufconf` as a user has it, in a world of its own: everything that it starts knows the folder of that
//! world by `XDG_STATE_HOME` and is found by it. Control-plane binaries come from the user's cache.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests; clippy exempts only test functions"
)]
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Nothing here takes this long, not even on a loaded machine; a hang shall not last for ever.
pub const PATIENCE: Duration = Duration::from_mins(3);

/// Waits until something holds that no handle can be waited for.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a command has said when it is over.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    /// It ended with this code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let said =
            Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) };
        assert!(!said.stderr.contains("panicked"), "{}", said.stderr);
        said
    }
}

/// A process of a world.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Process {
    pub pid: u32,
    pub argv: Vec<String>,
}

impl Process {
    /// Whether it is a plane's supervisor.
    pub fn is_supervisor(&self) -> bool {
        self.argv.windows(2).any(|words| words == ["cluster", "serve"])
    }

    pub fn kill(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid.try_into().unwrap()).unwrap();
        match kill_process(pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => panic!("{self:?}: {error}"),
        }
    }
}

/// A folder for state and reports, and all processes that know it.
pub struct World {
    dir: TempDir,
}

impl World {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file into it.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// `bufconf` with these arguments.
    pub fn bufconf<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_bufconf"));
        command.args(arguments);
        command
    }

    /// A program in this world that knows nothing of the test runner around it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let name = name.into_string().unwrap();
            let outer =
                name.starts_with("NEXTEST") || name.starts_with("CARGO") || name.starts_with("BUFCONF_");
            let kept = ["CARGO_HOME", "CARGO_TARGET_DIR", "BUFCONF_CACHE"].contains(&&*name);
            if outer && !kept {
                command.env_remove(name);
            }
        }
        command
            .env("XDG_STATE_HOME", self.dir.path())
            .env_remove("KUBECONFIG")
            .env_remove("RUST_LOG")
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    /// Starts a command and lets it run; what it says goes to the file `log`.
    pub fn start(&self, mut command: Command) -> Child {
        let log = fs::File::options().create(true).append(true).open(self.path("log")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    }

    /// Waits for the end of a started command; its exit code, `None` after a signal.
    #[track_caller]
    pub fn ended(&self, child: &mut Child) -> Option<i32> {
        let status = eventually("the end of the command", || child.try_wait().unwrap());
        assert!(!self.log().contains("panicked"), "{}", self.log());
        status.code()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// All living processes of this world.
    pub fn processes(&self) -> Vec<Process> {
        let wanted = format!("XDG_STATE_HOME={}", self.dir.path().display());
        let strings = |path: PathBuf| -> Vec<String> {
            // A process that has ended meanwhile, or that is not ours to look at, is none of this world.
            let bytes = fs::read(path).unwrap_or_default();
            bytes.split(|&byte| byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect()
        };
        fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|pid| strings(format!("/proc/{pid}/environ").into()).contains(&wanted))
            .map(|pid: u32| Process { pid, argv: strings(format!("/proc/{pid}/cmdline").into()) })
            .collect()
    }

    /// The processes once there is one that is wanted.
    pub fn process(&self, what: &str, wanted: impl Fn(&Process) -> bool) -> Process {
        eventually(what, || self.processes().into_iter().find(&wanted))
    }

    /// Waits until no process is left.
    #[track_caller]
    pub fn expect_no_process(&self) {
        let start = Instant::now();
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "still there: {left:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The folders of runs or of clusters that are there: `kind` is `runs` or `clusters`.
    pub fn folders(&self, kind: &str) -> Vec<PathBuf> {
        match fs::read_dir(self.path("bufconf").join(kind)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            entries => entries.unwrap().map(|entry| entry.unwrap().path()).collect(),
        }
    }

    /// `report.json` in the folder `out`.
    pub fn report(&self, out: &str) -> conformance_report::model::Report {
        let path = self.path(out).join("report.json");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for World {
    /// Ends what a failed test has left, supervisors first: they would clean up in a folder that goes away.
    fn drop(&mut self) {
        let mut left = self.processes();
        left.sort_by_key(|process| !process.is_supervisor());
        for process in left {
            process.kill(Signal::KILL);
        }
    }
}

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
