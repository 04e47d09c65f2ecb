//! Where the bytes of a log come from: a file, standard input or memory; plain, gzip or Zstandard, told by content.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::read::Decoder as ZstdDecoder;

/// Small: what is read in larger pieces does not go through it.
const BUFFER: usize = 64 << 10;
/// What gzip may look back, as a power of two.
const WINDOW_BITS: u8 = 15;
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// How many bytes of a source have been read, for a progress bar.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<AtomicU64>);

impl Meter {
    /// The bytes read so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct Metered<R> {
    inner: R,
    meter: Meter,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.meter.0.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// A log to be read.
pub enum Source {
    /// A file; `-` is standard input.
    Path(String),
    /// A file of which some has been read already.
    Begun {
        /// Its path; `-` is standard input.
        path: String,
        /// What was read.
        head: Vec<u8>,
    },
    /// Bytes under a name.
    Bytes(String, Vec<u8>),
}

impl Source {
    /// What the source is called in reports.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Path(name) | Self::Bytes(name, _) | Self::Begun { path: name, .. } => name,
        }
    }

    /// The size in bytes, where it is known.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        match self {
            Self::Path(path) if path != "-" => {
                std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|file| file.len())
            }
            Self::Path(_) | Self::Begun { .. } => None,
            Self::Bytes(_, bytes) => Some(bytes.len() as u64),
        }
    }

    /// Opens the source.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn open(self) -> io::Result<(Opened, Meter)> {
        let meter = Meter::default();
        let raw: Box<dyn Read + Send> = match self {
            Self::Path(path) => file(&path)?,
            Self::Begun { path, head } => Box::new(Cursor::new(head).chain(file(&path)?)),
            Self::Bytes(_, bytes) => Box::new(Cursor::new(bytes)),
        };
        let mut reader = BufReader::with_capacity(BUFFER, Metered { inner: raw, meter: meter.clone() });
        let head = reader.fill_buf()?;
        let opened: Opened = if head.starts_with(&GZIP) {
            Opened { bytes: Box::new(Gunzip::new(reader)), compressed: true }
        } else if head.starts_with(&ZSTD) || is_skippable(head) {
            Opened { bytes: Box::new(ZstdDecoder::with_buffer(reader)?), compressed: true }
        } else {
            Opened { bytes: Box::new(reader), compressed: false }
        };
        Ok((opened, meter))
    }
}

fn file(path: &str) -> io::Result<Box<dyn Read + Send>> {
    if path == "-" {
        return Ok(Box::new(io::stdin()));
    }
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "is a directory"));
    }
    Ok(Box::new(file))
}

/// The members of a gzip file one after the other. Zeros behind one are passed over: some files are padded with them.
struct Gunzip<R> {
    packed: R,
    /// None between members.
    member: Option<Decompress>,
    /// Damage, kept until what came before it has been given.
    damage: Option<io::Error>,
}

impl<R: BufRead> Gunzip<R> {
    fn new(packed: R) -> Self {
        Self { packed, member: None, damage: None }
    }
}

impl<R: BufRead> Read for Gunzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(damage) = self.damage.take() {
            return Err(damage);
        }
        loop {
            let input = self.packed.fill_buf()?;
            let ended = input.is_empty();
            let Some(member) = &mut self.member else {
                if ended {
                    return Ok(0);
                }
                let zeros = input.iter().take_while(|&&byte| byte == 0).count();
                if zeros == 0 {
                    self.member = Some(Decompress::new_gzip(WINDOW_BITS));
                }
                self.packed.consume(zeros);
                continue;
            };
            let (took, gave) = (member.total_in(), member.total_out());
            let result = member.decompress(input, buffer, FlushDecompress::None);
            let (took, gave) = ((member.total_in() - took) as usize, (member.total_out() - gave) as usize);
            self.packed.consume(took);
            match result {
                Err(error) => self.damage = Some(io::Error::new(io::ErrorKind::InvalidData, error)),
                Ok(Status::StreamEnd) => self.member = None,
                Ok(_) if ended && gave == 0 => self.damage = Some(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
            }
            if gave > 0 || buffer.is_empty() {
                return Ok(gave);
            }
            if let Some(damage) = self.damage.take() {
                return Err(damage);
            }
        }
    }
}

fn is_skippable(head: &[u8]) -> bool {
    head.len() >= 4 && head[0] & 0xf0 == 0x50 && head[1..4] == [0x2a, 0x4d, 0x18]
}

/// An open source.
pub struct Opened {
    /// The plain bytes.
    pub bytes: Box<dyn Read + Send>,
    /// Whether they were compressed: then a read error means a damaged stream.
    pub compressed: bool,
}
