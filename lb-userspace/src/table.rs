//! Tables for people.

use comfy_table::{ContentArrangement, Table, presets};

/// Columns by spaces and nothing else, so that the lines can be cut and searched. Empty without rows.
pub fn columns<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.add_rows(rows);
    if table.is_empty() {
        return String::new();
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// The text, or a dash for none: an empty cell would shift the columns for those who cut them.
pub fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// Tables one below the other; those without rows are left out.
pub fn together(tables: &[String]) -> String {
    let shown: Vec<_> = tables.iter().filter(|table| !table.is_empty()).map(String::as_str).collect();
    shown.join("\n")
}
