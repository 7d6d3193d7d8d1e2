//! A terminal that is lent for as long as a screen is shown, and its keys.

use super::screen::{Line, Tone};
use anyhow::Result;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, poll, read};
use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// A key that was typed, or a change of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The user wants to leave.
    Quit,
    /// The user wants a sample now.
    Now,
    /// The terminal has another size.
    Resized,
    /// None until the end of the wait.
    None,
}

/// The terminal. It is given back when this is dropped.
pub(super) struct Screen {
    is_coloured: bool,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn open() -> Result<Self> {
        enable_raw_mode()?;
        let screen = Self { is_coloured: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) };
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Shows the lines that are made for the terminal's size.
    pub(super) fn show(&self, lines: impl FnOnce(usize, usize) -> Vec<Line>) -> Result<()> {
        let (width, height) = size()?;
        let lines = lines(width.into(), height.into());
        let mut out = io::stdout().lock();
        draw(&mut out, &lines, self.is_coloured)?;
        Ok(out.flush()?)
    }

    /// Waits for a key that means something.
    pub(super) fn wait(&self, time: Duration) -> Result<Key> {
        let end = Instant::now() + time;
        while poll(end.saturating_duration_since(Instant::now()))? {
            match read()? {
                Event::Resize(_, _) => return Ok(Key::Resized),
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    if let Some(key) = meaning(key) {
                        return Ok(key);
                    }
                }
                _ => {}
            }
        }
        Ok(Key::None)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), ResetColor, Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

fn meaning(key: KeyEvent) -> Option<Key> {
    match key.code {
        // In raw mode Ctrl-C is a key as any.
        KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Char(' ') | KeyCode::Enter => Some(Key::Now),
        _ => None,
    }
}

/// Draws lines over what was shown before, without a moment in which nothing is.
fn draw(out: &mut impl Write, lines: &[Line], is_coloured: bool) -> io::Result<()> {
    queue!(out, BeginSynchronizedUpdate)?;
    for (row, line) in (0u16..).zip(lines) {
        queue!(out, MoveTo(0, row))?;
        if is_coloured {
            match line.tone {
                Tone::Plain => {}
                Tone::Heading => queue!(out, SetAttribute(Attribute::Bold))?,
                Tone::Trouble => queue!(out, SetAttribute(Attribute::Bold), SetForegroundColor(Color::Red))?,
                Tone::Quiet => queue!(out, SetAttribute(Attribute::Dim))?,
            }
        }
        queue!(out, Print(&line.text))?;
        if is_coloured {
            queue!(out, SetAttribute(Attribute::Reset), ResetColor)?;
        }
        queue!(out, Clear(ClearType::UntilNewLine))?;
    }
    if let Ok(row) = u16::try_from(lines.len()) {
        queue!(out, MoveTo(0, row), Clear(ClearType::FromCursorDown))?;
    }
    queue!(out, EndSynchronizedUpdate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_colour_only_where_that_is_wanted() {
        let lines = [(Tone::Heading, "DEVICE"), (Tone::Trouble, "1 missing"), (Tone::Plain, "2")];
        let lines = lines.map(|(tone, text)| Line { text: text.to_owned(), tone });
        let drawn = |is_coloured| {
            let mut out = Vec::new();
            draw(&mut out, &lines, is_coloured).expect("memory");
            String::from_utf8(out).expect("text")
        };
        let (plain, coloured) = (drawn(false), drawn(true));
        assert!(plain.contains("1 missing"), "{plain:?}");
        assert!(coloured.contains("\x1b[1m"), "{coloured:?}");
        assert!(
            !plain.contains("\x1b[1m") && !plain.contains("\x1b[38") && !plain.contains("\x1b[0m"),
            "{plain:?}"
        );
        assert!(plain.contains("\x1b[4;1H\x1b[J"), "what is below goes: {plain:?}");
    }

    #[test]
    fn keys_that_quit() {
        let key = |code, modifiers| meaning(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Some(Key::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(key(KeyCode::Char(' '), KeyModifiers::NONE), Some(Key::Now));
    }
}
