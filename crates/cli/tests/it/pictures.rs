//! Folders of pictures to train on.

use std::path::Path;

use crate::common::Scratch;
use crate::draw;

/// A folder of two classes with a few pictures each.
pub fn pictures(name: &str) -> Scratch {
    let scratch = Scratch::new(name);
    for class in ["bar", "disc"] {
        for n in 0..8 {
            let (image, _) = draw::picture(draw::Shape::from_name(class).expect("a shape"), 16, &format!("{class}{n}"));
            let path = scratch.write(&format!("data/{class}/{n}.png"), "");
            draw::write_png(Path::new(&path), &image, 16, 3).expect("a picture");
        }
    }
    scratch
}
