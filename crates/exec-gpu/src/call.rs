//! What is launched, as plain data: which kernel, on which places, with which numbers. Made by [`crate::lower`] in every
//! build; no device is touched.

use memfit_ir::DType;
use memfit_plan::Place;

use crate::lower::attention;
use crate::lower::contract::{DepthwiseKey, GemmKey};
use crate::lower::fold::Fold;
use crate::lower::gather::GatherKey;
use crate::lower::layout::LayoutKey;
use crate::lower::update::UpdateKey;
use crate::lower::window::WindowKey;
use crate::tape::{Buffer, Tape};

/// One launch of one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// What is compiled: calls with equal keys and as many operands and numbers are one shader.
    pub key: Key,
    /// What the kernel is given, as slices of words. Each place stands once, so that what runs in place is read and written
    /// through one operand.
    pub operands: Vec<Place>,
    /// Sizes and the like, which one shader serves all of.
    pub numbers: Vec<u32>,
    pub grid: Grid,
    /// Floating-point operations, and bytes that must be read and written at least.
    pub flops: u64,
    pub bytes: u64,
}

/// Which kernel, and what is known of it when it is compiled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    Chain(Tape),
    Fold(Fold),
    Layout(LayoutKey),
    Window(WindowKey),
    Gather(GatherKey),
    Update(UpdateKey),
    Attention(Box<attention::Kernel>),
    Gemm(GemmKey),
    Depthwise(DepthwiseKey),
}

impl Key {
    /// What it takes of a processor.
    pub fn takes(&self) -> Takes {
        match self {
            Key::Chain(tape) => Takes { words: tape.values.len(), shared_bytes: 0 },
            Key::Fold(key) => {
                let words = key.kind.accumulators();
                Takes { words, shared_bytes: 4 * words * Grid::UNITS }
            }
            Key::Layout(_) | Key::Window(_) | Key::Gather(_) | Key::Update(_) => Takes::default(),
            Key::Attention(kernel) => kernel.takes(),
            Key::Gemm(key) => key.takes(),
            Key::Depthwise(key) => Takes { words: 3 * key.width, shared_bytes: 0 },
        }
    }

    /// As reports call it.
    pub fn name(&self) -> &'static str {
        match self {
            Key::Chain(_) => "chain",
            Key::Fold(_) => "fold",
            Key::Layout(key) => key.name(),
            Key::Window(key) => key.name(),
            Key::Gather(key) => key.name(),
            Key::Update(_) => "update",
            Key::Attention(kernel) => kernel.name(),
            Key::Gemm(_) => "gemm",
            Key::Depthwise(_) => "depthwise",
        }
    }
}

/// What a kernel takes of a device's processors while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Takes {
    /// Words that each unit holds at once, at least: what the kernel sums up in. A compiler adds what it computes places with.
    pub words: usize,
    /// Shared memory of a cube.
    pub shared_bytes: usize,
}

/// How many units run: cubes of so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    pub cubes: usize,
    pub units: usize,
}

impl Grid {
    /// Units of a cube where nothing speaks for another number: what every device has.
    pub const UNITS: usize = 256;

    /// At least so many units, each for itself.
    pub fn each(units: usize) -> Grid {
        Grid { cubes: units.div_ceil(Grid::UNITS), units: Grid::UNITS }
    }

    /// So many cubes.
    pub fn cubes(cubes: usize) -> Grid {
        Grid { cubes, units: Grid::UNITS }
    }
}

/// The operands and numbers of a call while it is made.
#[derive(Clone, Debug, Default)]
pub struct Operands {
    pub places: Vec<Place>,
    pub numbers: Vec<u32>,
}

impl Operands {
    /// The operand that lies in a place.
    pub fn buffer(&mut self, place: Place, dtype: DType) -> Buffer {
        let index = self.places.iter().position(|&p| p == place).unwrap_or_else(|| {
            self.places.push(place);
            self.places.len() - 1
        });
        Buffer { index, dtype }
    }

    /// Appends numbers and says where they begin.
    pub fn numbers(&mut self, numbers: impl IntoIterator<Item = usize>) -> usize {
        let first = self.numbers.len();
        self.numbers.extend(numbers.into_iter().map(|n| n as u32));
        first
    }

    /// The call, whose bytes are those of its operands.
    pub fn call(self, key: Key, grid: Grid, flops: u64) -> Call {
        let bytes = self.places.iter().map(|p| p.size).sum();
        Call { key, operands: self.places, numbers: self.numbers, grid, flops, bytes }
    }
}
