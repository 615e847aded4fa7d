//! The segments of a JPEG before its first scan. Trusts nothing: every length is held against the file.

use super::super::exif::{self, Orientation};
use super::super::{Fault, check_claim};
use crate::error::counted;

/// What the segments before the first scan say.
#[derive(Debug)]
pub(super) struct Header {
    pub height: usize,
    pub width: usize,
    pub coding: Coding,
    pub components: Vec<Component>,
    pub orientation: Orientation,
    /// What an Adobe segment says of the colours: 0 is none or RGB, 1 is YCbCr, 2 is YCCK.
    pub adobe: Option<u8>,
    /// Where the first scan's segment starts: at its length.
    pub scan: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// Huffman-coded, 8 bits, block by block.
    Baseline,
    Progressive,
}

/// One plane of the image. Sampling factors are 1 to 4.
#[derive(Clone, Copy, Debug)]
pub(super) struct Component {
    pub id: u8,
    pub across: usize,
    pub down: usize,
    pub quantiser: usize,
}

impl Header {
    pub fn read(bytes: &[u8]) -> Result<Header, Fault> {
        let (mut frame, mut orientation, mut adobe) = (None, None, None);
        let mut at = 2;
        loop {
            let segment = Segment::next(bytes, at)?;
            match segment.marker {
                0xc0..=0xc2 if frame.is_some() => return Err("there are two frame headers".into()),
                0xc0..=0xc2 => frame = Some(read_frame(&segment)?),
                0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => return Err(unsupported(segment.marker)),
                0xe1 => orientation = orientation.or_else(|| exif::orientation(segment.payload)),
                0xee => adobe = read_adobe(segment.payload).or(adobe),
                0xda => break,
                0xd9 => return Err("the image ends before it begins: there is no scan".into()),
                _ => {}
            }
            at = segment.end;
        }
        let (height, width, coding, components) = frame.ok_or("there is no frame header before the first scan")?;
        let orientation = orientation.unwrap_or(Orientation::UPRIGHT);
        let header = Header { height, width, coding, components, orientation, adobe, scan: at };
        check_claim([height, width], header.units() <= bytes.len().saturating_mul(8), bytes)?;
        Ok(header)
    }

    /// Grey, or brightness and two colours, and not RGB as it is.
    pub fn is_ycc(&self) -> bool {
        match self.components[..] {
            [_] => true,
            [a, b, c] => self.adobe.is_none_or(|transform| transform == 1) && [a.id, b.id, c.id] != *b"RGB",
            _ => false,
        }
    }

    /// The largest sampling factors: a unit of the scan is 8 × these pixels.
    pub fn sampling(&self) -> (usize, usize) {
        let most = |f: fn(&Component) -> usize| self.components.iter().map(f).max().unwrap_or(1);
        (most(|c| c.across), most(|c| c.down))
    }

    /// Units of a scan that has all components. Each of their blocks takes a bit at least, for its mean brightness.
    fn units(&self) -> usize {
        let (across, down) = self.sampling();
        self.width.div_ceil(8 * across) * self.height.div_ceil(8 * down)
    }

    /// That the scans go on until a marker that ends the image.
    pub fn check_end(&self, bytes: &[u8]) -> Result<(), Fault> {
        let mut at = self.scan;
        loop {
            let segment = Segment::next(bytes, at)?;
            match segment.marker {
                0xd9 => return Ok(()),
                0xda => at = scan_end(bytes, segment.end)?,
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
    pub fn next(bytes: &[u8], at: usize) -> Result<Segment<'_>, Fault> {
        let rest = bytes.get(at..).unwrap_or_default();
        let fill = rest.iter().take_while(|b| **b == 0xff).count();
        let Some(&marker) = rest.get(fill) else { return Err(cut_off(bytes)) };
        if fill == 0 {
            return Err(format!("a marker was expected at byte {at}; the file is damaged").into());
        }
        let start = at + fill + 1;
        // These stand alone.
        if matches!(marker, 0x01 | 0xd0..=0xd9) {
            return Ok(Segment { marker, payload: &[], end: start });
        }
        let length = match rest.get(fill + 1..fill + 3) {
            Some(pair) => u16::from_be_bytes([pair[0], pair[1]]) as usize,
            None => return Err(cut_off(bytes)),
        };
        if length < 2 {
            return Err(format!("the segment at byte {at} is shorter than its own length; the file is damaged").into());
        }
        let payload = bytes.get(start + 2..start + length).ok_or_else(|| cut_off(bytes))?;
        Ok(Segment { marker, payload, end: start + length })
    }
}

/// Where the marker stands that ends the entropy-coded data starting here.
fn scan_end(bytes: &[u8], from: usize) -> Result<usize, Fault> {
    let mut at = from;
    while let Some(ahead) = bytes.get(at..).and_then(|rest| rest.iter().position(|b| *b == 0xff)) {
        at += ahead;
        match bytes.get(at + 1) {
            Some(0 | 0xd0..=0xd7) => at += 2,
            Some(0xff) => at += 1,
            Some(_) => return Ok(at),
            None => break,
        }
    }
    Err(cut_off(bytes))
}

pub(super) fn cut_off(bytes: &[u8]) -> Fault {
    let bytes = counted(bytes.len(), "byte");
    format!("the JPEG is cut off: it ends after {bytes}, before its end marker; copy the file again").into()
}

fn unsupported(marker: u8) -> Fault {
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

fn read_frame(segment: &Segment) -> Result<Frame, Fault> {
    let coding = if segment.marker == 0xc2 { Coding::Progressive } else { Coding::Baseline };
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
    let components = rest.chunks_exact(3).map(read_component).collect::<Result<_, Fault>>()?;
    Ok((height, width, coding, components))
}

fn read_component(three: &[u8]) -> Result<Component, Fault> {
    let (across, down) = ((three[1] >> 4) as usize, (three[1] & 15) as usize);
    if !(1..=4).contains(&across) || !(1..=4).contains(&down) || three[2] > 3 {
        return Err(
            format!("a component is sampled {across}×{down} with table {}; the file is damaged", three[2]).into()
        );
    }
    Ok(Component { id: three[0], across, down, quantiser: three[2] as usize })
}
