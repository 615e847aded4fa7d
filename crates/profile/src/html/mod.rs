//! The report: a profile as one page that anybody can open. It holds its style, its program and its data, and fetches nothing.
//!
//! Nothing of a profile becomes markup: strings reach the page as JSON in which no `<` is left (`pack`), and its program sets
//! them as text. The program is split by what it draws (`js/`); all of its files share one scope, in the order of `SCRIPTS`.

mod pack;

use serde_json::{Value, json};

use crate::markdown::markdown;
use crate::model::Profile;

const TEMPLATE: &str = include_str!("report.html");
const STYLE: &str = include_str!("report.css");

/// What a page runs: first what others build on, last what puts a page together.
const SCRIPTS: [&str; 18] = [
    include_str!("js/format.js"),
    include_str!("js/data.js"),
    include_str!("js/track.js"),
    include_str!("js/dom.js"),
    include_str!("js/table.js"),
    include_str!("js/canvas.js"),
    include_str!("js/points.js"),
    include_str!("js/view.js"),
    include_str!("js/timeline.js"),
    include_str!("js/arena.js"),
    include_str!("js/tensors.js"),
    include_str!("js/states.js"),
    include_str!("js/peak.js"),
    include_str!("js/time.js"),
    include_str!("js/planner.js"),
    include_str!("js/run.js"),
    include_str!("js/compare.js"),
    include_str!("js/report.js"),
];

/// How a report is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HtmlOptions {
    /// Of the page; none for the name of the model and its batch.
    pub title: Option<String>,
    /// Light or dark.
    pub theme: Theme,
}

/// The colours of a page when it is opened; its reader can change them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// As the reader's system.
    #[default]
    System,
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

/// A table of differences between two profiles, as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DifferenceTable {
    /// What it is about.
    pub title: String,
    /// Of every column.
    pub columns: Vec<String>,
    /// Each as long as `columns`.
    pub rows: Vec<Vec<String>>,
}

/// The text of `report.html`.
pub fn html(profile: &Profile, options: &HtmlOptions) -> String {
    let summary = markdown(profile);
    let data = json!({ "profile": packed(profile), "markdown": summary });
    page(&title(profile, options), &summary, &data, options)
}

/// Two profiles on one page: the memory of `a` filled and that of `b` as a line over it, then the tables of what differs.
pub fn compare_html(
    a: &Profile,
    b: &Profile,
    summary: &str,
    tables: &[DifferenceTable],
    options: &HtmlOptions,
) -> String {
    let table = |t: &DifferenceTable| json!({ "title": t.title, "columns": t.columns, "rows": t.rows });
    let tables: Vec<Value> = tables.iter().map(table).collect();
    let data = json!({ "profile": packed(a), "other": packed(b), "markdown": summary, "tables": tables });
    let title = match &options.title {
        Some(title) => title.clone(),
        None => format!("{} against {}", name(a), name(b)),
    };
    page(&title, summary, &data, options)
}

fn title(profile: &Profile, options: &HtmlOptions) -> String {
    options.title.clone().unwrap_or_else(|| name(profile))
}

fn name(profile: &Profile) -> String {
    let model = if profile.run.model.is_empty() { "model" } else { &profile.run.model };
    format!("{model}, batch {}", profile.run.batch)
}

fn packed(profile: &Profile) -> Value {
    // A struct of strings and numbers is always JSON.
    let mut value = serde_json::to_value(profile).unwrap_or_default();
    // Nothing is drawn of the slices, which may be more than all the rest.
    if let Some(slices) = value.pointer_mut("/measured/slices") {
        *slices = json!([]);
    }
    pack::pack(value)
}

fn page(title: &str, summary: &str, data: &Value, options: &HtmlOptions) -> String {
    let theme = match options.theme {
        Theme::System => "",
        Theme::Light => "light",
        Theme::Dark => "dark",
    };
    let (title, summary, data) = (escaped(title), escaped(summary), pack::script_safe(&data.to_string()));
    let parts = [
        ("title", title.as_str()),
        ("theme", theme),
        ("style", STYLE),
        ("summary", &summary),
        ("data", &data),
        ("script", &SCRIPTS.concat()),
    ];
    filled(TEMPLATE, &parts)
}

/// A template with its `{{name}}`s replaced. What is put in is not looked at again, whatever it holds.
fn filled(template: &str, parts: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(template.len() + parts.iter().map(|(_, part)| part.len()).sum::<usize>());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        text.push_str(before);
        let Some((name, behind)) = after.split_once("}}") else { break };
        if let Some((_, part)) = parts.iter().find(|(known, _)| *known == name) {
            text.push_str(part);
        }
        rest = behind;
    }
    text + rest
}

/// Text as HTML shows it.
fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            _ => html.push(c),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_into_a_template_is_not_a_template() {
        assert_eq!(filled("<{{a}}|{{b}}>", &[("a", "{{b}}"), ("b", "2")]), "<{{b}}|2>");
        assert_eq!(filled("{{unknown}}x", &[]), "x");
    }

    #[test]
    fn scripts_do_not_end_their_element_and_take_no_markup() {
        for script in SCRIPTS {
            assert!(!script.contains("</script"), "{}", script.lines().next().unwrap_or_default());
            for way_in in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
                assert!(!script.contains(way_in), "{way_in}");
            }
        }
    }
}
