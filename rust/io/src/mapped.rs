//! Blocks as files that several processes map: one writes, others read what it writes as it is written.
//!
//! A new block is made under a name with a dot and takes its own name when it is published, so nobody sees one half
//! made; a block that already had the name is kept beside it as `NAME.1`, `NAME.2`, and so on, whoever else publishes
//! at the same time. What a process wrote survives the process, but not a loss of power.
//!
//! What a mapping cannot promise: a page that no longer has a file behind it (the file was cut short, or the disk was
//! full when a page was first written) ends the process that touches it with SIGBUS. [`Mapped::still_whole`] notices
//! the first case, a moment early; the second is for who chooses where blocks lie. And on tmpfs (`/dev/shm`) a page
//! takes room when it is first read through a mapping, not only when it is written: readers do well to look only at
//! what is in use.

#![expect(unsafe_code, reason = "pages of a file become a slice of atomics; the one place is Mapped::words")]

use std::ffi::OsString;
use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::{fmt, slice};

use memmap2::{MmapOptions, MmapRaw};
use tokenpulse_core::meter::Memory;

/// The largest block: 16 GiB.
pub const MAX_BYTES: u64 = 16 << 30;

const WORD: u64 = size_of::<AtomicU64>() as u64;
const SHAPE: &str = "a whole number of 8-byte words, from 1 word to 16 GiB";
const REGULAR: &str = "a regular file";
/// How often somebody else may take the name between our looking and our linking before we give up.
const RIVALS: u32 = 1000;

/// Why there is no block; the message begins with the path.
#[derive(Debug)]
pub enum BlockError {
    /// What the system says.
    System {
        /// The path of the block, or of the directory of blocks.
        path: PathBuf,
        /// What was attempted, as in `cannot open the block`.
        action: &'static str,
        /// The system's own error.
        source: io::Error,
    },
    /// What is there can be no block.
    Shape {
        /// The path of the block.
        path: PathBuf,
        /// What must be there.
        expected: &'static str,
        /// What is there.
        got: String,
    },
}

impl BlockError {
    fn system(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { path: path.to_owned(), action, source }
    }

    fn shape(path: &Path, expected: &'static str, got: impl Into<String>) -> Self {
        Self::Shape { path: path.to_owned(), expected, got: got.into() }
    }
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { path, action, source } => write!(f, "{}: cannot {action}: {source}", path.display()),
            Self::Shape { path, expected, got } => write!(f, "{}: must be {expected}, got {got}", path.display()),
        }
    }
}

impl std::error::Error for BlockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { source, .. } => Some(source),
            Self::Shape { .. } => None,
        }
    }
}

/// A file of 8-byte words, mapped into memory and shared with whoever else maps it.
///
/// Through a mapping made by [`open`](Self::open) words may only be loaded, with relaxed ordering (and a fence, where
/// order matters). A store ends the process with SIGSEGV: those pages are read-only.
#[derive(Debug)]
pub struct Mapped {
    map: MmapRaw,
    file: File,
    path: PathBuf,
    draft: Mutex<Option<Draft>>,
}

/// The name of a block that is not published yet.
#[derive(Debug)]
struct Draft {
    path: PathBuf,
    /// Who removes it if it never is: not a forked child that inherited the value.
    pid: u32,
}

impl Mapped {
    /// Makes a block of zeros, to be written by this process; it appears at `path` when it is published.
    ///
    /// The file is sparse: it takes room on the disk as its pages are first written, and so may fill the disk then. Its
    /// permissions are those of any new file (0666 less the umask), so that another user may read it where the umask
    /// says so. Dropped unpublished, it is gone.
    ///
    /// # Errors
    ///
    /// [`BlockError::Shape`] if `words` is 0 or more than 16 GiB, or if there is something at `path` that is no regular
    /// file; [`BlockError::System`] if the file cannot be made or mapped.
    pub fn create(path: impl AsRef<Path>, words: usize) -> Result<Self, BlockError> {
        let path = path.as_ref();
        let bytes = (words as u64).checked_mul(WORD).filter(|bytes| (WORD..=MAX_BYTES).contains(bytes));
        let bytes = bytes.ok_or_else(|| BlockError::shape(path, SHAPE, format!("{words} words")))?;
        if path.file_name().is_none() {
            return Err(BlockError::shape(path, "the name of a file", "none"));
        }
        // The working directory may be another one by the time the block is published.
        let path = std::path::absolute(path).map_err(BlockError::system(path, "find the block"))?;
        check_replaceable(&path)?;
        let (draft, file) = new_draft(&path).map_err(BlockError::system(&path, "create the block"))?;
        let sized = file.set_len(bytes).and_then(|()| MmapOptions::new().len(bytes as usize).map_raw(&file));
        match sized {
            Ok(map) => {
                let draft = Draft { path: draft, pid: std::process::id() };
                Ok(Self { map, file, path, draft: Mutex::new(Some(draft)) })
            }
            Err(error) => {
                _ = fs::remove_file(draft);
                Err(BlockError::system(&path, "map the block")(error))
            }
        }
    }

    /// Opens a block to read it.
    ///
    /// Nothing is read yet and nothing of the block's size is allocated.
    ///
    /// # Errors
    ///
    /// [`BlockError::Shape`] if what is there is no regular file, is empty, is no whole number of words or is larger
    /// than 16 GiB; [`BlockError::System`] if it cannot be opened or mapped.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, BlockError> {
        let path = path.as_ref();
        let file = open_to_read(path).map_err(BlockError::system(path, "open the block"))?;
        let metadata = file.metadata().map_err(BlockError::system(path, "open the block"))?;
        if !metadata.is_file() {
            return Err(BlockError::shape(path, REGULAR, kind(metadata.file_type())));
        }
        let bytes = metadata.len();
        if bytes % WORD != 0 || !(WORD..=MAX_BYTES).contains(&bytes) {
            return Err(BlockError::shape(path, SHAPE, format!("{bytes} bytes")));
        }
        // Where a word is wider than a register, an atomic load may be a compare-and-swap: read-only pages refuse that.
        let map = match usize::try_from(bytes) {
            Ok(len) if usize::BITS >= 64 => MmapOptions::new().len(len).map_raw_read_only(&file),
            _ => Err(io::Error::new(ErrorKind::Unsupported, "blocks are read on 64-bit systems only")),
        };
        let map = map.map_err(BlockError::system(path, "map the block"))?;
        Ok(Self { map, file, path: path.to_owned(), draft: Mutex::new(None) })
    }

    /// Gives a new block its name; what had the name before is kept under the name that is returned.
    ///
    /// For a moment between the two nothing has the name. Once published, a block stays so: a second call does nothing.
    ///
    /// # Errors
    ///
    /// [`BlockError::Shape`] if something at the path is no regular file; [`BlockError::System`] if it cannot be
    /// renamed. The block can then be published again.
    pub fn publish(&self) -> Result<Option<PathBuf>, BlockError> {
        let mut draft = self.draft.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Draft { path: name, .. }) = draft.as_ref() else { return Ok(None) };
        let mut kept = None;
        for _ in 0..RIVALS {
            match take_name(name, &self.path) {
                Ok(()) => {
                    *draft = None;
                    return Ok(kept);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(BlockError::system(&self.path, "publish the block")(error)),
            }
            check_replaceable(&self.path)?;
            let aside = keep_aside(&self.path).map_err(BlockError::system(&self.path, "keep the old block"))?;
            kept = aside.or(kept);
        }
        let error = io::Error::new(ErrorKind::AlreadyExists, "others keep publishing under this name");
        Err(BlockError::system(&self.path, "publish the block")(error))
    }

    /// Whether the file still has every byte that is mapped: to be asked before each reading.
    ///
    /// One `fstat`. It cannot protect a reading from a file that is cut short while it goes on: that still ends the
    /// reader with SIGBUS. Blocks are never cut short by who writes them; this is for a careless copy or clean-up.
    #[must_use]
    pub fn still_whole(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.len() >= self.map.len() as u64)
    }

    /// Where the block is, or will be when it is published.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Memory for Mapped {
    fn words(&self) -> &[AtomicU64] {
        let len = self.map.len() / size_of::<AtomicU64>();
        #[expect(clippy::cast_ptr_alignment, reason = "pages are aligned to more than 8 bytes")]
        let first = self.map.as_mut_ptr().cast::<AtomicU64>();
        // SAFETY: the mapping begins at a page, so it is aligned; it holds `len` words and lives as long as `self`, for
        // nothing remaps it. Every bit pattern is a u64. Others may change the words at any time, in this process or in
        // another: that is what atomics allow, and no reference that is not to an atomic is ever made. In a read-only
        // mapping loads are sound: the standard library guarantees that relaxed loads of 8 bytes work on read-only
        // memory on 64-bit targets, and `open` refuses others; stores are a fault of the caller, which the pages turn
        // into SIGSEGV before anything is changed.
        unsafe { slice::from_raw_parts(first, len) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let draft = self.draft.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(draft) = draft.filter(|draft| draft.pid == std::process::id()) {
            // Nobody is left to tell; the name says what it was.
            _ = fs::remove_file(draft.path);
        }
    }
}

/// The blocks of a directory, and what may be one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The paths of the blocks, sorted; those kept beside newer ones are among them.
    pub blocks: Vec<PathBuf>,
    /// The paths of files that this process may not read, sorted.
    pub unreadable: Vec<PathBuf>,
}

/// The regular files directly in `dir` that begin with `magic`; no names with a dot, which unpublished blocks have, and
/// no symbolic links, which would count a block twice.
///
/// A file that goes while the directory is read is no part of it.
///
/// # Errors
///
/// [`BlockError::System`] if the directory, or a file in it that may be read, cannot be.
pub fn blocks_in(dir: impl AsRef<Path>, magic: [u8; 8]) -> Result<Listing, BlockError> {
    let dir = dir.as_ref();
    let mut listing = Listing::default();
    for entry in fs::read_dir(dir).map_err(BlockError::system(dir, "list the blocks"))? {
        let entry = entry.map_err(BlockError::system(dir, "list the blocks"))?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        match entry.file_type().and_then(|kind| Ok(kind.is_file() && begins_with(&path, magic)?)) {
            Ok(true) => listing.blocks.push(path),
            Ok(false) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::PermissionDenied => listing.unreadable.push(path),
            Err(error) => return Err(BlockError::system(&path, "read the file")(error)),
        }
    }
    listing.blocks.sort_unstable();
    listing.unreadable.sort_unstable();
    Ok(listing)
}

fn begins_with(path: &Path, magic: [u8; 8]) -> io::Result<bool> {
    let mut head = [0; 8];
    match open_to_read(path)?.read_exact(&mut head) {
        Ok(()) => Ok(head == magic),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens what may be anything: a named pipe without a writer must not hold us.
fn open_to_read(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_NOCTTY);
    options.open(path)
}

fn check_replaceable(path: &Path) -> Result<(), BlockError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() || metadata.is_symlink() => Ok(()),
        Ok(metadata) => Err(BlockError::shape(path, "a regular file or nothing", kind(metadata.file_type()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(BlockError::system(path, "find the block")(error)),
    }
}

fn kind(kind: FileType) -> &'static str {
    if kind.is_dir() { "a directory" } else { "a device, a pipe or a socket" }
}

/// `NAME` with something before and after it, in the same directory: renaming must not cross file systems.
fn beside(path: &Path, before: &str, after: &str) -> PathBuf {
    let mut name = OsString::from(before);
    name.push(path.file_name().unwrap_or_default());
    name.push(after);
    path.with_file_name(name)
}

/// A new file under a name that nobody has; a crash may have left older ones, of the same process number too.
fn new_draft(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    let pid = std::process::id();
    first_free(|n| beside(path, ".", &format!(".{pid}-{n}")), |draft| options.open(draft))
}

/// Moves what is at `path` to the first free `NAME.n`; none if it has gone.
///
/// The name is first taken by an empty file of our own, which the renaming replaces: so nothing of anyone else's is
/// overwritten, and what is moved is what was there at that very moment.
fn keep_aside(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let (kept, _) = first_free(|n| beside(path, "", &format!(".{n}")), |kept| options.open(kept))?;
    let Err(error) = fs::rename(path, &kept) else { return Ok(Some(kept)) };
    _ = fs::remove_file(kept);
    if error.kind() == ErrorKind::NotFound { Ok(None) } else { Err(error) }
}

fn first_free(name: impl Fn(u64) -> PathBuf, take: impl Fn(&Path) -> io::Result<File>) -> io::Result<(PathBuf, File)> {
    let mut n = 1;
    loop {
        let path = name(n);
        match take(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => n += 1,
            taken => return taken.map(|file| (path, file)),
        }
    }
}

/// Renames `draft` to `path`, never over something: a plain renaming would lose what came there since we looked.
fn take_name(draft: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(draft, path) {
        Ok(()) => {
            // The block has its name; a second one with a dot harms nobody.
            _ = fs::remove_file(draft);
            Ok(())
        }
        // A file system without links: we look first, and trust that one process publishes under a name.
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied) => {
            match fs::symlink_metadata(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => fs::rename(draft, path),
                Err(error) => Err(error),
                Ok(_) => Err(ErrorKind::AlreadyExists.into()),
            }
        }
        Err(error) => Err(error),
    }
}
