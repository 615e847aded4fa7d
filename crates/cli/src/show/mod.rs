//! Plans as people and machines read them: text, JSON, a chart of the live bytes, a frontier as SVG. One file a form.

pub mod brief;
pub mod chart;
pub mod curves;
pub mod data;
pub mod diff;
pub mod event;
pub mod frontier;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod idle;
pub mod profile;
pub mod replicas;
pub mod scores;
pub mod summary;
pub mod svg;
pub mod together;

/// Columns of the terminal; what a page takes, where there is none.
pub fn columns() -> usize {
    const PAGE: usize = 100;
    let set = std::env::var("COLUMNS").ok().and_then(|c| c.parse::<usize>().ok());
    #[cfg(unix)]
    let shown = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| size.ws_col as usize);
    #[cfg(not(unix))]
    let shown = None;
    set.or(shown).filter(|c| *c > 0).unwrap_or(PAGE).clamp(40, 200)
}
