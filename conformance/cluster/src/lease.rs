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

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::MetadataExt,
        sync::mpsc::{Receiver, channel},
        time::Instant,
    };

    use rstest::rstest;
    use tempfile::TempDir;

    use super::{Isolation::*, *};

    #[rstest]
    #[case(2, 24 * 1024, 3)]
    #[case(8, 6 * 1024, 4)]
    #[case(64, 1024, 1)]
    #[case(4, 0, 1)]
    fn slots_follow_cores_and_memory(#[case] cores: usize, #[case] mib: u64, #[case] wanted: usize) {
        assert_eq!(slots_for(cores, mib).get(), wanted);
    }

    #[test]
    fn the_memory_of_this_machine_is_known() {
        assert!(memory_mib() > 0);
    }

    fn make(count: usize) -> (TempDir, Slots) {
        let dir = tempfile::tempdir().unwrap();
        let slots = Slots::new(dir.path(), NonZeroUsize::new(count).unwrap()).unwrap();
        (dir, slots)
    }

    /// What a thread that asks for a lease is seen to wait for.
    #[derive(Clone, Copy)]
    enum Waits {
        /// At the head of the queue, for a free slot.
        Head,
        /// In the kernel, for the lock in this file.
        Lock(&'static str),
    }

    impl Waits {
        fn count(self, slots: &Slots) -> usize {
            match self {
                Self::Head => {
                    let queue = slots.dir.join("queue");
                    usize::from(
                        Lock::attempt(&queue, FlockOperation::NonBlockingLockExclusive).unwrap().is_none(),
                    )
                }
                Self::Lock(file) => {
                    let Ok(data) = std::fs::metadata(slots.dir.join(file)) else { return 0 };
                    let inode = format!(":{} ", data.ino());
                    let locks = std::fs::read_to_string("/proc/locks").unwrap();
                    locks.lines().filter(|line| line.contains("->") && line.contains(&inode)).count()
                }
            }
        }
    }

    /// Asks for a lease in a thread and returns once that is seen to wait.
    fn ask(slots: &Slots, isolation: Isolation, waits: Waits) -> Receiver<Lease> {
        let (send, receive) = channel();
        let before = waits.count(slots);
        let own = slots.clone();
        std::thread::spawn(move || send.send(own.acquire_blocking(isolation).unwrap()));
        let start = Instant::now();
        while waits.count(slots) == before {
            assert!(start.elapsed() < Duration::from_secs(20), "it does not wait");
            std::thread::sleep(Duration::from_millis(1));
        }
        receive
    }

    fn granted(receive: &Receiver<Lease>) -> Lease {
        receive.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    #[test]
    fn sharers_go_together_and_do_not_touch_the_other_slots() {
        let (_dir, slots) = make(3);
        let leases: Vec<_> = (0..5).map(|_| slots.acquire_blocking(Shared).unwrap()).collect();
        assert!(leases.iter().all(|lease| lease.slot() == 0));
        assert_eq!(slots.acquire_blocking(Quiet).unwrap().slot(), 1);
    }

    #[test]
    fn the_lonely_have_a_slot_each_and_own_ones_begin_at_the_end() {
        let (_dir, slots) = make(3);
        let own = slots.acquire_blocking(Own).unwrap();
        let quiet = slots.acquire_blocking(Quiet).unwrap();
        assert_eq!((own.slot(), quiet.slot()), (2, 1));
        let third = ask(&slots, Quiet, Waits::Head);
        assert!(third.try_recv().is_err(), "all slots are taken");
        drop(own);
        assert_eq!(granted(&third).slot(), 2);
    }

    #[test]
    fn the_lonely_are_served_in_the_order_of_their_coming() {
        let (_dir, slots) = make(2);
        let held = slots.acquire_blocking(Own).unwrap();
        let first = ask(&slots, Quiet, Waits::Head);
        let second = ask(&slots, Own, Waits::Lock("queue"));
        let third = ask(&slots, Quiet, Waits::Lock("queue"));
        drop(held);
        let lease = granted(&first);
        assert!(second.try_recv().is_err() && third.try_recv().is_err());
        drop(lease);
        let lease = granted(&second);
        assert!(third.try_recv().is_err());
        drop(lease);
        granted(&third);
    }

    #[test]
    fn on_a_single_slot_later_sharers_do_not_overtake_a_lonely_one() {
        let (_dir, slots) = make(1);
        let sharer = slots.acquire_blocking(Shared).unwrap();
        let lonely = ask(&slots, Quiet, Waits::Lock("slot-0"));
        let late = ask(&slots, Shared, Waits::Lock("gate"));
        assert!(lonely.try_recv().is_err(), "the slot is in use");
        assert!(late.try_recv().is_err(), "somebody is first");
        drop(sharer);
        let lease = granted(&lonely);
        assert!(late.try_recv().is_err(), "it is alone");
        drop(lease);
        assert_eq!(granted(&late).slot(), 0);
    }

    #[tokio::test]
    async fn a_dropped_call_gives_back_what_it_gets() {
        let (_dir, slots) = make(2);
        let held = slots.acquire(Quiet).await.unwrap();
        let waiting = tokio::time::timeout(Duration::from_millis(50), slots.acquire(Quiet)).await;
        assert!(waiting.is_err());
        drop(held);
        let again = tokio::time::timeout(Duration::from_secs(20), slots.acquire(Quiet)).await;
        assert_eq!(again.unwrap().unwrap().slot(), 1);
    }
}
