//! Which scenario may use which plane, and when. File locks, so that it works for many tasks of one process as for one
//! process per test, and ends with a process that is killed.
//!
//! There are as many *slots* as the machine has room for planes. Slot 0 is shared; the others serve the scenarios that
//! must be alone. On a machine with room for one plane, slot 0 serves all.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::FlockOperation;
use tokio::sync::oneshot;

use crate::{
    Error,
    files::{Lock, private_dir},
};

/// How much company a scenario bears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Side by side with others on one plane.
    Shared,
    /// Alone on a plane that others use before and after it.
    Quiet,
    /// Alone on a plane that is made for it.
    Own,
}

/// The memory that one plane may need, in MiB: 1.5 GiB.
const MIB_PER_PLANE: u64 = 1536;
/// How often the first in the queue looks for a free slot.
const POLL: Duration = Duration::from_millis(20);

/// How many planes this machine bears: one more than cores, and one for each 1.5 GiB of memory, at least one. The same in
/// all processes of a run.
#[must_use]
pub fn slots() -> NonZeroUsize {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    slots_for(cores, memory_mib())
}

fn slots_for(cores: usize, mib: u64) -> NonZeroUsize {
    let by_memory = usize::try_from(mib / MIB_PER_PLANE).unwrap_or(usize::MAX);
    NonZeroUsize::new((cores + 1).min(by_memory)).unwrap_or(NonZeroUsize::MIN)
}

/// The machine's memory or the control group's limit, in MiB; 0 when neither can be read.
fn memory_mib() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let machine = read("/proc/meminfo")
        .lines()
        .find_map(|line| {
            line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        })
        .map_or(0, |kib| kib / 1024);
    match read("/sys/fs/cgroup/memory.max").trim().parse::<u64>() {
        Ok(limit) => machine.min(limit >> 20),
        Err(_) => machine,
    }
}

/// The right to use a slot, until it is dropped or the process ends.
#[derive(Debug)]
pub struct Lease {
    slot: usize,
    _lock: Lock,
}

impl Lease {
    /// The number of the slot, from 0.
    #[must_use]
    pub fn slot(&self) -> usize {
        self.slot
    }
}

/// The slots of one run.
#[derive(Debug, Clone)]
pub struct Slots {
    dir: PathBuf,
    count: NonZeroUsize,
}

impl Slots {
    /// `count` slots whose locks are in `dir`. All processes of a run must give the same.
    pub fn new(dir: &Path, count: NonZeroUsize) -> Result<Self, Error> {
        private_dir(dir)?;
        Ok(Self { dir: dir.to_owned(), count })
    }

    /// Waits for a slot without blocking the async runtime. A dropped call gives back what it gets.
    pub async fn acquire(&self, isolation: Isolation) -> Result<Lease, Error> {
        let (send, receive) = oneshot::channel();
        let slots = self.clone();
        // A thread of its own: the runtime would wait for its own blocking threads when it shuts down.
        std::thread::spawn(move || {
            // When nobody waits any more, the lease ends here.
            let _ = send.send(slots.acquire_blocking(isolation));
        });
        receive.await.map_err(|_| Error::Refused("the thread that waits for a slot has ended".to_owned()))?
    }

    /// Waits for a slot. First come, first served: among those that must be alone by a queue, and between those and the
    /// ones that share by a gate, which nobody passes while somebody waits for the slot to become empty.
    pub fn acquire_blocking(&self, isolation: Isolation) -> Result<Lease, Error> {
        let alone = isolation != Isolation::Shared;
        if alone && self.count.get() > 1 {
            return self.acquire_alone(isolation);
        }
        let _gate = Lock::wait(&self.dir.join("gate"), FlockOperation::LockExclusive)?;
        let operation = if alone { FlockOperation::LockExclusive } else { FlockOperation::LockShared };
        Ok(Lease { slot: 0, _lock: Lock::wait(&self.path(0), operation)? })
    }

    /// Quiet scenarios begin at the low slots and own ones at the high slots, so that quiet planes are used again.
    fn acquire_alone(&self, isolation: Isolation) -> Result<Lease, Error> {
        let _queue = Lock::wait(&self.dir.join("queue"), FlockOperation::LockExclusive)?;
        let mut slots: Vec<usize> = (1..self.count.get()).collect();
        if isolation == Isolation::Own {
            slots.reverse();
        }
        loop {
            for &slot in &slots {
                if let Some(lock) = Lock::attempt(&self.path(slot), FlockOperation::NonBlockingLockExclusive)?
                {
                    return Ok(Lease { slot, _lock: lock });
                }
            }
            // The kernel has no call that waits for the first of several locks; only the head of the queue is here.
            std::thread::sleep(POLL);
        }
    }

    fn path(&self, slot: usize) -> PathBuf {
        self.dir.join(format!("slot-{slot}"))
    }
}
