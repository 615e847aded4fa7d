//! What is wrong with tables, arrays and masks, in sentences that end with what would be right.

use std::path::PathBuf;

use memfit::data::sources::{ArrayInfo, Colour, MaskFormat, MaskProblem, colour_name};

use crate::data::{ArrayOf, ArrayRole};
use crate::text::count;

/// In what a table is unlike the others of its run, and what makes it like them.
pub fn header_words(has_header: bool) -> &'static str {
    if has_header {
        "its first line names the columns, which that of the training set does not; remove it"
    } else {
        "its first line has no names of columns, as that of the training set has; add them"
    }
}

/// Arrays with what they are, as numpy says it.
pub fn arrays_words(arrays: &[ArrayInfo]) -> String {
    const LISTED: usize = 12;
    let words = |array: &ArrayInfo| {
        let shape: Vec<String> = array.shape.iter().map(usize::to_string).collect();
        format!(
            "{} ({}, {})",
            array.name,
            array.dtype,
            if shape.is_empty() { "a number".into() } else { shape.join("x") }
        )
    };
    let mut listed = arrays.iter().take(LISTED).map(words).collect::<Vec<_>>().join(", ");
    if arrays.len() > LISTED {
        listed += &format!(" and {} more", arrays.len() - LISTED);
    }
    listed
}

/// Why elements of an array cannot be read, and what makes numbers of them.
pub(super) fn array_type_words(array: &ArrayOf, dtype: &str) -> String {
    let name = &array.name;
    let are_words = dtype == "object" || dtype.get(1..2).is_some_and(|kind| matches!(kind, "U" | "S"));
    match array.role {
        ArrayRole::Label if are_words => format!(
            "its elements are words ({dtype}), and classes are numbers 0, 1, …; numpy makes them: {name} = \
             np.unique({name}.astype(str), return_inverse=True)[1]; save that instead"
        ),
        ArrayRole::Features if dtype == "object" => format!(
            "its elements are objects of Python, and samples are numbers; where all have one shape, {name} = np.stack({name}) \
             makes one array of them; save that instead"
        ),
        ArrayRole::Features if are_words => {
            format!("its elements are words ({dtype}), and samples are numbers; make numbers of them and save these")
        }
        ArrayRole::Features | ArrayRole::Label | ArrayRole::Weight if dtype == "records" => {
            "its elements are records of several types; save each of these as its own array".into()
        }
        ArrayRole::Features | ArrayRole::Label | ArrayRole::Weight => {
            let usual = if array.role == ArrayRole::Label { "int64" } else { "float32" };
            format!(
                "elements of type {dtype} are not read; float16 to float64, int8 to int64, uint8 to uint64 and bool are: save \
                 {name}.astype(\"{usual}\") instead"
            )
        }
    }
}

/// Why masks cannot be read, with the choices that a run file has.
pub(super) fn mask_problem(problem: &MaskProblem) -> String {
    match problem {
        MaskProblem::Values { values } => values_problem(values),
        MaskProblem::Void { values, colours } => void_problem(values, colours),
        MaskProblem::Mixed { masks: [first, other] } => format!(
            "the masks are of several kinds: {}, but {}; save them alike, or say data.masks = \"classes\", \"binary\", \
             \"grey\" or \"colours\"",
            file_words(first),
            file_words(other)
        ),
        MaskProblem::Coloured { colours, count } => coloured_problem(colours, *count),
        MaskProblem::Palettes { mask, index, colours: [before, there] } => format!(
            "the palettes differ: index {index} is {} in the first masks and {} in {}; save them with one palette, or say \
             data.masks = \"colours\" with data.colours",
            colour_name(*before),
            colour_name(*there),
            mask.display()
        ),
        MaskProblem::Format { mask } => format_problem(mask),
        MaskProblem::UnknownColour { colour } => {
            format!("the colour {} is not in data.colours; give it a class there", colour_name(*colour))
        }
        MaskProblem::TooManyClasses { found, said } => format!(
            "the masks have {}, but the model is to have {said}; leave out model.classes, or mend the masks",
            count(*found, "class")
        ),
    }
}

/// Of values that may be one thing or another.
fn values_problem(values: &[u8]) -> String {
    // With 255 they would be taken for classes and pixels to be ignored.
    let classes = if values.contains(&255) { "" } else { "\"classes\" (each is the number of a class), " };
    format!(
        "cannot tell what the values of these masks mean: {}; say data.masks = {classes}\"binary\" (background and \
         foreground) or \"grey\" (0 to 255 is a share of foreground){}",
        values_words(values),
        levels_as_classes(values)
    )
}

/// Of numbers of classes beside 255.
fn void_problem(values: &[u8], colours: &[Colour]) -> String {
    let listed = values_words(values);
    if values.len() == 2 {
        return format!(
            "the masks have the values {listed} and nothing else, which are background and foreground rather than numbers of \
             classes; say data.masks = \"binary\" or \"grey\""
        );
    }
    // As it can be typed: what is to be ignored joins the first class.
    let first = values.first().copied().unwrap_or(0);
    let entry = |(value, colour): (&u8, &Colour)| {
        let class = if *value == 255 { first } else { *value };
        format!("\"{class} {}\"", colour_name(*colour))
    };
    let table: Vec<String> = values.iter().zip(colours).map(entry).collect();
    format!(
        "the masks have the values {listed}: 255 beside such small numbers mostly means \"ignore\", which training \
         cannot; give its pixels a class by data.masks = \"colours\" and data.colours = [{}], which makes them \
         {first}; or say data.masks = \"binary\" or \"grey\"",
        table.join(", ")
    )
}

/// Of so many colours, of which these are some.
fn coloured_problem(colours: &[Colour], count: usize) -> String {
    if count > colours.len() {
        return format!(
            "the masks have {count} colours, such as {}, too many to be classes: are they masks? If so, say data.masks = \
             \"colours\" with all of them in data.colours, or \"binary\" or \"grey\", for which only brightness counts",
            colours.first().copied().map_or_else(String::new, colour_name)
        );
    }
    let names: Vec<String> = colours.iter().map(|c| format!("\"{}\"", colour_name(*c))).collect();
    let are_grey = colours.iter().all(|[r, g, b]| r == g && g == b);
    let (what, or) = match (are_grey, colours.contains(&[255; 3])) {
        // With 255 they would be no numbers of classes.
        (true, true) => ("grey", "; or say data.masks = \"binary\" or \"grey\""),
        (true, false) => ("grey", "; or say data.masks = \"classes\", \"binary\" or \"grey\""),
        (false, _) => ("coloured", ""),
    };
    format!(
        "the masks are {what}; say which colour is which class: data.masks = \"colours\" with data.colours = \
         [{}]; a name may stand before each colour{or}",
        names.join(", ")
    )
}

/// Of a mask that is not what masks are said to be.
fn format_problem(mask: &(MaskFormat, PathBuf)) -> String {
    let cure = match mask.0 {
        MaskFormat::Jpeg => "save it as PNG, or say data.masks = \"binary\" or \"grey\"",
        MaskFormat::Colour => "say data.masks = \"colours\" with data.colours",
        MaskFormat::Grey | MaskFormat::Palette => "say data.masks = \"classes\", \"binary\" or \"grey\"",
    };
    let lacks = if mask.0 == MaskFormat::Grey { "palette" } else { "numbers of classes" };
    format!("{} and has no {lacks}; {cure}", file_words(mask))
}

/// The first of them, and the last.
fn values_words(values: &[u8]) -> String {
    let some: Vec<String> = values.iter().take(8).map(u8::to_string).collect();
    match values {
        [.., last] if values.len() > 8 => format!("{}, … {last}", some.join(", ")),
        _ => some.join(", "),
    }
}

fn file_words((format, path): &(MaskFormat, PathBuf)) -> String {
    format!("{} {}", path.display(), format_words(*format))
}

/// A few values of which each may stand for a class, as it can be typed.
fn levels_as_classes(values: &[u8]) -> String {
    if values.len() > 8 {
        return String::new();
    }
    let table: Vec<String> = values.iter().map(|value| format!("\"{}\"", colour_name([*value; 3]))).collect();
    format!(", or \"colours\" with data.colours = [{}] (each value stands for a class of its own)", table.join(", "))
}

fn format_words(format: MaskFormat) -> &'static str {
    match format {
        MaskFormat::Grey => "is grey",
        MaskFormat::Palette => "has a palette",
        MaskFormat::Colour => "is coloured",
        MaskFormat::Jpeg => "is a JPEG",
    }
}
