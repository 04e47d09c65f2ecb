//! Who this process is, whether another still runs, and whether this one is a forked child.
//!
//! Processes are told apart by number, start and boot, because numbers are used again. Numbers and starts mean the same
//! only within one PID and time namespace: from another container, a running process looks ended.

#![cfg_attr(
    unix,
    expect(unsafe_code, reason = "the standard library has no clock by name, no signal 0 and no notice of a fork")
)]

use std::fs;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tokenpulse_core::meter::Origin;

/// How many ticks of `/proc` two readings of one start may differ by: each is cut to a tick, the clocks are read apart.
const SLACK_TICKS: i64 = 2;

/// The origin of this process, with an anchor read now.
///
/// The two clocks of the anchor are read within microseconds of each other, in the best of three tries.
#[must_use]
pub fn origin() -> Origin {
    let (anchor_monotonic_ns, anchor_unix_ns) = anchor();
    let pid = std::process::id();
    Origin {
        monotonic: true,
        anchor_monotonic_ns,
        anchor_unix_ns,
        pid,
        process_start_ns: started_ns(pid).unwrap_or(0),
        boot: boot(),
    }
}

/// Nanoseconds on the system's monotonic clock: what Python's `time.monotonic_ns` reads.
///
/// On a system that is no Unix it is a clock of this process alone.
#[must_use]
pub fn monotonic_ns() -> i64 {
    #[cfg(target_vendor = "apple")]
    let now = clock_ns(libc::CLOCK_UPTIME_RAW);
    #[cfg(all(unix, not(target_vendor = "apple")))]
    let now = clock_ns(libc::CLOCK_MONOTONIC);
    #[cfg(not(unix))]
    let now = {
        static BEGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        i64::try_from(BEGIN.get_or_init(std::time::Instant::now).elapsed().as_nanos()).ok()
    };
    now.unwrap_or(0)
}

/// When a process that runs started, in nanoseconds on the monotonic clock, to a tick (10 ms); none where unknown.
///
/// Linux counts the start since boot, sleep included; the monotonic clock stands still while the machine sleeps. All
/// sleep so far is taken to lie before the start: after a sleep a start seems earlier than it was, by that sleep.
#[must_use]
pub fn started_ns(pid: u32) -> Option<i64> {
    let process = stat(pid).filter(|process| !process.ended)?;
    // 0 is what an origin says when it does not know.
    Some((process.since_boot_ns - asleep_ns()).max(1))
}

/// Whether the process that an origin names still runs, in this boot of this machine.
///
/// What the origin or the system does not know is taken to agree: at the least, there must be a process of that number.
/// A process that has ended but that its parent has not noticed yet (a zombie) has ended. If the machine has slept,
/// another process of the same number whose start is later by no more than that sleep is taken for the first.
#[must_use]
pub fn is_alive(origin: &Origin) -> bool {
    let boot = boot();
    if origin.boot != 0 && boot != 0 && origin.boot != boot {
        return false;
    }
    let Some(process) = stat(origin.pid) else { return exists(origin.pid) };
    if process.ended || origin.process_start_ns == 0 {
        return !process.ended;
    }
    // The origin left out the sleep until it was made; that is somewhere between none and all there has been.
    let slack = SLACK_TICKS * tick_ns();
    let latest = process.since_boot_ns.saturating_add(slack);
    let earliest = process.since_boot_ns.saturating_sub(asleep_ns() + slack);
    (earliest..=latest).contains(&origin.process_start_ns)
}

static FORKS: AtomicU64 = AtomicU64::new(0);

/// How many forks lie between the process that first called [`watch_forks`] and this one.
///
/// One relaxed load: a writer keeps the number it was made with, and where it differs it is in a child that must leave
/// its parent's block alone.
#[inline]
#[must_use]
pub fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Has forks counted from now on, and says how many there were; calls after the first only say.
///
/// Counted is what goes through `fork` of the C library, as Python's `os.fork` and `multiprocessing` do; a child made
/// by a bare `clone` is not noticed. On a system that is no Unix there are none.
///
/// # Errors
///
/// If the system has no memory for the notice.
pub fn watch_forks() -> io::Result<u64> {
    #[cfg(unix)]
    {
        use std::sync::{Mutex, PoisonError};

        static WATCHED: Mutex<bool> = Mutex::new(false);
        extern "C" fn in_child() {
            FORKS.fetch_add(1, Ordering::Relaxed);
        }
        let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        if !*watched {
            // SAFETY: the handler is a function that lives as long as the program, and does in the child only what is
            // allowed there: one atomic addition, no lock, no allocation.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            if failed != 0 {
                return Err(io::Error::from_raw_os_error(failed));
            }
            *watched = true;
        }
    }
    Ok(forks())
}

/// The monotonic and the Unix clock at one moment.
fn anchor() -> (i64, i64) {
    let tries = (0..3).map(|_| {
        let before = monotonic_ns();
        let unix = unix_ns();
        let apart = monotonic_ns() - before;
        (apart, before + apart / 2, unix)
    });
    // An interrupt between two readings pulls them apart; the closest pair had none.
    tries.min().map_or((0, 0), |(_, monotonic, unix)| (monotonic, unix))
}

fn unix_ns() -> i64 {
    let whole = |time: std::time::Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => whole(since),
        Err(error) => -whole(error.duration()),
    }
}

#[cfg(unix)]
#[allow(clippy::unnecessary_cast, reason = "the fields are narrower on some systems")]
fn clock_ns(clock: libc::clockid_t) -> Option<i64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec of our own that outlives the call; an unknown clock is an error, not a fault.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (failed == 0).then(|| time.tv_sec as i64 * 1_000_000_000 + time.tv_nsec as i64)
}

/// How long the machine has slept since it booted: what the monotonic clock lacks.
fn asleep_ns() -> i64 {
    #[cfg(target_os = "linux")]
    if let Some(since_boot) = clock_ns(libc::CLOCK_BOOTTIME) {
        return (since_boot - monotonic_ns()).max(0);
    }
    0
}

fn tick_ns() -> i64 {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: reads a number; it has no other effect.
        let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        if ticks_per_second > 0 {
            return 1_000_000_000 / ticks_per_second as i64;
        }
    }
    10_000_000
}

/// What `/proc` says of a process.
struct Stat {
    ended: bool,
    since_boot_ns: i64,
}

fn stat(pid: u32) -> Option<Stat> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in brackets, which may hold anything, brackets and spaces too.
    let after_name = text.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&text[after_name..]).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let ticks: i64 = fields.nth(18)?.parse().ok()?;
    Some(Stat { ended: matches!(state, "Z" | "X" | "x"), since_boot_ns: ticks.checked_mul(tick_ns())? })
}

/// Whether there is a process of that number, of whatever user.
fn exists(pid: u32) -> bool {
    #[cfg(unix)]
    {
        // 0 and negative numbers mean groups of processes.
        let Some(pid) = libc::pid_t::try_from(pid).ok().filter(|&pid| pid > 0) else { return false };
        // SAFETY: signal 0 is never sent; the call only says whether it could be.
        let failed = unsafe { libc::kill(pid, 0) };
        failed == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
    }
    #[cfg(not(unix))]
    {
        pid == std::process::id()
    }
}

/// The 128 random bits of this boot's name, folded to 64; 0 where unknown.
fn boot() -> u64 {
    let Ok(name) = fs::read_to_string("/proc/sys/kernel/random/boot_id") else { return 0 };
    let bits = u128::from_str_radix(&name.trim().replace('-', ""), 16).unwrap_or(0);
    (bits >> 64) as u64 ^ bits as u64
}
