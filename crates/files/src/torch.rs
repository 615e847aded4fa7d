//! Tensors that `torch.save` wrote: a ZIP archive of a pickle and of stored numbers. The pickle is read as plain data; of what it
//! names nothing is run, and of the numbers nothing is read here: it is only told where they lie. Every place that is told lies in
//! the file.

use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};

use crate::pickle::{ORDERED_DICT, Pickle, PickleError, Value};
use crate::zip::{self, Entry, Method};

/// The pickle of a state dict has a hundred bytes a tensor.
const MOST_PICKLED: u64 = 16 << 20;
/// The directory likewise.
const MOST_DIRECTORY: u64 = 64 << 20;
/// So many tensors are in a file at most, each with a name of so many bytes.
const MOST_TENSORS: usize = 100_000;
const MOST_NAME: usize = 1024;
/// So many dimensions has a tensor at most.
const MOST_DIMENSIONS: usize = 16;

/// What PyTorch had in a file before archives: a number of its own, pickled.
const LEGACY: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";

/// Classes and functions that a file may name; see [`Pickle::parse_knowing`].
const KNOWN: &[&str] = &[
    ORDERED_DICT,
    REBUILD_TENSOR,
    REBUILD_PARAMETER,
    "torch.FloatStorage",
    "torch.DoubleStorage",
    "torch.HalfStorage",
    "torch.BFloat16Storage",
    "torch.LongStorage",
    "torch.IntStorage",
    "torch.ShortStorage",
    "torch.CharStorage",
    "torch.ByteStorage",
    "torch.BoolStorage",
    "torch.Size",
    "torch.device",
    "torch.float32",
    "torch.float64",
    "torch.float16",
    "torch.bfloat16",
    "torch.int64",
    "argparse.Namespace",
];
const REBUILD_TENSOR: &str = "torch._utils._rebuild_tensor_v2";
const REBUILD_PARAMETER: &str = "torch._utils._rebuild_parameter";

/// Under which of these keys a checkpoint has its state dict, the likeliest first.
const CONTAINERS: [&str; 8] =
    ["state_dict", "model_state_dict", "model", "net", "network", "state_dict_ema", "model_ema", "weights"];

/// How a number is stored, the lowest byte first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// 4 bytes.
    F32,
    /// 8 bytes.
    F64,
    /// 2 bytes.
    F16,
    /// The upper 2 of the bytes of an f32.
    Bf16,
    /// No weights: whole numbers, of so many bytes.
    Whole(u8),
}

impl Numbers {
    /// Bytes of one.
    pub fn bytes(self) -> u64 {
        match self {
            Numbers::F64 => 8,
            Numbers::F32 => 4,
            Numbers::F16 | Numbers::Bf16 => 2,
            Numbers::Whole(bytes) => bytes.into(),
        }
    }

    fn of_storage(class: &str) -> Option<Numbers> {
        Some(match class {
            "torch.FloatStorage" => Numbers::F32,
            "torch.DoubleStorage" => Numbers::F64,
            "torch.HalfStorage" => Numbers::F16,
            "torch.BFloat16Storage" => Numbers::Bf16,
            "torch.LongStorage" => Numbers::Whole(8),
            "torch.IntStorage" => Numbers::Whole(4),
            "torch.ShortStorage" => Numbers::Whole(2),
            "torch.CharStorage" | "torch.ByteStorage" | "torch.BoolStorage" => Numbers::Whole(1),
            _ => return None,
        })
    }
}

/// A tensor of a file, and where it lies there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// In its state dict.
    pub name: String,
    /// How its numbers are stored.
    pub numbers: Numbers,
    /// Its sizes.
    pub shape: Vec<usize>,
    /// Numbers from one to the next in each dimension.
    pub strides: Vec<u64>,
    /// The byte of the file where its first number is.
    pub start: u64,
}

/// Why a file has no tensors that can be read here; the cure is among it.
#[derive(Debug, thiserror::Error)]
pub enum TorchFileError {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// What is pickled is more than plain data and tensors.
    #[error("its data.pkl: {0}; save a state dict of tensors: torch.save(model.state_dict(), FILE)")]
    Pickle(#[from] PickleError),
    /// It is of a PyTorch before 1.6, or was saved so that this can read it.
    #[error(
        "it has the format that PyTorch had before 1.6; write it anew: torch.save(torch.load(FILE, map_location=\"cpu\", \
         weights_only=True), NEW)"
    )]
    Legacy,
    /// A pickle and no archive.
    #[error("it is a pickle, and not what torch.save writes; save a state dict: torch.save(model.state_dict(), FILE)")]
    NoArchive,
    /// All else.
    #[error("{0}")]
    Problem(String),
}

type Result<T> = std::result::Result<T, TorchFileError>;

fn problem<T>(text: impl Into<String>) -> Result<T> {
    Err(TorchFileError::Problem(text.into()))
}

/// Whether a file begins as one that PyTorch, or another Python, wrote; then [`tensors`] has the last word.
pub fn is_pickled(first: &[u8]) -> bool {
    // A safetensors file begins with the length of its header, which no two bytes of these could be the whole of.
    first.starts_with(b"PK\x03\x04") || matches!(first, [0x80, 2..=5, ..])
}

/// The tensors of the state dict that a file has.
pub fn tensors(file: &mut (impl Read + Seek)) -> Result<Vec<Tensor>> {
    let length = file.seek(SeekFrom::End(0))?;
    let mut first = [0; LEGACY.len()];
    file.rewind()?;
    let read = file.read(&mut first)?;
    if first[..read].starts_with(LEGACY) {
        return Err(TorchFileError::Legacy);
    }
    if !first.starts_with(b"PK\x03\x04") {
        return Err(TorchFileError::NoArchive);
    }
    let archive = Archive::open(file, length)?;
    let mut pickled = Vec::new();
    let (start, bytes) = archive.member(file, "data.pkl")?;
    if bytes > MOST_PICKLED {
        return problem(format!("its data.pkl has {bytes} bytes, and no state dict has more than {MOST_PICKLED}"));
    }
    file.seek(SeekFrom::Start(start))?;
    file.take(bytes).read_to_end(&mut pickled)?;
    let pickle = Pickle::parse_knowing(pickled, KNOWN)?;
    StateDict { pickle, archive, starts: HashMap::new() }.tensors(file)
}

/// The members of the one folder that an archive has.
struct Archive {
    members: HashMap<String, Entry>,
    length: u64,
}

impl Archive {
    fn open(file: &mut (impl Read + Seek), length: u64) -> Result<Archive> {
        let tail_bytes = length.min(zip::TAIL);
        let mut tail = vec![0; tail_bytes as usize];
        read_at(file, length - tail_bytes, &mut tail)?;
        let place = zip::directory(&tail, length, |at, record| read_at(file, at, record).ok());
        let Ok((start, bytes)) = place else {
            return problem(
                "it is an archive whose directory is missing or damaged: the file is cut off; get it again",
            );
        };
        if bytes > MOST_DIRECTORY {
            return problem(format!("its directory has {bytes} bytes; no archive of PyTorch has one of that size"));
        }
        let mut directory = vec![0; bytes as usize];
        read_at(file, start, &mut directory)?;
        let Some(mut entries) = zip::entries(&directory) else {
            return problem("its directory is damaged; get the file again");
        };
        entries.sort_by_key(|entry| entry.offset);
        let mut end = 0;
        for entry in &entries {
            let own_end = entry.offset.checked_add(entry.packed).filter(|&own_end| own_end <= start);
            let Some(own_end) = own_end.filter(|_| entry.offset >= end) else {
                return problem(format!("its member {} lies over another: the file is damaged", shown(&entry.name)));
            };
            end = own_end;
        }
        let pickles = || entries.iter().filter_map(|entry| entry.name.strip_suffix("/data.pkl"));
        let (Some(folder), None) = (pickles().next(), pickles().nth(1)) else {
            return problem("it is an archive, and not what torch.save writes: it has no data.pkl of its own");
        };
        let folder = format!("{folder}/");
        let own = entries.into_iter().filter_map(|e| Some((e.name.strip_prefix(&folder)?.to_string(), e)));
        Ok(Archive { members: own.collect(), length })
    }

    /// Where the bytes of a member begin, and how many they are.
    fn member(&self, file: &mut (impl Read + Seek), name: &str) -> Result<(u64, u64)> {
        let Some(entry) = self.members.get(name) else {
            return problem(format!("it has no member {}: the file is damaged", shown(name)));
        };
        if entry.method != Method::Stored || entry.packed != entry.bytes {
            return problem(format!(
                "its member {} is compressed, which torch.save never does; save it again",
                shown(name)
            ));
        }
        let mut head = [0; zip::HEAD];
        read_at(file, entry.offset, &mut head)?;
        let start = zip::start(entry, &head).filter(|s| s.checked_add(entry.bytes).is_some_and(|e| e <= self.length));
        match start {
            Some(start) => Ok((start, entry.bytes)),
            None => {
                problem(format!("its member {} lies outside of it: the file is cut off; get it again", shown(name)))
            }
        }
    }
}

fn read_at(file: &mut (impl Read + Seek), at: u64, bytes: &mut [u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(bytes)
}

/// A name as a message may repeat it.
fn shown(name: &str) -> String {
    format!("\"{}\"", name.chars().filter(|c| !c.is_control()).take(80).collect::<String>())
}

struct StateDict {
    pickle: Pickle,
    archive: Archive,
    /// Of storages that were looked for, by their keys.
    starts: HashMap<String, (u64, u64)>,
}

impl StateDict {
    fn tensors(mut self, file: &mut (impl Read + Seek)) -> Result<Vec<Tensor>> {
        if let Some(order) = self.archive.members.get("byteorder") {
            let bytes = order.bytes.min(16);
            let (start, _) = self.archive.member(file, "byteorder")?;
            let mut order = vec![0; bytes as usize];
            read_at(file, start, &mut order)?;
            if order != b"little" {
                return problem("its numbers have their highest byte first; save it on a machine of today");
            }
        }
        let named = self.named()?;
        let mut tensors = Vec::with_capacity(named.len());
        for (name, value) in named {
            tensors.push(self.tensor(file, &name, value)?);
        }
        Ok(tensors)
    }

    /// The tensors of the dictionary that has them by name, which may be one in a checkpoint.
    fn named(&self) -> Result<Vec<(String, Value)>> {
        let root = self.pickle.root();
        if self.pickle.entries(root).is_none() {
            let kind = root.kind();
            return problem(format!(
                "it is {kind}, and no state dict: torch.save(model.state_dict(), FILE) writes one"
            ));
        }
        let known = CONTAINERS.iter().filter_map(|key| self.pickle.get(root, key));
        for dict in [root].into_iter().chain(known) {
            let named = self.tensors_in(dict);
            if !named.is_empty() {
                return Ok(named);
            }
        }
        let keys = self.pickle.entries(root).unwrap_or_default().chunks_exact(2);
        let keys: Vec<String> = keys.filter_map(|pair| self.name(pair[0])).take(4).map(|k| shown(&k)).collect();
        problem(format!(
            "it has no tensors by name, only {}; save the state dict alone: torch.save(model.state_dict(), FILE)",
            if keys.is_empty() { "a dictionary without names".into() } else { keys.join(", ") }
        ))
    }

    fn tensors_in(&self, dict: Value) -> Vec<(String, Value)> {
        let pairs = self.pickle.entries(dict).unwrap_or_default().chunks_exact(2);
        let tensor = |pair: &[Value]| Some((self.name(pair[0])?, self.rebuilt(pair[1])?));
        pairs.filter_map(tensor).take(MOST_TENSORS).collect()
    }

    /// One that is no longer than names are: a file may repeat a long text in a few bytes.
    fn name(&self, key: Value) -> Option<String> {
        let text = self.pickle.raw(key).filter(|text| text.len() <= MOST_NAME)?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// The tensor, where a value is one or a parameter.
    fn rebuilt(&self, value: Value) -> Option<Value> {
        let (maker, arguments) = self.pickle.object(value)?;
        match KNOWN[usize::from(maker)] {
            REBUILD_TENSOR => Some(value),
            // Whose first argument is a tensor and not another parameter: there is no way round.
            REBUILD_PARAMETER => {
                let inner = *arguments.first()?;
                let (maker, _) = self.pickle.object(inner)?;
                (KNOWN[usize::from(maker)] == REBUILD_TENSOR).then_some(inner)
            }
            _ => None,
        }
    }

    fn tensor(&mut self, file: &mut (impl Read + Seek), name: &str, value: Value) -> Result<Tensor> {
        let damaged = |what: &str| TorchFileError::Problem(format!("its tensor {} {what}", shown(name)));
        let arguments = self.pickle.object(value).map(|(_, arguments)| arguments).unwrap_or_default();
        let &[storage, offset, shape, strides, ..] = arguments else {
            return Err(damaged("is not described as PyTorch describes one"));
        };
        let (numbers, key) = self.storage(storage).ok_or_else(|| damaged("has numbers of a kind that is not known"))?;
        let (shape, strides) = (self.sizes(shape), self.sizes(strides));
        let (Some(shape), Some(strides), Some(offset)) = (shape, strides, offset.int().and_then(|o| o.try_into().ok()))
        else {
            return Err(damaged("has a shape that no tensor has"));
        };
        let last = last_number(&shape, &strides, offset);
        let (start, bytes) = match self.starts.get(&key) {
            Some(found) => *found,
            None => {
                let found = self.archive.member(file, &format!("data/{key}"))?;
                self.starts.insert(key, found);
                found
            }
        };
        match last.and_then(|last| last.checked_mul(numbers.bytes())) {
            Some(end) if end <= bytes => {}
            _ => {
                return Err(damaged(
                    "goes beyond the numbers that are stored of it: the file is damaged; get it again",
                ));
            }
        }
        // Where the last number is in the file, so is the first.
        let start = start + offset.min(bytes / numbers.bytes()) * numbers.bytes();
        Ok(Tensor { name: name.into(), numbers, shape: shape.iter().map(|&n| n as usize).collect(), strides, start })
    }

    /// What kind of numbers a storage has, and its key in the archive.
    fn storage(&self, value: Value) -> Option<(Numbers, String)> {
        let [_, class, key, ..] = *self.pickle.elements(self.pickle.outside(value)?)? else { return None };
        let Value::Global(class) = class else { return None };
        Some((Numbers::of_storage(KNOWN[usize::from(class)])?, self.name(key)?))
    }

    fn sizes(&self, value: Value) -> Option<Vec<u64>> {
        // torch.Size is made of a tuple.
        let value = match self.pickle.object(value) {
            Some((_, &[tuple])) => tuple,
            _ => value,
        };
        let elements = self.pickle.elements(value).filter(|e| e.len() <= MOST_DIMENSIONS)?;
        elements.iter().map(|element| element.int().and_then(|n| u32::try_from(n).ok()).map(u64::from)).collect()
    }
}

/// How many numbers of its storage a tensor reaches over; none if that is no number, or the strides are not those of its shape.
fn last_number(shape: &[u64], strides: &[u64], offset: u64) -> Option<u64> {
    if shape.len() != strides.len() {
        return None;
    }
    if shape.contains(&0) {
        return Some(0);
    }
    let elements = shape.iter().try_fold(1u64, |all, &n| all.checked_mul(n))?;
    let reach = shape.iter().zip(strides).try_fold(0u64, |all, (&n, &s)| all.checked_add((n - 1).checked_mul(s)?))?;
    // Elements that are the same number would be more than the file has.
    (elements <= reach.checked_add(1)?).then_some(())?;
    offset.checked_add(reach)?.checked_add(1)
}
