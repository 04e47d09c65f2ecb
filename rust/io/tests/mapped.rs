//! Blocks as files: what one mapping writes another reads, old blocks are kept, what is no block is refused; and the
//! identity of processes, which says whether the writer of a block still runs.
#![cfg(unix)]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use tokenpulse_core::meter::{Memory, Origin};
use tokenpulse_io::process::{forks, is_alive, monotonic_ns, origin, started_ns, watch_forks};
use tokenpulse_io::{BlockError, Listing, MAX_BYTES, Mapped, blocks_in};

/// A directory of its own, gone with the test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let name = format!("tokenpulse-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn published(path: &Path, first: u64) -> Mapped {
    let block = Mapped::create(path, 4).unwrap();
    block.words()[0].store(first, Relaxed);
    block.publish().unwrap();
    block
}

fn first(path: &Path) -> u64 {
    Mapped::open(path).unwrap().words()[0].load(Relaxed)
}

fn refusal(opened: Result<Mapped, BlockError>) -> String {
    let error = opened.map(|block| block.path().to_owned()).unwrap_err();
    assert_eq!(std::error::Error::source(&error).is_some(), matches!(error, BlockError::System { .. }));
    error.to_string()
}

#[test]
fn what_one_mapping_writes_another_reads() {
    let directory = Directory::new();
    let path = directory.join("engine.block");
    let writer = Mapped::create(&path, 3).unwrap();
    assert_eq!(writer.words().iter().map(|word| word.load(Relaxed)).collect::<Vec<_>>(), [0; 3]);
    writer.words()[1].store(7, Relaxed);
    assert!(!path.exists());
    assert_eq!(writer.publish().unwrap(), None);
    assert_eq!(directory.names(), ["engine.block"]);

    let reader = Mapped::open(&path).unwrap();
    assert_eq!((reader.path(), writer.path()), (&*path, &*path));
    assert_eq!(reader.words().iter().map(|word| word.load(Relaxed)).collect::<Vec<_>>(), [0, 7, 0]);
    writer.words()[2].fetch_add(u64::MAX, Relaxed);
    assert_eq!(reader.words()[2].load(Relaxed), u64::MAX);
    // Published once, it stays; what another reads outlives the writer and the name.
    assert_eq!(writer.publish().unwrap(), None);
    drop(writer);
    fs::remove_file(&path).unwrap();
    assert_eq!(reader.words()[1].load(Relaxed), 7);
    assert!(reader.still_whole());
}

#[test]
fn the_old_block_is_kept_beside() {
    let directory = Directory::new();
    let path = directory.join("engine.block");
    for n in 1..=3 {
        published(&path, n);
    }
    assert_eq!(directory.names(), ["engine.block", "engine.block.1", "engine.block.2"]);
    assert_eq!([first(&path), first(&directory.join("engine.block.1"))], [3, 1]);
    assert_eq!(first(&directory.join("engine.block.2")), 2);

    // A gap is filled; what is there, whatever it is, is never overwritten.
    fs::remove_file(directory.join("engine.block.1")).unwrap();
    fs::write(directory.join("engine.block.3"), "mine").unwrap();
    let block = Mapped::create(&path, 1).unwrap();
    assert_eq!(first(&path), 3, "until it is published, the old one is there");
    assert_eq!(block.publish().unwrap(), Some(directory.join("engine.block.1")));
    assert_eq!(published(&path, 5).words().len(), 4);
    assert_eq!(first(&directory.join("engine.block.1")), 3);
    assert_eq!(first(&directory.join("engine.block.4")), 0);
    assert_eq!(fs::read(directory.join("engine.block.3")).unwrap(), b"mine");

    // A link is kept as a link: what it points to keeps its own name.
    symlink("nowhere", directory.join("link")).unwrap();
    published(&directory.join("link"), 6);
    assert!(directory.join("link.1").is_symlink());
}

#[test]
fn no_block_is_lost_when_many_publish_under_one_name() {
    let directory = Directory::new();
    let path = directory.join("engine.block");
    let start = Barrier::new(8);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (path, start) = (&path, &start);
            scope.spawn(move || {
                start.wait();
                (0..20).for_each(|n| drop(published(path, 1 + thread * 20 + n)));
            });
        }
    });
    let mut values: Vec<_> = directory.names().iter().map(|name| first(&directory.join(name))).collect();
    values.sort_unstable();
    assert_eq!(values, (1..=160).collect::<Vec<_>>());
}

#[test]
fn an_unpublished_block_goes_with_its_owner() {
    let directory = Directory::new();
    let path = directory.join("engine.block");
    let one = Arc::new(Mapped::create(&path, 1).unwrap());
    let other = Mapped::create(&path, 1).unwrap();
    let names = directory.names();
    assert!(names.len() == 2 && names.iter().all(|name| name.starts_with(".engine.block.")), "{names:?}");
    drop(one);
    assert_eq!(directory.names().len(), 1);
    drop(other);
    assert!(directory.names().is_empty());
}

#[test]
fn permissions_are_those_of_any_new_file() {
    let directory = Directory::new();
    File::create(directory.join("plain")).unwrap();
    published(&directory.join("engine.block"), 1);
    let mode = |name| fs::metadata(directory.join(name)).unwrap().permissions().mode();
    assert_eq!(mode("engine.block"), mode("plain"));
}

#[test]
fn a_block_is_sparse() {
    let directory = Directory::new();
    let path = directory.join("engine.block");
    let writer = Mapped::create(&path, (MAX_BYTES / 8) as usize).unwrap();
    writer.words().last().unwrap().store(9, Relaxed);
    writer.publish().unwrap();
    let reader = Mapped::open(&path).unwrap();
    assert_eq!(reader.words().last().unwrap().load(Relaxed), 9);
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), MAX_BYTES);
    assert!(metadata.blocks() * 512 <= 1 << 20, "{} blocks on disk", metadata.blocks());
}

#[test]
fn what_can_be_no_block_is_refused_by_name() {
    let directory = Directory::new();
    let shape = "must be a whole number of 8-byte words, from 1 word to 16 GiB";
    for (name, bytes) in [("empty", 0), ("odd", 4097), ("short", 7), ("huge", MAX_BYTES + 8)] {
        File::create(directory.join(name)).unwrap().set_len(bytes).unwrap();
        let path = directory.join(name);
        assert_eq!(refusal(Mapped::open(&path)), format!("{}: {shape}, got {bytes} bytes", path.display()));
    }
    fs::create_dir(directory.join("dir")).unwrap();
    let _listener = UnixListener::bind(directory.join("socket")).unwrap();
    // Without a writer, an ordinary opening of a pipe would wait for ever.
    assert!(Command::new("mkfifo").arg(directory.join("pipe")).status().unwrap().success());
    for (name, what) in [("dir", "a directory"), ("pipe", "a device, a pipe or a socket")] {
        let path = directory.join(name);
        assert_eq!(refusal(Mapped::open(&path)), format!("{}: must be a regular file, got {what}", path.display()));
    }
    let missing = directory.join("no/engine.block");
    let said = refusal(Mapped::open(&missing));
    assert!(said.starts_with(&format!("{}: cannot open the block: ", missing.display())), "{said}");
    assert!(matches!(Mapped::open(&missing), Err(BlockError::System { source, .. })
        if source.kind() == std::io::ErrorKind::NotFound));
}

#[test]
fn a_block_that_cannot_be_made_is_refused_by_name() {
    let directory = Directory::new();
    let path = directory.join("engine.block");
    for words in [0, (MAX_BYTES / 8) as usize + 1, usize::MAX] {
        let said = refusal(Mapped::create(&path, words));
        assert!(
            said.starts_with(&path.display().to_string()) && said.ends_with(&format!("got {words} words")),
            "{said}"
        );
    }
    assert_eq!(refusal(Mapped::create("/", 1)), "/: must be the name of a file, got none");
    let said = refusal(Mapped::create(&directory.0, 1));
    assert!(said.ends_with("must be a regular file or nothing, got a directory"), "{said}");
    let said = refusal(Mapped::create(directory.join("no/engine.block"), 1));
    assert!(said.contains("no/engine.block: cannot create the block: "), "{said}");
    assert!(directory.names().is_empty());

    // What comes there in the meantime is no block either; when it has gone, the block can be published.
    let block = Mapped::create(&path, 1).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(block.publish(), Err(BlockError::Shape { .. })));
    assert!(path.is_dir());
    fs::remove_dir(&path).unwrap();
    block.publish().unwrap();
    assert_eq!(directory.names(), ["engine.block"]);
}

#[test]
fn a_block_cut_short_is_noticed_before_it_is_read() {
    let directory = Directory::new();
    let path = directory.join("engine.block");
    let writer = published(&path, 1);
    let reader = Mapped::open(&path).unwrap();
    assert!(reader.still_whole() && writer.still_whole());
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(31).unwrap();
    assert!(!reader.still_whole() && !writer.still_whole());
    file.set_len(64).unwrap();
    assert!(reader.still_whole());
}

#[test]
fn the_blocks_of_a_directory() {
    let directory = Directory::new();
    let magic = *b"tpmeter1";
    let block = |name: &str| {
        let block = Mapped::create(directory.join(name), 4).unwrap();
        block.words()[0].store(u64::from_ne_bytes(magic), Relaxed);
        block
    };
    for name in ["b", "a", "b"] {
        block(name).publish().unwrap();
    }
    let unpublished = block("c");
    fs::write(directory.join("exact"), magic).unwrap();
    fs::write(directory.join("short"), &magic[..7]).unwrap();
    fs::write(directory.join("other"), b"tpmeter2........").unwrap();
    fs::write(directory.join(".hidden"), magic).unwrap();
    fs::create_dir(directory.join("dir")).unwrap();
    fs::write(directory.join("dir/inner"), magic).unwrap();
    symlink(directory.join("a"), directory.join("link")).unwrap();
    let _listener = UnixListener::bind(directory.join("socket")).unwrap();
    let blocks = ["a", "b", "b.1", "exact"].map(|name| directory.join(name)).to_vec();
    assert_eq!(blocks_in(&directory.0, magic).unwrap(), Listing { blocks: blocks.clone(), unreadable: Vec::new() });

    // Whoever may read everything (root) finds a block that nobody may read.
    fs::set_permissions(directory.join("a"), fs::Permissions::from_mode(0o000)).unwrap();
    let listing = blocks_in(&directory.0, magic).unwrap();
    let mut all = [listing.blocks, listing.unreadable].concat();
    all.sort();
    assert_eq!(all, blocks);
    drop(unpublished);

    let said = blocks_in(directory.join("no"), magic).unwrap_err().to_string();
    assert!(said.contains("/no: cannot list the blocks: "), "{said}");
}

#[test]
fn this_process_is_alive() {
    let before = monotonic_ns();
    let me = origin();
    assert!(me.monotonic && me.pid == std::process::id());
    assert!((before..=monotonic_ns()).contains(&me.anchor_monotonic_ns));
    assert!(me.anchor_unix_ns > 1_600_000_000_000_000_000);
    assert!(is_alive(&me));
    if cfg!(target_os = "linux") {
        assert!(me.boot != 0 && me.process_start_ns > 0 && me.process_start_ns <= me.anchor_monotonic_ns);
        assert!(!is_alive(&Origin { boot: me.boot ^ 1, ..me }), "another boot");
        let later = me.process_start_ns + 1_000_000_000;
        assert!(!is_alive(&Origin { process_start_ns: later, ..me }), "the number used again");
    }
    // What is not known is taken to agree.
    assert!(is_alive(&Origin { boot: 0, process_start_ns: 0, ..me }));
    // To a signal these numbers would be groups of processes.
    for pid in [0, u32::MAX, 1 << 31] {
        assert!(!is_alive(&Origin { pid, boot: 0, process_start_ns: 0, ..me }), "{pid}");
    }
}

#[test]
fn a_child_is_alive_until_it_is_killed() {
    let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    let start = started_ns(child.id());
    assert_eq!(start.is_some(), cfg!(target_os = "linux"));
    let writer = Origin { pid: child.id(), process_start_ns: start.unwrap_or(0), ..origin() };
    let alive = is_alive(&writer);
    child.kill().unwrap();
    assert!(alive);
    if cfg!(target_os = "linux") {
        // Before its parent has taken note: a zombie.
        let limit = Instant::now() + Duration::from_secs(10);
        while is_alive(&writer) {
            assert!(Instant::now() < limit, "still alive");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(started_ns(child.id()), None);
    }
    child.wait().unwrap();
    assert!(!is_alive(&writer));
    assert!(!is_alive(&Origin { process_start_ns: 0, ..writer }));
}

#[test]
#[allow(unsafe_code, reason = "a real fork is what is tested")]
fn a_forked_child_counts_its_fork() {
    fn exit_status_of_a_fork(in_child: impl Fn() -> bool) -> i32 {
        // SAFETY: the child of this threaded process does only what is allowed there, loads and a system call, and
        // leaves without running anything of its parent's.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let status = i32::from(!in_child());
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(status) };
        }
        let mut status = -1;
        // SAFETY: waits for our own child; `status` outlives the call.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        status
    }

    let mine = watch_forks().unwrap();
    assert_eq!(exit_status_of_a_fork(|| forks() == mine + 1), 0);
    // Asked again, it is not counted twice; and the parent stays what it was.
    assert_eq!(watch_forks().unwrap(), mine);
    assert_eq!(exit_status_of_a_fork(|| forks() == mine + 1), 0);
    assert_eq!(forks(), mine);
    // A child's child has gone twice.
    assert_eq!(exit_status_of_a_fork(|| exit_status_of_a_fork(|| forks() == mine + 2) == 0), 0);
}
