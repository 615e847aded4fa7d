//! A profile in the forms that other tools read, a file a format. Each writes to any [`std::io::Write`]; where one also puts
//! files into a folder, it makes new ones and never touches what is there.
//!
//! `tensorboard` is the event files of TensorBoard (scalars, texts, histograms). The wire format of protocol buffers
//! (`protobuf`) and the framing of records (`record`, with `crc32c`) are written out here: the few messages that are needed are
//! shorter than a description of them.

mod crc32c;
pub mod protobuf;
mod record;
pub mod tensorboard;
