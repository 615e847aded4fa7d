//! The one thing of EXIF that changes pixels: how the camera was held. Whatever is not plainly an orientation is none.

/// How stored rows and columns become what is looked at, by EXIF's numbers 1 to 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Orientation {
    /// Rows and columns change places, before everything else.
    pub transpose: bool,
    pub mirror_x: bool,
    pub mirror_y: bool,
}

impl Orientation {
    pub const UPRIGHT: Orientation = Orientation { transpose: false, mirror_x: false, mirror_y: false };

    fn from_exif(number: u16) -> Orientation {
        let (transpose, mirror_x, mirror_y) = match number {
            2 => (false, true, false),
            3 => (false, true, true),
            4 => (false, false, true),
            5 => (true, false, false),
            6 => (true, true, false),
            7 => (true, true, true),
            8 => (true, false, true),
            _ => (false, false, false),
        };
        Orientation { transpose, mirror_x, mirror_y }
    }
}

/// Reads the payload of an APP1 segment.
pub(super) fn read_orientation(payload: &[u8]) -> Option<Orientation> {
    let tiff = payload.strip_prefix(b"Exif\0\0")?;
    let read = Reader { tiff, big: tiff.starts_with(b"MM\0\x2a") };
    if !read.big && !tiff.starts_with(b"II\x2a\0") {
        return None;
    }
    let directory = read.u32(4)? as usize;
    let entries = read.u16(directory)? as usize;
    let entry = (0..entries).map(|i| directory + 2 + 12 * i).find(|at| read.u16(*at) == Some(0x0112))?;
    // Type 3 is a u16, which stands in the entry itself.
    (read.u16(entry + 2)? == 3).then(|| read.u16(entry + 8).map(Orientation::from_exif))?
}

struct Reader<'a> {
    tiff: &'a [u8],
    big: bool,
}

impl Reader<'_> {
    fn u16(&self, at: usize) -> Option<u16> {
        let bytes = self.tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if self.big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn u32(&self, at: usize) -> Option<u32> {
        let bytes = self.tiff.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }
}
