//! The supervisor's children: started through the shim, watched, stopped, and on record when they die.

use std::{
    collections::BTreeMap,
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use jiff::Timestamp;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::{
    process::Command,
    sync::{mpsc, watch},
    time::timeout,
};

use crate::{ChildConfig, Error, files, process, shim};

/// The record of one child, in `children.json` and in a supervisor's answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildState {
    /// Its process id, also after its end.
    pub pid: u32,
    /// How often it was started.
    pub starts: u32,
    /// How its last process ended; `None` while it runs.
    pub died: Option<Death>,
}

/// The end of a child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Death {
    /// When it was seen.
    pub at: Timestamp,
    /// The exit code, when it ended by itself.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether the supervisor was asked to end it.
    pub asked: bool,
    /// The last lines of its log.
    pub log: String,
}

impl Death {
    /// "exit code 1" or "signal 9".
    #[must_use]
    pub fn reason(&self) -> String {
        match (self.code, self.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "no status".to_owned(),
        }
    }
}

/// How long a child may take to end after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// How many lines of a dead child's log are kept in its record.
const LOG_LINES: usize = 20;

struct Child {
    config: ChildConfig,
    state: ChildState,
    handle: OwnedFd,
    asked: bool,
    ended: watch::Receiver<bool>,
}

/// All children of one supervisor, in the order of their first start.
pub(crate) struct Fleet {
    dir: PathBuf,
    children: Vec<Child>,
    exits: mpsc::UnboundedReceiver<(u32, Option<ExitStatus>)>,
    exited: mpsc::UnboundedSender<(u32, Option<ExitStatus>)>,
}

impl Fleet {
    pub(crate) fn new(dir: &Path) -> Self {
        let (exited, exits) = mpsc::unbounded_channel();
        Self { dir: dir.to_owned(), children: Vec::new(), exits, exited }
    }

    /// Starts a child, or starts one of the same name again.
    ///
    /// Must run on the main thread: the kernel ties the parent-death signal to the thread that forks.
    pub(crate) fn start(&mut self, config: ChildConfig) -> Result<(), Error> {
        let log = self.log(&config.name);
        let out = files::append(&log)?;
        let err = out.try_clone().map_err(Error::io("opening", &log))?;
        let program = config.argv.first().cloned().unwrap_or_default();
        // Works also when the binary was replaced on disk meanwhile.
        let mut process = Command::new("/proc/self/exe")
            .arg(shim::SUBCOMMAND)
            .arg(std::process::id().to_string())
            .arg("--")
            .args(&config.argv)
            .envs(&config.env)
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(Error::io("starting", &program))?;
        // Not waited for yet, so the number still means this process.
        let pid = process.id().unwrap_or_default();
        let handle = process::handle(pid)
            .map_err(Error::io("watching", &program))?
            .ok_or_else(|| Error::io("watching", &program)(rustix::io::Errno::SRCH.into()))?;
        let (end, ended) = watch::channel(false);
        let exited = self.exited.clone();
        tokio::spawn(async move {
            let status = process.wait().await.ok();
            // Nobody listens any more when the supervisor itself ends.
            let _ = exited.send((pid, status));
            end.send_replace(true);
        });
        tracing::info!(name = config.name, pid, "started");
        let known = self.children.iter().position(|child| child.config.name == config.name);
        let starts = known.map_or(0, |known| self.children[known].state.starts) + 1;
        let child =
            Child { config, state: ChildState { pid, starts, died: None }, handle, asked: false, ended };
        match known {
            Some(known) => self.children[known] = child,
            None => self.children.push(child),
        }
        self.publish()
    }

    /// Waits for the next death, puts it on record and returns the name and the record.
    pub(crate) async fn next_death(&mut self) -> Result<(String, Death), Error> {
        loop {
            let Some((pid, status)) = self.exits.recv().await else { return std::future::pending().await };
            if let Some(death) = self.record(pid, status)? {
                return Ok(death);
            }
        }
    }

    fn record(&mut self, pid: u32, status: Option<ExitStatus>) -> Result<Option<(String, Death)>, Error> {
        let Some(child) = self.children.iter_mut().find(|child| child.state.pid == pid) else {
            return Ok(None);
        };
        let name = child.config.name.clone();
        let death = Death {
            at: Timestamp::now(),
            code: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
            asked: child.asked,
            log: files::tail(&self.dir.join("logs").join(format!("{name}.log")), LOG_LINES),
        };
        tracing::info!(name, pid, reason = death.reason(), asked = death.asked, "ended");
        child.state.died = Some(death.clone());
        self.publish()?;
        Ok(Some((name, death)))
    }

    /// Ends one child: SIGTERM, then SIGKILL when it takes too long, or SIGKILL at once.
    pub(crate) async fn end(&mut self, name: &str, at_once: bool) -> Result<(), Error> {
        let child = self.find(name)?;
        child.asked = true;
        let mut ended = child.ended.clone();
        if !at_once {
            process::signal(&child.handle, Signal::TERM).map_err(Error::io("ending", name))?;
            if timeout(GRACE, ended.wait_for(|&ended| ended)).await.is_ok() {
                return self.drain();
            }
            tracing::info!(name, "did not end in time, killing it");
        }
        process::signal(&self.find(name)?.handle, Signal::KILL).map_err(Error::io("killing", name))?;
        // An error means that the watching task is gone, and it ends only after the child.
        let _ = ended.wait_for(|&ended| ended).await;
        self.drain()
    }

    /// Records the deaths that are known already.
    fn drain(&mut self) -> Result<(), Error> {
        while let Ok((pid, status)) = self.exits.try_recv() {
            self.record(pid, status)?;
        }
        Ok(())
    }

    /// Kills all children and waits for their ends.
    pub(crate) async fn kill_all(&mut self) -> Result<(), Error> {
        for child in &mut self.children {
            child.asked = true;
            process::signal(&child.handle, Signal::KILL).map_err(Error::io("killing", &child.config.name))?;
        }
        for child in &mut self.children {
            let _ = child.ended.wait_for(|&ended| ended).await;
        }
        self.drain()
    }

    /// Ends a child if it still runs and starts it again with the same command.
    pub(crate) async fn restart(&mut self, name: &str) -> Result<ChildConfig, Error> {
        self.end(name, false).await?;
        let config = self.find(name)?.config.clone();
        self.start(config.clone())?;
        Ok(config)
    }

    /// Names in the order of their first start.
    pub(crate) fn names(&self) -> Vec<String> {
        self.children.iter().map(|child| child.config.name.clone()).collect()
    }

    pub(crate) fn states(&self) -> BTreeMap<String, ChildState> {
        self.children.iter().map(|child| (child.config.name.clone(), child.state.clone())).collect()
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{name}.log"))
    }

    /// Forgets the children; all must have ended.
    pub(crate) fn clear(&mut self) {
        self.children.clear();
    }

    fn find(&mut self, name: &str) -> Result<&mut Child, Error> {
        let names = self.names().join(", ");
        self.children
            .iter_mut()
            .find(|child| child.config.name == name)
            .ok_or_else(|| Error::Refused(format!("no child named \"{name}\", only {names}")))
    }

    fn publish(&self) -> Result<(), Error> {
        files::publish_json(&self.dir.join("children.json"), &self.states())
    }
}
