//! Pooling and upsampling of images, channels last. A gradient is gathered: each element of an image looks for the windows
//! that it is in, so that no two units write to one place.

use memfit_ir::op::{UpsampleMode, Window};
use memfit_ir::{DType, Node, Op, ValueId, cost};

use super::Lowering;
use crate::call::{Grid, Key, Operands};
use crate::tape::per_word;

/// What one launch does, with the numbers of its operands.
///
/// Numbers of a pool: elements of the result; height, width and channels of the image; height and width of what it becomes;
/// of the window the height, width, step down, step right, padding above and padding to the left. Numbers of an upsampling: elements of the result; height, width
/// and channels of the small image; the factors. `width` neighbouring channels of a pixel are made at once: it divides their
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowKey {
    MaxPool { x: usize, y: usize, index: usize, width: usize },
    MaxPoolGrad { index: usize, dy: usize, dx: usize, width: usize },
    AvgPool { x: usize, y: usize },
    AvgPoolGrad { dy: usize, dx: usize },
    Upsample { mode: UpsampleMode, x: usize, y: usize },
    UpsampleGrad { mode: UpsampleMode, dy: usize, dx: usize },
}

impl WindowKey {
    pub fn name(self) -> &'static str {
        match self {
            WindowKey::MaxPool { .. } => "max pool",
            WindowKey::MaxPoolGrad { .. } => "max pool grad",
            WindowKey::AvgPool { .. } => "average pool",
            WindowKey::AvgPoolGrad { .. } => "average pool grad",
            WindowKey::Upsample { .. } => "upsample",
            WindowKey::UpsampleGrad { .. } => "upsample grad",
        }
    }

    /// An operand that it writes.
    pub fn result(self) -> usize {
        match self {
            WindowKey::MaxPool { y, .. } | WindowKey::AvgPool { y, .. } | WindowKey::Upsample { y, .. } => y,
            WindowKey::MaxPoolGrad { dx, .. }
            | WindowKey::AvgPoolGrad { dx, .. }
            | WindowKey::UpsampleGrad { dx, .. } => dx,
        }
    }

    /// Elements of the result that a unit makes: it owns whole words of all that it writes.
    pub fn lanes(self) -> usize {
        match self {
            WindowKey::MaxPool { .. } => per_word(DType::U8),
            WindowKey::MaxPoolGrad { width, .. } => width,
            WindowKey::AvgPool { .. } | WindowKey::AvgPoolGrad { .. } => 1,
            WindowKey::Upsample { .. } | WindowKey::UpsampleGrad { .. } => 1,
        }
    }
}

impl Lowering<'_> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only ops of its family come here")]
    pub(super) fn window(&mut self, node: &Node) {
        let (x, y) = (node.inputs[0], node.outputs[0]);
        let mut operands = Operands::default();
        operands.numbers([self.ty(y).elements()]);
        match &node.op {
            Op::MaxPool(w) | Op::AvgPool(w) => self.pool_numbers(&mut operands, w, x, y),
            Op::MaxPoolGrad(g) => self.pool_numbers(&mut operands, &g.window, y, node.inputs[1]),
            Op::AvgPoolGrad(g) => self.pool_numbers(&mut operands, &g.window, y, x),
            Op::Upsample(u) => self.upsample_numbers(&mut operands, u.factor, x),
            Op::UpsampleGrad(u) => self.upsample_numbers(&mut operands, u.factor, y),
            op => unreachable!("{} has no window", op.name()),
        }
        let mut index = |v: ValueId| operands.buffer(self.place(v), self.ty(v).dtype).index;
        // What finds a pixel costs more than what is done at it.
        let together = per_word(DType::U8);
        let width = if self.graph.shape(y)[3].is_multiple_of(together) { together } else { 1 };
        let key = match &node.op {
            Op::MaxPool(_) => WindowKey::MaxPool { x: index(x), y: index(y), index: index(node.outputs[1]), width },
            Op::MaxPoolGrad(_) => {
                WindowKey::MaxPoolGrad { index: index(x), dy: index(node.inputs[1]), dx: index(y), width }
            }
            Op::AvgPool(_) => WindowKey::AvgPool { x: index(x), y: index(y) },
            Op::AvgPoolGrad(_) => WindowKey::AvgPoolGrad { dy: index(x), dx: index(y) },
            Op::Upsample(u) => WindowKey::Upsample { mode: u.mode, x: index(x), y: index(y) },
            Op::UpsampleGrad(u) => WindowKey::UpsampleGrad { mode: u.mode, dy: index(x), dx: index(y) },
            op => unreachable!("{} has no window", op.name()),
        };
        let grid = Grid::each(self.ty(y).elements().div_ceil(key.lanes()));
        let flops = cost(self.graph, self.group.root()).flops;
        self.push(operands.call(Key::Window(key), grid, flops));
    }

    fn pool_numbers(&self, operands: &mut Operands, w: &Window, image: ValueId, pooled: ValueId) {
        let (image, pooled) = (self.graph.shape(image), self.graph.shape(pooled));
        operands.numbers(image[1..].iter().chain(&pooled[1..3]).copied());
        operands.numbers(w.size.into_iter().chain(w.stride).chain([w.pad.top, w.pad.left]));
    }

    fn upsample_numbers(&self, operands: &mut Operands, factor: [usize; 2], small: ValueId) {
        operands.numbers(self.graph.shape(small)[1..].iter().chain(&factor).copied());
    }
}
