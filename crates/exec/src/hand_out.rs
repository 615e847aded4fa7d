//! States from a file to all who train with them: one process reads it from its start to its end, and what it reads is handed out to
//! the others piece by piece. The header aside nobody holds more of it than a piece.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use memfit_plan::StateSlot;
use safetensors::tensor::Metadata;

use crate::checksum::Checksum;
use crate::engine::Engine;
use crate::executor::Executor;
use crate::weights::{LARGEST_HEADER, Match, PIECE, WeightsError, header_bytes, parse_header};
use crate::wire::WireError;

/// A file of states, on its way.
pub struct StatesFile<'a, F> {
    file: Option<F>,
    path: &'a Path,
    sum: Option<Checksum>,
    hand_out: &'a mut dyn FnMut(&mut [u8]) -> Result<(), WireError>,
    /// Where the next byte of it is read.
    at: u64,
}

/// A tensor of the file, and where it lies there.
struct Tensor {
    name: String,
    start: u64,
    end: u64,
}

impl<'a, F: Read + Seek> StatesFile<'a, F> {
    /// `file` is none where another process reads it; `hand_out` brings what that one gives it to all others, who give it as much
    /// room. `path` is what errors name.
    pub fn new(
        file: Option<F>,
        path: &'a Path,
        hand_out: &'a mut dyn FnMut(&mut [u8]) -> Result<(), WireError>,
    ) -> StatesFile<'a, F> {
        StatesFile { file, path, sum: None, hand_out, at: 0 }
    }

    /// Of all its bytes, which are then all read.
    pub fn summed_up(self) -> Self {
        StatesFile { sum: Some(Checksum::default()), ..self }
    }

    /// Sets the states of some replicas, those of this process. Nothing is changed unless names, types and shapes all fit. Gives
    /// how many states of the first of them were read, and the sum of the file where it was summed up here.
    pub fn read_into<E: Executor>(
        mut self,
        engines: &mut [&mut Engine<E>],
        matching: Match,
        chosen: impl Fn(&StateSlot) -> bool,
    ) -> Result<(usize, Option<Checksum>), WeightsError> {
        let (length, header) = self.header()?;
        let metadata = parse_header(&header, self.path)?;
        let data = 8 + header.len() as u64..length;
        let mut wanted = Vec::new();
        for engine in engines.iter() {
            let found = engine.match_tensors(&metadata, data.clone(), matching, &chosen);
            let found = found.map_err(|problems| WeightsError::Mismatch { path: self.path.into(), problems })?;
            let name = |index: usize| (engine.plan().states[index].name.clone(), index);
            wanted.push(found.into_iter().map(name).collect::<BTreeMap<String, usize>>());
        }
        let count = wanted.first().map_or(0, BTreeMap::len);
        // Of a checkpoint somebody wants each; of other files all replicas want the same.
        let is_whole = matches!(matching, Match::Exact | Match::Own);
        let is_sent = |name: &str| is_whole || wanted.first().is_some_and(|wanted| wanted.contains_key(name));
        let mut buffer = vec![0; PIECE as usize];
        for tensor in self.tensors(&metadata, data, is_sent)? {
            let taker =
                |(engine, wanted): (usize, &BTreeMap<String, usize>)| Some((engine, *wanted.get(&tensor.name)?));
            let takers: Vec<(usize, usize)> = wanted.iter().enumerate().filter_map(taker).collect();
            self.pass(&tensor, engines, &takers, &mut buffer)?;
        }
        self.go_to(length, &mut buffer)?;
        Ok((count, self.sum.filter(|_| self.file.is_some())))
    }

    /// Brings a tensor to those who take it, each by the number of its engine and of the state there.
    fn pass<E: Executor>(
        &mut self,
        tensor: &Tensor,
        engines: &mut [&mut Engine<E>],
        takers: &[(usize, usize)],
        buffer: &mut [u8],
    ) -> Result<(), WeightsError> {
        self.go_to(tensor.start, buffer)?;
        let size = tensor.end - tensor.start;
        for offset in (0..size).step_by(buffer.len()) {
            let piece = &mut buffer[..(size - offset).min(PIECE) as usize];
            self.read(piece)?;
            (self.hand_out)(piece)?;
            takers.iter().for_each(|&(engine, index)| engines[engine].write_part(index, offset, piece));
        }
        takers.iter().for_each(|&(engine, index)| engines[engine].mark_set(index));
        Ok(())
    }

    /// How long the file is, and its header.
    fn header(&mut self) -> Result<(u64, Vec<u8>), WeightsError> {
        let (mut sizes, mut header) = ([0u64; 2], Vec::new());
        if let Some(file) = &mut self.file {
            let io = |source| WeightsError::Io { path: self.path.into(), source };
            let length = file.seek(SeekFrom::End(0)).map_err(io)?;
            file.rewind().map_err(io)?;
            header = header_bytes(file, length, self.path)?;
            sizes = [length, header.len() as u64];
            self.at = 8 + sizes[1];
            if let Some(sum) = &mut self.sum {
                sum.update(&sizes[1].to_le_bytes());
                sum.update(&header);
            }
        }
        (self.hand_out)(bytemuck::cast_slice_mut(&mut sizes))?;
        if sizes[1] > LARGEST_HEADER {
            return Err(self.wrong(format!("its header would be {} bytes long", sizes[1])));
        }
        header.resize(sizes[1] as usize, 0);
        (self.hand_out)(&mut header)?;
        Ok((sizes[0], header))
    }

    /// Those that are handed out, as they lie in the file.
    fn tensors(
        &self,
        metadata: &Metadata,
        data: Range<u64>,
        is_sent: impl Fn(&str) -> bool,
    ) -> Result<Vec<Tensor>, WeightsError> {
        let mut tensors = Vec::new();
        for (name, info) in metadata.tensors().into_iter().filter(|(name, _)| is_sent(name)) {
            let [start, end] = [info.data_offsets.0, info.data_offsets.1].map(|at| data.start.checked_add(at as u64));
            match (start, end) {
                (Some(start), Some(end)) if start <= end && end <= data.end => {
                    tensors.push(Tensor { name, start, end })
                }
                _ => return Err(self.wrong(format!("\"{name}\" does not lie in it"))),
            }
        }
        tensors.sort_by(|a, b| (a.start, a.end, &a.name).cmp(&(b.start, b.end, &b.name)));
        Ok(tensors)
    }

    /// The next bytes; nothing where another process has the file.
    fn read(&mut self, bytes: &mut [u8]) -> Result<(), WeightsError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.read_exact(bytes).map_err(|source| WeightsError::Io { path: self.path.into(), source })?;
        self.at += bytes.len() as u64;
        if let Some(sum) = &mut self.sum {
            sum.update(bytes);
        }
        Ok(())
    }

    /// What is summed up is read until there.
    fn go_to(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), WeightsError> {
        let Some(file) = self.file.as_mut().filter(|_| self.at != offset) else { return Ok(()) };
        if self.sum.is_none() {
            self.at = offset;
            let sought = file.seek(SeekFrom::Start(offset));
            return sought.map(drop).map_err(|source| WeightsError::Io { path: self.path.into(), source });
        }
        if self.at > offset {
            return Err(self.wrong("its tensors do not lie one after the other".into()));
        }
        while self.at < offset {
            let piece = (offset - self.at).min(buffer.len() as u64) as usize;
            self.read(&mut buffer[..piece])?;
        }
        Ok(())
    }

    fn wrong(&self, problem: String) -> WeightsError {
        WeightsError::Format { path: self.path.into(), problem }
    }
}
