//! How far one kernel of a device goes: the policy of grouping, which knows no device itself.

/// What a device joins into one kernel. Whatever it says, the results are the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fusion {
    /// Most nodes of a chain: of elementwise nodes alone, of a contraction with its epilogue, or of one prologue.
    pub max_nodes: usize,
    /// Most operands of a chain, and of a contraction with its chains: values that it reads from memory, and values that
    /// leave it.
    pub max_operands: usize,
    /// Which operands a contraction computes while it reads them; none where all must be in memory.
    pub prologues: Option<Prologues>,
    /// Most reductions over channels that close the group of a convolution.
    pub max_reductions: usize,
}

/// Which operands of a contraction may be computed while they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prologues {
    /// Most columns of a result whose left operand is computed: a kernel reads it once for each block of columns.
    pub max_columns: usize,
    /// Most elements of a filter that is held whole. Of a larger one, a pixel is read once for each tap.
    pub max_filter: usize,
    /// Columns from which on it pays to compute a pixel once for each tap.
    pub many_columns: usize,
}

impl Fusion {
    /// No chain is longer, whatever a device says: grouping recurses so deep.
    pub const MOST_NODES: usize = 1024;
    /// Every node alone.
    pub const NONE: Fusion = Fusion { max_nodes: 1, max_operands: usize::MAX, prologues: None, max_reductions: 0 };
    /// All that grouping knows.
    pub const FULL: Fusion = Fusion {
        max_nodes: Fusion::MOST_NODES,
        max_operands: usize::MAX,
        prologues: Some(Prologues { max_columns: usize::MAX, max_filter: usize::MAX, many_columns: 0 }),
        max_reductions: usize::MAX,
    };
}
