//! A profile in the forms that other tools read, a file a format. Each writes to any [`std::io::Write`]; where one also puts
//! files into a folder, it makes new ones and never touches what is there.
//!
//! `trace` is the JSON that Perfetto and `chrome://tracing` open, `xplane` what TensorBoard's Profile tab shows; both are made of
//! the one `timeline` of a step. `tensorboard` is the event files of TensorBoard (scalars, texts, histograms). The wire format of protocol buffers
//! (`protobuf`) and the framing of records (`record`, with `crc32c`) are written out here: the few messages that are needed are
//! shorter than a description of them.

mod allocations;
mod crc32c;
mod protobuf;
mod record;
pub mod scalars;
pub mod tensorboard;
mod timeline;
pub mod trace;
pub mod xplane;
