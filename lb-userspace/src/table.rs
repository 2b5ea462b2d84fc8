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
    table.add_rows(rows.map(|row| row.map(|cell| printable(&cell))));
    if table.is_empty() {
        return String::new();
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// The text without what a terminal obeys: names in objects are not all checked, and one with a line end would forge a row.
pub fn printable(text: &str) -> String {
    let escape = |character: char| {
        let escaped = character.is_control().then(|| character.escape_default().to_string());
        escaped.unwrap_or_else(|| character.to_string())
    };
    text.chars().map(escape).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_reaches_the_terminal_or_forges_a_row() {
        let rows = [["x\nd/evil".to_owned(), "\u{1b}[31mred".to_owned()], ["ü".to_owned(), "y".to_owned()]];
        let text = columns(["A", "B"], rows.into_iter());
        assert_eq!(text, "A          B\nx\\nd/evil  \\u{1b}[31mred\nü          y\n");
    }
}
