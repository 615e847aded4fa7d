//! The marker segments of a JPEG before its first scan. Trusts nothing: every length is held against the file. Names are
//! those of ITU-T T.81.

use super::super::exif::{self, Orientation};
use super::super::{DecodeError, check_claimed_size};
use crate::error::counted;

/// Marker codes: the byte that follows 0xff.
pub(super) mod marker {
    /// Start of frame: baseline DCT.
    pub const SOF0: u8 = 0xc0;
    /// Start of frame: progressive DCT.
    pub const SOF2: u8 = 0xc2;
    /// Define Huffman tables.
    pub const DHT: u8 = 0xc4;
    /// Restart markers, of which the numbers go round.
    pub const RST0: u8 = 0xd0;
    pub const RST7: u8 = 0xd7;
    /// End of image.
    pub const EOI: u8 = 0xd9;
    /// Start of scan.
    pub const SOS: u8 = 0xda;
    /// Define quantization tables.
    pub const DQT: u8 = 0xdb;
    /// Define restart interval.
    pub const DRI: u8 = 0xdd;
    /// Application segments: EXIF, and Adobe's.
    pub const APP1: u8 = 0xe1;
    pub const APP14: u8 = 0xee;
    /// Stands alone, like restart markers: for temporary use in arithmetic coding.
    pub const TEM: u8 = 0x01;
}

/// What the segments before the first scan say.
#[derive(Debug)]
pub(super) struct Header {
    pub height: usize,
    pub width: usize,
    pub coding: Coding,
    pub components: Vec<Component>,
    pub orientation: Orientation,
    /// The colour transform of an Adobe segment: 0 is none or RGB, 1 is YCbCr, 2 is YCCK.
    pub adobe_transform: Option<u8>,
    /// Where the segment of the first scan starts.
    pub sos: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// Sequential DCT, Huffman-coded, 8 bits a sample.
    Baseline,
    Progressive,
}

/// A colour component of the frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Component {
    pub id: u8,
    /// Sampling factors, 1 to 4: blocks of the component in an MCU, across and down.
    pub horizontal: usize,
    pub vertical: usize,
    /// The number of its quantization table.
    pub quantization: usize,
}

impl Header {
    pub fn read(bytes: &[u8]) -> Result<Header, DecodeError> {
        let (mut frame, mut orientation, mut adobe_transform) = (None, None, None);
        let mut at = 2;
        loop {
            let segment = Segment::next(bytes, at)?;
            match segment.marker {
                marker::SOF0..=marker::SOF2 if frame.is_some() => return Err("there are two frame headers".into()),
                marker::SOF0..=marker::SOF2 => frame = Some(read_frame(&segment)?),
                0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => return Err(unsupported(segment.marker)),
                marker::APP1 => orientation = orientation.or_else(|| exif::read_orientation(segment.payload)),
                marker::APP14 => adobe_transform = read_adobe(segment.payload).or(adobe_transform),
                marker::SOS => break,
                marker::EOI => return Err("the image ends before it begins: there is no scan".into()),
                _ => {}
            }
            at = segment.end;
        }
        let (height, width, coding, components) = frame.ok_or("there is no frame header before the first scan")?;
        let orientation = orientation.unwrap_or(Orientation::UPRIGHT);
        let header = Header { height, width, coding, components, orientation, adobe_transform, sos: at };
        check_claimed_size([height, width], header.mcus() <= bytes.len().saturating_mul(8), bytes)?;
        Ok(header)
    }

    /// Grey, or YCbCr, and not RGB as it is.
    pub fn is_ycbcr(&self) -> bool {
        match self.components[..] {
            [_] => true,
            [a, b, c] => self.adobe_transform.is_none_or(|transform| transform == 1) && [a.id, b.id, c.id] != *b"RGB",
            _ => false,
        }
    }

    /// The largest sampling factors, across and down: an MCU has 8 × these pixels.
    pub fn max_sampling(&self) -> (usize, usize) {
        let most = |f: fn(&Component) -> usize| self.components.iter().map(f).max().unwrap_or(1);
        (most(|c| c.horizontal), most(|c| c.vertical))
    }

    /// MCUs of a scan that has all components. Each of their blocks takes a bit at least, for its DC coefficient.
    fn mcus(&self) -> usize {
        let (across, down) = self.max_sampling();
        self.width.div_ceil(8 * across) * self.height.div_ceil(8 * down)
    }

    /// That the scans go on until the marker that ends the image.
    pub fn check_eoi(&self, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut at = self.sos;
        loop {
            let segment = Segment::next(bytes, at)?;
            match segment.marker {
                marker::EOI => return Ok(()),
                marker::SOS => at = scan_end(bytes, segment.end)?,
                _ => at = segment.end,
            }
        }
    }
}

/// A marker and what belongs to it.
pub(super) struct Segment<'a> {
    pub marker: u8,
    pub payload: &'a [u8],
    /// Where the next one is to be looked for.
    pub end: usize,
}

impl Segment<'_> {
    /// The segment that starts at a byte of 0xff, which may be repeated.
    pub fn next(bytes: &[u8], at: usize) -> Result<Segment<'_>, DecodeError> {
        let rest = bytes.get(at..).unwrap_or_default();
        let fill = rest.iter().take_while(|b| **b == 0xff).count();
        let Some(&code) = rest.get(fill) else { return Err(cut_off(bytes)) };
        if fill == 0 {
            return Err(format!("a marker was expected at byte {at}; the file is damaged").into());
        }
        let start = at + fill + 1;
        // These stand alone.
        if matches!(code, marker::TEM | marker::RST0..=marker::EOI) {
            return Ok(Segment { marker: code, payload: &[], end: start });
        }
        let length = match rest.get(fill + 1..fill + 3) {
            Some(pair) => u16::from_be_bytes([pair[0], pair[1]]) as usize,
            None => return Err(cut_off(bytes)),
        };
        if length < 2 {
            return Err(format!("the segment at byte {at} is shorter than its own length; the file is damaged").into());
        }
        let payload = bytes.get(start + 2..start + length).ok_or_else(|| cut_off(bytes))?;
        Ok(Segment { marker: code, payload, end: start + length })
    }
}

/// Where the marker stands that ends the entropy-coded data starting here.
fn scan_end(bytes: &[u8], from: usize) -> Result<usize, DecodeError> {
    let mut at = from;
    while let Some(ahead) = bytes.get(at..).and_then(|rest| rest.iter().position(|b| *b == 0xff)) {
        at += ahead;
        match bytes.get(at + 1) {
            Some(0 | marker::RST0..=marker::RST7) => at += 2,
            Some(0xff) => at += 1,
            Some(_) => return Ok(at),
            None => break,
        }
    }
    Err(cut_off(bytes))
}

pub(super) fn cut_off(bytes: &[u8]) -> DecodeError {
    let bytes = counted(bytes.len(), "byte");
    format!("the JPEG is cut off: it ends after {bytes}, before its end marker; copy the file again").into()
}

fn unsupported(marker: u8) -> DecodeError {
    let kind = match marker {
        0xc3 => "lossless",
        0xc9..=0xcb | 0xcd..=0xcf => "arithmetic-coded or lossless",
        _ => "hierarchical",
    };
    format!("{kind} JPEGs are not read; save it as a baseline or progressive JPEG, or as PNG").into()
}

fn read_adobe(payload: &[u8]) -> Option<u8> {
    payload.strip_prefix(b"Adobe")?.get(6).copied()
}

type Frame = (usize, usize, Coding, Vec<Component>);

fn read_frame(segment: &Segment) -> Result<Frame, DecodeError> {
    let coding = if segment.marker == marker::SOF2 { Coding::Progressive } else { Coding::Baseline };
    let [precision, h1, h0, w1, w0, count, rest @ ..] = segment.payload else {
        return Err("the frame header is too short".into());
    };
    if *precision != 8 {
        return Err(format!("{precision} bits a sample are not read; save it with 8").into());
    }
    let (height, width) = (u16::from_be_bytes([*h1, *h0]) as usize, u16::from_be_bytes([*w1, *w0]) as usize);
    if height == 0 || width == 0 {
        return Err(format!("the image has {height} rows and {width} columns").into());
    }
    if !matches!(count, 1 | 3 | 4) || rest.len() != *count as usize * 3 {
        return Err(format!("{count} colour components are not read; there can be 1, 3 or 4").into());
    }
    let components = rest.chunks_exact(3).map(read_component).collect::<Result<_, DecodeError>>()?;
    Ok((height, width, coding, components))
}

fn read_component(spec: &[u8]) -> Result<Component, DecodeError> {
    let (horizontal, vertical) = ((spec[1] >> 4) as usize, (spec[1] & 15) as usize);
    if !(1..=4).contains(&horizontal) || !(1..=4).contains(&vertical) || spec[2] > 3 {
        let problem =
            format!("a component is sampled {horizontal}×{vertical} with table {}; the file is damaged", spec[2]);
        return Err(problem.into());
    }
    Ok(Component { id: spec[0], horizontal, vertical, quantization: spec[2] as usize })
}
