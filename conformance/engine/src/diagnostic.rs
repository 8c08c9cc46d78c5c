//! What is wrong with a file, and where.

use std::fmt;

/// A place in a file. Lines and columns count from 1, columns in characters.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Position {
    pub line: usize,
    pub column: usize,
    /// How many characters of the line are meant.
    pub width: usize,
}

/// What is wrong with a file, with the place and the line of the file.
///
/// Displays as `file:line:column: message`, then the line with the place marked below it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Diagnostic {
    /// The file as it was given.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong, with the nearest right word where there is one.
    pub message: String,
    width: usize,
    source_line: String,
}

/// Lines are shown up to this many characters: a hostile file may be a single line.
const SHOWN: usize = 160;
/// Messages, which quote what was written, end here.
const SAID: usize = 600;

impl Diagnostic {
    pub(crate) fn new(file: &str, text: &str, at: Position, message: impl Into<String>) -> Self {
        let source_line = text.lines().nth(at.line.saturating_sub(1)).unwrap_or_default();
        Self {
            file: file.to_owned(),
            line: at.line.max(1),
            column: at.column.max(1),
            message: message.into().chars().take(SAID).collect(),
            width: at.width.max(1),
            source_line: source_line.chars().take(SHOWN).collect(),
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, message, width, source_line } = self;
        write!(f, "{file}:{line}:{column}: {message}")?;
        let length = source_line.trim_end().chars().count();
        if length == 0 || *column > length {
            return Ok(());
        }
        let number = line.to_string();
        let gutter = " ".repeat(number.len());
        // tabs stay tabs, so that the mark stands below what it marks
        let indent: String =
            source_line.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let mark = "^".repeat((*width).min(length - column + 1));
        write!(f, "\n {gutter} |\n {number} | {}\n {gutter} | {indent}{mark}", source_line.trim_end())
    }
}

impl std::error::Error for Diagnostic {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_line_and_marks_the_place() {
        let at = Position { line: 2, column: 5, width: 5 };
        let diagnostic = Diagnostic::new("a.yaml", "steps:\n  - aplly: {}\n", at, "unknown verb");
        insta::assert_snapshot!(diagnostic, @r"
        a.yaml:2:5: unknown verb
           |
         2 |   - aplly: {}
           |     ^^^^^
        ");
    }

    #[test]
    fn a_place_outside_of_the_file_is_shown_without_a_line() {
        let at = Position { line: 9, column: 3, width: 1 };
        assert_eq!(
            Diagnostic::new("a.yaml", "x: 1", at, "ended early").to_string(),
            "a.yaml:9:3: ended early"
        );
    }

    #[test]
    fn a_huge_line_is_cut() {
        let text = "x".repeat(1_000_000);
        let at = Position { line: 1, column: 1, width: 1_000_000 };
        assert!(Diagnostic::new("a.yaml", &text, at, text.clone()).to_string().len() < 2000);
    }
}
