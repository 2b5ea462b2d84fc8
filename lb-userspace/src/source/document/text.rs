//! From text to values: where documents begin and end, YAML or JSON, and the line of an error.

use serde_json::Value;

/// The text between two `---` lines. YAML allows such a line inside no scalar (YAML 1.2.2, section 9.1.2), so this
/// needs no parser, and one broken document does not hide those after it.
pub(super) struct Chunk<'a> {
    text: &'a str,
    /// Lines of the file before it.
    line_offset: usize,
}

impl<'a> Chunk<'a> {
    /// Every document of a file, the empty ones too.
    pub(super) fn split(file: &'a str) -> Vec<Self> {
        let file = file.strip_prefix('\u{feff}').unwrap_or(file);
        let mut chunks = Vec::new();
        let (mut start, mut line_offset) = (0, 0);
        // A `---` ends a document only where one has begun: by a `---` of its own, or by content.
        let mut begun = false;
        let mut position = 0;
        for (number, line) in file.split_inclusive('\n').enumerate() {
            let marker = line
                .strip_prefix("---")
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
            if marker && begun {
                chunks.push(Self { text: &file[start..position], line_offset });
                (start, line_offset) = (position, number);
            }
            begun |= marker || !matches!(line.trim_start().chars().next(), None | Some('#' | '%'));
            position += line.len();
        }
        if begun {
            chunks.push(Self { text: &file[start..], line_offset });
        }
        chunks
    }

    /// The documents (several, where JSON objects follow one another), each as it is asked for; last, what is wrong with
    /// the text after them.
    pub(super) fn values(&self) -> Box<dyn Iterator<Item = Result<Value, String>> + 'a> {
        let (json, skipped) = self.without_marker();
        if json.trim_start().starts_with('{') {
            return Box::new(json_values(json, self.line_offset + skipped));
        }
        let value = serde_saphyr::from_str_with_options(self.text, self.yaml_options());
        let line_offset = self.line_offset;
        Box::new(std::iter::once(value.map_err(|error| yaml_error(&error, line_offset))))
    }

    /// Kind and name as they stand in text that cannot be parsed: for a report only.
    pub(super) fn guess_object(&self) -> Option<String> {
        let value = |line: &'a str, name: &str| {
            let value = line.trim_start().strip_prefix(name)?.strip_prefix(':')?.trim();
            Some(value.trim_matches(['"', '\''])).filter(|value| !value.is_empty())
        };
        let lines = || self.text.lines();
        let kind = lines().filter(|line| line.starts_with("kind:")).find_map(|line| value(line, "kind"))?;
        let metadata = || {
            let mut inside = lines().skip_while(|line| !line.starts_with("metadata:")).skip(1).peekable();
            let depth = inside.peek().map_or(0, |line| indent(line));
            inside
                .take_while(move |line| depth > 0 && indent(line) >= depth)
                .filter(move |line| indent(line) == depth)
        };
        let name = metadata().find_map(|line| value(line, "name"))?;
        Some(match metadata().find_map(|line| value(line, "namespace")) {
            Some(namespace) => format!("{kind} {namespace}/{name}"),
            None => format!("{kind} {name}"),
        })
    }

    /// The text after a `---` line of its own, and the number of lines left out.
    fn without_marker(&self) -> (&'a str, usize) {
        match self.text.split_once('\n') {
            Some((first, rest)) if first.trim_end() == "---" => (rest, 1),
            _ => (self.text, 0),
        }
    }

    /// A file may be as large as it likes (a cluster's slices in one list are millions of nodes), so what is bounded is
    /// what aliases make of it: no more nodes than the text has bytes, plus a little for small ones.
    fn yaml_options(&self) -> serde_saphyr::Options {
        const SMALL: usize = 250_000;
        let nodes = self.text.len() + SMALL;
        serde_saphyr::options! {
            with_snippet: false,
            budget: serde_saphyr::budget! {
                max_nodes: nodes,
                max_events: 2 * nodes,
                max_total_scalar_bytes: 2 * nodes,
            },
        }
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// What is broken ends the text: nobody knows where the next value would begin.
fn json_values(text: &str, line_offset: usize) -> impl Iterator<Item = Result<Value, String>> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    let mut is_broken = false;
    std::iter::from_fn(move || {
        if is_broken {
            return None;
        }
        let value = values.next()?;
        is_broken = value.is_err();
        Some(value.map_err(|error| {
            let (line, column) = (error.line(), error.column());
            let message = error.to_string();
            let message = message.trim_end_matches(&format!(" at line {line} column {column}"));
            format!("{message} at line {}, column {column}", line_offset + line)
        }))
    })
}

fn yaml_error(error: &serde_saphyr::Error, line_offset: usize) -> String {
    error.render_with_options(serde_saphyr::render_options! {
        formatter: &serde_saphyr::UserMessageFormatter,
        snippets: serde_saphyr::SnippetMode::Off,
        line_offset: line_offset as u64,
    })
}
